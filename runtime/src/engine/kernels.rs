//! Where a plan's kernels come from: the binary, or the compiler in this process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use bespoke_kernels::emit;
use bespoke_kernels::plan::Plan;
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
    texts: Vec<(String, Cow<'static, str>)>,
    pub origin: KernelSource,
}

/// Finds or makes every kernel of the plan.
pub(super) fn sources(plan: &Plan, options: &EngineOptions) -> Result<Sources, EngineError> {
    let start = Instant::now();
    let missing: Vec<_> = plan
        .kernels
        .iter()
        .filter(|kernel| builtin::ptx(plan.target, &kernel.name).is_none())
        .map(|kernel| kernel.spec.clone())
        .collect();
    if options.no_jit && !missing.is_empty() {
        return Err(EngineError::NotBuiltIn {
            missing: missing.len(),
            total: plan.kernels.len(),
            target: plan.target,
            model: std::path::absolute(&options.path).unwrap_or_else(|_| options.path.clone()),
        });
    }
    let mut made: HashMap<String, String> = emit::compile(&missing, plan.target)?
        .into_iter()
        .map(|kernel| (kernel.compiled.name, kernel.compiled.ptx))
        .collect();
    let origin = KernelSource {
        built_in: plan.kernels.len() - missing.len(),
        specialised: missing.len(),
        time: start.elapsed(),
    };
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
    let texts = plan
        .kernels
        .iter()
        .map(|kernel| {
            let text = match builtin::ptx(plan.target, &kernel.name) {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(made.remove(&kernel.name).expect("what is missing was made")),
            };
            (kernel.name.clone(), text)
        })
        .collect();
    Ok(Sources { texts, origin })
}

/// Loads every kernel into the device, several at a time: the driver's assembler takes most of the time.
pub(super) fn assemble(device: &dyn Device, sources: &Sources) -> Result<Vec<Kernel>, device::Error> {
    sources.texts.par_iter().map(|(name, text)| device.load(name, text)?.kernel(name)).collect()
}
