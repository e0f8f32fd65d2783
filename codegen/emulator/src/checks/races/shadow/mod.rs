//! Shadow memory: the last writes and reads of each byte.
//!
//! Memory is divided into lines of 32 bytes. A line has access records, of writes and of reads. A record stands for what
//! lanes of one warp did to some of the line's bytes at one time, or for a copy. Write records of a line are disjoint;
//! a write removes its bytes from the read records. Comparing an access with a whole record usually shows that the
//! record happened before; only otherwise are lanes and bytes compared one by one.
//!
//! Times increase from cluster to cluster, so records of earlier clusters are recognised by their time and need not be
//! cleared.

mod check;
mod granules;
mod record;

use super::clock::Time;
use super::lane_map::{LINE, LaneMap, LaneMapKind, LaneTable};
use super::line_access::LineAccess;
use super::stamp::{GRANULE, LaneStamp, Stamp};
pub(super) use check::{Conflict, LastOrdered};

/// Granules of a line.
pub(super) const GRANULES: usize = (LINE / GRANULE) as usize;

/// The part of an access in one line, with its lane map.
pub(super) type MappedLine<'a> = (&'a LineAccess, LaneMap<'a>);

/// Kind of a record, as an index.
pub(super) const READS: usize = 0;
pub(super) const WRITES: usize = 1;

/// What lanes of a warp did to bytes of a line at one time, or what a copy did.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct AccessRecord {
    /// Stamp without a lane.
    stamp: Stamp,
    lanes: u32,
    bytes: u32,
    kind: LaneMapKind,
    /// Whether bytes differ in their instruction; [`PC_TABLE`] has them.
    has_pc_table: bool,
    /// Index of the record's own tables; 0 while it has none.
    tables: u32,
    /// The line's next record of writes or of reads; 0 at the end.
    next: u32,
}

impl AccessRecord {
    /// Whether the lane map is known, without comparing tables, to equal that of a kind and lanes.
    fn has_same_map(&self, kind: LaneMapKind, lanes: u32) -> bool {
        match kind {
            LaneMapKind::Uniform => self.kind == LaneMapKind::Uniform && self.lanes == lanes,
            LaneMapKind::Run(_) => self.kind == kind,
            LaneMapKind::Table => false,
        }
    }
}

// The tables of a record.

/// Lanes by byte.
const LANE_TABLE: usize = 0;
/// Instruction by byte.
const PC_TABLE: usize = 1;

/// Head of a line's record lists.
#[derive(Clone, Copy, Default)]
struct LineHead {
    /// The lists are valid if this is later than [`Shadow::start`].
    since: Time,
    /// First record of reads and of writes; 0 if there is none.
    first: [u32; 2],
}

/// The accesses to one granule that a record stands for.
#[derive(Clone, Copy)]
pub(super) struct GranuleAccess {
    /// Number of the granule in its line.
    pub(super) granule: usize,
    /// Bytes of the granule, one bit each.
    pub(super) bytes: u8,
    pub(super) writes: bool,
    pub(super) by: LaneStamp,
}

/// See the module's documentation.
pub(super) struct Shadow {
    heads: Vec<LineHead>,
    /// Index 0 is unused.
    records: Vec<AccessRecord>,
    /// Index 0 is unused.
    tables: Vec<[LaneTable; 2]>,
    /// Records up to this time belong to earlier clusters.
    start: Time,
    /// Whether replaced accesses that another cluster must still be compared with are kept in `replaced`.
    keeps_replaced: bool,
    /// Replaced accesses up to this time are kept. Later ones are kept only if a strong access replaces a weak one, or
    /// the reverse.
    keep_until: Time,
    /// Replaced accesses by line index.
    pub(super) replaced: Vec<(usize, GranuleAccess)>,
}

impl Shadow {
    /// Shadow of so many bytes.
    pub(super) fn new(bytes: u64) -> Shadow {
        Shadow {
            heads: vec![LineHead::default(); bytes.div_ceil(LINE) as usize],
            records: vec![AccessRecord::default()],
            tables: vec![[[0; LINE as usize]; 2]],
            start: 0,
            keeps_replaced: false,
            keep_until: 0,
            replaced: Vec::new(),
        }
    }

