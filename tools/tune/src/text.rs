//! Trials and results of a search as text.

use bespoke_kernels::plan::{LaunchRole, Plan, Tuning};
use comfy_table::{CellAlignment, Table, presets};

use crate::meter::Confirmation;
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

/// A sentence with the times before and after, and with several depths the gain at each.
pub fn verdict(confirmation: &Confirmation) -> String {
    let Confirmation { total, by_depth } = confirmation;
    let Comparison { before, gain, noise } = *total;
    let mut text = format!(
        "{before:.4} ms a step by the cost model, {:.4} ms by these rules: {:.2} % less (noise {:.2} %)",
        before - gain,
        total.fraction() * 100.0,
        noise / before * 100.0
    );
    if by_depth.len() > 1 {
        let at = |(depth, compared): &(u32, Comparison)| {
            format!("{:.2} % at a depth of {depth}", compared.fraction() * 100.0)
        };
        text += &format!("; {}", by_depth.iter().map(at).collect::<Vec<_>>().join(", "));
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_the_change_at_each_of_several_depths() {
        let compared = |before, gain| Comparison { before, gain, noise: 0.002 };
        let mut confirmation = Confirmation {
            total: compared(1.0, 0.01),
            by_depth: vec![(512, compared(0.5, 0.02)), (2048, compared(1.5, -0.015))],
        };
        let total =
            "1.0000 ms a step by the cost model, 0.9900 ms by these rules: 1.00 % less (noise 0.20 %)";
        assert_eq!(
            verdict(&confirmation),
            format!("{total}; 4.00 % at a depth of 512, -1.00 % at a depth of 2048")
        );
        confirmation.by_depth.truncate(1);
        assert_eq!(verdict(&confirmation), total);
    }
}
