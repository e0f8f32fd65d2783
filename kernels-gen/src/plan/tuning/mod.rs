//! Tuning rules: choices, measured or made by hand, that override the cost model.
//!
//! A tuning is a TOML file of rules. A rule names the role of a launch. It can be restricted to one target, to GPUs with
//! one number of multiprocessors, to steps with one number of rows, to one arithmetic, and to one matrix shape (named as in
//! `bespoke inspect MODEL --stage plan`). If several rules apply, later rules override earlier ones knob by knob. The cost model
//! chooses the remaining knobs, consistent with the rules.
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
//!
//! [[rule]]
//! rows = 16
//! arithmetic = "integers"
//! role = "ffn_down"
//! slice = 512
//! ```
//!
//! A rule changes how work is divided, not what is computed: the layout of the weights stays the same, and so do the bits
//! of the results of a matrix product.

mod limits;
mod rule;

use serde::{Deserialize, Serialize};

pub use rule::{Knob, Rule, Site, trigger_name};

use super::{Gpu, Launch, LaunchRole, Plan, StepKind};
use crate::spec::{KernelSpec, matrix_name};

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
    /// A rule is for a number of rows that no step has.
    #[error("rows = {0}: decode steps have {sizes} rows", sizes = row_counts())]
    Rows(u32),
    /// A rule is for steps of one row with f16.
    #[error("rows = 1, arithmetic = \"f16\": with f16, one sequence has steps of 2 rows; use rows = 2")]
    OneRowOfF16,
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

fn row_counts() -> String {
    let sizes: Vec<String> = StepKind::Decode.sizes().iter().map(u32::to_string).collect();
    sizes.join(", ")
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

    /// The rules that may change the bits of logits: those of attention's splits.
    pub fn rules_of_bits(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.splits.is_some() || rule.min_pages.is_some())
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

    /// Combines all rules that apply to a launch.
    pub fn rule(&self, site: &Site<'_>) -> Rule {
        let Site { gpu, role, shape, rows, arithmetic } = *site;
        let mut combined = Rule {
            target: Some(gpu.target),
            multiprocessors: Some(gpu.multiprocessors),
            rows: (rows > 1).then_some(rows),
            arithmetic: (rows > 1).then_some(arithmetic),
            shape: shape.map(str::to_owned),
            ..Rule::empty(role)
        };
        for rule in self.rules.iter().filter(|rule| rule.applies(site)) {
            combined.override_with(rule, rows);
        }
        combined
    }

    /// The combined rule for a launch of a plan.
    pub fn rule_of(&self, plan: &Plan, launch: &Launch) -> Rule {
        let step = plan.params.arithmetic;
        let (shape, rows, arithmetic) = match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => (Some(matrix_name(shape)), shape.tokens, shape.arithmetic),
            KernelSpec::Attention(shape) => (None, shape.tokens, step),
            _ => (None, 1, step),
        };
        let (gpu, role) = (&plan.gpu, launch.label.role);
        self.rule(&Site { gpu, role, shape: shape.as_deref(), rows, arithmetic })
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
