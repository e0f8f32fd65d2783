//! A plan as tables.

use bespoke::engine::MemoryNeeds;
use bespoke_kernels::plan::{Argument, BufferKind, Plan};
use comfy_table::{CellAlignment, Table, presets};

use super::{grid, per, step};

/// Tables of all launches and of the buffers with totals; or only a table of the launches of `kernel`.
pub fn plan(plan: &Plan, kernel: Option<usize>) -> String {
    let launches = launches(plan, kernel);
    if kernel.is_some() {
        return format!("{launches}\n");
    }
    format!("{launches}\n\n{}\n\n{}", buffers(plan), totals(plan))
}

pub(super) fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn launches(plan: &Plan, kernel: Option<usize>) -> String {
    let header = ["launch", "after", "label", "kernel", "grid", "threads", "shared", "arguments"];
    let mut table = table(&header, &[0, 1, 4, 5, 6]);
    for (index, launch) in plan.launches.iter().enumerate() {
        if kernel.is_some_and(|kernel| kernel != launch.kernel) {
            continue;
        }
        // `~` marks a programmatic edge: the launch may start before the previous launch ends.
        let mark = if launch.programmatic { "~" } else { "" };
        let after: Vec<String> = launch.after.iter().map(|other| format!("{mark}{other}")).collect();
        let args: Vec<String> = launch.args.iter().map(|arg| argument(plan, arg)).collect();
        table.add_row([
            index.to_string(),
            if after.is_empty() { "-".to_owned() } else { after.join(",") },
            launch.label.to_string(),
            plan.kernels[launch.kernel].name.clone(),
            grid(launch.grid),
            launch.threads.to_string(),
            launch.dynamic_shared.to_string(),
            args.join(" "),
        ]);
    }
    table.trim_fmt()
}

/// Formats an argument: `x=residual`, or for a part of a buffer `x=qkv[4096..8192]`, in bytes.
fn argument(plan: &Plan, arg: &Argument) -> String {
    let buffer = &plan.buffers[arg.buffer];
    let range = if (arg.offset, arg.bytes) == (0, buffer.bytes) {
        String::new()
    } else {
        format!("[{}..{}]", arg.offset, arg.offset + arg.bytes)
    };
    format!("{}={}{range}", arg.param, buffer.name)
}

fn buffers(plan: &Plan) -> String {
    let mut table = table(&["buffer", "kind", "bytes", "tensors"], &[2]);
    for buffer in &plan.buffers {
        let tensors = match &buffer.kind {
            BufferKind::Weights { parts } => parts
                .iter()
                .map(|part| format!("{}@{}", part.tensor, part.offset))
                .collect::<Vec<_>>()
                .join(" "),
            _ => String::new(),
        };
        table.add_row([
            buffer.name.clone(),
            kind(&buffer.kind).to_owned(),
            buffer.bytes.to_string(),
            tensors,
        ]);
    }
    table.trim_fmt()
}

fn kind(kind: &BufferKind) -> &'static str {
    match kind {
        BufferKind::Weights { .. } => "weights",
        BufferKind::RopeTable { .. } => "rope table",
        BufferKind::Activation => "activation",
        BufferKind::Counters => "counters",
        BufferKind::KvCache => "KV cache",
        BufferKind::PageTable => "page table",
        BufferKind::State => "state",
        BufferKind::Sampling => "sampling",
        BufferKind::LogitBias => "logit bias",
        BufferKind::TokenMask => "token mask",
        BufferKind::Tokens => "tokens",
        BufferKind::HostTokens => "finished",
    }
}

fn totals(plan: &Plan) -> String {
    let (kind, rows) = (plan.params.kind, plan.params.rows);
    let one = per(kind, rows) == "token";
    let step = if one { String::new() } else { format!(", a {}", step(kind, rows)) };
    format!(
        "{} for {}{step}: {} launches of {} kernels; device memory {}\n",
        plan.shape.name,
        plan.target(),
        plan.launches.len(),
        plan.kernels.len(),
        MemoryNeeds::of(plan)
    )
}
