//! Reports as text for a terminal.

mod render;
mod table;

pub use render::Renderer;
pub use table::profile;

use crate::Report;

/// Formats the number of findings as `FILE: 1 finding and 2 notes in 3 launches`.
pub fn summary(report: &Report) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let findings = match report.findings.len() {
        0 => "no findings".to_owned(),
        findings => count(findings, "finding"),
    };
    let notes = match report.lints.len() {
        0 => String::new(),
        notes => format!(" and {}", count(notes, "note")),
    };
    let plural = if report.launches == 1 { "" } else { "es" };
    let left_out = match report.lints_left_out {
        0 => String::new(),
        left_out => format!(
            " ({} omitted for launches too small for {} to matter)",
            count(left_out as usize, "note"),
            if left_out == 1 { "it" } else { "them" }
        ),
    };
    format!("{}: {findings}{notes} in {} launch{plural}{left_out}", report.subject, report.launches)
}
