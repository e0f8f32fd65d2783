//! `--tune`: a file of rules that replace choices of the cost model.

use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::Tuning;
use miette::{IntoDiagnostic, WrapErr};

/// Argument `--tune` of every command that builds a plan.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RulesArgs {
    /// Rules for dividing the work, as `bespoke tune` writes them [default: the cost model's choices]
    #[arg(long, value_name = "FILE")]
    pub tune: Option<PathBuf>,
}

impl RulesArgs {
    /// Reads the tuning rules; without `--tune` there are none.
    pub fn read(&self) -> miette::Result<Tuning> {
        let Some(path) = &self.tune else { return Ok(Tuning::default()) };
        let context = || format!("cannot read rules from {}", path.display());
        let text = std::fs::read_to_string(path).into_diagnostic().wrap_err_with(context)?;
        Tuning::parse(&text).into_diagnostic().wrap_err_with(context)
    }

    /// Logs a warning if the file has rules, but none for `target`.
    pub fn warn_if_unused(&self, tuning: &Tuning, target: Target) {
        if let Some(path) = self.tune.as_ref().filter(|_| !tuning.is_for(target)) {
            tracing::warn!("{} has no rule for {target}: the cost model decides", path.display());
        }
    }
}
