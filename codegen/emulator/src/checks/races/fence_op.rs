//! Fence instructions, as the race detector knows them.

use super::sync::{FenceSides, MemoryScope};
use crate::finding::Space;

/// A fence instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FenceOp {
    /// `fence` of a scope: `.acq_rel`, `.acquire` or `.release`, and `.sc` of less than `.gpu` scope.
    Memory { scope: MemoryScope, sides: FenceSides },
    /// `fence.sc` of `.gpu` or `.sys` scope.
    GridSc,
    /// Proxy fence between the generic proxy and the async proxy, which executes bulk copies, for memory of the state spaces.
    AsyncProxy { spaces: &'static [Space] },
    /// `fence.mbarrier_init`.
    MbarrierInit,
    /// A fence whose effect is not modelled.
    Other,
}

/// Every fence. A decoded instruction holds the index in its immediate.
const ALL: [FenceOp; 15] = [
    memory(MemoryScope::Cta, FenceSides::BOTH),
    memory(MemoryScope::Cta, FenceSides::ACQUIRE),
    memory(MemoryScope::Cta, FenceSides::RELEASE),
    memory(MemoryScope::Cluster, FenceSides::BOTH),
    memory(MemoryScope::Cluster, FenceSides::ACQUIRE),
    memory(MemoryScope::Cluster, FenceSides::RELEASE),
    memory(MemoryScope::Grid, FenceSides::BOTH),
    memory(MemoryScope::Grid, FenceSides::ACQUIRE),
    memory(MemoryScope::Grid, FenceSides::RELEASE),
    FenceOp::GridSc,
    FenceOp::AsyncProxy { spaces: &[Space::Shared, Space::Global] },
    FenceOp::AsyncProxy { spaces: &[Space::Shared] },
    FenceOp::AsyncProxy { spaces: &[Space::Global] },
    FenceOp::MbarrierInit,
    FenceOp::Other,
];

const fn memory(scope: MemoryScope, sides: FenceSides) -> FenceOp {
    FenceOp::Memory { scope, sides }
}

impl FenceOp {
    /// The index of the fence among all.
    pub(crate) fn number(self) -> u64 {
        ALL.iter().position(|it| *it == self).expect("every fence is in the list") as u64
    }

    /// The fence with an index.
    pub(crate) fn of_number(number: u64) -> FenceOp {
        ALL[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::races::fence_op::*;

    #[test]
    fn every_fence_has_a_number_of_its_own() {
        for (number, fence) in ALL.into_iter().enumerate() {
            assert_eq!(fence.number(), number as u64);
            assert_eq!(FenceOp::of_number(fence.number()), fence);
        }
        for scope in [MemoryScope::Cta, MemoryScope::Cluster, MemoryScope::Grid] {
            for sides in [FenceSides::BOTH, FenceSides::ACQUIRE, FenceSides::RELEASE] {
                assert!(ALL.contains(&memory(scope, sides)), "{scope:?} {sides:?}");
            }
        }
    }
}
