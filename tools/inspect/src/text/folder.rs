//! Kernels of an emitted folder as text.

use std::fmt::Write;

use bespoke_codegen::emit::ManifestParameter;
use comfy_table::{CellAlignment, Table, presets};

use super::grid;
use super::kernels::{cells, occupancy, registers_and_spills};
use crate::folder::FolderKernel;

/// Table of all kernels.
pub fn folder(kernels: &[FolderKernel]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "kernel",
        "grid",
        "threads",
        "shared",
        "registers",
        "spills",
        "CTAs/SM",
        "PTX lines",
        "what",
    ]);
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kernel in kernels {
        let [registers, spills] = cells(kernel.ptxas);
        table.add_row([
            kernel.name.clone(),
            kernel.grid.map_or("-".to_owned(), grid),
            grid(kernel.block),
            (kernel.static_shared + kernel.dynamic_shared).to_string(),
            registers,
            spills,
            kernel.occupancy.ctas.to_string(),
            kernel.ptx_lines.to_string(),
            kernel.summary.clone(),
        ]);
    }
    table.trim_fmt()
}

/// Description of one kernel.
pub fn folder_kernel(kernel: &FolderKernel) -> String {
    let mut lines = vec![("kernel", kernel.name.clone())];
    if !kernel.summary.is_empty() {
        lines.push(("what", kernel.summary.clone()));
    }
    let ctas = match kernel.grid {
        Some(of) => format!("{} CTAs", grid(of)),
        None => "CTAs chosen by the host".to_owned(),
    };
    lines.push(("target", kernel.target.to_string()));
    lines.push(("grid", format!("{ctas} of {} threads", grid(kernel.block))));
    lines.extend(kernel.cluster.map(|ctas| ("cluster", format!("{ctas} CTAs"))));
    lines.push((
        "shared memory",
        format!("{} bytes static, {} dynamic", kernel.static_shared, kernel.dynamic_shared),
    ));
    let parameters: Vec<String> = kernel.parameters.iter().map(parameter).collect();
    lines.push(("parameters", parameters.join(", ")));
    if !kernel.constants.is_null() {
        lines.push(("constants", kernel.constants.to_string()));
    }
    lines.extend(registers_and_spills(kernel.ptxas));
    lines.push(("occupancy", occupancy(&kernel.occupancy)));
    lines.push(("PTX lines", kernel.ptx_lines.to_string()));
    lines.iter().fold(String::new(), |mut out, (label, value)| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{label:<14} {value}");
        out
    })
}

fn parameter(parameter: &ManifestParameter) -> String {
    let ManifestParameter { name, ty, pointer, align, .. } = parameter;
    let star = if *pointer { "*" } else { "" };
    let promise = align.map_or(String::new(), |bytes| format!(" at multiples of {bytes} bytes"));
    format!("{name}: {star}{ty}{promise}")
}
