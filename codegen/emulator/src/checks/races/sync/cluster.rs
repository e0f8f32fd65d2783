//! What `barrier.cluster` orders, and what CTAs of a cluster know of each other.

use std::sync::Arc;

use super::{Gate, Knowledge, Scope, Sync, Time};

/// The cluster's barrier: phases complete, what is gathered for the present one, what the last one gave.
#[derive(Default)]
pub(super) struct ClusterSync {
    phase: u32,
    gathering: Knowledge,
    done: Knowledge,
}

impl Sync {
    /// Lanes arrive at the cluster's barrier.
    pub(in crate::checks::races) fn arrive_in_cluster(&mut self, warp: usize, lanes: u32, releases: bool) {
        let mut gathering = std::mem::take(&mut self.cluster.gathering);
        if releases {
            self.release_into(warp, lanes, &mut gathering);
        } else {
            // What a fence before has released; and of mbarriers their initialisations have a fence of their own.
            let fences = self.warps[warp].groups.iter().filter(|group| group.lanes & lanes != 0);
            for group in fences {
                if let Some(fence) = &group.fences[Scope::Cluster as usize] {
                    gathering.join(&fence.knowledge);
                    Arc::make_mut(&mut gathering.own).raise(warp, group.lanes & lanes, fence.time);
                }
            }
            let phase = self.cluster.phase + 1;
            let fenced = |gate: &&mut Gate| {
                gate.fenced && gate.announced.is_none() && gate.by.0 == warp && lanes >> gate.by.1 & 1 != 0
            };
            self.gates.iter_mut().filter(fenced).for_each(|gate| gate.announced = Some(phase));
        }
        self.cluster.gathering = gathering;
    }

    /// All have arrived at the cluster's barrier.
    pub(in crate::checks::races) fn complete_cluster(&mut self) {
        self.cluster.phase += 1;
        self.cluster.done = std::mem::take(&mut self.cluster.gathering);
    }

    /// Lanes go on after the cluster's barrier.
    pub(in crate::checks::races) fn pass_cluster(&mut self, warp: usize, lanes: u32) {
        let done = self.cluster.done.clone();
        self.acquire(warp, lanes, &done);
        self.warps[warp].met = self.cluster.phase;
    }

    /// Whether a warp has waited at the cluster's barrier after what announced the mbarrier there.
    pub(in crate::checks::races) fn is_announced(&self, warp: usize, gate: &Gate) -> bool {
        gate.announced.is_some_and(|phase| phase <= self.warps[warp].met)
    }

    /// Whether a lane of a warp has heard of the CTA of a rank: at the cluster's barrier, or by what it knows.
    pub(in crate::checks::races) fn has_heard(
        &self,
        (warp, lane): (usize, u32),
        rank: usize,
        since: Time,
    ) -> bool {
        let clock = &self.knowledge(warp, lane).own;
        self.warps[warp].met > 0
            || (rank * self.each..(rank + 1) * self.each)
                .any(|other| (0..32).any(|lane| clock.knows(other, 1 << lane, since + 1)))
    }

    /// Whether some thread of the CTA of a rank knows what a lane did up to a time.
    pub(in crate::checks::races) fn is_known_in(
        &self,
        rank: usize,
        (warp, lane): (usize, u32),
        time: Time,
    ) -> bool {
        let warps = &self.warps[rank * self.each..(rank + 1) * self.each];
        let groups = warps.iter().flat_map(|warp| &warp.groups);
        groups.into_iter().any(|group| group.knowledge.own.knows(warp, 1 << lane, time))
    }
}
