//! Tuning rules: choices, measured or made by hand, that override the cost model.
//!
//! A tuning is a TOML file of rules. A rule names the role of a launch. It can be restricted to one target, to GPUs with
//! one number of multiprocessors, and to one matrix shape (named as in `bespoke inspect MODEL --stage plan`). If several
//! rules apply, later rules override earlier ones knob by knob. The cost model chooses the remaining knobs, consistent with
//! the rules.
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
//! multiprocessors = 132
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
//! A rule changes how work is divided, not what is computed: the layout of the weights stays the same, and so do the bits
//! of the results of a matrix product.

use std::fmt;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use super::{Gpu, Launch, LaunchRole, Plan};
use crate::kernels::gemv::GemvShape;
use crate::kernels::launching::Trigger;
use crate::spec::{KernelSpec, matrix_name};

/// Knobs for the launches of a role. Absent knobs are left to earlier rules, and then to the cost model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The only target that the rule applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The only number of multiprocessors that the rule applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
    /// The role that the rule applies to.
    pub role: LaunchRole,
    /// The only matrix shape that the rule applies to: a [`matrix_name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Number of CTAs of a matrix product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<u32>,
    /// Consumer warps per CTA, besides one producer warp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warps: Option<u32>,
    /// Number of groups of consumer warps, which take the ring's stages in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Number of stages of the ring in shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<u32>,
    /// Maximum number of stages whose copies are in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Number of CTAs per multiprocessor for which registers and shared memory must suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<u32>,
    /// When the next launch may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Maximum number of splits of the context in attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<u32>,
    /// Minimum number of pages per split in attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_pages: Option<u32>,
}

/// Limits of stages, CTAs and pages: far above useful values, and far below overflow.
const MAX_STAGES: u32 = 64;
const MAX_CTAS: u32 = 1 << 16;
const MAX_PAGES: u32 = 1 << 18;
/// Limit of splits of attention.
const MAX_SPLITS: u32 = 64;
/// Maximum threads of a CTA, on every target.
const MAX_THREADS: u32 = 1024;

impl Rule {
    /// A rule without knobs.
    pub fn empty(role: LaunchRole) -> Rule {
        Rule {
            target: None,
            multiprocessors: None,
            role,
            shape: None,
            grid: None,
            warps: None,
            groups: None,
            stages: None,
            in_flight: None,
            resident: None,
            trigger: None,
            splits: None,
            min_pages: None,
        }
    }

