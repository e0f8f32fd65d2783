//! What the kernels of a plan take of a multiprocessor, where an assembler has said so.

use std::collections::BTreeMap;

use bespoke_codegen::emit;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Usage;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// A plan's kernels as they were assembled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The shape's name.
    pub shape: String,
    /// The target.
    pub target: Target,
    /// In the plan's order.
    pub kernels: Vec<KernelReport>,
}

/// A kernel of a plan as it was assembled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Launches a token.
    pub launches: usize,
    /// Threads a CTA.
    pub threads: u32,
    /// Dynamic shared memory of a launch, in bytes.
    pub dynamic_shared: u32,
    /// Registers, static shared memory, stack and spills.
    #[serde(flatten)]
    pub usage: Usage,
}

impl PlanReport {
    /// Of a plan, by the kernels that were assembled for its target; none if one of them was not.
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
            target: plan.target,
            kernels: plan.kernels.iter().enumerate().map(report).collect::<Option<_>>()?,
        })
    }
}
