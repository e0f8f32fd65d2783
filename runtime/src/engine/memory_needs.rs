//! Device memory that a plan needs, computed before anything is allocated.

use std::fmt;

use bespoke_kernels::kernels::attention::{KvType, PAGE};
use bespoke_kernels::plan::{BufferKind, Plan, PlanParams};
use serde::Serialize;

use super::{DoesNotFit, EngineError};
use crate::device::{Bytes, Device, MemoryInfo};

/// Bytes of device memory by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// Bytes of the repacked weights.
    pub weights: u64,
    /// Bytes of the KV cache.
    pub cache: u64,
    /// Number of positions in the KV cache: the context of a sequence, or with several slots those of all pages.
    pub positions: u32,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Bytes of activations, tokens and state.
    pub activations: u64,
}

impl MemoryNeeds {
    /// Computes the memory that `plan` needs.
    pub fn of(plan: &Plan) -> MemoryNeeds {
        let weights = plan.bytes_where(|kind| matches!(kind, BufferKind::Weights { .. }));
        let cache = plan.bytes_where(|kind| *kind == BufferKind::KvCache);
        let activations = plan.total_bytes() - weights - cache;
        let PlanParams { context, slots, pages, kv, .. } = plan.params;
        let positions = if slots == 1 { context } else { pages * PAGE };
        MemoryNeeds { weights, cache, positions, kv, activations }
    }

    /// Total bytes for all purposes.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.activations
    }
}

impl fmt::Display for MemoryNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (weights {}, KV cache for {} positions {} of {}, activations {})",
            Bytes(self.total()),
            Bytes(self.weights),
            self.positions,
            Bytes(self.cache),
            self.kv,
            Bytes(self.activations)
        )
    }
}

/// Checks that the plan's buffers fit the free device memory, and logs their size.
pub(super) fn check(plan: &Plan, device: &dyn Device) -> Result<(), EngineError> {
    let MemoryInfo { free, total } = device.memory()?;
    let needs = MemoryNeeds::of(plan);
    if needs.total() > free {
        let (device, fits) = (device.info().name.clone(), largest_context(plan, free));
        return Err(EngineError::DoesNotFit(Box::new(DoesNotFit { device, needs, free, fits })));
    }
    tracing::info!("memory: {needs} of {} free", Bytes(free));
    tracing::debug!(
        "memory: {} in total, {} for each position of the cache, {} left",
        Bytes(total),
        Bytes(needs.cache / u64::from(needs.positions)),
        Bytes(free - needs.total())
    );
    Ok(())
}

/// Granularity of a proposed context in positions; proposals are rounded down because free memory fluctuates.
const ROUND: u32 = 64;

/// Largest context, smaller than the plan's, with which the plan fits `free` bytes; none if no context fits.
fn largest_context(plan: &Plan, free: u64) -> Option<u32> {
    let bytes = |context: u32| {
        let pages = plan.params.slots * context.div_ceil(PAGE);
        let params = PlanParams { context, pages, ..plan.params.clone() };
        Some(Plan::new(&plan.shape, plan.gpu, params).ok()?.total_bytes())
    };
    // Steps of more rows have larger activations, in every context.
    let of_steps = bytes(plan.params.context).map_or(0, |one_row| plan.total_bytes().saturating_sub(one_row));
    let fits = |context: u32| bytes(context).is_some_and(|bytes| bytes + of_steps <= free);
    // Bisection: `low` positions fit, `high` do not.
    let (mut low, mut high) = (0, plan.params.context);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    let rounded = if low > ROUND { low / ROUND * ROUND } else { low };
    (rounded > 0).then_some(rounded)
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;
    use bespoke_kernels::shape::{ModelShape, builtin};

    use super::*;
    use crate::device::emulator_with_info;

    fn plan(context: u32) -> Plan {
        let file = builtin().into_iter().find(|file| file.name == "llama-3.2-1b").unwrap();
        let shape: ModelShape = file.with_mix("q4_k_m").unwrap();
        Plan::new(&shape, Target::Sm90, PlanParams::single(context)).unwrap()
    }

    #[test]
    fn the_total_is_the_size_of_all_buffers() {
        let plan = plan(4096);
        let needs = MemoryNeeds::of(&plan);
        assert_eq!(needs.total(), plan.total_bytes());
        assert_eq!(needs.cache, plan.kv_bytes() * 4096);
        assert!(needs.to_string().contains("(weights ") && needs.to_string().contains(" 4096 positions "));
    }

    #[test]
    fn the_positions_of_several_slots_are_those_of_all_pages() {
        let one = plan(4096);
        let params = PlanParams { slots: 8, pages: 100, ..one.params.clone() }.decode(8);
        let needs = MemoryNeeds::of(&Plan::new(&one.shape, one.gpu, params).unwrap());
        assert_eq!(needs.cache, one.kv_bytes() * 6400);
        assert!(needs.to_string().contains(" 6400 positions "), "{needs}");
    }

    #[test]
    fn the_error_proposes_a_context_that_fits() {
        let (plan, fitting) = (plan(4096), plan(1024).total_bytes());
        let device = emulator_with_info(|info| info.memory_total = fitting);
        let error = check(&plan, &*device).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the model does not fit bespoke PTX emulator: it needs "), "{text}");
        assert!(
            text.ends_with(&format!("and {} is free; a context of 1024 positions would fit", Bytes(fitting))),
            "{text}"
        );
        let device = emulator_with_info(|info| info.memory_total = 1 << 20);
        let error = check(&plan, &*device).unwrap_err();
        assert!(error.to_string().ends_with("and 1.00 MiB is free; no context would fit"), "{error}");
        assert_eq!(
            error.advice(),
            Some("choose a smaller quantisation or model, or free the device's memory")
        );
    }

    #[test]
    fn the_largest_fitting_context_is_found() {
        let large = plan(100_000);
        for fitting in [1, 5, 64, 640, 99_968] {
            let free = plan(fitting).total_bytes();
            assert_eq!(largest_context(&large, free), Some(fitting));
            assert_eq!(
                largest_context(&large, free - 1),
                Some(fitting - 1)
                    .filter(|&c| c > 0)
                    .map(|c| { if c > ROUND { c / ROUND * ROUND } else { c } })
            );
        }
        assert_eq!(largest_context(&large, 1 << 20), None);
    }
}
