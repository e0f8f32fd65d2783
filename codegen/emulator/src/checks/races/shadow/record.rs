//! Recording of accesses in the shadow memory.

use super::lines::{AccessRecord, LANE_TABLE, LineHead, Lines, PC_TABLE, READS, WRITES};
use crate::checks::races::lane_map::{LaneMap, LaneMapKind, LaneTable};
use crate::checks::races::line_access::{LineAccess, MappedLine};
use crate::checks::races::stamp::{COPY, STRONG, Stamp};
use crate::checks::races::sync::AccessorClocks;
use crate::checks::races::unit::UNITS;
use crate::lanes::lanes_of;

impl Lines {
    /// Records a read. The new read replaces earlier reads that happened before it or are by the same threads: an
    /// access ordered after the new read is also ordered after the replaced reads.
    #[inline(always)]
    pub(super) fn record_read(
        &mut self,
        index: usize,
        (access, lanes): MappedLine<'_>,
        accessor: &AccessorClocks<'_>,
    ) {
        let mut number = self.open(index).first[READS];
        let (mut free, mut same) = (0, 0);
        while number != 0 {
            let record = &self.records[number as usize];
            let next = record.next;
            if record.units == 0 {
                free = number;
            } else if record.stamp.is_simultaneous(accessor.stamp) {
                return self.merge_read(number, access, lanes, accessor.stamp.pc);
            } else if record.units & access.units != 0
                && self.is_superseded(record, (access, lanes), accessor)
            {
                if self.keeps_replaced && record.stamp.time <= self.keep_until {
                    self.keep(index, READS, number, access.units);
                }
                let record = &self.records[number as usize];
                if record.units == access.units && self.has_same_map(record, (access, lanes)) {
                    same = number;
                }
                let record = &mut self.records[number as usize];
                record.units &= !access.units;
                free = if record.units == 0 { number } else { free };
            }
            number = next;
        }
        match same {
            0 => self.fill(index, (access, lanes), READS, free, accessor.stamp),
            same => {
                let record = &mut self.records[same as usize];
                (record.stamp, record.units, record.has_pc_table) = (accessor.stamp, access.units, false);
            }
        }
    }

    /// Records a read by a copy.
    pub(super) fn record_copy_read(&mut self, index: usize, (access, lanes): MappedLine<'_>, stamp: Stamp) {
        self.open(index);
        self.fill(index, (access, lanes), READS, 0, stamp);
    }

