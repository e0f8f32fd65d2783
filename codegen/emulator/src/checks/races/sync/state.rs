//! Vector clocks of a cluster's threads; CTA barriers and `bar.warp.sync`.

use std::sync::Arc;

use super::lanes::{AccessorClocks, LaneGroup, WarpClocks};
use super::objects::{ClusterBarrierClocks, MbarrierSync};
use crate::checks::races::clock::{ClusterClocks, Time, VectorClock};
use crate::checks::races::stamp::Stamp;
use crate::geometry::BARRIERS;

/// Change in the clocks of other clusters that lanes of a warp have: the clocks since time `since`.
pub(in crate::checks::races) struct ClockChange {
    warp: usize,
    lanes: u32,
    since: Time,
    clocks: Arc<ClusterClocks>,
}

/// Vector clocks of a cluster's threads, barriers and mbarriers.
pub(in crate::checks::races) struct SyncState {
    /// The cluster's position in the grid.
    pub(in crate::checks::races) cluster: u64,
    pub(super) clock: Time,
    pub(super) warps: Vec<WarpClocks>,
    pub(in crate::checks::races) warps_per_cta: usize,
    /// Joined clocks of the arrivals at each CTA barrier.
    barriers: Vec<VectorClock>,
    pub(super) cluster_barrier: ClusterBarrierClocks,
    pub(in crate::checks::races) mbarriers: Vec<MbarrierSync>,
    /// Changes in the threads' clocks of other clusters, oldest first.
    pub(in crate::checks::races) history: Vec<ClockChange>,
    /// Last time at which a thread released a clock to other clusters, or acquired one from another cluster.
    pub(in crate::checks::races) last_grid_sync: Time,
    /// Whether a thread has released a clock to other clusters.
    pub(in crate::checks::races) has_released_to_grid: bool,
}

impl SyncState {
    pub(in crate::checks::races) fn new() -> SyncState {
        SyncState {
            cluster: 0,
            clock: 0,
            warps: Vec::new(),
            warps_per_cta: 1,
            barriers: Vec::new(),
            cluster_barrier: ClusterBarrierClocks::default(),
            mbarriers: Vec::new(),
            history: Vec::new(),
            last_grid_sync: 0,
            has_released_to_grid: false,
        }
    }

    /// Begins the cluster at a position in the grid. Returns the last time of earlier clusters: all accesses of this
    /// cluster have later times.
    pub(in crate::checks::races) fn start(
        &mut self,
        cluster: u64,
        [ctas, warps_per_cta]: [usize; 2],
    ) -> Time {
        let start = self.clock;
        (self.cluster, self.warps_per_cta) = (cluster, warps_per_cta);
        self.clock += 1;
        // The warps share one `VectorClock` allocation until they synchronise.
        let initial = VectorClock::default();
        self.warps.clear();
        self.warps.resize_with(ctas * warps_per_cta, || WarpClocks::new(start + 1, initial.clone()));
        self.barriers.clear();
        self.barriers.resize_with(ctas * BARRIERS, VectorClock::default);
        self.cluster_barrier = ClusterBarrierClocks::default();
        self.mbarriers.clear();
        self.history.clear();
        self.last_grid_sync = start;
        self.has_released_to_grid = false;
        start
    }

    /// Whether the cluster has several CTAs.
    pub(in crate::checks::races) fn has_peers(&self) -> bool {
        self.warps.len() > self.warps_per_cta
    }

    /// The rank of a warp's CTA.
    pub(in crate::checks::races) fn rank(&self, warp: usize) -> usize {
        warp / self.warps_per_cta
    }

    /// Whether the 32-bit times are near overflow.
    pub(in crate::checks::races) fn is_near_overflow(&self) -> bool {
        self.clock > u32::MAX / 2
    }

    /// Advances the cluster's logical time; returns the new time.
    pub(in crate::checks::races) fn tick(&mut self) -> Time {
        self.clock += 1;
        self.clock
    }

    /// Logical time of a warp's next accesses.
    pub(in crate::checks::races) fn now(&self, warp: usize) -> Time {
        self.warps[warp].now
    }

    /// Gives the warp's later accesses a new time.
    pub(super) fn advance(&mut self, warp: usize) {
        self.warps[warp].now = self.tick();
    }

