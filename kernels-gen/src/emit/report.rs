//! Resources that the kernels of a plan use, as reported by an assembler.

use std::collections::BTreeMap;

use bespoke_codegen::emit;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Usage;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Resources of a plan's kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// Name of the model's shape.
    pub shape: String,
    /// Target that the kernels were assembled for.
    pub target: Target,
    /// The kernels, in the plan's order.
    pub kernels: Vec<KernelReport>,
}

/// Resources of one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Name of the kernel.
    pub name: String,
    /// Launches per step.
    pub launches: usize,
    /// Threads per CTA.
    pub threads: u32,
    /// Dynamic shared memory of a launch, in bytes.
    pub dynamic_shared: u32,
    /// Registers, static shared memory, stack and spills.
    #[serde(flatten)]
    pub usage: Usage,
}

impl PlanReport {
    /// The report of a plan from the kernels emitted for its target; none if a kernel was not assembled.
    pub(super) fn of(plan: &Plan, emitted: &[emit::Emitted]) -> Option<PlanReport> {
        let usages: BTreeMap<&str, Usage> = emitted
            .iter()
            .filter_map(|kernel| Some((kernel.compiled.name.as_str(), kernel.assembled.as_ref()?.usage)))
            .collect();
        let report = |(index, kernel): (usize, &crate::plan::PlanKernel)| {
            let geometry = kernel.spec.geometry();
            Some(KernelReport {
                name: kernel.name.clone(),
                launches: plan.launches.iter().filter(|launch| launch.kernel == index).count(),
                threads: geometry.threads,
                dynamic_shared: geometry.dynamic_shared,
                usage: *usages.get(kernel.name.as_str())?,
            })
        };
        Some(PlanReport {
            shape: plan.shape.name.clone(),
            target: plan.target(),
            kernels: plan.kernels.iter().enumerate().map(report).collect::<Option<_>>()?,
        })
    }
}
