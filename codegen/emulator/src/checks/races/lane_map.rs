//! Lane maps: the lanes that access each byte of a 32-byte line.

use crate::lanes::lanes_of;

/// Bytes of a line, the unit of memory in which accesses are recorded.
pub(super) const LINE: u64 = 32;

/// Masks of the lanes that access each byte of a line.
pub(super) type LaneTable = [u32; LINE as usize];

/// Lane tables of runs: accesses in which consecutive lanes access 2^k consecutive bytes each. Table 2^k + n is the
/// lane table of the n-th line of such an access; index 0 is unused.
static RUN_TABLES: [LaneTable; 32] = run_tables();

const fn run_tables() -> [LaneTable; 32] {
    let mut tables = [[0; LINE as usize]; 32];
    let mut number = 1;
    while number < 32 {
        let log = (number as u32).ilog2();
        let first = (number - (1 << log)) * (32 >> log);
        let mut byte = 0;
        while byte < 32 {
            tables[number][byte] = 1 << (first + (byte >> log));
            byte += 1;
        }
        number += 1;
    }
    tables
}

/// Representation of a lane map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LaneMapKind {
    /// All lanes of the access access all its bytes in the line.
    #[default]
    Uniform,
    /// The table of this number in `RUN_TABLES`.
    Run(u8),
    /// A lane table that is stored with the access.
    Table,
}

/// The lanes that access each byte of a line.
#[derive(Clone, Copy)]
pub(super) enum LaneMap<'a> {
    /// The same lanes for all bytes.
    Uniform(u32),
    PerByte(&'a LaneTable),
}

impl<'a> LaneMap<'a> {
    /// Lane map of the given kind; [`LaneMapKind::Uniform`] uses `lanes`, [`LaneMapKind::Table`] uses `table`.
    #[inline(always)]
    pub(super) fn new(kind: LaneMapKind, lanes: u32, table: &'a LaneTable) -> LaneMap<'a> {
        match kind {
            LaneMapKind::Uniform => LaneMap::Uniform(lanes),
            LaneMapKind::Run(number) => LaneMap::PerByte(&RUN_TABLES[number as usize % RUN_TABLES.len()]),
            LaneMapKind::Table => LaneMap::PerByte(table),
        }
    }

    /// Mask of the lanes that access byte `byte` of the line.
    #[inline(always)]
    pub(super) fn lanes(self, byte: u32) -> u32 {
        match self {
            LaneMap::Uniform(lanes) => lanes,
            LaneMap::PerByte(table) => table[byte as usize % LINE as usize],
        }
    }

    pub(super) fn to_table(self) -> LaneTable {
        match self {
            LaneMap::Uniform(lanes) => [lanes; LINE as usize],
            LaneMap::PerByte(table) => *table,
        }
    }

    /// Whether exactly one lane, the same in both maps, accesses each byte of the mask `bytes`.
    pub(super) fn is_same_single_lane(self, other: LaneMap<'_>, bytes: u32) -> bool {
        let is_same = |byte: usize| {
            let lanes = self.lanes(byte as u32);
            lanes == other.lanes(byte as u32) && lanes.is_power_of_two()
        };
        lanes_of(bytes).all(is_same)
    }

    /// Whether, at each byte of the mask `bytes`, `self` has all lanes that `other` has.
    pub(super) fn includes(self, other: LaneMap<'_>, bytes: u32) -> bool {
        lanes_of(bytes).all(|byte| other.lanes(byte as u32) & !self.lanes(byte as u32) == 0)
    }
}
