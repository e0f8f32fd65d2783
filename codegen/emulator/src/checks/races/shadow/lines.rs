//! Storage of access records.

use crate::checks::races::clock::Time;
use crate::checks::races::lane_map::{LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::MappedLine;
use crate::checks::races::stamp::{GRANULE, LaneStamp, STRONG_IN_CLUSTER, Stamp};
use crate::checks::races::unit::{UNITS, Unit};

/// Index of the read records in `LineHead::first`; `WRITES` is that of the write records.
pub(in crate::checks::races) const READS: usize = 0;
pub(in crate::checks::races) const WRITES: usize = 1;

/// Accesses to units of one line, by lanes of a warp at one time or by an asynchronous copy.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
pub(super) struct AccessRecord {
    /// Stamp of the access; for an access by a warp, without the lane number.
    pub(super) stamp: Stamp,
    pub(super) lanes: u32,
    pub(super) units: u32,
    pub(super) kind: LaneMapKind,
    /// Whether different instructions accessed the units; [`PC_TABLE`] then has the instruction of each unit.
    pub(super) has_pc_table: bool,
    /// Index of the record's own tables; 0 while it has none.
    pub(super) tables: u32,
    /// Index of the line's next record of the same kind, reads or writes; 0 at the end of the list.
    pub(super) next: u32,
}

// Indices of a record's pair of tables.

/// Index of the table of the lanes that accessed each unit.
pub(super) const LANE_TABLE: usize = 0;
/// Index of the table of the instruction that accessed each unit.
pub(super) const PC_TABLE: usize = 1;

/// Head of a line's record lists.
#[derive(Clone, Copy, Default)]
pub(super) struct LineHead {
    /// Time since which the lists are valid. If the time is not later than [`Lines::start`], the lists are from an
    /// earlier cluster.
    pub(super) since: Time,
    /// Indices of the first record of reads and of writes; 0 if there is none.
    pub(super) first: [u32; 2],
    /// For a line of granules whose accesses are recorded in lines of bytes, the index of the first of them; else 0.
    pub(super) quarters: u32,
}

/// Accesses to bytes of one 4-byte granule with the same stamp and lanes.
#[derive(Clone, Copy)]
pub(in crate::checks::races) struct GranuleAccess {
    /// Number of the granule in its line or block, from 0.
    pub(in crate::checks::races) granule: usize,
    /// Bytes of the granule, one bit each.
    pub(in crate::checks::races) bytes: u8,
    pub(in crate::checks::races) writes: bool,
    pub(in crate::checks::races) by: LaneStamp,
}

/// Lines of granules or of bytes, with records of the accesses to them.
pub(super) struct Lines {
    pub(super) unit: Unit,
    pub(super) heads: Vec<LineHead>,
    /// Records of all lines; index 0 is unused.
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
    pub(super) replaced: Vec<(usize, GranuleAccess)>,
}

impl Lines {
    /// Creates `count` lines without accesses.
    pub(super) fn new(unit: Unit, count: usize) -> Lines {
        Lines {
            heads: vec![LineHead::default(); count],
            records: vec![AccessRecord::default()],
            ..Lines::empty(unit)
        }
    }

    /// Creates a list without lines, to which [`Lines::push_line_of`] adds lines.
    pub(super) fn empty(unit: Unit) -> Lines {
        Lines {
            unit,
            heads: Vec::new(),
            records: Vec::new(),
            tables: Vec::new(),
            start: 0,
            keeps_replaced: false,
            keep_until: 0,
            replaced: Vec::new(),
        }
    }

    /// Discards all records. Accesses recorded from now on have times later than `start`.
    pub(super) fn reset(&mut self, start: Time) {
        self.start = start;
        self.keep_until = start;
        self.records.truncate(1);
        self.tables.truncate(1);
        self.replaced.clear();
    }

    /// Adds a line with copies of the records of another line, without those that have no units left; returns the new
    /// line's index.
    pub(super) fn push_line_of(&mut self, other: &Lines, index: usize) -> usize {
        let records = |kind| other.records(index, kind).filter(|record| record.units != 0).copied();
        self.push_line(records, |tables| other.tables[tables])
    }

    /// Adds a line with copies of records of another line; returns the new line's index. `records` yields the records to
    /// copy, of kind [`READS`] or [`WRITES`]; `tables` maps the index of a record's tables to the tables of its copy.
    pub(super) fn push_line<R: Iterator<Item = AccessRecord>>(
        &mut self,
        records: impl Fn(usize) -> R,
        tables: impl Fn(usize) -> [LaneTable; 2],
    ) -> usize {
        if self.records.is_empty() {
            self.records.push(AccessRecord::default());
        }
        let mut first = [0; 2];
        for kind in [READS, WRITES] {
            let mut last = None;
            for record in records(kind) {
                let number = self.records.len() as u32;
                let tables = match record.tables {
                    0 => 0,
                    other => self.push_tables(tables(other as usize)),
                };
                self.records.push(AccessRecord { tables, next: 0, ..record });
                match last.replace(number) {
                    None => first[kind] = number,
                    Some(before) => self.records[before as usize].next = number,
                }
            }
        }
        self.heads.push(LineHead { since: self.start + 1, first, quarters: 0 });
        self.heads.len() - 1
    }

    /// Adds a pair of tables; returns its index, which is not 0.
    pub(super) fn push_tables(&mut self, tables: [LaneTable; 2]) -> u32 {
        if self.tables.is_empty() {
            self.tables.push([[0; UNITS]; 2]);
        }
        self.tables.push(tables);
        self.tables.len() as u32 - 1
    }

    /// The accesses of a line that were replaced and are kept. They must be sorted.
    pub(super) fn replaced_in(&self, index: usize) -> impl Iterator<Item = GranuleAccess> {
        let from = self.replaced.partition_point(|&(other, _)| other < index);
        self.replaced[from..].iter().take_while(move |(other, _)| *other == index).map(|&(_, access)| access)
    }

    /// Address of the granule with a unit of a line, from the number of the line and the number of the unit in it.
    pub(super) fn granule_address(&self, line: u64, unit: u32) -> u64 {
        let address = line * self.unit.line_bytes() + unit as u64 * self.unit.bytes();
        address / GRANULE * GRANULE
    }

    /// Returns the head of a line; empties the head first if it is from an earlier cluster.
    #[inline(always)]
    pub(super) fn open(&mut self, index: usize) -> &mut LineHead {
        let head = &mut self.heads[index];
        if head.since <= self.start {
            *head = LineHead { since: self.start + 1, ..LineHead::default() };
        }
        head
    }

    /// Whether the cluster has accessed a line.
    #[inline(always)]
    pub(super) fn is_accessed(&self, index: usize) -> bool {
        self.heads[index].since > self.start
    }

    /// Whether a line has only weak reads.
    pub(super) fn is_weakly_read(&self, index: usize) -> bool {
        let is_weak = |record: &AccessRecord| record.stamp.origin & STRONG_IN_CLUSTER == 0;
        self.records(index, WRITES).all(|record| record.units == 0)
            && self.records(index, READS).all(|record| record.units == 0 || is_weak(record))
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
        /// Stands for the table of a record without tables.
        static NONE: LaneTable = [0; UNITS];
        let table = self.tables.get(record.tables as usize).map_or(&NONE, |tables| &tables[LANE_TABLE]);
        LaneMap::new(record.kind, record.lanes, table)
    }

    /// Whether the record's lane map equals an access's lane map.
    #[inline(always)]
    pub(super) fn has_same_map(&self, record: &AccessRecord, (access, map): MappedLine<'_>) -> bool {
        record.kind == access.kind
            && match map {
                LaneMap::Uniform(lanes) => record.lanes == lanes,
                LaneMap::Run { .. } => true,
                LaneMap::PerUnit(table) => self.tables[record.tables as usize][LANE_TABLE] == *table,
            }
    }

    /// The recorded access to one unit. The stamp of a write includes the lowest writing lane.
    pub(super) fn access_at(&self, record: &AccessRecord, kind: usize, unit: u32) -> LaneStamp {
        let lanes = self.lane_map(record).lanes(unit);
        let pc = match record.has_pc_table {
            true => self.tables[record.tables as usize][PC_TABLE][unit as usize],
            false => record.stamp.pc,
        };
        if record.stamp.is_copy() {
            return LaneStamp { stamp: record.stamp, lanes: 1 << record.stamp.lane() };
        }
        let lane = if kind == WRITES { lanes.trailing_zeros() & 31 } else { 0 };
        LaneStamp { stamp: Stamp { origin: record.stamp.origin | lane, pc, ..record.stamp }, lanes }
    }
}
