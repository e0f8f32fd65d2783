//! What is chosen by measuring, or by hand, in place of the cost model.
//!
//! A tuning is a TOML file of rules. A rule names a role, that is a kind of launch, and may be for one target or one
//! matrix shape alone (as `bespoke inspect MODEL --stage plan` names it). Where several rules apply the later one wins,
//! knob by knob; what no rule says comes from the cost model, which makes it fit what the rules say.
//!
//! ```toml
//! version = 1
//!
//! [[rule]]
//! role = "ffn_down"
//! warps = 12
//!
//! [[rule]]
//! target = "sm_90"
//! role = "ffn_down"
//! shape = "q6kr4096_c14336"
//! stages = 6
//! trigger = "after_wait"
//!
//! [[rule]]
//! role = "attention"
//! splits = 8
//! ```
//!
//! A rule changes how work is divided, never what is computed: weights lie in memory as without it, and results differ
//! by the rounding of sums taken in another order alone.

use std::fmt;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use super::cost::Machine;
use super::{Launch, Plan};
use crate::kernels::gemv::GemvShape;
use crate::kernels::launching::Trigger;
use crate::spec::{KernelSpec, matrix_name};

/// A kind of launch whose division of work can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Projections to queries, keys and values.
    AttnQkv,
    /// Attention itself.
    Attention,
    /// The projection after attention.
    AttnOutput,
    /// The first two products of the feed-forward network.
    FfnGateUp,
    /// Its third.
    FfnDown,
    /// The head.
    Output,
}

impl Role {
    /// All, in the order of a step.
    pub const ALL: [Role; 6] =
        [Role::AttnQkv, Role::Attention, Role::AttnOutput, Role::FfnGateUp, Role::FfnDown, Role::Output];

