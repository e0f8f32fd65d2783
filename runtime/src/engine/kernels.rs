//! Where a plan's kernels come from: the binary, or the compiler in this process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit;
use bespoke_kernels::plan::{Plan, PlanKernel};
use rayon::prelude::*;

use super::{EngineError, EngineOptions};
use crate::builtin;
use crate::device::{self, Device, Kernel};

/// Where the kernels came from.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    /// Kernels found in the binary.
    pub built_in: usize,
    /// Kernels made in this process.
    pub specialised: usize,
    /// The time that took.
    pub time: Duration,
}

pub(super) struct Sources {
    /// Name and PTX, in the order of the plan's kernels.
    pub texts: Vec<Text>,
    pub origin: KernelSource,
}

/// Finds or makes every kernel of the plan.
pub(super) fn sources(plan: &Plan, options: &EngineOptions) -> Result<Sources, EngineError> {
    let start = Instant::now();
    let built_in = |kernel: &&PlanKernel| builtin::ptx(plan.target, &kernel.name).is_some();
    let missing = plan.kernels.len() - plan.kernels.iter().filter(built_in).count();
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
    let origin =
        KernelSource { built_in: plan.kernels.len() - missing, specialised: missing, time: start.elapsed() };
    if origin.specialised > 0 {
        tracing::info!(
            "specialised {} of {} kernels for {} in this process in {:.0} ms: the binary was not built for this \
             shape (BESPOKE_MODEL=… cargo build --release builds them in)",
            origin.specialised,
            plan.kernels.len(),
            plan.target,
            origin.time.as_secs_f64() * 1e3
        );
    }
    Ok(Sources { texts, origin })
}

/// A kernel's name and PTX.
pub(super) type Text = (String, Cow<'static, str>);

/// Finds kernels in the binary, and makes those that are not there.
pub(super) fn texts(kernels: &[&PlanKernel], target: Target) -> Result<Vec<Text>, EngineError> {
    let missing = kernels.iter().filter(|kernel| builtin::ptx(target, &kernel.name).is_none());
    let missing: Vec<_> = missing.map(|kernel| kernel.spec.clone()).collect();
    let mut made: HashMap<String, String> = emit::compile(&missing, target)?
        .into_iter()
        .map(|kernel| (kernel.compiled.name, kernel.compiled.ptx))
        .collect();
    let mut text = |name: &str| match builtin::ptx(target, name) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(made.remove(name).expect("what is missing was made")),
    };
    Ok(kernels.iter().map(|kernel| (kernel.name.clone(), text(&kernel.name))).collect())
}

/// Loads kernels into the device, several at a time: the driver's assembler takes most of the time.
pub(super) fn assemble(device: &dyn Device, texts: &[Text]) -> Result<Vec<Kernel>, device::Error> {
    texts.par_iter().map(|(name, text)| device.load(name, text)?.kernel(name)).collect()
}
