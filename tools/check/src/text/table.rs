//! Table of the costs of source lines.

use comfy_table::{CellAlignment, Table, presets};

use crate::{Cost, KernelProfile};

/// Number of lines shown for each kernel: those with the most lane instructions.
const LINES: usize = 20;

/// Profile of a kernel: a summary line, and a table of its source lines.
pub fn profile(profile: &KernelProfile) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "source line",
        "lane instr.",
        "share",
        "per thread",
        "per byte",
        "lanes",
        "divergent",
        "global bytes",
        "sectors/request",
        "ideal",
        "bank ways",
    ]);
    let all = profile.total.lane_instructions.max(1);
    let mut add = |name: String, cost: &Cost, per_byte: Option<f64>| {
        let per_request = |count: u64| ratio(count, cost.global_requests).map_or(String::new(), decimal);
        table.add_row([
            name,
            cost.lane_instructions.to_string(),
            format!("{:.1} %", 100.0 * cost.lane_instructions as f64 / all as f64),
            decimal(cost.lane_instructions as f64 / profile.threads.max(1) as f64),
            per_byte.map_or(String::new(), decimal),
            format!("{:.1}", cost.average_lanes),
            if cost.branches > 0 {
                format!("{}/{}", cost.divergent_branches, cost.branches)
            } else {
                String::new()
            },
            if cost.global_requests > 0 {
                (cost.bytes_loaded + cost.bytes_stored).to_string()
            } else {
                String::new()
            },
            per_request(cost.sectors),
            per_request(cost.ideal_sectors),
            ratio(cost.wavefronts, cost.ideal_wavefronts).map_or(String::new(), decimal),
        ]);
    };
    for line in profile.lines.iter().take(LINES) {
        let name = match (&line.source, &line.ptx) {
            (Some(place), _) => format!("{}:{}", short(&place.file), place.line),
            (None, Some(ptx)) => format!("PTX {}: {}", ptx.line, ptx.text),
            (None, None) => "(no source line)".to_owned(),
        };
        add(name, &line.cost, line.instructions_per_byte);
    }
    add("all".to_owned(), &profile.total, profile.instructions_per_byte);
    for column in 1..table.column_count() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let more = match profile.lines.len().saturating_sub(LINES) {
        0 => String::new(),
        more => format!("\n{more} more lines"),
    };
    format!("{}\n{table}{more}\n", heading(profile))
}

/// Summary line of a kernel.
fn heading(profile: &KernelProfile) -> String {
    let per_byte =
        profile.instructions_per_byte.map_or(String::new(), |per| format!(", {} a byte moved", decimal(per)));
    let all = profile.total.lane_instructions.max(1) as f64;
    let mix = profile.mix.iter().filter(|&(_, &lanes)| lanes > 0);
    let mix: Vec<String> =
        mix.map(|(class, &lanes)| format!("{:.0} % {class}", 100.0 * lanes as f64 / all)).collect();
    let plural = if profile.launches == 1 { "" } else { "es" };
    let launches = match profile.partial {
        false => format!("{} launch{plural}", profile.launches),
        true => format!("partial, {} launch{plural} stopped by a finding", profile.launches),
    };
    format!(
        "{}: {launches}, {} threads, {} lane instructions a thread{per_byte}\n{}\n",
        profile.kernel,
        profile.threads,
        decimal(profile.instructions_per_thread),
        mix.join(", ")
    )
}

fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

/// Formats a number with two decimals if it is below 10, else with one.
fn decimal(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// The last two parts of a path.
fn short(file: &str) -> &str {
    let cut = file.rmatch_indices(['/', '\\']).nth(1);
    cut.map_or(file, |(at, _)| &file[at + 1..])
}