    /// Whether a recorded read happened before a new read, or is by the same threads at the units that both read.
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
        let units = record.units & access.units;
        let is_by_same_lanes =
            || self.has_same_map(record, (access, lanes)) || lanes.includes(self.lane_map(record), units);
        stamp.warp() == accessor.warp && is_by_same_lanes()
            || accessor.all(|clock| clock.covers(stamp.warp(), record.lanes, stamp.time))
    }

    /// Records a write, which replaces all earlier accesses of its units. If several lanes write a unit, only the
    /// highest lane is recorded.
    #[inline(always)]
    pub(super) fn record_write(&mut self, index: usize, (access, lanes): MappedLine<'_>, stamp: Stamp) {
        self.remove_reads(index, access, stamp);
        let mut number = self.open(index).first[WRITES];
        let (mut free, mut same) = (0, 0);
        while number != 0 {
            let record = &self.records[number as usize];
            if record.units & access.units != 0 && self.must_keep(record, stamp) {
                self.keep(index, WRITES, number, access.units);
            }
            let record = &mut self.records[number as usize];
            record.units &= !access.units;
            if record.units == 0 {
                free = number;
            } else if record.stamp.is_simultaneous(stamp) {
                same = number;
            }
            number = record.next;
        }
        match same {
            0 => {
                let free = if free == 0 { self.turn_into_write(index) } else { free };
                self.fill(index, (access, lanes), WRITES, free, stamp)
            }
            same => self.merge_write(same, access, lanes, stamp.pc),
        }
    }

    /// Moves the first read record of the line at `index` to the write records, if it has no units left; returns its number,
    /// or 0.
    #[inline(always)]
    fn turn_into_write(&mut self, index: usize) -> u32 {
        let head = &mut self.heads[index];
        let number = head.first[READS];
        let record = &mut self.records[number as usize];
        if number == 0 || record.units != 0 {
            return 0;
        }
        head.first[READS] = record.next;
        record.next = std::mem::replace(&mut head.first[WRITES], number);
        number
    }

    /// Checks and records an access in the two most frequent cases: the line at `index` has no record yet, or its only record
    /// is by the same warp with the same lane for each unit, and this access replaces it. In all other cases does nothing and
    /// returns false.
    #[inline(always)]
    pub(super) fn record_simple(
        &mut self,
        index: usize,
        (access, lanes): MappedLine<'_>,
        writes: bool,
        stamp: Stamp,
    ) -> bool {
        let head = &mut self.heads[index];
        if head.since <= self.start {
            *head = LineHead { since: self.start + 1, ..LineHead::default() };
            self.fill(index, (access, lanes), if writes { WRITES } else { READS }, 0, stamp);
            return true;
        }
        let [read, write] = head.first;
        let is_only_one = (read == 0) != (write == 0);
        if !is_only_one || write != 0 && !writes || !matches!(access.kind, LaneMapKind::Run { .. }) {
            return false;
        }
        let number = read | write;
        let record = &mut self.records[number as usize];
        let is_same = record.next == 0
            && record.stamp.origin == stamp.origin
            && record.units == access.units
            && record.kind == access.kind;
        if !is_same || self.keeps_replaced && record.stamp.time <= self.keep_until {
            return false;
        }
        if writes || record.stamp.time != stamp.time {
            (record.stamp, record.has_pc_table) = (stamp, false);
        }
        if writes {
            head.first = [0, number];
        }
        true
    }

    /// Removes a write's units from the read records.
    #[inline(always)]
    fn remove_reads(&mut self, index: usize, access: &LineAccess, stamp: Stamp) {
        let mut number = self.open(index).first[READS];
        while number != 0 {
            let record = &self.records[number as usize];
            if record.units & access.units != 0 && self.must_keep(record, stamp) {
                self.keep(index, READS, number, access.units);
            }
            let record = &mut self.records[number as usize];
            record.units &= !access.units;
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

    /// Copies the accesses of some units of a record to `self.replaced`.
    #[cold]
    fn keep(&mut self, index: usize, kind: usize, number: u32, units: u32) {
        let mut replaced = Vec::new();
        let record = &self.records[number as usize];
        self.for_each_granule(record, kind, record.units & units, |access| replaced.push((index, access)));
        self.replaced.extend(replaced);
    }

    /// Stores an access in record `number`, or in a new record if `number` is 0.
    #[inline(always)]
    fn fill(
        &mut self,
        index: usize,
        (access, lanes): MappedLine<'_>,
        kind: usize,
        number: u32,
        stamp: Stamp,
    ) {
        let number = match number {
            0 => {
                let head = &mut self.heads[index];
                let next = std::mem::replace(&mut head.first[kind], self.records.len() as u32);
                self.records.push(AccessRecord { next, ..AccessRecord::default() });
                self.records.len() - 1
            }
            number => number as usize,
        };
        let record = &mut self.records[number];
        (record.stamp, record.units, record.lanes) = (stamp, access.units, access.lanes);
        (record.kind, record.has_pc_table) = (access.kind, false);
        if kind == WRITES && access.kind == LaneMapKind::Uniform && !stamp.is_copy() {
            record.lanes = highest(access.lanes);
        }
        if access.kind == LaneMapKind::Table {
            let table = self.table_mut(number, LANE_TABLE);
            *table = lanes.to_table();
            if kind == WRITES {
                *table = table.map(highest);
            }
        }
    }

    /// Table [`LANE_TABLE`] or [`PC_TABLE`] of a record, as `which` says. The tables of a record are allocated on first
    /// use.
    fn table_mut(&mut self, record: usize, which: usize) -> &mut LaneTable {
        if self.records[record].tables == 0 {
            self.records[record].tables = self.push_tables([[0; UNITS]; 2]);
        }
        let number = self.records[record].tables as usize;
        &mut self.tables[number][which]
    }

    /// Adds a read to the record of a simultaneous read ([`Stamp::is_simultaneous`]).
    fn merge_read(&mut self, number: u32, access: &LineAccess, lanes: LaneMap<'_>, pc: u32) {
        let record = self.records[number as usize];
        let new_units = access.units & !record.units;
        let has_same_map = self.has_same_map(&record, (access, lanes));
        if new_units == 0 && (has_same_map || self.lane_map(&record).includes(lanes, access.units)) {
            return;
        }
        if !has_same_map {
            let before = self.lane_map(&record).to_table();
            let added = lanes.to_table();
            let table = self.table_mut(number as usize, LANE_TABLE);
            for unit in 0..UNITS {
                let old = if record.units >> unit & 1 != 0 { before[unit] } else { 0 };
                table[unit] = old | if access.units >> unit & 1 != 0 { added[unit] } else { 0 };
            }
            self.records[number as usize].kind = LaneMapKind::Table;
        }
        self.set_pc(number as usize, new_units, pc);
        let record = &mut self.records[number as usize];
        record.units |= access.units;
        record.lanes |= access.lanes;
    }

    /// Adds a write to the record of a simultaneous write ([`Stamp::is_simultaneous`]) of other units.
    fn merge_write(&mut self, number: u32, access: &LineAccess, lanes: LaneMap<'_>, pc: u32) {
        let record = self.records[number as usize];
        let new_lanes = match access.kind {
            LaneMapKind::Uniform => highest(access.lanes),
            _ => access.lanes,
        };
        let map = match lanes {
            LaneMap::Uniform(_) => LaneMap::Uniform(new_lanes),
            lanes => lanes,
        };
        if !self.has_same_map(&record, (access, map)) {
            let before = self.lane_map(&record).to_table();
            let added = lanes.to_table();
            let table = self.table_mut(number as usize, LANE_TABLE);
            for unit in 0..UNITS {
                let is_added = access.units >> unit & 1 != 0;
                table[unit] = if is_added { highest(added[unit]) } else { before[unit] };
            }
            self.records[number as usize].kind = LaneMapKind::Table;
        }
        self.set_pc(number as usize, access.units, pc);
        let record = &mut self.records[number as usize];
        record.units |= access.units;
        record.lanes |= new_lanes;
    }

    /// Sets the instruction that accessed some units of a record.
    fn set_pc(&mut self, number: usize, units: u32, pc: u32) {
        let record = self.records[number];
        if units == 0 || !record.has_pc_table && record.stamp.pc == pc {
            return;
        }
        self.records[number].has_pc_table = true;
        let table = self.table_mut(number, PC_TABLE);
        if !record.has_pc_table {
            table.fill(record.stamp.pc);
        }
        lanes_of(units).for_each(|unit| table[unit] = pc);
    }
}

/// Mask of the highest lane in `lanes`; 0 if there is none.
fn highest(lanes: u32) -> u32 {
    lanes & 1u32.wrapping_shl(31 - (lanes | 1).leading_zeros())
}
