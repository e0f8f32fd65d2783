//! Records and their storage.

use crate::checks::races::clock::Time;
use crate::checks::races::lane_map::{LINE, LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::LineAccess;
use crate::checks::races::stamp::{GRANULE, LaneStamp, Stamp};

/// Granules per line.
pub(in crate::checks::races) const GRANULES: usize = (LINE / GRANULE) as usize;

/// The part of an access in one line, with its lane map.
pub(in crate::checks::races) type MappedLine<'a> = (&'a LineAccess, LaneMap<'a>);

/// Kinds of records, as indices of `LineHead::first`.
pub(in crate::checks::races) const READS: usize = 0;
pub(in crate::checks::races) const WRITES: usize = 1;

/// Accesses to bytes of one line, by lanes of a warp at one time or by an asynchronous copy.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
pub(super) struct AccessRecord {
    /// Stamp without a lane.
    pub(super) stamp: Stamp,
    pub(super) lanes: u32,
    pub(super) bytes: u32,
    pub(super) kind: LaneMapKind,
    /// Whether different instructions accessed the bytes; [`PC_TABLE`] then has the instruction of each byte.
    pub(super) has_pc_table: bool,
    /// Index of the record's own tables; 0 while it has none.
    pub(super) tables: u32,
    /// The line's next record of writes or of reads; 0 at the end.
    pub(super) next: u32,
}

impl AccessRecord {
    /// Whether the lane map is known, without comparing tables, to equal that of a kind and lanes.
    pub(super) fn has_same_map(&self, kind: LaneMapKind, lanes: u32) -> bool {
        match kind {
            LaneMapKind::Uniform => self.kind == LaneMapKind::Uniform && self.lanes == lanes,
            LaneMapKind::Run(_) => self.kind == kind,
            LaneMapKind::Table => false,
        }
    }
}

// Indices of a record's tables.

/// The lanes that accessed each byte.
pub(super) const LANE_TABLE: usize = 0;
/// The instruction that accessed each byte.
pub(super) const PC_TABLE: usize = 1;

/// Head of a line's record lists.
#[derive(Clone, Copy, Default)]
pub(super) struct LineHead {
    /// The lists are valid if this is later than [`Shadow::start`].
    pub(super) since: Time,
    /// First record of reads and of writes; 0 if there is none.
    pub(super) first: [u32; 2],
}

/// The accesses to one granule that a record stands for.
#[derive(Clone, Copy)]
pub(in crate::checks::races) struct GranuleAccess {
    /// Number of the granule in its line.
    pub(in crate::checks::races) granule: usize,
    /// Bytes of the granule, one bit each.
    pub(in crate::checks::races) bytes: u8,
    pub(in crate::checks::races) writes: bool,
    pub(in crate::checks::races) by: LaneStamp,
}

/// Shadow memory: access records of each line.
pub(in crate::checks::races) struct Shadow {
    pub(super) heads: Vec<LineHead>,
    /// Index 0 is unused.
    pub(super) records: Vec<AccessRecord>,
    /// Index 0 is unused.
    pub(super) tables: Vec<[LaneTable; 2]>,
    /// Records up to this time belong to earlier clusters.
    pub(super) start: Time,
    /// Whether replaced accesses that another cluster must still be compared with are kept in `replaced`.
    pub(super) keeps_replaced: bool,
    /// Replaced accesses up to this time are kept. Later ones are kept only if a strong access replaces a weak one, or
    /// the reverse.
    pub(super) keep_until: Time,
    /// Replaced accesses by line index.
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

    /// Adds lines for `bytes` bytes; returns the index of the first.
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

    /// The number of a line's first record of a kind, 0 if there is none.
    #[inline(always)]
    pub(super) fn first(&self, index: usize, kind: usize) -> u32 {
        let head = &self.heads[index];
        if head.since > self.start { head.first[kind] } else { 0 }
    }

    /// The records of a kind of a line.
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

    /// The recorded access to one byte. The stamp of a write has the lowest of its lanes.
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
