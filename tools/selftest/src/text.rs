//! Reports as text for a terminal.

use std::collections::HashMap;

use comfy_table::{CellAlignment, Table, presets};

use crate::{Report, Row};

/// Describes an output and its failure.
pub fn describe(row: &Row) -> String {
    let failure = row.failure.as_deref().unwrap_or("passed");
    format!("{} ({}), `{}`: {failure}", row.kernel, row.what, row.output)
}

/// Table with a line for each kernel: the kernel's worst case.
pub fn table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["kernel", "outputs", "NMSE", "limit", "max/RMS", "us", "", "limit because"]);
    for rows in by_kernel(&report.rows) {
        let worst = |of: fn(&Row) -> f64| rows.iter().map(|row| of(row)).fold(0.0, f64::max);
        let number = |value: f64| if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") };
        let time = rows.iter().filter_map(|row| row.microseconds).reduce(f64::max);
        table.add_row([
            rows[0].kernel.clone(),
            rows.len().to_string(),
            number(worst(|row| row.nmse)),
            number(worst(|row| row.limit)),
            number(worst(|row| row.max)),
            time.map_or(String::new(), |time| format!("{time:.1}")),
            if rows.iter().all(|row| row.passed()) { "ok" } else { "FAILED" }.to_owned(),
            rows[0].reason.to_owned(),
        ]);
    }
    for column in 1..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Groups rows by kernel, in the order of the tests.
fn by_kernel(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        let group = *index.entry(&row.kernel).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(row);
    }
    groups
}
