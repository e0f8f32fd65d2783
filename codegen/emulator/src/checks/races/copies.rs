//! Asynchronous copies in flight: the ranges of global memory that they read and write.

use std::sync::Arc;

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

/// A range of global memory that a bulk copy in flight writes.
pub(super) struct CopyTarget {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Stamp of the copy's issue.
    pub(super) issued: Stamp,
    /// Address of the source in shared memory.
    pub(super) shared: u64,
    /// Whether the copy is a reduction, each of whose elements is updated atomically.
    pub(super) is_atomic: bool,
    /// Whether the source has been read, by a wait with `.read`. The write is still in flight.
    pub(super) is_read: bool,
    /// The parts of the range that are copied, if not all of it is.
    pub(super) parts: Option<Arc<[(u64, u64)]>>,
}

impl CopyTarget {
    /// Whether a copy of one lane to global memory writes this range.
    pub(super) fn is_of(&self, copy: &AsyncCopy) -> bool {
        (self.issued.warp(), self.issued.pc as usize, self.shared) == (copy.warp, copy.pc, copy.shared)
            && copy.lanes >> self.issued.lane() & 1 != 0
    }
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

    /// Whether a bulk copy to global memory is the same as one that an instruction of the warp has issued for another lane, and that
    /// is in flight: its source has not changed, so both write the same bytes. A whole warp may issue one store.
    pub(super) fn is_repeated(&self, warp: usize, pc: u32, copy: &BulkCopy) -> bool {
        let (Some((Space::Shared, from)), (Space::Global, to), false) =
            (copy.source, copy.target, copy.is_atomic)
        else {
            return false;
        };
        self.targets.iter().any(|target| {
            (target.issued.warp(), target.issued.pc, target.shared) == (warp, pc, from)
                && !target.is_read
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
        let is_met = |target: &&CopyTarget| {
            !(target.is_atomic && access == Access::Atomic)
                && meets(range, (target.address, target.bytes), target.parts.as_deref())
        };
        let target = self.targets.iter().find(is_met);
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
            meets(range, (source.address, source.bytes), source.parts.as_deref())
                && !source.completed.is_some_and(|completed| happened_before(source, completed))
        };
        self.sources.iter().find(is_early).map(|source| conflict(source.issued, false))
    }
}

/// Whether two ranges (address and size in bytes) have a byte in common.
fn overlap((a, a_bytes): (u64, u64), (b, b_bytes): (u64, u64)) -> bool {
    a < b + b_bytes && b < a + a_bytes
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

/// Ranges of memory: address and size.
pub(super) enum Ranges<'a> {
    One((u64, u64)),
    Parts(&'a [(u64, u64)]),
}

impl Ranges<'_> {
    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        match self {
            Ranges::One(range) => std::slice::from_ref(range),
            Ranges::Parts(parts) => parts,
        }
    }
}

/// Whether a range meets a copy's span and, if the copy has parts, one of these.
fn meets(range: (u64, u64), span: (u64, u64), parts: Option<&[(u64, u64)]>) -> bool {
    overlap(range, span) && parts.is_none_or(|parts| parts.iter().any(|&part| overlap(range, part)))
}
