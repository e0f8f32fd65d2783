//! Records of the accesses to a memory.

use super::check::{Conflict, LastOrdered};
use super::lines::{AccessRecord, GranuleAccess, LineHead, Lines, READS};
use super::split::{includes_in_quarter, quarter_of};
use crate::checks::races::clock::{ClusterClock, Time};
use crate::checks::races::lane_map::LaneMap;
use crate::checks::races::line_access::{LineAccesses, MappedLine};
use crate::checks::races::stamp::Stamp;
use crate::checks::races::sync::AccessorClocks;
use crate::checks::races::unit::{BLOCK, GRANULES, QUARTERS, UNITS, Unit};

/// The part of an access in one line, with the unit of the line.
pub(in crate::checks::races) type LinePart<'a> = (Unit, MappedLine<'a>);

/// Shadow memory: the last accesses to each block.
pub(in crate::checks::races) struct Shadow {
    /// A line for each block.
    granules: Lines,
    /// Four lines for each divided block. The first four belong to no block, so that index 0 stands for none.
    bytes: Lines,
}

/// A shadow without blocks, to which [`Shadow::push_block_of`] adds blocks.
impl Default for Shadow {
    fn default() -> Shadow {
        Shadow { granules: Lines::empty(Unit::Granule), bytes: Lines::empty(Unit::Byte) }
    }
}

impl Shadow {
    /// Creates the shadow of `bytes` bytes of memory.
    pub(in crate::checks::races) fn new(bytes: u64) -> Shadow {
        let blocks = bytes.div_ceil(BLOCK) as usize;
        Shadow { granules: Lines::new(Unit::Granule, blocks), bytes: Lines::new(Unit::Byte, QUARTERS) }
    }

    /// Creates a shadow without blocks that keeps replaced accesses for the comparison with other clusters.
    pub(in crate::checks::races) fn keeping_replaced() -> Shadow {
        let mut shadow = Shadow::new(0);
        shadow.granules.keeps_replaced = true;
        shadow.bytes.keeps_replaced = true;
        shadow
    }

    /// Allocates memory for as many blocks and records as another shadow has.
    pub(in crate::checks::races) fn reserve_as(&mut self, other: &Shadow) {
        self.granules.heads.reserve_exact(other.granules.heads.len());
        self.granules.records.reserve_exact(other.granules.records.len());
    }

    /// Discards all records. Accesses recorded from now on have times later than `start`.
    pub(in crate::checks::races) fn reset(&mut self, start: Time) {
        self.granules.reset(start);
        self.bytes.reset(start);
        self.bytes.heads.truncate(QUARTERS);
    }

    /// Adds blocks for `bytes` bytes of memory; returns the index of the first added block.
    pub(in crate::checks::races) fn grow(&mut self, bytes: u64) -> usize {
        let first = self.granules.heads.len();
        self.granules.heads.resize(first + (bytes / BLOCK) as usize, LineHead::default());
        first
    }

    /// Number of blocks.
    pub(in crate::checks::races) fn block_count(&self) -> usize {
        self.granules.heads.len()
    }

    /// Adds a block with copies of the records of another shadow's block.
    pub(in crate::checks::races) fn push_block_of(&mut self, other: &Shadow, block: usize) {
        let index = self.granules.push_line_of(&other.granules, block);
        if let Some(first) = other.quarters(block) {
            if self.bytes.heads.is_empty() {
                self.bytes.heads.resize(QUARTERS, LineHead::default());
            }
            self.granules.heads[index].quarters = self.bytes.heads.len() as u32;
            for quarter in first..first + QUARTERS {
                self.bytes.push_line_of(&other.bytes, quarter);
            }
        }
    }

    /// Keeps all replaced accesses up to this time.
    pub(in crate::checks::races) fn keep_replaced_until(&mut self, time: Time) {
        self.granules.keep_until = time;
        self.bytes.keep_until = time;
    }

    /// Sorts the accesses that were replaced and are kept, for [`Shadow::for_each_replaced`].
    pub(in crate::checks::races) fn sort_replaced(&mut self) {
        for lines in [&mut self.granules, &mut self.bytes] {
            lines.replaced.sort_by_key(|&(index, GranuleAccess { granule, .. })| (index, granule));
        }
    }