    /// Clocks of the lanes that make an access; `strength` has the strength bits for [`Stamp::origin`].
    pub(in crate::checks::races) fn accessor(
        &self,
        warp: usize,
        lanes: u32,
        pc: u32,
        strength: u32,
    ) -> AccessorClocks<'_> {
        let WarpClocks { now, groups, .. } = &self.warps[warp];
        let stamp = Stamp { time: *now, origin: (warp as u32) << 5 | strength, pc };
        AccessorClocks { warp, lanes, stamp, groups }
    }

    /// A lane of each group of lanes of a warp with the same clock.
    pub(in crate::checks::races) fn representatives(&self, warp: usize) -> Vec<u32> {
        self.warps[warp].groups.iter().map(|group| group.lanes.trailing_zeros()).collect()
    }

    /// The vector clock of a thread.
    pub(in crate::checks::races) fn clock(&self, warp: usize, lane: u32) -> &VectorClock {
        let groups = &self.warps[warp].groups;
        let found = groups.iter().find(|group| group.lanes >> lane & 1 != 0);
        &found.unwrap_or(&groups[0]).clock
    }

    /// Joined clocks of `lanes`, including the lanes' own accesses up to now. Later accesses of the warp get a new
    /// time.
    pub(super) fn release(&mut self, warp: usize, lanes: u32) -> VectorClock {
        let mut clock = VectorClock::default();
        self.warps[warp].join_into(warp, lanes, &mut clock);
        self.advance(warp);
        clock
    }

    pub(super) fn acquire(&mut self, warp: usize, lanes: u32, released: &VectorClock) {
        let clocks = &mut self.warps[warp];
        clocks.split(lanes);
        let mut changed = 0;
        for group in clocks.groups_of_mut(lanes) {
            if group.clock.join(released) {
                changed |= group.lanes;
            }
        }
        self.log_other_clusters(warp, changed);
    }

    /// Adds the lanes' clocks of other clusters to the history, after a change.
    pub(super) fn log_other_clusters(&mut self, warp: usize, lanes: u32) {
        if lanes == 0 {
            return;
        }
        self.last_grid_sync = self.clock;
        self.advance(warp);
        let clocks = &self.warps[warp];
        for group in clocks.groups_of(lanes) {
            if let Some(others) = &group.clock.others {
                let change =
                    ClockChange { warp, lanes: group.lanes, since: clocks.now, clocks: others.clone() };
                self.history.push(change);
            }
        }
    }

    /// Executes `bar.warp.sync`: every lane of `lanes` acquires the clocks and accesses of all of them.
    pub(in crate::checks::races) fn sync_lanes(&mut self, warp: usize, lanes: u32) {
        if let WarpClocks { now, groups, .. } = &mut self.warps[warp]
            && let [group] = &mut groups[..]
            && lanes == u32::MAX
        {
            // All lanes have the same clock, so only the lanes' own latest accesses are not in it yet.
            Arc::make_mut(&mut group.clock.own).raise(warp, lanes, *now);
            if let (Some(time), Some(sc)) = (group.fenced_sc, &mut group.clock.sc) {
                Arc::make_mut(&mut Arc::make_mut(sc).own).raise(warp, lanes, time);
            }
            return self.advance(warp);
        }
        let clock = self.release(warp, lanes);
        self.assign(warp, lanes, &clock);
    }

    /// Gives `lanes` the clock `clock`, which is at least the clock of each lane, and makes lanes without fences one
    /// group.
    fn assign(&mut self, warp: usize, lanes: u32, clock: &VectorClock) {
        let clocks = &mut self.warps[warp];
        clocks.split(lanes);
        let mut changed = false;
        let mut with_fences: Vec<LaneGroup> = Vec::new();
        clocks.groups.retain_mut(|group| {
            if group.lanes & lanes == 0 {
                return true;
            }
            changed |= group.clock.join(clock);
            if group.has_fence_state() {
                with_fences.push(group.clone());
            }
            false
        });
        // Lanes that have executed fences stay in separate groups.
        let fenced_lanes = with_fences.iter().fold(0, |lanes, group| lanes | group.lanes);
        clocks
            .groups
            .extend(with_fences.into_iter().map(|group| LaneGroup { clock: clock.clone(), ..group }));
        if lanes & !fenced_lanes != 0 {
            clocks.groups.push(LaneGroup::new(lanes & !fenced_lanes, clock.clone()));
        }
        self.log_other_clusters(warp, if changed { lanes } else { 0 });
    }

    /// Records a warp's arrival at a CTA barrier, which is numbered through the CTAs of the cluster.
    pub(in crate::checks::races) fn arrive_at_barrier(&mut self, warp: usize, barrier: usize) {
        self.warps[warp].join_into(warp, u32::MAX, &mut self.barriers[barrier]);
        self.advance(warp);
    }

    /// Completes a CTA barrier: the released warps acquire the clocks of all arrivals.
    pub(in crate::checks::races) fn complete_barrier(
        &mut self,
        barrier: usize,
        warps: impl Iterator<Item = usize>,
    ) {
        let clock = std::mem::take(&mut self.barriers[barrier]);
        for warp in warps {
            self.assign(warp, u32::MAX, &clock);
        }
    }

    /// Converts clocks released by clusters to a vector clock of a thread of this cluster.
    pub(in crate::checks::races) fn clock_of_clusters(&self, clocks: &ClusterClocks) -> VectorClock {
        VectorClock::from_clusters(self.cluster, clocks.clone())
    }
}

/// Clocks of other clusters that a lane of a warp had at a time; `None` before the first change.
pub(in crate::checks::races) fn clocks_at(
    history: &[ClockChange],
    warp: usize,
    lane: u32,
    time: Time,
) -> Option<&Arc<ClusterClocks>> {
    let is_current =
        |change: &&ClockChange| change.warp == warp && change.lanes >> lane & 1 != 0 && change.since <= time;
    history.iter().rev().find(is_current).map(|change| &change.clocks)
}
