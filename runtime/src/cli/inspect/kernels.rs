//! What each kernel costs.

use std::fmt::Write;

use bespoke_codegen::kernel::Report;
use bespoke_codegen::ptx::Target;
use bespoke_kernels::emit::{self, Emitted};
use bespoke_kernels::plan::{Plan, PlanKernel};
use bespoke_kernels::spec::KernelSpec;
use comfy_table::{CellAlignment, Table, presets};
use miette::IntoDiagnostic;
use rayon::prelude::*;
use serde::Serialize;

use super::grid;
use crate::device::Bytes;
use crate::ptxas::{Ptxas, Usage};

/// A kernel of a plan, and what is known of it.
#[derive(Debug, Serialize)]
pub(super) struct Stats {
    name: String,
    summary: &'static str,
    target: Target,
    /// In one step.
    launches: usize,
    grid: [u32; 3],
    threads: u32,
    /// In bytes.
    dynamic_shared: u32,
    /// Device memory that a launch moves at the least, in bytes, with the cache full.
    bytes: u64,
    /// Name and type of each run-time parameter.
    params: Vec<(String, String)>,
    report: Report,
    /// Instructions before each pass that changed something, and after it.
    passes: Vec<(&'static str, usize, usize)>,
    /// What ptxas says, where there is one.
    ptxas: Option<Usage>,
}

/// Compiles the kernels, and assembles them where there is a ptxas.
pub(super) fn stats(plan: &Plan, kernels: &[&PlanKernel]) -> miette::Result<Vec<Stats>> {
    let ptxas = Ptxas::find().into_diagnostic()?;
    if ptxas.is_none() {
        tracing::info!("no ptxas on PATH or in BESPOKE_PTXAS: registers and spills are not shown");
    }
    let specs: Vec<KernelSpec> = kernels.iter().map(|kernel| kernel.spec.clone()).collect();
    let emitted = emit::compile(&specs, plan.target).into_diagnostic()?;
    Ok(emitted.into_par_iter().map(|kernel| measure(plan, kernel, ptxas.as_ref())).collect())
}

fn measure(plan: &Plan, Emitted { spec, compiled, params }: Emitted, ptxas: Option<&Ptxas>) -> Stats {
    let geometry = spec.geometry();
    let usage =
        ptxas.and_then(|ptxas| match ptxas.assemble(&compiled.name, &compiled.ptx, compiled.target) {
            Ok(usage) => Some(usage),
            Err(error) => {
                tracing::warn!("{}: {error}", compiled.name);
                None
            }
        });
    let ty = |param: &bespoke_codegen::ir::Param| match param.element {
        Some(element) => format!("{} {element}", param.ty),
        None => param.ty.to_string(),
    };
    let changes = compiled.passes.steps.iter().filter(|step| step.changed);
    Stats {
        summary: spec.summary(),
        target: compiled.target,
        launches: plan
            .launches
            .iter()
            .filter(|launch| plan.kernels[launch.kernel].name == compiled.name)
            .count(),
        grid: geometry.grid,
        threads: geometry.threads,
        dynamic_shared: geometry.dynamic_shared,
        bytes: spec.bytes(plan.params.context.into()),
        params: params.iter().map(|param| (param.name.clone(), ty(param))).collect(),
        passes: changes.map(|step| (step.pass, step.before, step.after)).collect(),
        name: compiled.name,
        report: compiled.report,
        ptxas: usage,
    }
}

/// All kernels, one a line.
pub(super) fn table(plan: &Plan, stats: &[Stats]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "kernel",
        "launches",
        "grid",
        "threads",
        "shared",
        "registers",
        "spills",
        "bytes/launch",
        "PTX lines",
        "what",
    ]);
    for column in 1..=8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for kernel in stats {
        let usage = |of: fn(&Usage) -> u32| {
            kernel.ptxas.as_ref().map_or("-".to_owned(), |usage| of(usage).to_string())
        };
        table.add_row([
            kernel.name.clone(),
            kernel.launches.to_string(),
            grid(kernel.grid),
            kernel.threads.to_string(),
            (kernel.dynamic_shared + kernel.report.static_shared).to_string(),
            usage(|usage| usage.registers),
            usage(|usage| usage.spill_stores + usage.spill_loads),
            kernel.bytes.to_string(),
            kernel.report.ptx_lines.to_string(),
            kernel.summary.to_owned(),
        ]);
    }
    let launched: u64 = stats.iter().map(|kernel| kernel.launches as u64 * kernel.bytes).sum();
    format!(
        "{}\n\n{} for {}: {} kernels, {} launches a token; {} moved a token with {} positions in the cache, of which {} \
         are weights, keys and values\n",
        table.trim_fmt(),
        plan.shape.name,
        plan.target,
        plan.kernels.len(),
        plan.launches.len(),
        Bytes(launched),
        plan.params.context,
        Bytes(plan.bytes_per_token(plan.params.context.into()))
    )
}

/// One kernel, in lines.
pub(super) fn describe(stats: &Stats) -> String {
    let mut lines = vec![
        ("kernel", stats.name.clone()),
        ("what", stats.summary.to_owned()),
        ("target", stats.target.to_string()),
        ("launches", format!("{} a token", stats.launches)),
        ("grid", format!("{} CTAs of {} threads", grid(stats.grid), stats.threads)),
        (
            "shared memory",
            format!("{} bytes static, {} dynamic", stats.report.static_shared, stats.dynamic_shared),
        ),
        ("bytes", format!("{} a launch", stats.bytes)),
    ];
    let params: Vec<String> = stats.params.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    lines.push(("parameters", params.join(", ")));
    match stats.ptxas {
        Some(usage) => {
            lines.push(("registers", usage.registers.to_string()));
            let Usage { spill_stores, spill_loads, stack, .. } = usage;
            lines.push((
                "spills",
                format!("{spill_stores} bytes stored, {spill_loads} loaded; stack {stack} bytes"),
            ));
        }
        None => lines.push(("registers", "unknown without ptxas".to_owned())),
    }
    lines.push(("PTX lines", stats.report.ptx_lines.to_string()));
    let mix: Vec<String> = stats.report.mix.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    lines.push(("instructions", format!("{}: {}", stats.report.instructions, mix.join(", "))));
    let mut out = String::new();
    for (label, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{label:<14} {value}");
    }
    for (pass, before, after) in &stats.passes {
        let _ = writeln!(out, "{:<14} {pass:<12} {before:>6} -> {after}", "pass");
    }
    out
}
