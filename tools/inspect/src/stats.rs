//! Statistics of one kernel of a plan: geometry, bytes and operations per launch, the roofline's bound on the time,
//! instruction counts, registers and occupancy.

use std::collections::BTreeMap;

use bespoke_codegen::ir::Param;
use bespoke_codegen::kernel::Report;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Usage;
use bespoke_kernels::emit::Emitted;
use bespoke_kernels::plan::{Plan, StepKind};
use bespoke_kernels::spec::{Geometry, KernelSpec};
use serde::Serialize;
use serde_json::Value;

use super::roofline::{Gpu, Unit, Work};
use super::{Demand, Occupancy};

/// A kernel of a plan with its costs: the output of `bespoke inspect --stage stats --format json`.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Name of the entry point.
    pub name: String,
    /// Summary of the kernel's purpose.
    pub summary: String,
    /// Target of the PTX.
    pub target: Target,
    /// Kind of the step.
    pub step: StepKind,
    /// Number of rows of the step: tokens that it processes.
    pub rows: u32,
    /// Roles of the kernel: labels of its launches without the layer, without duplicates.
    pub roles: Vec<String>,
    /// Launches of the kernel per step.
    pub launches: usize,
    /// CTAs along x, y and z; zeros if the host chooses them at each launch.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub threads: u32,
    /// Dynamic shared memory per CTA in bytes.
    pub dynamic_shared: u32,
    /// Least bytes of device memory moved per launch with a full KV cache.
    pub bytes: u64,
    /// Multiplications and additions per launch of matrix products, with a full KV cache.
    pub operations: u64,
    /// Execution unit of the operations.
    pub unit: Unit,
    /// Arithmetic intensity: operations per byte.
    pub intensity: f64,
    /// Least seconds per launch by GPU, from the GPUs' data sheets.
    pub roofline: BTreeMap<&'static str, f64>,
    /// Name and type of each run-time parameter.
    pub params: Vec<(String, String)>,
    /// Compile-time parameters, as in `plan.json`.
    pub constants: Value,
    /// Counts that the compiler reports.
    pub report: Report,
    /// Name of each pass that changed something, with the number of instructions before and after the pass.
    pub passes: Vec<(&'static str, usize, usize)>,
    /// Resources reported by ptxas, if ptxas was found.
    pub ptxas: Option<Usage>,
    /// Occupancy; without ptxas, the limit by registers is ignored.
    pub occupancy: Occupancy,
}

impl Stats {
    /// Statistics of a compiled kernel, with ptxas' figures if the kernel was assembled.
    pub fn of(plan: &Plan, emitted: &Emitted, ptxas: Option<Usage>) -> Stats {
        let Emitted { spec, compiled, params, .. } = emitted;
        let Geometry { grid, threads, dynamic_shared } = spec.geometry();
        let work = Work::of(spec, plan.params.context.into());
        let launches = || plan.launches.iter().filter(|it| plan.kernels[it.kernel].name == compiled.name);
        let mut roles: Vec<String> = Vec::new();
        for launch in launches() {
            let role = launch.label.role.name();
            if !roles.iter().any(|known| known == role) {
                roles.push(role.to_owned());
            }
        }
        let demand = demand(spec, ptxas);
        Stats {
            summary: spec.summary().to_owned(),
            target: compiled.target,
            step: plan.params.kind,
            rows: plan.params.rows,
            launches: launches().count(),
            roles,
            grid,
            threads,
            dynamic_shared,
            bytes: work.bytes,
            operations: work.operations,
            unit: work.unit,
            intensity: work.intensity(),
            roofline: Gpu::ALL.iter().map(|gpu| (gpu.name, work.seconds(gpu))).collect(),
            params: named_types(params),
            constants: constants(spec),
            passes: changes(&compiled.passes),
            name: compiled.name.clone(),
            report: compiled.report.clone(),
            ptxas,
            occupancy: Occupancy::of(compiled.target, demand),
        }
    }
}

/// Name and type of each parameter.
pub(super) fn named_types(params: &[Param]) -> Vec<(String, String)> {
    let element = |param: &Param| param.element.or(param.tensor.as_ref().map(|layout| layout.element));
    let ty = |param: &Param| match element(param) {
        Some(element) => format!("{} {element}", param.ty),
        None => param.ty.to_string(),
    };
    params.iter().map(|param| (param.name.clone(), ty(param))).collect()
}

/// Name of each pass that changed something, with the number of instructions before and after the pass.
pub(super) fn changes(passes: &bespoke_codegen::passes::Report) -> Vec<(&'static str, usize, usize)> {
    let changes = passes.steps.iter().filter(|step| step.changed);
    changes.map(|step| (step.pass, step.before, step.after)).collect()
}

/// Resources that a CTA of the kernel needs.
pub(super) fn demand(spec: &KernelSpec, ptxas: Option<Usage>) -> Demand {
    let Geometry { threads, dynamic_shared, .. } = spec.geometry();
    let statics = ptxas.map_or(spec.static_shared(), |usage| usage.static_shared);
    Demand { threads, registers: ptxas.map(|usage| usage.registers), shared: dynamic_shared + statics }
}

/// Compile-time parameters of a kernel as a JSON object.
pub(super) fn constants(spec: &KernelSpec) -> Value {
    // A specification is plain data, which always serialises.
    serde_json::to_value(spec).unwrap_or_default()
}
