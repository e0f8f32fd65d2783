//! An access of a warp, split into 32-byte lines.

use super::lane_map::{LINE, LaneMap, LaneMapKind, LaneTable};
use crate::lanes::{LANES, lanes_of};

/// The part of an access in one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineAccess {
    /// Line number: the line's first address divided by [`LINE`].
    pub(super) line: u64,
    /// The line's index in the shadow memory. Equals `line` for shared memory; `RaceDetector::locate_lines` sets it for
    /// global memory.
    pub(super) index: usize,
    /// Bytes of the line that any lane accesses, one bit each.
    pub(super) bytes: u32,
    /// Mask of the lanes that access any byte of the line.
    pub(super) lanes: u32,
    pub(super) kind: LaneMapKind,
}

/// An access of a warp, split into 32-byte lines.
#[derive(Default)]
pub(super) struct LineAccesses {
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

    pub(super) fn clear(&mut self) {
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
        if !offset.is_multiple_of(LINE) {
            return false;
        }
        for access in &mut self.lines {
            access.line = access.line.wrapping_add((offset as i64 / LINE as i64) as u64);
            access.index = access.line as usize;
        }
        true
    }

    /// Splits an access into lines.
    fn split(&mut self, lanes: u32, addresses: &[u64; LANES], bytes: u64) {
        self.clear();
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
        self.clear();
        self.shape = Some(shape);
        if !self.set_strided(u32::MAX, start, bytes, bytes) {
            for lane in 0..LANES as u64 {
                self.add(1 << lane, start + lane * bytes, bytes);
            }
        }
    }

    /// Adds an access whose lanes are `stride` bytes apart (a power of two); `start` is the address of lane 0, active
    /// or not. Returns false if run tables cannot express the access.
    fn set_strided(&mut self, lanes: u32, start: u64, stride: u64, bytes: u64) -> bool {
        let aligned = bytes.is_power_of_two() && bytes <= LINE && start.is_multiple_of(bytes);
        if !aligned || bytes > stride {
            return false;
        }
        if stride >= LINE {
            // Each lane accesses a different line.
            let mask = u32::MAX >> (LINE - bytes);
            for lane in lanes_of(lanes) {
                let address = start.wrapping_add((lane as u64).wrapping_mul(stride));
                self.push(LineAccess {
                    line: address / LINE,
                    bytes: mask << (address % LINE),
                    lanes: 1 << lane,
                    ..LineAccess::default()
                });
            }
            return true;
        }
        let inside = start % stride;
        if inside + bytes > stride || !(start - inside).is_multiple_of(LINE) {
            return false;
        }
        let lanes_per_line = (LINE / stride) as usize;
        let lane_bytes = (u32::MAX >> (LINE - bytes)) << inside;
        for position in 0..stride as usize {
            let all = (u32::MAX >> (LANES - lanes_per_line)) << (position * lanes_per_line);
            let lanes = lanes & all;
            let bytes = match lanes == all && bytes == stride {
                true => u32::MAX,
                false => lanes_of(lanes)
                    .fold(0, |bytes, lane| bytes | lane_bytes << ((lane % lanes_per_line) as u64 * stride)),
            };
            if bytes != 0 {
                let kind = LaneMapKind::Run((stride as usize + position) as u8);
                let line = start.wrapping_add(position as u64 * LINE) / LINE;
                self.push(LineAccess { line, index: 0, bytes, lanes, kind });
            }
        }
        true
    }

    /// Number of distinct bytes accessed in all lines.
    pub(super) fn byte_count(&self) -> u64 {
        self.lines.iter().map(|access| access.bytes.count_ones() as u64).sum()
    }

    #[inline(always)]
    fn push(&mut self, access: LineAccess) {
        self.lines.push(LineAccess { index: access.line as usize, ..access });
        if self.tables.len() < self.lines.len() {
            self.tables.push([0; LINE as usize]);
        }
    }

    /// Adds a range of bytes that each of `lanes` accesses. No line of the access may have [`LaneMapKind::Run`] yet.
    pub(super) fn add(&mut self, lanes: u32, address: u64, bytes: u64) {
        for (line, bytes) in lines_of(address, bytes) {
            self.add_to_line(line, bytes, lanes);
        }
    }

    #[inline(always)]
    fn add_to_line(&mut self, line: u64, bytes: u32, lanes: u32) {
        let Some(position) = self.lines.iter().rposition(|access| access.line == line) else {
            return self.push(LineAccess { line, index: 0, bytes, lanes, kind: LaneMapKind::Uniform });
        };
        let access = &mut self.lines[position];
        if access.kind == LaneMapKind::Uniform && access.bytes == bytes {
            access.lanes |= lanes;
            return;
        }
        let table = &mut self.tables[position];
        if access.kind != LaneMapKind::Table {
            let before = access.lanes;
            for (byte, entry) in table.iter_mut().enumerate() {
                *entry = if access.bytes >> byte & 1 != 0 { before } else { 0 };
            }
            access.kind = LaneMapKind::Table;
        }
        let (first, count) = (bytes.trailing_zeros() as usize, bytes.count_ones() as usize);
        table[first..first + count].iter_mut().for_each(|entry| *entry |= lanes);
        access.bytes |= bytes;
        access.lanes |= lanes;
    }
}

/// Line numbers of a range of addresses, each with a mask of the range's bytes in the line.
#[inline(always)]
pub(super) fn lines_of(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
    let end = start + bytes;
    let last = if bytes == 0 { start / LINE } else { end.div_ceil(LINE) };
    (start / LINE..last).map(move |line| {
        let (from, to) = (start.max(line * LINE), end.min((line + 1) * LINE));
        (line, (u32::MAX >> (LINE - (to - from))) << (from % LINE))
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