    /// The knobs that the rule sets, with their values as in a file.
    pub fn knobs(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("grid", self.grid),
            ("warps", self.warps),
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

    fn applies(&self, gpu: &Gpu, role: LaunchRole, shape: Option<&str>) -> bool {
        self.role == role && self.is_for(gpu) && self.shape.as_deref().is_none_or(|only| Some(only) == shape)
    }

    fn is_for(&self, gpu: &Gpu) -> bool {
        self.target.is_none_or(|only| only == gpu.target)
            && self.multiprocessors.is_none_or(|only| only == gpu.multiprocessors)
    }

    /// Overrides knobs with those that `later` sets.
    fn override_with(&mut self, later: &Rule) {
        self.grid = later.grid.or(self.grid);
        self.warps = later.warps.or(self.warps);
        self.groups = later.groups.or(self.groups);
        self.stages = later.stages.or(self.stages);
        self.in_flight = later.in_flight.or(self.in_flight);
        self.resident = later.resident.or(self.resident);
        self.trigger = later.trigger.or(self.trigger);
        self.splits = later.splits.or(self.splits);
        self.min_pages = later.min_pages.or(self.min_pages);
    }

    /// Checks the rule against the limits of every model and target.
    fn check(&self) -> Result<(), TuningError> {
        if !self.role.is_tunable() {
            return Err(TuningError::Role(self.role));
        }
        let (own, kind): (&[&str], _) = match self.role {
            LaunchRole::Attention => (&["splits", "min_pages", "stages"], "attention"),
            _ => (
                &["grid", "warps", "groups", "stages", "in_flight", "resident", "trigger"],
                "a matrix product",
            ),
        };
        if let Some((knob, value)) = self.knobs().into_iter().find(|(knob, _)| !own.contains(knob)) {
            return Err(self.reject(knob, value, format!("the knobs of {kind} are {}", own.join(", "))));
        }
        // The producer warp is one more.
        for (knob, value, max) in [
            ("grid", self.grid, MAX_CTAS),
            ("warps", self.warps, MAX_THREADS / 32 - 1),
            ("groups", self.groups, MAX_THREADS / 32 - 1),
            ("stages", self.stages, MAX_STAGES),
            ("in_flight", self.in_flight, MAX_STAGES),
            ("resident", self.resident, 32),
            ("splits", self.splits, MAX_SPLITS),
            ("min_pages", self.min_pages, MAX_PAGES),
        ] {
            if let Some(value) = value.filter(|value| !(1..=max).contains(value)) {
                return Err(self.reject(knob, value, format!("must be 1 to {max}")));
            }
        }
        Ok(())
    }

    fn reject(&self, knob: &'static str, value: impl fmt::Display, limit: String) -> TuningError {
        let mut place = self.role.to_string();
        if let Some(shape) = &self.shape {
            place += &format!(" ({shape})");
        }
        if let Some(target) = self.target {
            place += &format!(" on {target}");
        }
        if let Some(multiprocessors) = self.multiprocessors {
            place += &format!(" with {multiprocessors} multiprocessors");
        }
        TuningError::Knob { place, knob, value: value.to_string(), limit }
    }

    /// Rejects the rule with the message `limit`. The error names the first entry of `knobs` that the rule sets; if the
    /// rule sets none of them, the first knob that it does set. A rule that sets no knob is accepted.
    fn reject_first(&self, knobs: &[&'static str], limit: String) -> Result<(), TuningError> {
        let set = self.knobs();
        match knobs.iter().find_map(|knob| set.iter().find(|(name, _)| name == knob)).or(set.first()) {
            Some((knob, value)) => Err(self.reject(knob, value, limit)),
            None => Ok(()),
        }
    }

    /// Checks a GEMV divided by this rule. `shared` is the shared memory of a CTA, in bytes.
    fn check_gemv(&self, gpu: &Gpu, s: &GemvShape, shared: u32) -> Result<(), TuningError> {
        let schedule = &s.schedule;
        let tiles = s.shared_tiles();
        if schedule.grid > tiles {
            self.reject_first(&["grid"], format!("there are {tiles} tiles of 16 rows"))?;
        }
        // The greedy choice has a thread for each CTA's candidate.
        if self.role == LaunchRole::Output && schedule.grid > MAX_THREADS {
            self.reject_first(&["grid"], format!("the head has at most {MAX_THREADS} CTAs"))?;
        }
        for (what, count) in [("warps", schedule.warps), ("stages", schedule.stages)] {
            if !count.is_multiple_of(schedule.groups) {
                self.reject_first(
                    &["groups", what],
                    format!("groups must divide the number of {what}, which is {count}"),
                )?;
            }
        }
        if schedule.in_flight > schedule.stages {
            let limit = format!("the ring has {} stages", schedule.stages);
            self.reject_first(&["in_flight"], limit)?;
        }

        let max = gpu.shared_per_cta;
        if shared > max {
            let limit = format!("a CTA needs {shared} bytes of shared memory; the limit is {max}");
            let larger = ["stages", "in_flight", "groups", "warps", "resident", "grid"];
            self.reject_first(&larger, limit)?;
        }
        let (fit, resident) = (gpu.resident(s.threads(), shared), schedule.resident);
        if resident > fit {
            let limit = format!(
                "a multiprocessor has room for {fit} CTAs of {} threads and {shared} bytes",
                s.threads()
            );
            self.reject_first(&["resident"], limit)?;
        }
        // `.minnctapersm` promises registers for `resident` CTAs.
        let threads = resident * s.threads();
        let max = gpu.threads_per_multiprocessor;
        if threads > max {
            let limit = format!("{resident} CTAs of {} threads exceed a multiprocessor's {max}", s.threads());
            self.reject_first(&["warps"], limit)?;
        }
        match self.trigger {
            Some(trigger) => self.check_trigger(gpu, trigger),
            None => Ok(()),
        }
    }

    fn check_trigger(&self, gpu: &Gpu, trigger: Trigger) -> Result<(), TuningError> {
        let limit = match trigger {
            Trigger::AtStart | Trigger::AfterWait | Trigger::AfterLoads if !gpu.is_programmatic() => {
                "the target has no programmatic dependent launch; only never is possible"
            }
            Trigger::AtStart if self.role == LaunchRole::AttnQkv => {
                "attention reads the position before it waits; only after_wait, after_loads and never are possible"
            }
            _ => return Ok(()),
        };
        Err(self.reject("trigger", trigger_name(trigger), limit.to_owned()))
    }

    /// Checks attention divided by this rule. `shared` is the shared memory of a CTA, in bytes.
    fn check_attention(&self, gpu: &Gpu, shared: u32) -> Result<(), TuningError> {
        let max = gpu.shared_per_cta;
        if shared <= max {
            return Ok(());
        }
        let limit = format!("a CTA needs {shared} bytes of shared memory; the limit is {max}");
        self.reject_first(&["stages"], limit)
    }
}

/// Name of a trigger in tuning files.
pub fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Never => "never",
        Trigger::AtStart => "at_start",
        Trigger::AfterWait => "after_wait",
        Trigger::AfterLoads => "after_loads",
    }
}

