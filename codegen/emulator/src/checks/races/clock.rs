//! Vector clocks.
//!
//! All lanes of a warp usually have the same time. A clock therefore has one time per warp, and lane times only for the
//! warps whose lanes have different times.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Logical time of a cluster, which advances whenever a thread of the cluster releases a clock.
pub(super) type Time = u32;

/// Vector clock over the threads and mbarriers of one cluster.
///
/// An access happened before if the time of the access is at most the accessing thread's time in the clock. A phase of
/// an mbarrier, with the copies that the phase waited for, happened before if the time of its completion is at most the
/// mbarrier's time in the clock.
#[derive(Clone, Default, PartialEq, Debug)]
pub(super) struct ClusterClock {
    /// At `2 * w`: the time of all lanes of warp `w`. At `2 * m + 1`: the time of mbarrier `m`.
    times: Vec<Time>,
    /// Lane times of the warps in which some lanes have a later time than the warp's time in `times`.
    lane_times: Vec<(usize, [Time; LANES])>,
}

impl ClusterClock {
    /// Whether all accesses up to `time` by `lanes` of a warp happened before.
    #[inline(always)]
    pub(super) fn covers(&self, warp: usize, lanes: u32, time: Time) -> bool {
        self.time(2 * warp) >= time || !self.lane_times.is_empty() && self.covers_lanes(warp, lanes, time)
    }

    fn covers_lanes(&self, warp: usize, lanes: u32, time: Time) -> bool {
        let lane_times = self.lane_times.iter().find(|(other, _)| *other == warp);
        lane_times.is_some_and(|(_, times)| lanes_of(lanes).all(|lane| times[lane] >= time))
    }

    /// Whether the phases of an mbarrier that completed up to `time`, and their copies, happened before.
    #[inline(always)]
    pub(super) fn covers_phase(&self, mbarrier: usize, time: Time) -> bool {
        self.time(2 * mbarrier + 1) >= time
    }

    #[inline(always)]
    fn time(&self, index: usize) -> Time {
        self.times.get(index).copied().unwrap_or(0)
    }

    fn raise_time(&mut self, index: usize, time: Time) {
        if self.times.len() <= index {
            self.times.resize(index + 1, 0);
        }
        self.times[index] = self.times[index].max(time);
    }

    /// Raises the times of `lanes` of a warp to at least `time`.
    pub(super) fn raise(&mut self, warp: usize, lanes: u32, time: Time) {
        if lanes == u32::MAX {
            self.raise_time(2 * warp, time);
            return self.drop_redundant_lane_times();
        }
        let lane_times = self.lane_times_of(warp);
        lanes_of(lanes).for_each(|lane| lane_times[lane] = lane_times[lane].max(time));
    }

    /// Raises the time of an mbarrier to at least `time`.
    pub(super) fn raise_phase(&mut self, mbarrier: usize, time: Time) {
        self.raise_time(2 * mbarrier + 1, time);
    }

    fn lane_times_of(&mut self, warp: usize) -> &mut [Time; LANES] {
        let known = self.lane_times.iter().position(|(other, _)| *other == warp);
        let index = known.unwrap_or_else(|| {
            self.lane_times.push((warp, [0; LANES]));
            self.lane_times.len() - 1
        });
        &mut self.lane_times[index].1
    }

    /// Drops the lane times of warps in which no lane is later than the warp's own time.
    fn drop_redundant_lane_times(&mut self) {
        let times = &self.times;
        self.lane_times.retain(|(warp, lane_times)| {
            let all = times.get(2 * warp).copied().unwrap_or(0);
            lane_times.iter().any(|&time| time > all)
        });
    }

    fn clear(&mut self) {
        self.times.clear();
        self.lane_times.clear();
    }

    /// Whether every time in this clock is at least the same thread's or mbarrier's time in `other`.
    fn is_at_least(&self, other: &ClusterClock) -> bool {
        let longer = other.times.get(self.times.len()..).unwrap_or_default();
        let covers_all = |(warp, lane_times): &(usize, [Time; LANES])| {
            lane_times.iter().enumerate().all(|(lane, &time)| self.covers(*warp, 1 << lane, time))
        };
        // No early exit: the compiler vectorises this loop.
        let behind =
            self.times.iter().zip(&other.times).fold(false, |any, (mine, theirs)| any | (mine < theirs));
        !behind && longer.iter().all(|&time| time == 0) && other.lane_times.iter().all(covers_all)
    }

    /// Joins another clock into this clock: takes the later time for each thread and mbarrier.
    fn join(&mut self, other: &ClusterClock) {
        if self.times.len() < other.times.len() {
            self.times.resize(other.times.len(), 0);
        }
        self.times.iter_mut().zip(&other.times).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
        for (warp, theirs) in &other.lane_times {
            let lane_times = self.lane_times_of(*warp);
            lane_times.iter_mut().zip(theirs.iter()).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
        }
        if !self.lane_times.is_empty() {
            self.drop_redundant_lane_times();
        }
    }
}

