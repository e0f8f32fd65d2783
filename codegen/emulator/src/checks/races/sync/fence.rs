//! Fences, and the releases and acquires of strong accesses.

use std::sync::Arc;

use super::lanes::Fence;
use super::scope::{FenceSides, MEMORY_SCOPES, MemoryOrder, MemoryScope};
use super::state::SyncState;
use crate::checks::races::clock::{ClusterClock, VectorClock, async_proxy_index};
use crate::finding::Space;

impl SyncState {
    /// Executes a fence: if it acquires, acquires the clocks that relaxed strong reads have observed; if it releases, saves the
    /// current clock, which later strong writes release.
    pub(in crate::checks::races) fn fence(
        &mut self,
        warp: usize,
        lanes: u32,
        scope: MemoryScope,
        sides: FenceSides,
    ) {
        let clocks = &mut self.warps[warp];
        clocks.split(lanes);
        let mut changed = 0;
        let now = clocks.now;
        for group in clocks.groups_of_mut(lanes) {
            let observed = group.observed[..=scope as usize].iter_mut().filter(|_| sides.acquires);
            for observed in observed.filter_map(Option::take) {
                changed |= if group.clock.join(&observed) { group.lanes } else { 0 };
            }
            if sides.releases {
                let fence = Fence { time: now, clock: group.clock.clone() };
                group.fences[..=scope as usize].fill(Some(fence));
            }
        }
        self.log_other_clusters(warp, changed);
        self.advance(warp);
    }

    /// Executes a proxy fence: makes the accesses of memory of some spaces in the current clock, and the mbarriers initialised so
    /// far, visible to the async proxy.
    pub(in crate::checks::races) fn fence_async_proxy(&mut self, warp: usize, lanes: u32, spaces: &[Space]) {
        let clocks = &mut self.warps[warp];
        clocks.split(lanes);
        let now = clocks.now;
        for group in clocks.groups_of_mut(lanes) {
            let mut visible = ClusterClock::clone(&group.clock.own);
            visible.raise(warp, group.lanes, now);
            let visible = Arc::new(visible);
            for &space in spaces {
                group.clock.async_proxy[async_proxy_index(space)] = Some(visible.clone());
            }
        }
        self.advance(warp);
        if spaces.contains(&Space::Shared) {
            self.fence_mbarrier_inits(warp, lanes);
        }
    }

    /// Clock that a strong write by a lane releases at each [`MemoryScope`].
    pub(in crate::checks::races) fn released_by(
        &mut self,
        warp: usize,
        lane: u32,
        order: MemoryOrder,
    ) -> [Option<VectorClock>; MEMORY_SCOPES] {
        let mut released = Default::default();
        let is_in_scope = |scope: usize| scope <= order.scope as usize;
        if order.releases {
            let clock = self.release(warp, 1 << lane);
            released = std::array::from_fn(|scope| is_in_scope(scope).then(|| clock.clone()));
        } else if let Some(group) = self.warps[warp].groups_of(1 << lane).next() {
            let release = |fence: &Fence| {
                let mut released = fence.clock.clone();
                Arc::make_mut(&mut released.own).raise(warp, 1 << lane, fence.time);
                released
            };
            let fence = |scope: usize| group.fences[scope].as_ref().filter(|_| is_in_scope(scope));
            released = std::array::from_fn(|scope| fence(scope).map(release));
        }
        if released[MemoryScope::Grid as usize].is_some() {
            self.last_grid_sync = self.clock;
            self.has_released_to_grid = true;
        }
        released
    }

    /// Records that a strong read by a lane has observed a release at a scope. An acquiring read acquires the released
    /// clock now, a relaxed read at the next fence.
    pub(in crate::checks::races) fn observe_release(
        &mut self,
        (warp, lane): (usize, u32),
        acquires: bool,
        scope: MemoryScope,
        released: &VectorClock,
    ) {
        if acquires {
            return self.acquire(warp, 1 << lane, released);
        }
        let clocks = &mut self.warps[warp];
        clocks.split(1 << lane);
        for group in clocks.groups_of_mut(1 << lane) {
            match &mut group.observed[scope as usize] {
                Some(observed) => _ = observed.join(released),
                none => *none = Some(released.clone()),
            }
        }
    }
}
