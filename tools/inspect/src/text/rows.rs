//! Costs of the kernels of steps of several numbers of rows, side by side.

use bespoke_kernels::plan::{LaunchRole, Plan};
use bespoke_kernels::spec::{KernelSpec, matrix_name};

use super::kernels::cells;
use super::plan::table;
use super::{grid, step};
use crate::Stats;

/// GPU whose roofline the table shows.
const GPU: &str = "H200 SXM";

/// Table of the kernels of several steps of a model by role, then by step, and a line for each step. A role may have
/// several kernels.
pub fn by_rows(steps: &[(Plan, Vec<Stats>)]) -> String {
    let header = [
        "role",
        "rows",
        "shape",
        "launches",
        "grid",
        "threads",
        "shared",
        "registers",
        "spills",
        "CTAs/SM",
        "bytes/launch",
        "operations/byte",
        "roofline µs",
    ];
    let mut table = table(&header, &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    for role in LaunchRole::ALL {
        for (plan, stats) in steps {
            for (index, (kernel, stats)) in plan.kernels.iter().zip(stats).enumerate() {
                let of_role = plan.launches.iter().filter(|it| it.label.role == role && it.kernel == index);
                let launches = of_role.count();
                if launches == 0 {
                    continue;
                }
                let shape = match &kernel.spec {
                    KernelSpec::Gemv(s) => matrix_name(s),
                    _ => String::new(),
                };
                let [registers, spills] = cells(stats.ptxas);
                table.add_row([
                    role.to_string(),
                    stats.rows.to_string(),
                    shape,
                    launches.to_string(),
                    grid(stats.grid),
                    stats.threads.to_string(),
                    (stats.dynamic_shared + stats.report.static_shared).to_string(),
                    registers,
                    spills,
                    stats.occupancy.ctas.to_string(),
                    stats.bytes.to_string(),
                    format!("{:.1}", stats.intensity),
                    format!("{:.2}", stats.roofline[GPU] * 1e6),
                ]);
            }
        }
    }
    let total = |(plan, stats): &(Plan, Vec<Stats>)| {
        let params = &plan.params;
        let seconds: f64 = stats.iter().map(|kernel| kernel.launches as f64 * kernel.roofline[GPU]).sum();
        format!(
            "{}: {} launches of {} kernels; {:.1} µs at the roofline, {:.0} tokens a second\n",
            step(params.kind, params.rows),
            plan.launches.len(),
            plan.kernels.len(),
            seconds * 1e6,
            f64::from(params.rows) / seconds
        )
    };
    let head = steps.first().map_or(String::new(), |(plan, _)| {
        let context = plan.params.context;
        format!(
            "{} for {}, with {context} positions in the cache of a sequence. Roofline: of an {GPU}, all launches one after the other.\n",
            plan.shape.name,
            plan.target()
        )
    });
    format!("{}\n\n{head}{}", table.trim_fmt(), steps.iter().map(total).collect::<String>())
}