/// Joins `theirs` into `mine`; copies a shared clock only if the result equals neither.
fn join(mine: &mut Arc<ClusterClock>, theirs: &Arc<ClusterClock>) {
    if Arc::ptr_eq(mine, theirs) || mine.is_at_least(theirs) {
        return;
    }
    // An unshared clock is changed in place: if it shared `theirs`, the next change would copy the clock.
    if let Some(mine) = Arc::get_mut(mine) {
        mine.join(theirs);
    } else if theirs.is_at_least(mine) {
        *mine = theirs.clone();
    } else {
        Arc::make_mut(mine).join(theirs);
    }
}

/// Clocks by the cluster's position in the grid.
pub(super) type ClusterClocks = BTreeMap<u64, Arc<ClusterClock>>;

/// Joins `theirs` into `mine`, cluster by cluster; returns whether any clock of `mine` changed.
pub(super) fn join_clocks(mine: &mut ClusterClocks, theirs: &ClusterClocks) -> bool {
    let mut changed = false;
    for (&cluster, theirs) in theirs {
        let clock = mine.entry(cluster).or_default();
        let before = clock.clone();
        join(clock, theirs);
        changed |= !Arc::ptr_eq(&before, clock) && before != *clock;
    }
    changed
}

/// Clocks at `fence.sc` operations: see `sync/fence_sc.rs`.
#[derive(Clone, Default)]
pub(super) struct FenceScClocks {
    /// Joined clocks, for the thread's own cluster, at the `fence.sc` operations that happened before. The time of the thread's own
    /// last fence is in its lane group.
    pub(super) own: Arc<ClusterClock>,
    /// The same for other clusters.
    pub(super) others: ClusterClocks,
    /// Joined clocks at the `fence.sc` operations that precede the thread's next one in Fence-SC order.
    pub(super) observed: ClusterClocks,
}

impl FenceScClocks {
    /// Whether fences of other threads happened before.
    pub(super) fn has_fences(&self) -> bool {
        !self.others.is_empty() || *self.own != ClusterClock::default()
    }
}

/// Index of a space in [`VectorClock::async_proxy`].
pub(super) fn async_proxy_index(space: Space) -> usize {
    usize::from(space != Space::Shared)
}

/// Vector clock of a thread.
#[derive(Clone, Default)]
pub(super) struct VectorClock {
    /// Clock of the thread's own cluster.
    pub(super) own: Arc<ClusterClock>,
    /// The parts of `own` that proxy fences have made visible to the async proxy, which executes bulk copies: of writes to shared
    /// and to global memory.
    pub(super) async_proxy: [Option<Arc<ClusterClock>>; 2],
    /// Clocks of other clusters.
    pub(super) others: Option<Arc<ClusterClocks>>,
    /// `None` without `fence.sc`.
    pub(super) sc: Option<Arc<FenceScClocks>>,
}

impl VectorClock {
    /// The part of `own` whose writes to memory of a space are visible to the async proxy.
    pub(super) fn visible_to_async_proxy(&self, space: Space) -> Option<&ClusterClock> {
        self.async_proxy[async_proxy_index(space)].as_deref()
    }

    /// Joins another thread's clock into this clock; returns whether the clock of another cluster changed.
    pub(super) fn join(&mut self, other: &VectorClock) -> bool {
        join(&mut self.own, &other.own);
        for pair in self.async_proxy.iter_mut().zip(&other.async_proxy) {
            match pair {
                (Some(mine), Some(theirs)) => join(mine, theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
        match (&mut self.sc, &other.sc) {
            (Some(mine), Some(theirs)) if !Arc::ptr_eq(mine, theirs) => {
                let mine = Arc::make_mut(mine);
                join(&mut mine.own, &theirs.own);
                join_clocks(&mut mine.others, &theirs.others);
                join_clocks(&mut mine.observed, &theirs.observed);
            }
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            _ => {}
        }
        match (&mut self.others, &other.others) {
            (Some(mine), Some(theirs)) if !Arc::ptr_eq(mine, theirs) => {
                join_clocks(Arc::make_mut(mine), theirs)
            }
            (mine @ None, Some(theirs)) => {
                *mine = Some(theirs.clone());
                true
            }
            _ => false,
        }
    }

    /// Sets all times to zero.
    pub(super) fn clear(&mut self) {
        match Arc::get_mut(&mut self.own) {
            Some(own) => own.clear(),
            None => self.own = Arc::default(),
        }
        (self.async_proxy, self.others, self.sc) = (Default::default(), None, None);
    }

    /// Clocks of all clusters by position in the grid; `cluster` is the position of the thread's own cluster.
    pub(super) fn by_cluster(&self, cluster: u64) -> ClusterClocks {
        let mut clocks = self.others.as_deref().cloned().unwrap_or_default();
        join(clocks.entry(cluster).or_default(), &self.own);
        clocks
    }

    /// Vector clock of a thread of `cluster` that has acquired exactly `clocks`.
    pub(super) fn from_clusters(cluster: u64, mut clocks: ClusterClocks) -> VectorClock {
        let own = clocks.remove(&cluster).unwrap_or_default();
        let others = (!clocks.is_empty()).then(|| Arc::new(clocks));
        VectorClock { own, async_proxy: Default::default(), others, sc: None }
    }
}
