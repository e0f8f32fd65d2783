//! Conversion of access records to accesses of 4-byte granules, for the comparison between clusters.

use super::memory::{AccessRecord, GRANULES, GranuleAccess, READS, Shadow, WRITES};
use crate::checks::races::lane_map::LaneMapKind;
use crate::checks::races::stamp::GRANULE;
use crate::lanes::lanes_of;

impl Shadow {
    /// Calls `visit` for all accesses of a line, granule by granule.
    pub(in crate::checks::races) fn for_each_access(
        &self,
        index: usize,
        mut visit: impl FnMut(GranuleAccess),
    ) {
        for kind in [WRITES, READS] {
            for record in self.records(index, kind) {
                self.for_each_granule(record, kind, record.bytes, &mut visit);
            }
        }
    }

    /// Calls `visit` for some bytes of a record: granule by granule, once for each set of bytes with equal stamp and
    /// lanes.
    pub(super) fn for_each_granule(
        &self,
        record: &AccessRecord,
        kind: usize,
        bytes: u32,
        mut visit: impl FnMut(GranuleAccess),
    ) {
        let is_uniform = record.kind == LaneMapKind::Uniform && !record.has_pc_table;
        for granule in 0..GRANULES {
            let first = granule as u32 * GRANULE as u32;
            let mut left = bytes >> first & 0xf;
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
                visit(GranuleAccess { granule, bytes: part as u8, writes: kind == WRITES, by });
                left &= !part;
            }
        }
    }
}
