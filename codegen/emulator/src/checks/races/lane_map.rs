//! Which lanes access which bytes of a 32-byte line.

use crate::lanes::lanes_of;

/// Bytes of a line, the unit in which accesses are recorded.
pub(super) const LINE: u64 = 32;

/// The lanes that access each byte of a line.
pub(super) type LaneTable = [u32; LINE as usize];

/// Lane tables of accesses in which consecutive lanes access 2^k consecutive bytes each. Table 2^k + n is that of the
/// n-th line of such an access; index 0 is unused.
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
    /// All lanes access all bytes.
    #[default]
    Uniform,
    /// The run table of this number.
    Run(u8),
    /// A table of the access's own.
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
    /// The lane map of a kind; `lanes` is that of [`LaneMapKind::Uniform`], `table` that of [`LaneMapKind::Table`].
    #[inline(always)]
    pub(super) fn new(kind: LaneMapKind, lanes: u32, table: &'a LaneTable) -> LaneMap<'a> {
        match kind {
            LaneMapKind::Uniform => LaneMap::Uniform(lanes),
            LaneMapKind::Run(number) => LaneMap::PerByte(&RUN_TABLES[number as usize % RUN_TABLES.len()]),
            LaneMapKind::Table => LaneMap::PerByte(table),
        }
    }

    /// The lanes that access a byte.
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

    /// Whether each of these bytes is accessed by exactly one lane, the same one in both maps.
    pub(super) fn is_same_single_lane(self, other: LaneMap<'_>, bytes: u32) -> bool {
        let is_same = |byte: usize| {
            let lanes = self.lanes(byte as u32);
            lanes == other.lanes(byte as u32) && lanes.is_power_of_two()
        };
        lanes_of(bytes).all(is_same)
    }

    /// Whether `other` has no lane at one of these bytes that `self` does not have there.
    pub(super) fn includes(self, other: LaneMap<'_>, bytes: u32) -> bool {
        lanes_of(bytes).all(|byte| other.lanes(byte as u32) & !self.lanes(byte as u32) == 0)
    }
}
