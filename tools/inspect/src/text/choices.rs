//! Table of how a plan's launches divide their work, and of whether the cost model or tuning rules chose the division.

use bespoke::device::Bytes;
use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::kernels::gemv::GemvShape;
use bespoke_kernels::kernels::launching::Trigger;
use bespoke_kernels::plan::tuning::trigger_name;
use bespoke_kernels::plan::{Launch, LaunchRole, Plan, Tuning};
use bespoke_kernels::spec::{KernelSpec, matrix_name};

use super::grid;
use super::plan::table;

/// A line for every kernel with a role, or only for `kernel`, and the limits of the target. Empty for a kernel without
/// a role.
pub fn choices(plan: &Plan, kernel: Option<usize>, tuning: &Tuning) -> String {
    let header = [
        "role",
        "shape",
        "launches",
        "CTAs",
        "tiles",
        "warps",
        "stages",
        "in flight",
        "shared",
        "resident",
        "trigger",
        "chosen by",
    ];
    let mut table = table(&header, &[2, 3, 4, 5, 6, 7, 8, 9]);
    let gpu = &plan.gpu;
    let mut seen: Vec<(LaunchRole, usize)> = Vec::new();
    for launch in plan.launches.iter().filter(|launch| launch.label.role.is_tunable()) {
        let role = launch.label.role;
        let kind = (role, launch.kernel);
        if seen.contains(&kind) || kernel.is_some_and(|kernel| kernel != launch.kernel) {
            continue;
        }
        seen.push(kind);
        let count = |other: &&Launch| (other.label.role, other.kernel) == kind;
        let spec = &plan.kernels[launch.kernel].spec;
        let Some(choice) = Choice::of(spec) else { continue };
        let shared = launch.dynamic_shared + spec.static_shared();
        table.add_row([
            role.to_string(),
            choice.shape,
            plan.launches.iter().filter(count).count().to_string(),
            grid(launch.grid),
            choice.tiles,
            choice.warps.to_string(),
            choice.stages.to_string(),
            Bytes(choice.in_flight).to_string(),
            Bytes(shared.into()).to_string(),
            gpu.resident(launch.threads, shared).to_string(),
            trigger_name(choice.trigger).to_owned(),
            chosen_by(plan, launch, tuning),
        ]);
    }
    if seen.is_empty() {
        return String::new();
    }
    format!(
        "{}\n\n{}: {} multiprocessors with {} of shared memory each; {} in flight on each keep the memory busy.\n\
         tiles: of 16 rows, a CTA; in flight: of a CTA, at most; resident: CTAs that fit a multiprocessor.\n\n",
        table.trim_fmt(),
        gpu.target,
        gpu.multiprocessors,
        Bytes(gpu.shared_per_multiprocessor.into()),
        Bytes(gpu.bytes_in_flight())
    )
}

/// Division of the work of a kernel.
struct Choice {
    shape: String,
    tiles: String,
    warps: u32,
    stages: u32,
    /// Bytes in flight per CTA.
    in_flight: u64,
    trigger: Trigger,
}

impl Choice {
    fn of(spec: &KernelSpec) -> Option<Choice> {
        match spec {
            KernelSpec::Gemv(shape) => Some(Choice::of_product(shape)),
            KernelSpec::Attention(shape) => Some(Choice::of_attention(shape)),
            _ => None,
        }
    }

    fn of_product(s: &GemvShape) -> Choice {
        let tiles: u32 = s.layouts().iter().map(|layout| layout.tiles).sum();
        Choice {
            shape: matrix_name(s),
            tiles: format!("{:.1}", f64::from(tiles) / f64::from(s.schedule.grid)),
            warps: s.schedule.warps,
            stages: s.schedule.stages,
            in_flight: u64::from(s.schedule.in_flight) * u64::from(s.stage_bytes()),
            trigger: s.schedule.trigger,
        }
    }

    fn of_attention(s: &AttentionShape) -> Choice {
        Choice {
            shape: format!(
                "h{}_k{}_d{}, splits of {} pages or more",
                s.heads, s.kv_heads, s.head_dim, s.min_pages
            ),
            tiles: "-".to_owned(),
            // Without the warp that only loads.
            warps: s.threads() / 32 - 1,
            stages: s.stages,
            in_flight: u64::from(s.stages) * u64::from(s.stage_bytes()),
            trigger: s.trigger,
        }
    }
}

/// What chose the division: `cost model`, or the parameters that the tuning rules set.
fn chosen_by(plan: &Plan, launch: &Launch, tuning: &Tuning) -> String {
    let knobs = tuning.rule_of(plan, launch).knobs();
    match knobs.as_slice() {
        [] => "cost model".to_owned(),
        knobs => {
            let names: Vec<&str> = knobs.iter().map(|(knob, _)| *knob).collect();
            format!("file: {}", names.join(", "))
        }
    }
}
