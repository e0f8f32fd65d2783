//! Asynchronous copies in flight: the ranges of global memory that they read and write.

use super::shadow::Conflict;
use super::stamp::{COPY, GRANULE, Stamp};
use super::sync::SyncState;
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::lanes_of;

/// A range of global memory that a copy reads.
pub(super) struct CopySource {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Stamp of the copy's issue.
    pub(super) issued: Stamp,
    /// Lanes that issued the copy; each lane copies the same number of consecutive bytes.
    pub(super) lanes: u32,
    /// Address of the target in shared memory.
    pub(super) shared: u64,
    /// Stamp of the copy's completion; `None` while it is in flight.
    pub(super) completed: Option<Stamp>,
}

/// A range of global memory that a bulk copy in flight writes.
pub(super) struct CopyTarget {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Stamp of the copy's issue.
    pub(super) issued: Stamp,
    /// Address of the source in shared memory.
    pub(super) shared: u64,
}

/// Ranges of global memory that copies of a cluster read and write.
#[derive(Default)]
pub(super) struct CopiesInFlight {
    pub(super) sources: Vec<CopySource>,
    pub(super) targets: Vec<CopyTarget>,
}

impl CopiesInFlight {
    /// Whether an access of global memory may conflict with a copy.
    pub(super) fn may_conflict(&self, access: Access) -> bool {
        !self.targets.is_empty() || access != Access::Load && !self.sources.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
    }

    /// Finds a copy whose completion did not happen before a thread's access of a range of global memory.
    pub(super) fn find_conflict(
        &self,
        sync: &SyncState,
        (warp, lane): (usize, u32),
        access: Access,
        range: (u64, u64),
    ) -> Option<Conflict> {
        let conflict = |issued: Stamp, writes: bool| {
            let stamp = Stamp { origin: issued.origin | COPY, ..issued };
            Conflict { stamp, writes, address: range.0 / GRANULE * GRANULE, lane }
        };
        let target = self.targets.iter().find(|target| overlap(range, (target.address, target.bytes)));
        if let Some(target) = target {
            return Some(conflict(target.issued, true));
        }
        if access == Access::Load {
            return None;
        }
        let clock = &sync.clock(warp, lane).own;
        let happened_before = |source: &CopySource, completed: Stamp| {
            if completed.is_copy() {
                return clock.covers_phase(completed.number(), completed.time);
            }
            let mut parts = (0..).zip(lanes_of(source.lanes)).filter(|(part, _)| {
                let bytes = source.bytes / source.lanes.count_ones() as u64;
                overlap(range, (source.address + part * bytes, bytes))
            });
            parts.all(|(_, part)| {
                (completed.warp(), part as u32) == (warp, lane)
                    || clock.covers(completed.warp(), 1 << part, completed.time)
            })
        };
        let is_early = |source: &&CopySource| {
            overlap(range, (source.address, source.bytes))
                && !source.completed.is_some_and(|completed| happened_before(source, completed))
        };
        self.sources.iter().find(is_early).map(|source| conflict(source.issued, false))
    }
}

/// Whether two ranges (address and size in bytes) have a byte in common.
pub(super) fn overlap((a, a_bytes): (u64, u64), (b, b_bytes): (u64, u64)) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

/// A bulk copy or asynchronous store of a lane.
#[derive(Clone, Copy)]
pub(crate) struct BulkCopy {
    /// Address of the source; `None` for a store.
    pub(crate) source: Option<(Space, u64)>,
    pub(crate) target: (Space, u64),
    pub(crate) bytes: u64,
    /// Address of the mbarrier that the copy signals, if it writes shared memory.
    pub(crate) mbarrier: Option<u64>,
    /// Whether the write is strong for all threads of the cluster, as that of `red.async`.
    pub(crate) is_atomic: bool,
}
