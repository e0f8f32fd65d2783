//! Storage of access records.

use crate::checks::races::clock::Time;
use crate::checks::races::lane_map::{LINE, LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::LineAccess;
use crate::checks::races::stamp::{GRANULE, LaneStamp, Stamp};

/// Number of 4-byte granules per 32-byte line.
pub(in crate::checks::races) const GRANULES: usize = (LINE / GRANULE) as usize;

/// The part of an access in one line, and the lanes that access each byte of the line.
pub(in crate::checks::races) type MappedLine<'a> = (&'a LineAccess, LaneMap<'a>);

/// Index of the read records in `LineHead::first`; `WRITES` is that of the write records.
pub(in crate::checks::races) const READS: usize = 0;
pub(in crate::checks::races) const WRITES: usize = 1;

/// Accesses to bytes of one line, by lanes of a warp at one time or by an asynchronous copy.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
pub(super) struct AccessRecord {
    /// Stamp of the access; for an access by a warp, without the lane number.
    pub(super) stamp: Stamp,
    pub(super) lanes: u32,
    pub(super) bytes: u32,
    pub(super) kind: LaneMapKind,
    /// Whether different instructions accessed the bytes; [`PC_TABLE`] then has the instruction of each byte.
    pub(super) has_pc_table: bool,
    /// Index of the record's own tables; 0 while it has none.
    pub(super) tables: u32,
    /// Index of the line's next record of the same kind, reads or writes; 0 at the end of the list.
    pub(super) next: u32,
}

impl AccessRecord {
    /// Whether the record's lane map surely equals the lane map of `kind` and `lanes`; does not compare tables.
    pub(super) fn has_same_map(&self, kind: LaneMapKind, lanes: u32) -> bool {
        match kind {
            LaneMapKind::Uniform => self.kind == LaneMapKind::Uniform && self.lanes == lanes,
            LaneMapKind::Run(_) => self.kind == kind,
            LaneMapKind::Table => false,
        }
    }
}

// Indices of a record's pair of tables.

/// Index of the table of the lanes that accessed each byte.
pub(super) const LANE_TABLE: usize = 0;
/// Index of the table of the instruction that accessed each byte.
pub(super) const PC_TABLE: usize = 1;

/// Head of a line's record lists.
#[derive(Clone, Copy, Default)]
pub(super) struct LineHead {
    /// Time since which the lists are valid. If the time is not later than [`Shadow::start`], the lists are from an
    /// earlier cluster.
    pub(super) since: Time,
    /// Indices of the first record of reads and of writes; 0 if there is none.
    pub(super) first: [u32; 2],
}

/// Accesses to bytes of one 4-byte granule with the same stamp and lanes.
#[derive(Clone, Copy)]
pub(in crate::checks::races) struct GranuleAccess {
    /// Number of the granule in its line, 0 to 7.
    pub(in crate::checks::races) granule: usize,
    /// Bytes of the granule, one bit each.
    pub(in crate::checks::races) bytes: u8,
    pub(in crate::checks::races) writes: bool,
    pub(in crate::checks::races) by: LaneStamp,
}

/// Shadow memory: access records of each line.
pub(in crate::checks::races) struct Shadow {
    pub(super) heads: Vec<LineHead>,
    /// Access records of all lines; index 0 is unused.
    pub(super) records: Vec<AccessRecord>,
    /// Lane table and instruction table of the records that need them; index 0 is unused.
    pub(super) tables: Vec<[LaneTable; 2]>,
    /// Last time of earlier clusters: records up to this time are invalid.
    pub(super) start: Time,
    /// Whether replaced accesses that another cluster must still be compared with are kept in `replaced`.
    pub(super) keeps_replaced: bool,
    /// Replaced accesses up to this time are kept. Later accesses are kept only if a strong access replaces a weak
    /// access, or the reverse.
    pub(super) keep_until: Time,
    /// Replaced accesses that are kept, each with the index of its line.
    pub(in crate::checks::races) replaced: Vec<(usize, GranuleAccess)>,
}

impl Shadow {
    /// Creates the shadow of `bytes` bytes of memory.
    pub(in crate::checks::races) fn new(bytes: u64) -> Shadow {
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

    /// Creates a shadow without lines, with capacity for `lines` lines.
    pub(in crate::checks::races) fn with_capacity(lines: usize) -> Shadow {
        let mut shadow = Shadow::new(0);
        shadow.heads.reserve_exact(lines);
        shadow.records.reserve_exact(lines);
        shadow
    }

    /// Creates a shadow without lines that keeps replaced accesses for the comparison with other clusters.
    pub(in crate::checks::races) fn keeping_replaced() -> Shadow {
        Shadow { keeps_replaced: true, ..Shadow::new(0) }
    }

    /// Discards all records. Accesses recorded from now on have times later than `start`.
    pub(in crate::checks::races) fn reset(&mut self, start: Time) {
        self.start = start;
        self.keep_until = start;
        self.records.truncate(1);
        self.tables.truncate(1);
        self.replaced.clear();
    }

    /// Adds lines for `bytes` bytes of memory; returns the index of the first added line.
    pub(in crate::checks::races) fn grow(&mut self, bytes: u64) -> usize {
        let first = self.heads.len();
        self.heads.resize(first + (bytes / LINE) as usize, LineHead::default());
        first
    }

    /// Adds a line with copies of the records of another shadow's line; returns its index.
    pub(in crate::checks::races) fn push_line_of(&mut self, other: &Shadow, index: usize) -> u32 {
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
    pub(in crate::checks::races) fn keep_replaced_until(&mut self, time: Time) {
        self.keep_until = time;
    }

    /// Whether the cluster has accessed a line.
    #[inline(always)]
    pub(in crate::checks::races) fn is_accessed(&self, index: usize) -> bool {
        self.heads[index].since > self.start
    }

    /// Whether a line has only weak reads.
    pub(in crate::checks::races) fn is_weakly_read(&self, index: usize) -> bool {
        let is_weak =
            |record: &AccessRecord| record.stamp.origin & crate::checks::races::stamp::STRONG_IN_CLUSTER == 0;
        self.records(index, WRITES).all(|record| record.bytes == 0)
            && self.records(index, READS).all(|record| record.bytes == 0 || is_weak(record))
    }

    /// Index of a line's first record of kind [`READS`] or [`WRITES`]; 0 if there is none.
    #[inline(always)]
    pub(super) fn first(&self, index: usize, kind: usize) -> u32 {
        let head = &self.heads[index];
        if head.since > self.start { head.first[kind] } else { 0 }
    }

    /// Records of a line of kind [`READS`] or [`WRITES`].
    pub(super) fn records(&self, index: usize, kind: usize) -> impl Iterator<Item = &AccessRecord> {
        let mut next = self.first(index, kind);
        std::iter::from_fn(move || {
            let record = &self.records[next as usize];
            let found = next != 0;
            next = record.next;
            found.then_some(record)
        })
    }

    pub(super) fn lane_map(&self, record: &AccessRecord) -> LaneMap<'_> {
        LaneMap::new(record.kind, record.lanes, &self.tables[record.tables as usize][LANE_TABLE])
    }

    /// The recorded access to one byte. The stamp of a write includes the lowest writing lane.
    pub(super) fn access_at(&self, record: &AccessRecord, kind: usize, byte: u32) -> LaneStamp {
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
