//! `fence.sc` of `.gpu` or `.sys` scope, and the order among these fences.
//!
//! A `fence.sc` synchronises with each later one in Fence-SC order (PTX ISA, "Memory Consistency Model"). That order is known
//! where the opposite one would contradict causality: a strong write that a fence happened before is observed by a strong read
//! that happened before the other fence. Neither the writer nor the reader need be the thread that executes a fence; barriers
//! may order the fences and the accesses of other threads.
//!
//! A clock therefore has the clocks at the fences that happened before, which strong writes pass on, and those that strong
//! reads have observed, which the next fence acquires.

use std::sync::Arc;

use super::scope::{FenceSides, MemoryScope};
use super::state::SyncState;
use crate::checks::races::clock::{ClusterClock, ClusterClocks, FenceScClocks, VectorClock, join_clocks};

impl SyncState {
    /// Executes a `fence.sc` of `.gpu` or `.sys` scope: an acquire-release fence that also acquires the clocks at the `fence.sc`
    /// operations before it in Fence-SC order.
    pub(in crate::checks::races) fn fence_sc(&mut self, warp: usize, lanes: u32) {
        let cluster = self.cluster;
        let clocks = &mut self.warps[warp];
        clocks.split(lanes);
        let now = clocks.now;
        let mut changed = 0;
        for group in clocks.groups_of_mut(lanes) {
            if let Some(sc) = group.clock.sc.take() {
                let observed = VectorClock::from_clusters(cluster, sc.observed.clone());
                changed |= if group.clock.join(&observed) { group.lanes } else { 0 };
            }
            let others = group.clock.others.as_deref().cloned().unwrap_or_default();
            let sc = FenceScClocks { own: group.clock.own.clone(), others, observed: ClusterClocks::new() };
            group.clock.sc = Some(Arc::new(sc));
            group.fenced_sc = Some(now);
        }
        self.log_other_clusters(warp, changed);
        self.fence(warp, lanes, MemoryScope::Grid, FenceSides::BOTH);
    }

    /// Clocks at the fences that happened before a strong write by a lane.
    pub(in crate::checks::races) fn fenced_by(&mut self, warp: usize, lane: u32) -> Option<ClusterClocks> {
        let group = self.warps[warp].groups_of(1 << lane).next()?;
        let sc = group.clock.sc.as_ref().filter(|sc| group.fenced_sc.is_some() || sc.has_fences())?;
        let mut own = ClusterClock::clone(&sc.own);
        group.fenced_sc.into_iter().for_each(|time| own.raise(warp, 1 << lane, time));
        let mut fenced = sc.others.clone();
        fenced.insert(self.cluster, Arc::new(own));
        self.last_grid_sync = self.clock;
        self.has_released_to_grid = true;
        Some(fenced)
    }

    /// Records that a strong read by a lane has observed a write after fences with these clocks.
    pub(in crate::checks::races) fn observe_fences(
        &mut self,
        warp: usize,
        lane: u32,
        fenced: &ClusterClocks,
    ) {
        let clocks = &mut self.warps[warp];
        clocks.split(1 << lane);
        for group in clocks.groups_of_mut(1 << lane) {
            let sc = Arc::make_mut(group.clock.sc.get_or_insert_default());
            join_clocks(&mut sc.observed, fenced);
        }
    }
}
