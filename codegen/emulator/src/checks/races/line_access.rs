//! An access of a warp, split into lines.

use super::lane_map::{LaneMap, LaneMapKind, LaneTable};
use super::unit::{BLOCK, UNITS, Unit};
use crate::lanes::{LANES, lanes_of};

/// The part of an access in one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineAccess {
    /// Line number: the line's first address divided by the bytes of a line.
    pub(super) line: u64,
    /// Index in the shadow memory of the line's block. Equals the block's number for shared memory;
    /// `RaceDetector::locate_lines` sets it for global memory.
    pub(super) block: usize,
    /// Units of the line that any lane accesses, one bit each.
    pub(super) units: u32,
    /// Mask of the lanes that access any unit of the line.
    pub(super) lanes: u32,
    pub(super) kind: LaneMapKind,
}

/// The part of an access in one line, and the lanes that access each unit of the line.
pub(super) type MappedLine<'a> = (&'a LineAccess, LaneMap<'a>);

/// An access of a warp, split into lines.
#[derive(Default)]
pub(super) struct LineAccesses {
    pub(super) unit: Unit,
    pub(super) lines: Vec<LineAccess>,
    /// Lane tables, parallel to `lines`; used where the kind is [`LaneMapKind::Table`].
    tables: Vec<LaneTable>,
    /// Shape of the access in `lines`, if [`LineAccesses::set`] or [`LineAccesses::set_run`] made it.
    shape: Option<Shape>,
    /// Address of each lane; for a run, only lane 0's address is set.
    addresses: [u64; LANES],
}

/// Properties that two accesses must have in common if one is a shifted copy of the other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    lanes: u32,
    bytes: u64,
    /// Whether all 32 lanes access consecutive elements.
    run: bool,
}

