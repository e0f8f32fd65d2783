//! The kernels of a plan: built in, or compiled in this process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::plan::{Plan, PlanKernel};
use rayon::prelude::*;
use serde::Serialize;

use super::{EngineError, EngineOptions};
use crate::builtin;
use crate::device::{self, CodeOrigin, Device, Kernel};

/// Numbers of kernels that were built in and that were compiled now.
#[derive(Clone, Copy, Debug)]
pub struct KernelCounts {
    /// Number of built-in kernels.
    pub built_in: usize,
    /// Number of kernels compiled in this process.
    pub specialised: usize,
    /// Time to look up and compile the kernels.
    pub time: Duration,
}

/// PTX of a plan's kernels.
pub(super) struct Sources {
    /// Name and PTX, in the order of the plan's kernels.
    pub texts: Vec<Text>,
    pub counts: KernelCounts,
}

/// Looks up or compiles every kernel of the plan.
pub(super) fn sources(plan: &Plan, options: &EngineOptions) -> Result<Sources, EngineError> {
    let start = Instant::now();
    let lacks = |kernel: &&PlanKernel| builtin::ptx(plan.target, &kernel.name).is_none();
    let missing: Vec<&str> = plan.kernels.iter().filter(lacks).map(|kernel| kernel.name.as_str()).collect();
    let names = named(&missing, plan.kernels.len());
    let missing = missing.len();
    if options.no_jit && missing > 0 {
        return Err(EngineError::NotBuiltIn {
            missing,
            total: plan.kernels.len(),
            target: plan.target,
            tuned: !options.tuning.rules.is_empty(),
            model: std::path::absolute(&options.path).unwrap_or_else(|_| options.path.clone()),
        });
    }
    let all: Vec<&PlanKernel> = plan.kernels.iter().collect();
    let texts = texts(&all, plan.target)?;
    let counts =
        KernelCounts { built_in: plan.kernels.len() - missing, specialised: missing, time: start.elapsed() };
    if counts.specialised > 0 {
        tracing::info!(
            "compiled {} of {} kernels for {} in {:.0} ms: {names} not built into this binary",
            counts.specialised,
            plan.kernels.len(),
            plan.target,
            counts.time.as_secs_f64() * 1e3
        );
    }
    Ok(Sources { texts, counts })
}

/// Whether all kernels of a plan are built in.
pub(super) fn are_built_in(plan: &Plan) -> bool {
    plan.kernels.iter().all(|kernel| builtin::ptx(plan.target, &kernel.name).is_some())
}

/// What is missing of `total` kernels, for a message: names, if they are few.
fn named(missing: &[&str], total: usize) -> String {
    match missing {
        _ if missing.len() == total => "kernels of this shape are".to_owned(),
        [one] => format!("{one} is"),
        [first, others @ ..] if others.len() < 3 => format!("{first}, {} are", others.join(", ")),
        _ => format!("{} of its kernels are", missing.len()),
    }
}

/// A kernel's name and PTX.
pub(super) type Text = (String, Cow<'static, str>);

/// Returns the PTX of each kernel: built in, or compiled now.
pub(super) fn texts(kernels: &[&PlanKernel], target: Target) -> Result<Vec<Text>, EngineError> {
    let missing = kernels.iter().filter(|kernel| builtin::ptx(target, &kernel.name).is_none());
    let missing: Vec<_> = missing.map(|kernel| kernel.spec.clone()).collect();
    let mut made: HashMap<String, String> = emit::compile(&missing, target)?
        .into_iter()
        .map(|kernel| (kernel.compiled.name, kernel.compiled.ptx))
        .collect();
    let mut text = |name: &str| match builtin::ptx(target, name) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(made.remove(name).expect("every missing kernel was compiled")),
    };
    Ok(kernels.iter().map(|kernel| (kernel.name.clone(), text(&kernel.name))).collect())
}

/// Loads kernels into the device, in parallel, because assembling takes most of the loading time.
pub(super) fn load(
    device: &dyn Device,
    target: Target,
    texts: &[Text],
) -> Result<Vec<Kernel>, device::Error> {
    let load = |(name, text): &Text| device.load_source(&builtin::source(target, name, text))?.kernel(name);
    texts.par_iter().map(load).collect()
}

/// Number of kernels by the origin of their machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounts {
    /// Number of kernels assembled when the binary was built.
    pub embedded: usize,
    /// Number of kernels that the driver assembled for an earlier process, loaded from the cache.
    pub cached: usize,
    /// Number of kernels that the driver assembled in this process.
    pub assembled: usize,
}

impl OriginCounts {
    pub(super) fn of(kernels: &[Kernel]) -> OriginCounts {
        let mut origins = OriginCounts::default();
        for origin in kernels.iter().filter_map(Kernel::origin) {
            match origin {
                CodeOrigin::Embedded => origins.embedded += 1,
                CodeOrigin::Cached => origins.cached += 1,
                CodeOrigin::Assembled => origins.assembled += 1,
            }
        }
        origins
    }
}

impl fmt::Display for OriginCounts {
    /// Formats as `3 from the binary, 7 from the cache, 1 assembled by the driver`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.embedded, "from the binary"),
            (self.cached, "from the cache"),
            (self.assembled, "assembled by the driver"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, origin)| format!("{count} {origin}"))
            .collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_in_words() {
        let words = |embedded, cached, assembled| OriginCounts { embedded, cached, assembled }.to_string();
        assert_eq!(words(0, 0, 0), "none");
        assert_eq!(words(11, 0, 0), "11 from the binary");
        assert_eq!(words(3, 7, 1), "3 from the binary, 7 from the cache, 1 assembled by the driver");
    }
}
