//! The kernels of a plan: built in, or compiled in this process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
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

/// PTX of kernels.
pub(super) struct Sources {
    /// Name and PTX, in the order of the kernels.
    pub texts: Vec<Text>,
    pub counts: KernelCounts,
}

/// Looks up or compiles the kernels of the steps that `steps` names in the log.
pub(super) fn sources(
    kernels: &[&PlanKernel],
    target: Target,
    options: &EngineOptions,
    steps: &str,
) -> Result<Sources, EngineError> {
    let start = Instant::now();
    if options.no_jit {
        require_built_in(kernels.iter().copied(), target, options)?;
    }
    let missing: Vec<&str> = names_of_missing(kernels.iter().copied(), target).collect();
    let texts = texts(kernels, target)?;
    let (total, time) = (kernels.len(), start.elapsed());
    let counts = KernelCounts { built_in: total - missing.len(), specialised: missing.len(), time };
    if !missing.is_empty() {
        tracing::info!(
            "{steps}: compiled {} of {total} kernels for {target} in {:.0} ms: {} not built into this binary",
            missing.len(),
            time.as_secs_f64() * 1e3,
            named(&missing, total)
        );
    }
    Ok(Sources { texts, counts })
}

/// Whether all kernels of a plan are built in.
pub(super) fn are_built_in(plan: &Plan) -> bool {
    names_of_missing(plan.kernels.iter(), plan.target()).next().is_none()
}

/// Checks that all kernels are built in, because the options forbid compiling.
///
/// # Errors
/// If a kernel is not built in.
pub(super) fn require_built_in<'a>(
    kernels: impl Iterator<Item = &'a PlanKernel> + Clone,
    target: Target,
    options: &EngineOptions,
) -> Result<(), EngineError> {
    let missing: BTreeSet<&str> = names_of_missing(kernels.clone(), target).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let all: BTreeSet<&str> = kernels.map(|kernel| kernel.name.as_str()).collect();
    let never_built_in = match (options.arithmetic, options.kv) {
        (Arithmetic::F16, _) => Some("f16 arithmetic"),
        (Arithmetic::Integers, KvType::Q8_0) => Some("a KV cache of q8_0"),
        (Arithmetic::Integers, KvType::F16) => None,
    };
    Err(EngineError::NotBuiltIn {
        never_built_in,
        missing: missing.len(),
        total: all.len(),
        target,
        tuned: !options.tuning.rules.is_empty(),
        model: std::path::absolute(&options.path).unwrap_or_else(|_| options.path.clone()),
    })
}

/// Names of the kernels that are not built in.
fn names_of_missing<'a>(
    kernels: impl Iterator<Item = &'a PlanKernel>,
    target: Target,
) -> impl Iterator<Item = &'a str> {
    kernels.map(|kernel| kernel.name.as_str()).filter(move |name| !builtin::contains(target, name))
}

/// The missing ones of `total` kernels as text for a message: their names, if they are few.
fn named(missing: &[&str], total: usize) -> String {
    match missing {
        _ if missing.len() == total => "kernels of this shape are".to_owned(),
        [one] => format!("{one} is"),
        [first, others @ ..] if others.len() < 3 => format!("{first}, {} are", others.join(", ")),
        _ => format!("{} of its kernels are", missing.len()),
    }
}

/// A kernel's name and PTX.
pub(super) type Text = (String, String);

/// Returns the PTX of each kernel: built in, or compiled now.
pub(super) fn texts(kernels: &[&PlanKernel], target: Target) -> Result<Vec<Text>, EngineError> {
    let missing = kernels.iter().filter(|kernel| !builtin::contains(target, &kernel.name));
    let missing: Vec<_> = missing.map(|kernel| kernel.spec.clone()).collect();
    let mut made: HashMap<String, String> = emit::compile(&missing, target)?
        .into_iter()
        .map(|kernel| (kernel.compiled.name, kernel.compiled.ptx))
        .collect();
    let mut text = |name: &str| match builtin::ptx(target, name) {
        Some(text) => text,
        None => made.remove(name).expect("every missing kernel was compiled"),
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
