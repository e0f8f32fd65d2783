//! Bulk copies in flight: what they read and write in global memory.

use super::mark::{ENGINE, Mark};
use super::shadow::Conflict;
use super::sync::Sync;
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::lanes_of;

/// A copy's source in global memory.
pub(super) struct Source {
    pub(super) from: u64,
    pub(super) bytes: u64,
    pub(super) by: Mark,
    /// The lanes that copy, equally much each, one after the other.
    pub(super) lanes: u32,
    pub(super) shared: u64,
    /// Whose deed the copy is, and when it was complete; none while it is in flight.
    pub(super) done: Option<Mark>,
}

/// The target in global memory of a bulk copy in flight.
pub(super) struct Target {
    pub(super) to: u64,
    pub(super) bytes: u64,
    pub(super) by: Mark,
    pub(super) shared: u64,
}

/// Bulk copies of a CTA.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) sources: Vec<Source>,
    pub(super) targets: Vec<Target>,
}

impl Copies {
    /// Whether an access of global memory may come too early for one of them.
    pub(super) fn concern(&self, access: Access) -> bool {
        !self.targets.is_empty() || access != Access::Load && !self.sources.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
    }

    /// A copy in flight for which an access of a range of global memory comes too early.
    pub(super) fn conflicting(
        &self,
        sync: &Sync,
        (warp, lane): (usize, u32),
        access: Access,
        range: (u64, u64),
    ) -> Option<Conflict> {
        let target = self.targets.iter().find(|target| overlap(range, (target.to, target.bytes)));
        if let Some(target) = target {
            return Some(Conflict { mark: engine(target.by), writes: true });
        }
        if access == Access::Load {
            return None;
        }
        let clock = &sync.knowledge(warp, lane).own;
        let over = |source: &Source, done: Mark| {
            if done.is_engine() {
                return clock.knows_phase(done.number(), done.time);
            }
            let mut parts = (0..).zip(lanes_of(source.lanes)).filter(|(part, _)| {
                let each = source.bytes / source.lanes.count_ones() as u64;
                overlap(range, (source.from + part * each, each))
            });
            parts.all(|(_, part)| {
                (done.warp(), part as u32) == (warp, lane) || clock.knows(done.warp(), 1 << part, done.time)
            })
        };
        let early = |source: &&Source| {
            overlap(range, (source.from, source.bytes)) && !source.done.is_some_and(|done| over(source, done))
        };
        let source = self.sources.iter().find(early)?;
        Some(Conflict { mark: engine(source.by), writes: false })
    }
}

pub(super) fn overlap((a, size): (u64, u64), (b, other): (u64, u64)) -> bool {
    a < b + other && b < a + size
}

fn engine(mark: Mark) -> Mark {
    Mark { who: mark.who | ENGINE, ..mark }
}

/// A bulk copy, or an asynchronous store, about to be issued by a lane.
#[derive(Clone, Copy)]
pub(crate) struct Bulk {
    /// Where from; none for a store.
    pub(crate) source: Option<(Space, u64)>,
    pub(crate) target: (Space, u64),
    pub(crate) bytes: u64,
    /// Its mbarrier, if it goes into shared memory.
    pub(crate) gate: Option<u64>,
    /// Whether it is atomic, for all threads of the cluster.
    pub(crate) atomic: bool,
}
