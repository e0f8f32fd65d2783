//! Vector clocks of the lanes of a warp.

use std::sync::Arc;

use super::scope::{MEMORY_SCOPES, MemoryScope};
use crate::checks::races::clock::{ClusterClock, Time, VectorClock};
use crate::checks::races::stamp::Stamp;

/// A fence that a lane group has executed. Later strong writes of the group release the fence's clock.
#[derive(Clone)]
pub(super) struct Fence {
    pub(super) time: Time,
    pub(super) clock: VectorClock,
}

/// Lanes of a warp that have the same vector clock.
#[derive(Clone)]
pub(super) struct LaneGroup {
    pub(super) lanes: u32,
    pub(super) clock: VectorClock,
    /// Last fence of at least each scope, indexed by [`MemoryScope`].
    pub(super) fences: [Option<Fence>; MEMORY_SCOPES],
    /// Released clocks that relaxed strong reads have observed, indexed by [`MemoryScope`]. The next fence of at least
    /// that scope acquires the clock.
    pub(super) observed: [Option<VectorClock>; MEMORY_SCOPES],
    /// Time of the group's last `fence.sc` of `.gpu` or `.sys` scope.
    pub(super) fenced_sc: Option<Time>,
}

impl LaneGroup {
    /// A group of lanes with a clock, without fences and observed clocks.
    pub(super) fn new(lanes: u32, clock: VectorClock) -> LaneGroup {
        let (fences, observed) = Default::default();
        LaneGroup { lanes, clock, fences, observed, fenced_sc: None }
    }

    /// Whether the group has executed a fence or has observed a released clock.
    pub(super) fn has_fence_state(&self) -> bool {
        self.fences[MemoryScope::Cta as usize].is_some() || self.observed.iter().any(Option::is_some)
    }
}

/// Vector clocks of the lanes of a warp.
pub(super) struct WarpClocks {
    /// Time of the warp's accesses.
    pub(super) now: Time,
    /// Disjoint lane groups that together have all 32 lanes.
    pub(super) groups: Vec<LaneGroup>,
    /// Number of completed phases of the cluster barrier when the warp last waited there.
    pub(super) cluster_phase: u32,
}

impl WarpClocks {
    /// Vector clocks of a warp whose lanes all have the clock `clock`.
    pub(super) fn new(now: Time, clock: VectorClock) -> WarpClocks {
        let group = LaneGroup::new(u32::MAX, clock);
        WarpClocks { now, groups: vec![group], cluster_phase: 0 }
    }

    /// Splits lane groups until `lanes` is a union of groups.
    pub(super) fn split(&mut self, lanes: u32) {
        let groups = &mut self.groups;
        for index in 0..groups.len() {
            let inside = groups[index].lanes & lanes;
            if inside != 0 && inside != groups[index].lanes {
                let mut rest = groups[index].clone();
                rest.lanes &= !inside;
                groups[index].lanes = inside;
                groups.push(rest);
            }
        }
    }

    /// The lane groups that have any of `lanes`.
    pub(super) fn groups_of(&self, lanes: u32) -> impl Iterator<Item = &LaneGroup> {
        self.groups.iter().filter(move |group| group.lanes & lanes != 0)
    }

    /// The lane groups that have any of `lanes`, mutable.
    pub(super) fn groups_of_mut(&mut self, lanes: u32) -> impl Iterator<Item = &mut LaneGroup> {
        self.groups.iter_mut().filter(move |group| group.lanes & lanes != 0)
    }

    /// Joins into `clock` the clocks of `lanes`, and the lanes' own accesses up to now; `warp` is this warp's number.
    pub(super) fn join_into(&self, warp: usize, lanes: u32, clock: &mut VectorClock) {
        for group in self.groups_of(lanes) {
            clock.join(&group.clock);
            if let Some(time) = group.fenced_sc {
                let sc = Arc::make_mut(clock.sc.get_or_insert_default());
                Arc::make_mut(&mut sc.own).raise(warp, group.lanes & lanes, time);
            }
        }
        Arc::make_mut(&mut clock.own).raise(warp, lanes, self.now);
    }
}

/// Lanes of a warp that make an access, with their vector clocks.
pub(in crate::checks::races) struct AccessorClocks<'a> {
    pub(in crate::checks::races) warp: usize,
    pub(super) lanes: u32,
    /// Stamp of the access, without a lane.
    pub(in crate::checks::races) stamp: Stamp,
    pub(super) groups: &'a [LaneGroup],
}

impl<'a> AccessorClocks<'a> {
    /// Whether a condition holds for the clocks of all lanes that make the access.
    #[inline(always)]
    pub(in crate::checks::races) fn all(&self, mut condition: impl FnMut(&ClusterClock) -> bool) -> bool {
        self.groups
            .iter()
            .filter(|group| group.lanes & self.lanes != 0)
            .all(|group| condition(&group.clock.own))
    }

    /// The clock of a lane of the warp.
    pub(in crate::checks::races) fn clock(&self, lane: u32) -> Option<&'a ClusterClock> {
        let group = self.groups.iter().find(|group| group.lanes >> lane & 1 != 0);
        group.map(|group| &*group.clock.own)
    }
}