    /// Shadow without lines, with capacity for so many.
    pub(super) fn with_capacity(lines: usize) -> Shadow {
        let mut shadow = Shadow::new(0);
        shadow.heads.reserve_exact(lines);
        shadow.records.reserve_exact(lines);
        shadow
    }

    /// Shadow without lines that keeps the replaced accesses that other clusters must be compared with.
    pub(super) fn keeping_replaced() -> Shadow {
        Shadow { keeps_replaced: true, ..Shadow::new(0) }
    }

    /// Discards all records. Those to come have times later than `start`.
    pub(super) fn reset(&mut self, start: Time) {
        self.start = start;
        self.keep_until = start;
        self.records.truncate(1);
        self.tables.truncate(1);
        self.replaced.clear();
    }

    /// Adds lines for so many bytes; returns the index of the first.
    pub(super) fn grow(&mut self, bytes: u64) -> usize {
        let first = self.heads.len();
        self.heads.resize(first + (bytes / LINE) as usize, LineHead::default());
        first
    }

    /// Adds a line with copies of the records of another shadow's line; returns its index.
    pub(super) fn push_line_of(&mut self, other: &Shadow, index: usize) -> u32 {
        let mut head = LineHead { since: self.start + 1, first: [0; 2] };
        for kind in [READS, WRITES] {
            let mut last = None;
            for record in other.records(index, kind).filter(|record| record.bytes != 0) {
                let number = self.records.len() as u32;
                let tables = if record.tables == 0 { 0 } else { self.tables.len() as u32 };
                if tables != 0 {
                    self.tables.push(other.tables[record.tables as usize]);
                }
                self.records.push(AccessRecord { tables, next: 0, ..*record });
                match last.replace(number) {
                    None => head.first[kind] = number,
                    Some(before) => self.records[before as usize].next = number,
                }
            }
        }
        self.heads.push(head);
        self.heads.len() as u32 - 1
    }

    /// Keeps all replaced accesses up to this time.
    pub(super) fn keep_replaced_until(&mut self, time: Time) {
        self.keep_until = time;
    }

    /// Whether the cluster has accessed a line.
    #[inline(always)]
    pub(super) fn is_accessed(&self, index: usize) -> bool {
        self.heads[index].since > self.start
    }

    /// Whether a line has only weak reads.
    pub(super) fn is_weakly_read(&self, index: usize) -> bool {
        let is_weak = |record: &AccessRecord| record.stamp.origin & super::stamp::STRONG_IN_CLUSTER == 0;
        self.records(index, WRITES).all(|record| record.bytes == 0)
            && self.records(index, READS).all(|record| record.bytes == 0 || is_weak(record))
    }

    /// The number of a line's first record of a kind, 0 if there is none.
    #[inline(always)]
    fn first(&self, index: usize, kind: usize) -> u32 {
        let head = &self.heads[index];
        if head.since > self.start { head.first[kind] } else { 0 }
    }

    /// The records of a kind of a line.
    fn records(&self, index: usize, kind: usize) -> impl Iterator<Item = &AccessRecord> {
        let mut next = self.first(index, kind);
        std::iter::from_fn(move || {
            let record = &self.records[next as usize];
            let found = next != 0;
            next = record.next;
            found.then_some(record)
        })
    }

    fn lane_map(&self, record: &AccessRecord) -> LaneMap<'_> {
        LaneMap::new(record.kind, record.lanes, &self.tables[record.tables as usize][LANE_TABLE])
    }

    /// What a record says about one byte; the stamp of a write has the lowest lane.
    fn access_at(&self, record: &AccessRecord, kind: usize, byte: u32) -> LaneStamp {
        let lanes = self.lane_map(record).lanes(byte);
        let pc = match record.has_pc_table {
            true => self.tables[record.tables as usize][PC_TABLE][byte as usize],
            false => record.stamp.pc,
        };
        if record.stamp.is_copy() {
            return LaneStamp { stamp: record.stamp, lanes: 1 << record.stamp.lane() };
        }
        let lane = if kind == WRITES { lanes.trailing_zeros() & 31 } else { 0 };
        LaneStamp { stamp: Stamp { origin: record.stamp.origin | lane, pc, ..record.stamp }, lanes }
    }
}