    /// Whether any accesses were replaced and are kept.
    pub(in crate::checks::races) fn has_any_replaced(&self) -> bool {
        !self.granules.replaced.is_empty() || !self.bytes.replaced.is_empty()
    }

    /// Whether accesses of a block were replaced and are kept.
    pub(in crate::checks::races) fn has_replaced(&self, block: usize) -> bool {
        let mut any = false;
        self.for_each_replaced(block, |_| any = true);
        any
    }

    /// Calls `visit` for the accesses of a block that were replaced and are kept.
    pub(in crate::checks::races) fn for_each_replaced(
        &self,
        block: usize,
        mut visit: impl FnMut(GranuleAccess),
    ) {
        self.granules.replaced_in(block).for_each(&mut visit);
        if let Some(first) = self.quarters(block) {
            for quarter in 0..QUARTERS {
                self.bytes.replaced_in(first + quarter).for_each(|access| visit(in_quarter(quarter, access)));
            }
        }
    }

    /// Calls `visit` for all accesses of a block, granule by granule.
    pub(in crate::checks::races) fn for_each_access(
        &self,
        block: usize,
        mut visit: impl FnMut(GranuleAccess),
    ) {
        match self.quarters(block) {
            None => self.granules.for_each_access(block, visit),
            Some(first) => (0..QUARTERS).for_each(|quarter| {
                self.bytes.for_each_access(first + quarter, |access| visit(in_quarter(quarter, access)))
            }),
        }
    }

    /// Whether the cluster has accessed a block.
    #[inline(always)]
    pub(in crate::checks::races) fn is_accessed(&self, block: usize) -> bool {
        self.granules.is_accessed(block)
    }

    /// Whether a block has only weak reads.
    pub(in crate::checks::races) fn is_weakly_read(&self, block: usize) -> bool {
        match self.quarters(block) {
            None => self.granules.is_weakly_read(block),
            Some(first) => (first..first + QUARTERS).all(|quarter| self.bytes.is_weakly_read(quarter)),
        }
    }

    /// Index of the first quarter of a divided block.
    #[inline(always)]
    fn quarters(&self, block: usize) -> Option<usize> {
        let head = &self.granules.heads[block];
        (head.quarters != 0 && head.since > self.granules.start).then_some(head.quarters as usize)
    }

    /// Records accesses of a block by bytes from now on; returns the index of the block's first quarter.
    #[inline(never)]
    fn divide(&mut self, block: usize) -> usize {
        let first = self.bytes.push_quarters_of(&self.granules, block);
        let head = self.granules.open(block);
        (head.first, head.quarters) = ([0; 2], first as u32);
        first
    }