impl LineAccesses {
    /// Lane map of the line at `position` in `self.lines`.
    pub(super) fn lane_map(&self, position: usize) -> LaneMap<'_> {
        let LineAccess { kind, lanes, .. } = self.lines[position];
        LaneMap::new(kind, lanes, &self.tables[position])
    }

    /// Starts an access of the given unit, which has no lines yet.
    pub(super) fn clear(&mut self, unit: Unit) {
        self.unit = unit;
        self.lines.clear();
        self.shape = None;
    }

    /// Sets the access to `bytes` bytes by each of `lanes`. If the access is the previous access shifted by whole
    /// lines, only moves the lines.
    pub(super) fn set(&mut self, lanes: u32, addresses: &[u64; LANES], bytes: u64) {
        let shape = Shape { lanes, bytes, run: false };
        let first = lanes.trailing_zeros() as usize % LANES;
        let offset = addresses[first].wrapping_sub(self.addresses[first]);
        if self.shape != Some(shape)
            || !is_shifted(lanes, &self.addresses, addresses, offset)
            || !self.shift(offset)
        {
            self.split(lanes, addresses, bytes);
            self.shape = Some(shape);
        }
        self.addresses = *addresses;
    }

    /// Moves all lines by `offset` bytes; returns false if `offset` is not a whole number of lines.
    fn shift(&mut self, offset: u64) -> bool {
        let log = self.unit.line_bytes().ilog2();
        if offset & ((1 << log) - 1) != 0 {
            return false;
        }
        for access in &mut self.lines {
            access.line = access.line.wrapping_add((offset as i64 >> log) as u64);
            access.block = (access.line >> (BLOCK.ilog2() - log)) as usize;
        }
        true
    }

    /// Splits an access into lines.
    fn split(&mut self, lanes: u32, addresses: &[u64; LANES], bytes: u64) {
        self.clear(Unit::of(lanes_of(lanes).fold(bytes, |bits, lane| bits | addresses[lane])));
        let lane = lanes.trailing_zeros() as usize % LANES;
        let (first, next) = (addresses[lane], addresses[(lane + 1) % LANES]);
        let stride = if lanes >> lane & 2 != 0 { next.wrapping_sub(first) } else { bytes };
        let start = first.wrapping_sub((lane as u64).wrapping_mul(stride));
        if stride.is_power_of_two()
            && is_strided(lanes, addresses, start, stride)
            && self.set_strided(lanes, start, stride, bytes)
        {
            return;
        }
        let mut left = lanes;
        while left != 0 {
            // If some lanes have equal addresses, usually every lane has the address of another lane.
            let address = addresses[left.trailing_zeros() as usize];
            let mut same = 0;
            for (lane, &other) in addresses.iter().enumerate() {
                same |= ((other == address) as u32) << lane;
            }
            if (same & left).is_power_of_two() {
                break;
            }
            self.add(same & left, address, bytes);
            left &= !same;
        }
        for lane in lanes_of(left) {
            self.add(1 << lane, addresses[lane], bytes);
        }
    }

    /// Sets the access to 32 consecutive elements from `start`, one per lane, of `bytes` bytes (a power of two) each.
    pub(super) fn set_run(&mut self, start: u64, bytes: u64) {
        let shape = Shape { lanes: u32::MAX, bytes, run: true };
        let offset = start.wrapping_sub(std::mem::replace(&mut self.addresses[0], start));
        if self.shape == Some(shape) && self.shift(offset) {
            return;
        }
        self.clear(Unit::of(start | bytes));
        self.shape = Some(shape);
        if !self.set_strided(u32::MAX, start, bytes, bytes) {
            for lane in 0..LANES as u64 {
                self.add(1 << lane, start + lane * bytes, bytes);
            }
        }
    }

    /// Adds an access whose lanes are `stride` bytes apart (a power of two); `start` is the address of lane 0, active
    /// or not. Returns false if runs ([`LaneMapKind::Run`]) cannot express the access.
    fn set_strided(&mut self, lanes: u32, start: u64, stride: u64, bytes: u64) -> bool {
        let log = self.unit.log_bytes();
        // In units; negative if lane 0 is inactive and its address would be.
        let start = start as i64 >> log;
        let (stride, count, line_units) = ((stride >> log) as i64, (bytes >> log) as i64, UNITS as i64);
        if count.count_ones() != 1 || count > stride.min(line_units) || start & (count - 1) != 0 {
            return false;
        }
        let lane_units = u32::MAX >> (line_units - count);
        if stride >= line_units {
            // Each lane accesses a different line.
            for lane in lanes_of(lanes) {
                let first = start + lane as i64 * stride;
                let units = lane_units << (first % line_units);
                self.push((first / line_units) as u64, units, 1 << lane, LaneMapKind::Uniform);
            }
            return true;
        }
        let inside = start & (stride - 1);
        if inside + count > stride {
            return false;
        }
        // Each lane has `stride` units from `origin`, of which it accesses `count`.
        let origin = start - inside;
        let lanes_per_line = line_units / stride;
        for line in
            origin.div_euclid(line_units)..=(origin + LANES as i64 * stride - 1).div_euclid(line_units)
        {
            let first = (line * line_units - origin) / stride;
            let in_line = ((1u64 << lanes_per_line) - 1) << LANES >> (LANES as i64 - first);
            let lanes_in_line = lanes & in_line as u32;
            let units = match lanes_in_line.count_ones() as i64 == lanes_per_line && count == stride {
                true => u32::MAX,
                false => lanes_of(lanes_in_line)
                    .fold(0, |units, lane| units | lane_units << (inside + (lane as i64 - first) * stride)),
            };
            if units != 0 {
                let kind = LaneMapKind::Run { log: stride.ilog2() as u8, first: first as i8 };
                self.push(line as u64, units, lanes_in_line, kind);
            }
        }
        true
    }

    /// Number of distinct bytes accessed in all lines.
    pub(super) fn byte_count(&self) -> u64 {
        let units = self.lines.iter().map(|access| access.units.count_ones() as u64).sum::<u64>();
        units << self.unit.log_bytes()
    }

    #[inline(always)]
    fn push(&mut self, line: u64, units: u32, lanes: u32, kind: LaneMapKind) {
        let block = (line * self.unit.line_bytes() / BLOCK) as usize;
        self.lines.push(LineAccess { line, block, units, lanes, kind });
        if self.tables.len() < self.lines.len() {
            self.tables.push([0; UNITS]);
        }
    }

    /// Sets the access to a range of bytes that each of `lanes` accesses.
    pub(super) fn set_range(&mut self, lanes: u32, address: u64, bytes: u64) {
        self.clear(Unit::of(address | bytes));
        self.add(lanes, address, bytes);
    }

    /// Adds a range of bytes, of whole units, that each of `lanes` accesses. No line of the access may have
    /// [`LaneMapKind::Run`] yet.
    fn add(&mut self, lanes: u32, address: u64, bytes: u64) {
        for (line, units) in lines_of(self.unit, address, bytes) {
            self.add_to_line(line, units, lanes);
        }
    }

    #[inline(always)]
    fn add_to_line(&mut self, line: u64, units: u32, lanes: u32) {
        let Some(position) = self.lines.iter().rposition(|access| access.line == line) else {
            return self.push(line, units, lanes, LaneMapKind::Uniform);
        };
        let access = &mut self.lines[position];
        if access.kind == LaneMapKind::Uniform && access.units == units {
            access.lanes |= lanes;
            return;
        }
        let table = &mut self.tables[position];
        if access.kind != LaneMapKind::Table {
            let before = access.lanes;
            for (unit, entry) in table.iter_mut().enumerate() {
                *entry = if access.units >> unit & 1 != 0 { before } else { 0 };
            }
            access.kind = LaneMapKind::Table;
        }
        let (first, count) = (units.trailing_zeros() as usize, units.count_ones() as usize);
        table[first..first + count].iter_mut().for_each(|entry| *entry |= lanes);
        access.units |= units;
        access.lanes |= lanes;
    }
}

/// Numbers of the lines of a range of bytes, each with a mask of the range's units in the line. The range has whole
/// units.
#[inline(always)]
pub(super) fn lines_of(unit: Unit, start: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
    let line_units = UNITS as u64;
    let (start, end) = (start >> unit.log_bytes(), (start + bytes) >> unit.log_bytes());
    let last = if bytes == 0 { start / line_units } else { end.div_ceil(line_units) };
    (start / line_units..last).map(move |line| {
        let (from, to) = (start.max(line * line_units), end.min((line + 1) * line_units));
        (line, (u32::MAX >> (line_units - (to - from))) << (from % line_units))
    })
}

/// Whether the addresses `now` of all active lanes are `offset` bytes after the addresses `before`.
fn is_shifted(lanes: u32, before: &[u64; LANES], now: &[u64; LANES], offset: u64) -> bool {
    let mut differs = 0;
    for lane in 0..LANES {
        let active = (lanes >> lane & 1) as u64;
        differs |= (now[lane] ^ before[lane].wrapping_add(offset)) & active.wrapping_neg();
    }
    differs == 0
}

/// Whether the address of each active lane is `start` plus the lane number times `stride`.
fn is_strided(lanes: u32, addresses: &[u64; LANES], start: u64, stride: u64) -> bool {
    let mut differs = 0;
    for (lane, address) in addresses.iter().enumerate() {
        let active = (lanes >> lane & 1) as u64;
        differs |= (address ^ start.wrapping_add((lane as u64).wrapping_mul(stride))) & active.wrapping_neg();
    }
    differs == 0
}