    /// The role of a launch by its label, as `ffn_down` of `blk.3.ffn_down`.
    pub fn of(label: &str) -> Option<Role> {
        let name = label.rsplit('.').next()?;
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    /// As files and labels name it.
    pub fn name(self) -> &'static str {
        match self {
            Role::AttnQkv => "attn_qkv",
            Role::Attention => "attention",
            Role::AttnOutput => "attn_output",
            Role::FfnGateUp => "ffn_gate_up",
            Role::FfnDown => "ffn_down",
            Role::Output => "output",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Choices for a role. Those that are absent are left to earlier rules, and then to the cost model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The only target that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What it is for.
    pub role: Role,
    /// The only matrix that it is for: [`matrix_name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// CTAs of a matrix product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<u32>,
    /// Warps that multiply; one more loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warps: Option<u32>,
    /// Consecutive blocks that a warp multiplies at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Groups of warps, which take stages in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Stages of the ring in shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<u32>,
    /// Stages that are loaded at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// CTAs that a multiprocessor should have room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<u32>,
    /// When the next launch may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Most runs that attention splits the context into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<u32>,
    /// Fewest pages a run of attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_pages: Option<u32>,
}

/// Most stages, CTAs and pages that a rule may ask for: far above what is of use, far below overflow.
const MOST_STAGES: u32 = 64;
const MOST_CTAS: u32 = 1 << 16;
const MOST_PAGES: u32 = 1 << 18;
/// Most blocks of a warp at a time: registers set an end to it.
const MOST_DEPTH: u32 = 8;
/// Most runs of attention, which one warp joins.
const MOST_SPLITS: u32 = 64;
/// Threads of a CTA, on every target.
const MOST_THREADS: u32 = 1024;

impl Rule {
    /// Chooses nothing.
    pub fn of(role: Role) -> Rule {
        Rule {
            target: None,
            role,
            shape: None,
            grid: None,
            warps: None,
            depth: None,
            groups: None,
            stages: None,
            in_flight: None,
            resident: None,
            trigger: None,
            splits: None,
            min_pages: None,
        }
    }

    /// The knobs that it sets, with their values as files have them.
    pub fn knobs(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("grid", self.grid),
            ("warps", self.warps),
            ("depth", self.depth),
            ("groups", self.groups),
            ("stages", self.stages),
            ("in_flight", self.in_flight),
            ("resident", self.resident),
            ("splits", self.splits),
            ("min_pages", self.min_pages),
        ];
        let numbers = numbers.into_iter().filter_map(|(knob, value)| Some((knob, value?.to_string())));
        numbers.chain(self.trigger.map(|trigger| ("trigger", trigger_name(trigger).to_owned()))).collect()
    }

    fn applies(&self, target: Target, role: Role, shape: Option<&str>) -> bool {
        self.role == role
            && self.target.is_none_or(|only| only == target)
            && self.shape.as_deref().is_none_or(|only| Some(only) == shape)
    }

    /// Takes what `later` sets.
    fn take(&mut self, later: &Rule) {
        self.grid = later.grid.or(self.grid);
        self.warps = later.warps.or(self.warps);
        self.depth = later.depth.or(self.depth);
        self.groups = later.groups.or(self.groups);
        self.stages = later.stages.or(self.stages);
        self.in_flight = later.in_flight.or(self.in_flight);
        self.resident = later.resident.or(self.resident);
        self.trigger = later.trigger.or(self.trigger);
        self.splits = later.splits.or(self.splits);
        self.min_pages = later.min_pages.or(self.min_pages);
    }

    /// Checks what holds for every model and target.
    fn check(&self) -> Result<(), TuningError> {
        let (own, others): (&[&str], _) = match self.role {
            Role::Attention => (&["splits", "min_pages", "stages"], "attention"),
            _ => (
                &["grid", "warps", "depth", "groups", "stages", "in_flight", "resident", "trigger"],
                "a matrix product",
            ),
        };
        if let Some((knob, value)) = self.knobs().into_iter().find(|(knob, _)| !own.contains(knob)) {
            return Err(self.refuse(knob, value, format!("{others} has {}", own.join(", "))));
        }
        // One more warp loads.
        for (knob, value, most) in [
            ("grid", self.grid, MOST_CTAS),
            ("warps", self.warps, MOST_THREADS / 32 - 1),
            ("depth", self.depth, MOST_DEPTH),
            ("groups", self.groups, MOST_THREADS / 32 - 1),
            ("stages", self.stages, MOST_STAGES),
            ("in_flight", self.in_flight, MOST_STAGES),
            ("resident", self.resident, 32),
            ("splits", self.splits, MOST_SPLITS),
            ("min_pages", self.min_pages, MOST_PAGES),
        ] {
            if let Some(value) = value.filter(|value| !(1..=most).contains(value)) {
                return Err(self.refuse(knob, value, format!("1 to {most} are possible")));
            }
        }
        Ok(())
    }

    fn refuse(&self, knob: &'static str, value: impl fmt::Display, limit: String) -> TuningError {
        let mut place = self.role.to_string();
        if let Some(shape) = &self.shape {
            place += &format!(" ({shape})");
        }
        if let Some(target) = self.target {
            place += &format!(" on {target}");
        }
        TuningError::Knob { place, knob, value: value.to_string(), limit }
    }

    /// Refuses the first of `knobs` that is set, or else the first one of all.
    fn refuse_first(&self, knobs: &[&'static str], limit: String) -> Result<(), TuningError> {
        let set = self.knobs();
        match knobs.iter().find_map(|knob| set.iter().find(|(name, _)| name == knob)).or(set.first()) {
            Some((knob, value)) => Err(self.refuse(knob, value, limit)),
            None => Ok(()),
        }
    }

    /// Checks a matrix product that came of this rule, with all shared memory of a CTA in bytes.
    fn check_gemv(&self, machine: &Machine, s: &GemvShape, shared: u32) -> Result<(), TuningError> {
        let schedule = &s.schedule;
        let tiles = s.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
        if schedule.grid > tiles {
            self.refuse_first(&["grid"], format!("there are {tiles} tiles of 16 rows"))?;
        }
        // One thread a candidate joins them.
        if self.role == Role::Output && schedule.grid > MOST_THREADS {
            self.refuse_first(&["grid"], format!("the head has at most {MOST_THREADS} CTAs"))?;
        }
        if let Some(layout) = s.layouts().iter().find(|layout| !layout.blocks.is_multiple_of(schedule.depth))
        {
            self.refuse_first(&["depth"], format!("a tile has {} blocks", layout.blocks))?;
        }
        for (what, count) in [("warps", schedule.warps), ("stages", schedule.stages)] {
            if !count.is_multiple_of(schedule.groups) {
                self.refuse_first(&["groups", what], format!("groups divide the {what}, here {count}"))?;
            }
        }
        if schedule.in_flight > schedule.stages {
            let limit = format!("the ring has {} stages", schedule.stages);
            self.refuse_first(&["in_flight"], limit)?;
        }

        let most = machine.shared_per_cta;
        if shared > most {
            let limit = format!("{shared} bytes of shared memory a CTA, which has {most}");
            let larger = ["stages", "in_flight", "depth", "groups", "warps", "resident", "grid"];
            self.refuse_first(&larger, limit)?;
        }
        let (fit, resident) = (machine.resident(s.threads(), shared), schedule.resident);
        if resident > fit {
            let limit =
                format!("{fit} CTAs of {} threads and {shared} bytes fit a multiprocessor", s.threads());
            self.refuse_first(&["resident"], limit)?;
        }
        // The registers of so many CTAs are promised to the assembler.
        let threads = resident * s.threads();
        if threads > machine.threads_per_multiprocessor {
            let most = machine.threads_per_multiprocessor;
            let limit = format!("{resident} CTAs of {} threads; a multiprocessor has {most}", s.threads());
            self.refuse_first(&["warps"], limit)?;
        }
        match self.trigger {
            Some(trigger) => self.check_trigger(machine, trigger),
            None => Ok(()),
        }
    }

    fn check_trigger(&self, machine: &Machine, trigger: Trigger) -> Result<(), TuningError> {
        let limit = match trigger {
            Trigger::AtStart | Trigger::AfterWait if !machine.programmatic => {
                "launches of this target start when the one before is over"
            }
            Trigger::AtStart if self.role == Role::AttnQkv => {
                "attention reads the position before it waits; after_wait and never are possible"
            }
            _ => return Ok(()),
        };
        Err(self.refuse("trigger", trigger_name(trigger), limit.to_owned()))
    }

    /// Checks attention that came of this rule, by its shared memory in bytes.
    fn check_attention(&self, machine: &Machine, shared: u32) -> Result<(), TuningError> {
        let most = machine.shared_per_cta;
        if shared <= most {
            return Ok(());
        }
        self.refuse_first(&["stages"], format!("{shared} bytes of shared memory a CTA, which has {most}"))
    }
}

/// As files name it.
pub fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Never => "never",
        Trigger::AtStart => "at_start",
        Trigger::AfterWait => "after_wait",
    }
}

