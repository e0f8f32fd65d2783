//! Asynchronous copies in flight: the ranges of global memory that they read and write.

use std::sync::Arc;

use super::copy_targets::CopyTargets;
use super::ranges::{Ranges, overlap};
use super::shadow::Conflict;
use super::stamp::{COPY, GRANULE, Stamp};
use super::sync::SyncState;
use crate::asynchronous::AsyncCopy;
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
    /// The parts of the range that are copied, if not all of it is.
    pub(super) parts: Option<Arc<[(u64, u64)]>>,
}

impl CopySource {
    /// Whether a copy into shared memory, or the part of some of its lanes, reads this range.
    pub(super) fn is_of(&self, copy: &AsyncCopy) -> bool {
        let first = copy.lanes & copy.lanes.wrapping_neg();
        let lanes_before = (self.lanes & first.wrapping_sub(1)).count_ones() as u64;
        let offset = lanes_before * (copy.bytes / copy.lanes.count_ones()) as u64;
        self.issued.pc as usize == copy.pc
            && self.issued.warp() == copy.warp
            && copy.lanes & !self.lanes == 0
            && self.shared + offset == copy.shared
    }
}

/// Ranges of global memory that copies of a cluster read and write.
#[derive(Default)]
pub(super) struct CopiesInFlight {
    pub(super) sources: Vec<CopySource>,
    pub(super) targets: CopyTargets,
}

impl CopiesInFlight {
    /// Whether an access of global memory may conflict with a copy.
    pub(super) fn may_conflict(&self, access: Access) -> bool {
        !self.targets.is_empty() || access != Access::Load && !self.sources.is_empty()
    }

    /// Whether an access of a range of global memory may conflict with a copy.
    pub(super) fn may_conflict_in(&self, access: Access, range: (u64, u64)) -> bool {
        self.targets.may_overlap(range) || access != Access::Load && !self.sources.is_empty()
    }

    /// Whether a bulk copy to global memory is the same as one that an instruction of the warp has issued for another lane,
    /// and that is in flight: its source has not changed, so both write the same bytes. A whole warp may issue one store.
    pub(super) fn is_repeated(&self, warp: usize, pc: u32, copy: &BulkCopy) -> bool {
        let (Some((Space::Shared, from)), (Space::Global, to), false) =
            (copy.source, copy.target, copy.is_atomic)
        else {
            return false;
        };
        let ranges = copy.ranges((Space::Global, to));
        let Some(&(first, _)) = ranges.as_slice().first() else { return false };
        self.targets.has_unread(first, |target| {
            (target.issued.warp(), target.issued.pc, target.shared) == (warp, pc, from)
                && copy.span(to) == Some((target.address, target.bytes))
                && copy.parts == target.parts
        })
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
        if let Some(issued) = self.targets.find_conflict(range, access == Access::Atomic) {
            return Some(conflict(issued, true));
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
                && source.parts.as_ref().is_none_or(|parts| parts.iter().any(|&part| overlap(range, part)))
                && !source.completed.is_some_and(|completed| happened_before(source, completed))
        };
        self.sources.iter().find(is_early).map(|source| conflict(source.issued, false))
    }
}

/// A bulk copy or asynchronous store of a lane.
pub(crate) struct BulkCopy {
    /// Address of the source; `None` for a store.
    pub(crate) source: Option<(Space, u64)>,
    pub(crate) target: (Space, u64),
    pub(crate) bytes: u64,
    /// Address of the mbarrier that the copy signals, if it writes shared memory.
    pub(crate) mbarrier: Option<u64>,
    /// Whether the write is strong: `red.async` at cluster scope, `cp.reduce` at grid scope.
    pub(crate) is_atomic: bool,
    /// For a box of a tensor: the ranges of global memory that are copied, which may be none. Their addresses replace that
    /// of the source or target in global memory.
    pub(crate) parts: Option<Arc<[(u64, u64)]>>,
}

impl BulkCopy {
    /// The ranges that the copy accesses at its source or target: all ranges of the box in global memory, else one.
    pub(super) fn ranges(&self, (space, address): (Space, u64)) -> Ranges<'_> {
        match &self.parts {
            Some(parts) if space == Space::Global => Ranges::Parts(parts),
            _ => Ranges::One((address, self.bytes)),
        }
    }

    /// The ranges that the copy writes: address and size.
    pub(crate) fn target_ranges(&self) -> Vec<(u64, u64)> {
        self.ranges(self.target).as_slice().to_vec()
    }

    /// The range around all ranges in global memory, from `address` on if there is one; `None` if there is none.
    pub(super) fn span(&self, address: u64) -> Option<(u64, u64)> {
        let Some(parts) = &self.parts else { return Some((address, self.bytes)) };
        let start = parts.iter().map(|&(start, _)| start).min()?;
        let end = parts.iter().map(|&(start, bytes)| start + bytes).max()?;
        Some((start, end - start))
    }
}
