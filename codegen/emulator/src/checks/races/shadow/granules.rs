//! Conversion of access records to accesses of 4-byte granules, for the comparison between clusters.

use super::lines::{AccessRecord, GranuleAccess, Lines, READS, WRITES};
use crate::checks::races::lane_map::LaneMapKind;
use crate::checks::races::stamp::GRANULE;
use crate::checks::races::unit::{UNITS, Unit};
use crate::lanes::lanes_of;

impl Lines {
    /// Calls `visit` for all accesses of the line at `index`, granule by granule.
    pub(super) fn for_each_access(&self, index: usize, mut visit: impl FnMut(GranuleAccess)) {
        for kind in [WRITES, READS] {
            for record in self.records(index, kind) {
                self.for_each_granule(record, kind, record.units, &mut visit);
            }
        }
    }

    /// Calls `visit` for some units of a record: granule by granule, once for each set of bytes with equal stamp and
    /// lanes.
    pub(super) fn for_each_granule(
        &self,
        record: &AccessRecord,
        kind: usize,
        units: u32,
        mut visit: impl FnMut(GranuleAccess),
    ) {
        let writes = kind == WRITES;
        if self.unit == Unit::Granule {
            for granule in lanes_of(units) {
                let by = self.access_at(record, kind, granule as u32);
                visit(GranuleAccess { granule, bytes: 0xf, writes, by });
            }
            return;
        }
        let is_uniform = record.kind == LaneMapKind::Uniform && !record.has_pc_table;
        for granule in 0..UNITS / GRANULE as usize {
            let first = granule as u32 * GRANULE as u32;
            let mut left = units >> first & 0xf;
            while left != 0 {
                let lowest = left.trailing_zeros();
                let by = self.access_at(record, kind, first + lowest);
                let is_same = |&byte: &usize| {
                    let other = self.access_at(record, kind, first + byte as u32);
                    (other.stamp, other.lanes) == (by.stamp, by.lanes)
                };
                let part = match is_uniform {
                    true => left,
                    false => lanes_of(left).filter(is_same).fold(0, |part, byte| part | 1 << byte),
                };
                visit(GranuleAccess { granule, bytes: part as u8, writes, by });
                left &= !part;
            }
        }
    }
}
