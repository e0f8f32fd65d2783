//! Costs of kernels as text.

use std::fmt::Write;

use bespoke::device::Bytes;
use bespoke_codegen::ptxas::Usage;
use bespoke_kernels::plan::Plan;
use comfy_table::{CellAlignment, Table, presets};

use super::{grid, per, step};
use crate::{Limit, Occupancy, Stats};

/// Table of all kernels.
pub fn kernels(plan: &Plan, stats: &[Stats]) -> String {
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
        let [registers, spills] = cells(kernel.ptxas);
        table.add_row([
            kernel.name.clone(),
            kernel.launches.to_string(),
            grid(kernel.grid),
            kernel.threads.to_string(),
            (kernel.dynamic_shared + kernel.report.static_shared).to_string(),
            registers,
            spills,
            kernel.bytes.to_string(),
            kernel.report.ptx_lines.to_string(),
            kernel.summary.to_owned(),
        ]);
    }
    let (kind, rows) = (plan.params.kind, plan.params.rows);
    let per = per(kind, rows);
    let step = if per == "token" { String::new() } else { format!(", a {}", step(kind, rows)) };
    let plural = if plan.params.context == 1 { "" } else { "s" };
    let launched: u64 = stats.iter().map(|kernel| kernel.launches as u64 * kernel.bytes).sum();
    format!(
        "{}\n\n{} for {}{step}: {} kernels, {} launches a {per}; {} moved a {per} with {} position{plural} in the cache, of which \
         {} are weights, keys and values\n",
        table.trim_fmt(),
        plan.shape.name,
        plan.target(),
        plan.kernels.len(),
        plan.launches.len(),
        Bytes(launched),
        plan.params.context,
        Bytes(plan.bytes_per_token(plan.params.context.into()))
    )
}

/// Registers and spilled bytes, as cells of a table.
pub(super) fn cells(usage: Option<Usage>) -> [String; 2] {
    let numbers = usage.map(|usage| [usage.registers, usage.spill_stores + usage.spill_loads]);
    numbers.map_or(["-", "-"].map(str::to_owned), |numbers| numbers.map(|number| number.to_string()))
}

/// Registers and spills by ptxas, as labelled lines of a description.
pub(super) fn registers_and_spills(usage: Option<Usage>) -> Vec<(&'static str, String)> {
    let Some(Usage { registers, spill_stores, spill_loads, stack, .. }) = usage else {
        return vec![("registers", "unknown without ptxas".to_owned())];
    };
    let spills = format!("{spill_stores} bytes stored, {spill_loads} loaded; stack {stack} bytes");
    vec![("registers", registers.to_string()), ("spills", spills)]
}

/// Describes the occupancy in words.
pub(super) fn occupancy(of: &Occupancy) -> String {
    let limit = match of.limit {
        Limit::Ctas => "the number of CTAs",
        Limit::Threads => "threads",
        Limit::Registers => "registers",
        Limit::Shared => "shared memory",
    };
    format!("{} CTAs a multiprocessor, {} of {} warps; limited by {limit}", of.ctas, of.warps, of.most_warps)
}

/// Description of one kernel.
pub fn kernel(stats: &Stats) -> String {
    let mut lines = vec![
        ("kernel", stats.name.clone()),
        ("what", stats.summary.to_owned()),
        ("target", stats.target.to_string()),
        ("launches", format!("{} a {}", stats.launches, per(stats.step, stats.rows))),
        ("grid", format!("{} CTAs of {} threads", grid(stats.grid), stats.threads)),
        (
            "shared memory",
            format!("{} bytes static, {} dynamic", stats.report.static_shared, stats.dynamic_shared),
        ),
        ("bytes", format!("{} a launch", stats.bytes)),
        ("operations", format!("{} a launch, {:.2} a byte", stats.operations, stats.intensity)),
    ];
    let params: Vec<String> = stats.params.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    lines.push(("parameters", params.join(", ")));
    lines.extend(registers_and_spills(stats.ptxas));
    lines.push(("occupancy", occupancy(&stats.occupancy)));
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
