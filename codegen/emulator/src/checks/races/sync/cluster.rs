//! Synchronisation by `barrier.cluster`, and happens-before between the CTAs of a cluster.

use std::sync::Arc;

use super::objects::MbarrierSync;
use super::scope::MemoryScope;
use super::state::SyncState;
use crate::checks::races::clock::Time;

impl SyncState {
    /// Records the arrival of lanes at the cluster barrier; `releases` is false for `.relaxed`.
    pub(in crate::checks::races) fn arrive_in_cluster(&mut self, warp: usize, lanes: u32, releases: bool) {
        if releases {
            self.warps[warp].join_into(warp, lanes, &mut self.cluster_barrier.arriving);
            return self.advance(warp);
        }
        // A relaxed arrival releases the clock of an earlier fence, and mbarrier initialisations covered by
        // `fence.mbarrier_init`.
        let arriving = &mut self.cluster_barrier.arriving;
        for group in self.warps[warp].groups_of(lanes) {
            if let Some(fence) = &group.fences[MemoryScope::Cluster as usize] {
                arriving.join(&fence.clock);
                Arc::make_mut(&mut arriving.own).raise(warp, group.lanes & lanes, fence.time);
            }
        }
        let phase = self.cluster_barrier.phase + 1;
        let is_own = |mbarrier: &MbarrierSync| {
            mbarrier.initialised.warp == warp && lanes >> mbarrier.initialised.lane & 1 != 0
        };
        for mbarrier in self.mbarriers.iter_mut().filter(|mbarrier| is_own(mbarrier)) {
            if mbarrier.is_init_fenced && mbarrier.init_visible_after.is_none() {
                mbarrier.init_visible_after = Some(phase);
            }
        }
    }

    /// Completes a phase of the cluster barrier: all threads have arrived.
    pub(in crate::checks::races) fn complete_cluster_barrier(&mut self) {
        self.cluster_barrier.phase += 1;
        self.cluster_barrier.completed = std::mem::take(&mut self.cluster_barrier.arriving);
    }

    /// Acquires the clocks released at the cluster barrier, after lanes have waited there.
    pub(in crate::checks::races) fn acquire_cluster_barrier(&mut self, warp: usize, lanes: u32) {
        let completed = self.cluster_barrier.completed.clone();
        self.acquire(warp, lanes, &completed);
        self.warps[warp].cluster_phase = self.cluster_barrier.phase;
    }

    /// Whether a warp has waited at the cluster barrier that made the mbarrier's initialisation visible.
    pub(in crate::checks::races) fn is_init_visible(&self, warp: usize, mbarrier: &MbarrierSync) -> bool {
        mbarrier.init_visible_after.is_some_and(|phase| phase <= self.warps[warp].cluster_phase)
    }

    /// Whether the start of the CTA of rank `rank` happened before a thread's next access: the thread's warp has waited
    /// at the cluster barrier, or an access of that CTA after time `since` happened before.
    pub(in crate::checks::races) fn knows_started(
        &self,
        (warp, lane): (usize, u32),
        rank: usize,
        since: Time,
    ) -> bool {
        let clock = &self.clock(warp, lane).own;
        self.warps[warp].cluster_phase > 0
            || (rank * self.warps_per_cta..(rank + 1) * self.warps_per_cta)
                .any(|other| (0..32).any(|lane| clock.covers(other, 1 << lane, since + 1)))
    }

    /// Whether the accesses of a lane up to time `time` are in the vector clock of a thread of the CTA of rank `rank`.
    pub(in crate::checks::races) fn is_known_in(
        &self,
        rank: usize,
        (warp, lane): (usize, u32),
        time: Time,
    ) -> bool {
        let warps = &self.warps[rank * self.warps_per_cta..(rank + 1) * self.warps_per_cta];
        let groups = warps.iter().flat_map(|warp| &warp.groups);
        groups.into_iter().any(|group| group.clock.own.covers(warp, 1 << lane, time))
    }
}
