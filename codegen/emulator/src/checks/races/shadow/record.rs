//! Recording of accesses in the shadow memory.

use super::memory::{AccessRecord, LANE_TABLE, LineHead, MappedLine, PC_TABLE, READS, Shadow, WRITES};
use crate::checks::races::lane_map::{LINE, LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::LineAccess;
use crate::checks::races::stamp::{COPY, STRONG, Stamp};
use crate::checks::races::sync::AccessorClocks;
use crate::lanes::lanes_of;

impl Shadow {
    /// Records a read. The new read replaces earlier reads that happened before it or are by the same threads: an
    /// access ordered after the new read is also ordered after the replaced reads.
    #[inline(always)]
    pub(in crate::checks::races) fn record_read(
        &mut self,
        (access, lanes): MappedLine<'_>,
        accessor: &AccessorClocks<'_>,
    ) {
        let mut number = self.open(access.index).first[READS];
        let mut free = 0;
        while number != 0 {
            let record = &self.records[number as usize];
            let next = record.next;
            if record.bytes == 0 {
                free = number;
            } else if record.stamp.is_simultaneous(accessor.stamp) {
                return self.merge_read(number, access, lanes, accessor.stamp.pc);
            } else if record.bytes & access.bytes != 0
                && self.is_superseded(record, (access, lanes), accessor)
            {
                if self.keeps_replaced && record.stamp.time <= self.keep_until {
                    self.keep(access.index, READS, number, access.bytes);
                }
                let record = &mut self.records[number as usize];
                record.bytes &= !access.bytes;
                free = if record.bytes == 0 { number } else { free };
            }
            number = next;
        }
        self.fill((access, lanes), READS, free, accessor.stamp);
    }

    /// Records a read by a copy.
    pub(in crate::checks::races) fn record_copy_read(
        &mut self,
        (access, lanes): MappedLine<'_>,
        stamp: Stamp,
    ) {
        self.open(access.index);
        self.fill((access, lanes), READS, 0, stamp);
    }

    /// Whether a recorded read happened before a new read, or is by the same threads at the bytes that both read.
    #[inline(always)]
    fn is_superseded(
        &self,
        record: &AccessRecord,
        (access, lanes): MappedLine<'_>,
        accessor: &AccessorClocks<'_>,
    ) -> bool {
        let stamp = record.stamp;
        // Strong and weak reads race with different writes, and a thread's read does not replace a copy's read.
        if (stamp.origin ^ accessor.stamp.origin) & (STRONG | COPY) != 0 {
            return false;
        }
        let bytes = record.bytes & access.bytes;
        let is_by_same_lanes =
            || record.has_same_map(access.kind, access.lanes) || lanes.includes(self.lane_map(record), bytes);
        stamp.warp() == accessor.warp && is_by_same_lanes()
            || accessor.all(|clock| clock.covers(stamp.warp(), record.lanes, stamp.time))
    }

    /// Records a write, which replaces all earlier accesses of its bytes. If several lanes write a byte, only the
    /// highest lane is recorded.
    #[inline(always)]
    pub(in crate::checks::races) fn record_write(&mut self, (access, lanes): MappedLine<'_>, stamp: Stamp) {
        self.remove_reads(access, stamp);
        let mut number = self.open(access.index).first[WRITES];
        let (mut free, mut same) = (0, 0);
        while number != 0 {
            let record = &self.records[number as usize];
            if record.bytes & access.bytes != 0 && self.must_keep(record, stamp) {
                self.keep(access.index, WRITES, number, access.bytes);
            }
            let record = &mut self.records[number as usize];
            record.bytes &= !access.bytes;
            if record.bytes == 0 {
                free = number;
            } else if record.stamp.is_simultaneous(stamp) {
                same = number;
            }
            number = record.next;
        }
        match same {
            0 => self.fill((access, lanes), WRITES, free, stamp),
            same => self.merge_write(same, access, lanes, stamp.pc),
        }
    }

    /// Removes a write's bytes from the read records.
    #[inline(always)]
    fn remove_reads(&mut self, access: &LineAccess, stamp: Stamp) {
        let mut number = self.open(access.index).first[READS];
        while number != 0 {
            let record = &self.records[number as usize];
            if record.bytes & access.bytes != 0 && self.must_keep(record, stamp) {
                self.keep(access.index, READS, number, access.bytes);
            }
            let record = &mut self.records[number as usize];
            record.bytes &= !access.bytes;
            number = record.next;
        }
    }

    /// Whether the record must be kept although `write` replaces it: an access of another cluster may race with the
    /// recorded access but not with the write.
    #[inline(always)]
    fn must_keep(&self, record: &AccessRecord, write: Stamp) -> bool {
        let Stamp { time, origin, .. } = record.stamp;
        self.keeps_replaced && (time <= self.keep_until || (origin ^ write.origin) & STRONG != 0)
    }

    /// Copies the accesses of some bytes of a record to `self.replaced`.
    #[cold]
    fn keep(&mut self, index: usize, kind: usize, number: u32, bytes: u32) {
        let mut replaced = Vec::new();
        let record = &self.records[number as usize];
        self.for_each_granule(record, kind, record.bytes & bytes, |access| replaced.push((index, access)));
        self.replaced.extend(replaced);
    }

    /// Returns the head of a line; empties the head first if it is from an earlier cluster.
    #[inline(always)]
    fn open(&mut self, index: usize) -> &mut LineHead {
        let head = &mut self.heads[index];
        if head.since <= self.start {
            *head = LineHead { since: self.start + 1, first: [0; 2] };
        }
        head
    }

    /// Stores an access in record `number`, or in a new record if `number` is 0.
    #[inline(always)]
    fn fill(&mut self, (access, lanes): MappedLine<'_>, kind: usize, number: u32, stamp: Stamp) {
        let number = match number {
            0 => {
                let head = &mut self.heads[access.index];
                let next = std::mem::replace(&mut head.first[kind], self.records.len() as u32);
                self.records.push(AccessRecord { next, ..AccessRecord::default() });
                self.records.len() - 1
            }
            number => number as usize,
        };
        let record = &mut self.records[number];
        (record.stamp, record.bytes, record.lanes) = (stamp, access.bytes, access.lanes);
        (record.kind, record.has_pc_table) = (access.kind, false);
        if kind == WRITES && access.kind == LaneMapKind::Uniform && !stamp.is_copy() {
            record.lanes = highest(access.lanes);
        }
        if access.kind == LaneMapKind::Table {
            let table = match kind {
                WRITES => lanes.to_table().map(highest),
                _ => lanes.to_table(),
            };
            *self.table_mut(number, LANE_TABLE) = table;
        }
    }

    /// Table [`LANE_TABLE`] or [`PC_TABLE`] of a record, as `which` says. The tables of a record are allocated on first
    /// use.
    fn table_mut(&mut self, record: usize, which: usize) -> &mut LaneTable {
        let number = &mut self.records[record].tables;
        if *number == 0 {
            *number = self.tables.len() as u32;
            self.tables.push([[0; LINE as usize]; 2]);
        }
        &mut self.tables[*number as usize][which]
    }

    /// Adds a read to the record of a simultaneous read ([`Stamp::is_simultaneous`]).
    fn merge_read(&mut self, number: u32, access: &LineAccess, lanes: LaneMap<'_>, pc: u32) {
        let record = self.records[number as usize];
        let new_bytes = access.bytes & !record.bytes;
        let has_same_map = record.has_same_map(access.kind, access.lanes);
        if new_bytes == 0 && (has_same_map || self.lane_map(&record).includes(lanes, access.bytes)) {
            return;
        }
        if !has_same_map {
            let before = self.lane_map(&record).to_table();
            let added = lanes.to_table();
            let table = self.table_mut(number as usize, LANE_TABLE);
            for byte in 0..LINE as usize {
                let old = if record.bytes >> byte & 1 != 0 { before[byte] } else { 0 };
                table[byte] = old | if access.bytes >> byte & 1 != 0 { added[byte] } else { 0 };
            }
            self.records[number as usize].kind = LaneMapKind::Table;
        }
        self.set_pc(number as usize, new_bytes, pc);
        let record = &mut self.records[number as usize];
        record.bytes |= access.bytes;
        record.lanes |= access.lanes;
    }

    /// Adds a write to the record of a simultaneous write ([`Stamp::is_simultaneous`]) of other bytes.
    fn merge_write(&mut self, number: u32, access: &LineAccess, lanes: LaneMap<'_>, pc: u32) {
        let record = self.records[number as usize];
        let new_lanes = match access.kind {
            LaneMapKind::Uniform => highest(access.lanes),
            _ => access.lanes,
        };
        if !record.has_same_map(access.kind, new_lanes) {
            let before = self.lane_map(&record).to_table();
            let added = lanes.to_table();
            let table = self.table_mut(number as usize, LANE_TABLE);
            for byte in 0..LINE as usize {
                let is_added = access.bytes >> byte & 1 != 0;
                table[byte] = if is_added { highest(added[byte]) } else { before[byte] };
            }
            self.records[number as usize].kind = LaneMapKind::Table;
        }
        self.set_pc(number as usize, access.bytes, pc);
        let record = &mut self.records[number as usize];
        record.bytes |= access.bytes;
        record.lanes |= new_lanes;
    }

    /// Sets the instruction that accessed some bytes of a record.
    fn set_pc(&mut self, number: usize, bytes: u32, pc: u32) {
        let record = self.records[number];
        if bytes == 0 || !record.has_pc_table && record.stamp.pc == pc {
            return;
        }
        self.records[number].has_pc_table = true;
        let table = self.table_mut(number, PC_TABLE);
        if !record.has_pc_table {
            table.fill(record.stamp.pc);
        }
        lanes_of(bytes).for_each(|byte| table[byte] = pc);
    }
}

/// Mask of the highest lane in `lanes`; 0 if there is none.
fn highest(lanes: u32) -> u32 {
    lanes & 1u32.wrapping_shl(31 - (lanes | 1).leading_zeros())
}
