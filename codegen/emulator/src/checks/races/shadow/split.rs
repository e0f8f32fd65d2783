//! Division of lines of granules into lines of bytes: a block's line of granules is four lines of bytes, its quarters.

use super::lines::{AccessRecord, Lines};
use crate::checks::races::lane_map::{LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::{LineAccess, MappedLine};
use crate::checks::races::stamp::GRANULE;
use crate::checks::races::unit::{QUARTERS, UNITS};
use crate::lanes::lanes_of;

/// Granules of a quarter.
const QUARTER: usize = UNITS / QUARTERS;

/// The part of an access in one quarter, or `None` if the access has no byte in it. `lanes` of the part may have lanes that
/// access only other quarters. `table` receives the part's lane table, if it has one.
pub(super) fn quarter_of(
    (access, map): MappedLine<'_>,
    quarter: usize,
    table: &mut LaneTable,
) -> Option<LineAccess> {
    let units = quarter_units(access.units, quarter);
    if units == 0 {
        return None;
    }
    let kind = quarter_kind(access.kind, quarter);
    if let (LaneMapKind::Table, LaneMap::PerUnit(of_granules)) = (kind, map) {
        *table = quarter_table(of_granules, quarter);
    }
    let line = access.line * QUARTERS as u64 + quarter as u64;
    Some(LineAccess { line, units, kind, ..*access })
}

/// Whether a record of a line of granules, with its lane map, has every byte of an access of a quarter by the same lanes.
#[inline(always)]
pub(super) fn includes_in_quarter(
    record: &AccessRecord,
    of_granules: LaneMap<'_>,
    quarter: usize,
    (access, map): MappedLine<'_>,
) -> bool {
    if access.units & !quarter_units(record.units, quarter) != 0 {
        return false;
    }
    let kind = quarter_kind(record.kind, quarter);
    matches!(kind, LaneMapKind::Run { .. }) && kind == access.kind
        || lanes_of(access.units).all(|byte| {
            let granule = quarter * QUARTER + byte / GRANULE as usize;
            map.lanes(byte as u32) & !of_granules.lanes(granule as u32) == 0
        })
}

impl Lines {
    /// Adds the quarters of the line at `index` of `granules`, with their parts of its records; returns the index of the
    /// first.
    pub(super) fn push_quarters_of(&mut self, granules: &Lines, index: usize) -> usize {
        let first = self.heads.len();
        for quarter in 0..QUARTERS {
            let part = |record: &AccessRecord| {
                let units = quarter_units(record.units, quarter);
                let kind = quarter_kind(record.kind, quarter);
                (units != 0).then_some(AccessRecord { units, kind, ..*record })
            };
            let tables = |number: usize| {
                granules.tables[number].each_ref().map(|of_granules| quarter_table(of_granules, quarter))
            };
            self.push_line(|kind| granules.records(index, kind).filter_map(part), tables);
        }
        first
    }
}

/// The mask of a quarter's bytes, from a mask of granules.
fn quarter_units(granules: u32, quarter: usize) -> u32 {
    let granules = granules >> (quarter * QUARTER) & 0xff;
    // Moves bit n to bit 4n.
    let mut spread = (granules | granules << 12) & 0x000f_000f;
    spread = (spread | spread << 6) & 0x0303_0303;
    spread = (spread | spread << 3) & 0x1111_1111;
    spread * 0xf
}

/// A quarter's part of a lane map of granules.
fn quarter_kind(kind: LaneMapKind, quarter: usize) -> LaneMapKind {
    let LaneMapKind::Run { log, first } = kind else { return kind };
    let first = first + ((quarter * QUARTER) >> log) as i8;
    LaneMapKind::Run { log: log + GRANULE.ilog2() as u8, first }
}

/// A quarter's table by bytes, from a table by granules.
fn quarter_table(granules: &LaneTable, quarter: usize) -> LaneTable {
    std::array::from_fn(|byte| granules[quarter * QUARTER + byte / GRANULE as usize])
}