/// Rules that override the cost model; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Version of the format: [`Tuning::VERSION`].
    pub version: u32,
    /// The rules; later ones override earlier ones.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

impl Default for Tuning {
    /// No rules: the cost model makes every choice.
    fn default() -> Tuning {
        Tuning { version: Tuning::VERSION, rules: Vec::new() }
    }
}

/// Error of reading, checking or applying a tuning.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The text is malformed.
    #[error("{0}")]
    Toml(String),
    /// The file has another version of the format.
    #[error("version {0}; this program reads version {version}", version = Tuning::VERSION)]
    Version(u32),
    /// A rule has a role without knobs.
    #[error("{0} cannot be tuned; {names} can", names = tunable_names())]
    Role(LaunchRole),
    /// The value of a knob is impossible.
    #[error("{place}: {knob} = {value}: {limit}")]
    Knob {
        /// Role, shape and target of the rule.
        place: String,
        /// Name of the knob.
        knob: &'static str,
        /// Value of the knob.
        value: String,
        /// The limit that the value violates.
        limit: String,
    },
}

fn tunable_names() -> String {
    LaunchRole::TUNABLE.map(LaunchRole::name).join(", ")
}

impl From<toml::de::Error> for TuningError {
    fn from(error: toml::de::Error) -> TuningError {
        TuningError::Toml(error.to_string().trim_end().to_owned())
    }
}

impl Tuning {
    /// Version of the format that this library reads and writes.
    pub const VERSION: u32 = 1;

    /// Parses the text of a file, and checks the rules against the limits of every model and target.
    pub fn parse(text: &str) -> Result<Tuning, TuningError> {
        // A later version may have unknown fields, so the version is read first.
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

    /// Checks the rules against the limits of every model and target.
    pub(super) fn check_rules(&self) -> Result<(), TuningError> {
        self.rules.iter().try_for_each(Rule::check)
    }

    /// Text of a tuning file: each line of `comment` as a TOML comment, then the rules.
    pub fn to_toml(&self, comment: &str) -> String {
        let comment: String =
            comment.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
        let rules = toml::to_string(self).expect("rules consist of numbers and strings");
        format!("{comment}{rules}")
    }

    /// Combines all rules that apply to a role on a GPU; `shape` is the [`matrix_name`] of a matrix product.
    pub fn rule(&self, gpu: &Gpu, role: LaunchRole, shape: Option<&str>) -> Rule {
        let mut combined = Rule {
            target: Some(gpu.target),
            multiprocessors: Some(gpu.multiprocessors),
            shape: shape.map(str::to_owned),
            ..Rule::empty(role)
        };
        for rule in self.rules.iter().filter(|rule| rule.applies(gpu, role, shape)) {
            combined.override_with(rule);
        }
        combined
    }

    /// The combined rule for a launch of a plan.
    pub fn rule_of(&self, plan: &Plan, launch: &Launch) -> Rule {
        let shape = match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => Some(matrix_name(shape)),
            _ => None,
        };
        self.rule(&plan.gpu, launch.label.role, shape.as_deref())
    }

    /// Whether a rule can apply to `gpu`.
    pub fn is_for(&self, gpu: &Gpu) -> bool {
        self.rules.iter().any(|rule| rule.is_for(gpu))
    }

    /// Checks a plan built by this tuning against the limits of its GPU.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), TuningError> {
        let gpu = &plan.gpu;
        for launch in &plan.launches {
            let rule = self.rule_of(plan, launch);
            let spec = &plan.kernels[launch.kernel].spec;
            let shared = launch.dynamic_shared + spec.static_shared();
            match spec {
                KernelSpec::Gemv(shape) => rule.check_gemv(gpu, shape, shared)?,
                KernelSpec::Attention(_) => rule.check_attention(gpu, shared)?,
                _ => {}
            }
        }
        Ok(())
    }
}
