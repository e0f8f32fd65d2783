//! How a plan divides its work: `--multiprocessors`, and `--tune`, a file of rules that replace choices of the cost model.

use std::num::NonZeroU32;
use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::{Gpu, Tuning};
use miette::{IntoDiagnostic, WrapErr};

/// Arguments of every command that builds a plan.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RulesArgs {
    /// Rules for dividing the work, as `bespoke tune` writes them [default: the cost model's choices]
    #[arg(long, value_name = "FILE")]
    pub tune: Option<PathBuf>,
    /// Divide the work among this many multiprocessors [default: those of the device; without a device, of the largest
    /// common GPU of the target: 132 for sm_90]
    #[arg(long, value_name = "N", value_parser = nonzero)]
    pub multiprocessors: Option<NonZeroU32>,
}

/// Parses a number of at least 1.
pub fn nonzero(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "a whole number of at least 1 is needed".to_owned())
}

impl RulesArgs {
    /// Reads the tuning rules; without `--tune` there are none.
    pub fn read(&self) -> miette::Result<Tuning> {
        let Some(path) = &self.tune else { return Ok(Tuning::default()) };
        let read = std::fs::read_to_string(path).into_diagnostic();
        let text = read.wrap_err_with(|| format!("cannot read rules from {}", path.display()))?;
        let parsed = Tuning::parse(&text).into_diagnostic();
        parsed.wrap_err_with(|| format!("invalid rules in {}", path.display()))
    }

    /// The GPU of a target for which to plan without a device.
    pub fn gpu(&self, target: Target) -> Gpu {
        let typical = Gpu::typical(target);
        self.multiprocessors.map_or(typical, |count| typical.with_multiprocessors(count.get()))
    }

    /// Logs a warning if the file has rules, but none for `gpu`.
    pub fn warn_if_unused(&self, tuning: &Tuning, gpu: &Gpu) {
        if let Some(path) = self.tune.as_ref().filter(|_| !tuning.is_for(gpu)) {
            let (target, count) = (gpu.target, gpu.multiprocessors);
            tracing::warn!(
                "{} has no rule for {target} with {count} multiprocessors: the cost model decides",
                path.display()
            );
        }
    }
}
