//! Trials and results of a search as text.

use bespoke_kernels::plan::{LaunchRole, Plan, Tuning};
use comfy_table::{CellAlignment, Table, presets};

use crate::search::{self, Comparison, Found};

fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.to_vec());
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Table of the changes, in the order of the search.
pub fn changes(found: &Found) -> Table {
    let mut table = table(&["role", "knob", "from", "to", "gain"], &[2, 3, 4]);
    for change in &found.changes {
        table.add_row([
            change.role.to_string(),
            change.knob.to_owned(),
            change.from.clone(),
            change.to.clone(),
            format!("{:.2} %", change.comparison.fraction() * 100.0),
        ]);
    }
    table
}

/// Describes the comparison in a sentence.
pub fn verdict(comparison: &Comparison) -> String {
    let Comparison { before, gain, noise } = *comparison;
    format!(
        "{before:.4} ms a step by the cost model, {:.4} ms by these rules: {:.2} % less (noise {:.2} %)",
        before - gain,
        gain / before * 100.0,
        noise / before * 100.0
    )
}

/// Table of the values of each knob that the target allows while all other knobs have the cost model's values.
pub fn candidates(plan: &Plan, quick: bool) -> Table {
    let mut table = table(&["role", "knob", "cost model", "values"], &[2]);
    for role in LaunchRole::TUNABLE {
        for values in search::knobs(role, plan.params.rows, quick) {
            let Some(first) = values.first() else { continue };
            let allowed = values.iter().filter(|value| {
                let tuning = search::with(&Tuning::default(), plan, role, **value);
                Plan::tuned(&plan.shape, plan.gpu, plan.params.clone(), &tuning).is_ok()
            });
            let allowed: Vec<String> = allowed.map(|value| value.value()).collect();
            table.add_row([
                role.to_string(),
                first.knob().to_owned(),
                first.present(plan, role),
                allowed.join(", "),
            ]);
        }
    }
    table
}