    /// Calls `visit` for the lines with the records of a part of an access, each with its index and the part in it.
    #[inline(always)]
    fn for_each_line(
        &mut self,
        (unit, part): LinePart<'_>,
        mut visit: impl FnMut(&mut Lines, usize, MappedLine<'_>),
    ) {
        let block = part.0.block;
        match (unit, self.quarters(block)) {
            (Unit::Granule, None) => visit(&mut self.granules, block, part),
            (Unit::Granule, Some(first)) => {
                let mut table = [0; UNITS];
                for quarter in 0..QUARTERS {
                    if let Some(access) = quarter_of(part, quarter, &mut table) {
                        let map = LaneMap::new(access.kind, access.lanes, &table);
                        visit(&mut self.bytes, first + quarter, (&access, map));
                    }
                }
            }
            (Unit::Byte, quarters) => {
                let first = quarters.unwrap_or_else(|| self.divide(block));
                visit(&mut self.bytes, first + part.0.line as usize % QUARTERS, part);
            }
        }
    }

    /// Checks a part of an access by the lanes of a warp; returns the lowest lane's conflict at the lowest address,
    /// ignoring conflicts that `is_excused` accepts.
    #[inline(always)]
    pub(in crate::checks::races) fn check(
        &mut self,
        part: LinePart<'_>,
        writes: bool,
        accessor: &AccessorClocks<'_>,
        last_ordered: &mut LastOrdered,
        is_excused: impl Fn(&Conflict) -> bool,
    ) -> Option<Conflict> {
        let mut first: Option<Conflict> = None;
        self.for_each_line(part, |lines, index, part| {
            if !lines.is_surely_ordered(index, part, writes, accessor, last_ordered) {
                let conflict = lines.find_conflict(index, part, writes, accessor, &is_excused);
                let conflicts = first.into_iter().chain(conflict);
                first = conflicts.min_by_key(|conflict| (conflict.lane, conflict.address));
            }
        });
        first
    }

    /// Checks and records the leading lines of an access as far as that is simple ([`Lines::record_simple`]), or a read repeats
    /// a read ([`Shadow::repeats_read`]); returns how many lines that are.
    #[inline(always)]
    pub(in crate::checks::races) fn record_simple(
        &mut self,
        accesses: &LineAccesses,
        writes: bool,
        stamp: Stamp,
    ) -> usize {
        let mut parts = accesses.lines.iter().enumerate().map(|(at, line)| (line, accesses.lane_map(at)));
        match (accesses.unit, writes) {
            (Unit::Granule, _) => {
                let granules = &mut self.granules;
                parts.position(|part| !granules.record_simple(part.0.block, part, writes, stamp))
            }
            (Unit::Byte, true) => Some(0),
            (Unit::Byte, false) => {
                let mut last = (usize::MAX, None);
                parts.position(|part| {
                    let block = part.0.block;
                    if last.0 != block {
                        last = (block, self.simultaneous_read(block, stamp));
                    }
                    last.1.is_none_or(|read| !self.includes(read, part))
                })
            }
        }
        .unwrap_or(accesses.lines.len())
    }

    /// The record of a read of granules of a block at the same time by the same warp.
    #[inline(always)]
    fn simultaneous_read(&self, block: usize, stamp: Stamp) -> Option<&AccessRecord> {
        if self.quarters(block).is_some() {
            return None;
        }
        self.granules.records(block, READS).find(|record| record.stamp.is_simultaneous(stamp))
    }

    /// Whether a recorded read of granules has every byte of a part of an access, by the same lanes.
    #[inline(always)]
    fn includes(&self, read: &AccessRecord, part: MappedLine<'_>) -> bool {
        let quarter = part.0.line as usize % QUARTERS;
        includes_in_quarter(read, self.granules.lane_map(read), quarter, part)
    }

    /// Records a read of a part by the lanes of a warp.
    #[inline(always)]
    pub(in crate::checks::races) fn record_read(
        &mut self,
        part: LinePart<'_>,
        accessor: &AccessorClocks<'_>,
    ) {
        self.for_each_line(part, |lines, index, part| lines.record_read(index, part, accessor));
    }

    /// Records a write of a part.
    #[inline(always)]
    pub(in crate::checks::races) fn record_write(&mut self, part: LinePart<'_>, stamp: Stamp) {
        self.for_each_line(part, |lines, index, part| lines.record_write(index, part, stamp));
    }

    /// Records a read of a part by a copy.
    pub(in crate::checks::races) fn record_copy_read(&mut self, part: LinePart<'_>, stamp: Stamp) {
        self.for_each_line(part, |lines, index, part| lines.record_copy_read(index, part, stamp));
    }

    /// Whether a read of bytes is already part of a recorded read of whole granules: by the same lanes, at the same time,
    /// without a write since. It need not be checked or recorded, nor the block divided. Always false in divided blocks and
    /// for reads of whole granules.
    pub(in crate::checks::races) fn repeats_read(&self, (unit, part): LinePart<'_>, stamp: Stamp) -> bool {
        unit == Unit::Byte
            && self.simultaneous_read(part.0.block, stamp).is_some_and(|read| self.includes(read, part))
    }

    /// Finds the first write of a part that proxy fences have not made visible to the async proxy; `visible` is the
    /// clock of the visible writes. Returns the write's stamp and the address of its granule.
    pub(in crate::checks::races) fn find_unfenced_write(
        &mut self,
        part: LinePart<'_>,
        visible: Option<&ClusterClock>,
    ) -> Option<(Stamp, u64)> {
        let mut found = None;
        self.for_each_line(part, |lines, index, (access, _)| {
            if found.is_none()
                && let Some((stamp, unit)) = lines.find_unfenced_write(index, access.units, visible)
            {
                found = Some((stamp, lines.granule_address(access.line, unit)));
            }
        });
        found
    }
}

/// An access of a granule of a quarter, with the number of the granule in the block.
fn in_quarter(quarter: usize, access: GranuleAccess) -> GranuleAccess {
    GranuleAccess { granule: quarter * (GRANULES / QUARTERS) + access.granule, ..access }
}