/// Rules in place of the cost model; see the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The format's version: [`Tuning::VERSION`].
    pub version: u32,
    /// Of several that apply, the later wins.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

impl Default for Tuning {
    /// No rules: everything comes from the cost model.
    fn default() -> Tuning {
        Tuning { version: Tuning::VERSION, rules: Vec::new() }
    }
}

/// Why a tuning cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The text is no tuning.
    #[error("{0}")]
    Toml(String),
    /// A format of another time.
    #[error("version {0}; this program reads version {version}", version = Tuning::VERSION)]
    Version(u32),
    /// A value that cannot be.
    #[error("{place}: {knob} = {value}: {limit}")]
    Knob {
        /// Role, and where it matters shape and target.
        place: String,
        /// The knob.
        knob: &'static str,
        /// Its value.
        value: String,
        /// What is possible.
        limit: String,
    },
}

impl From<toml::de::Error> for TuningError {
    fn from(error: toml::de::Error) -> TuningError {
        TuningError::Toml(error.to_string().trim_end().to_owned())
    }
}

impl Tuning {
    /// The version of the format that is read and written.
    pub const VERSION: u32 = 1;

    /// Reads a file's text and checks what holds for every model.
    pub fn parse(text: &str) -> Result<Tuning, TuningError> {
        // A later version may have other fields: its number first.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = toml::from_str(text)?;
        if version != Tuning::VERSION {
            return Err(TuningError::Version(version));
        }
        let tuning: Tuning = toml::from_str(text)?;
        tuning.check_rules()?;
        Ok(tuning)
    }

    /// Checks what holds for every model.
    pub(super) fn check_rules(&self) -> Result<(), TuningError> {
        self.rules.iter().try_for_each(Rule::check)
    }

    /// The text of a file, with `comment` ahead, line by line.
    pub fn to_toml(&self, comment: &str) -> String {
        let comment: String =
            comment.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
        let rules = toml::to_string(self).expect("numbers and words only");
        format!("{comment}{rules}")
    }

    /// All that the rules say about a role on a target, of a matrix product with its [`matrix_name`], as one rule.
    pub fn rule(&self, target: Target, role: Role, shape: Option<&str>) -> Rule {
        let mut joined = Rule { target: Some(target), shape: shape.map(str::to_owned), ..Rule::of(role) };
        for rule in self.rules.iter().filter(|rule| rule.applies(target, role, shape)) {
            joined.take(rule);
        }
        joined
    }

    /// The rule that a launch of a plan was made by, if it has a role.
    pub fn rule_of(&self, plan: &Plan, launch: &Launch) -> Option<Rule> {
        let role = Role::of(&launch.label)?;
        let shape = match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => Some(matrix_name(shape)),
            _ => None,
        };
        Some(self.rule(plan.target, role, shape.as_deref()))
    }

    /// Whether some rule may apply on `target`.
    pub fn is_for(&self, target: Target) -> bool {
        self.rules.iter().any(|rule| rule.target.is_none_or(|only| only == target))
    }

    /// Checks a plan that was made by this tuning against what its target can do.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), TuningError> {
        let machine = Machine::of(plan.target);
        for launch in &plan.launches {
            let Some(rule) = self.rule_of(plan, launch) else { continue };
            let spec = &plan.kernels[launch.kernel].spec;
            let shared = launch.dynamic_shared + spec.static_shared();
            match spec {
                KernelSpec::Gemv(shape) => rule.check_gemv(&machine, shape, shared)?,
                KernelSpec::Attention(_) => rule.check_attention(&machine, shared)?,
                _ => {}
            }
        }
        Ok(())
    }
}
