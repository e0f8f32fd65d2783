//! What one instruction accesses, line by line.

use crate::lanes::{LANES, lanes_of};

/// Bytes of a line.
pub(super) const LINE: u64 = 32;

/// By byte of a line: the lanes that access it.
pub(super) type Table = [u32; LINE as usize];

/// The lanes of each byte of a line, for the lines of a run: all lanes, one after the other, 2^k bytes each. The line
/// at position `n` of such a run is number 2^k + n; there is no number 0.
static RUNS: [Table; 32] = runs();

const fn runs() -> [Table; 32] {
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

/// Which of the lanes that access some bytes of a line access which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum By {
    /// Each lane all of the bytes.
    #[default]
    All,
    /// As in the line of a run that has this number.
    Run(u8),
    /// As a table says.
    Table,
}

/// [`By`] with what it refers to.
#[derive(Clone, Copy)]
pub(super) enum Spread<'a> {
    All(u32),
    Each(&'a Table),
}

impl<'a> Spread<'a> {
    #[inline(always)]
    pub(super) fn new(by: By, lanes: u32, table: &'a Table) -> Spread<'a> {
        match by {
            By::All => Spread::All(lanes),
            By::Run(number) => Spread::Each(&RUNS[number as usize % RUNS.len()]),
            By::Table => Spread::Each(table),
        }
    }

    #[inline(always)]
    pub(super) fn lanes(self, byte: u32) -> u32 {
        match self {
            Spread::All(lanes) => lanes,
            Spread::Each(table) => table[byte as usize % LINE as usize],
        }
    }

    /// All of it as a table.
    pub(super) fn table(self) -> Table {
        match self {
            Spread::All(lanes) => [lanes; LINE as usize],
            Spread::Each(table) => *table,
        }
    }

    /// Whether each of these bytes is accessed by one lane, the same in both.
    pub(super) fn is_private(self, other: Spread<'_>, bytes: u32) -> bool {
        let alike = |byte: usize| {
            let lanes = self.lanes(byte as u32);
            lanes == other.lanes(byte as u32) && lanes.is_power_of_two()
        };
        lanes_of(bytes).all(alike)
    }

    /// Whether the lanes of `other` that access one of these bytes are among those here.
    pub(super) fn includes(self, other: Spread<'_>, bytes: u32) -> bool {
        lanes_of(bytes).all(|byte| other.lanes(byte as u32) & !self.lanes(byte as u32) == 0)
    }
}

/// The part of an access in one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// The line's number: its first address over [`LINE`].
    pub(super) line: u64,
    /// Its number in the shadow: the same, unless somebody says otherwise.
    pub(super) index: usize,
    pub(super) bytes: u32,
    pub(super) lanes: u32,
    pub(super) by: By,
}

/// The parts of an access.
#[derive(Default)]
pub(super) struct Pieces {
    pub(super) list: Vec<Piece>,
    /// By piece; only those have one that say so.
    tables: Vec<Table>,
    /// What they are of, if that is an access by lanes each at a place of its own.
    of: Option<Shape>,
    /// Where the lanes are, or only the first of a run.
    addresses: [u64; LANES],
}

/// Which lanes access, how many bytes each, and whether one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    lanes: u32,
    bytes: u64,
    run: bool,
}

impl Pieces {
    pub(super) fn spread(&self, index: usize) -> Spread<'_> {
        let Piece { by, lanes, .. } = self.list[index];
        Spread::new(by, lanes, &self.tables[index])
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.of = None;
    }

    /// The access of `bytes` bytes by each of some lanes.
    pub(super) fn set(&mut self, lanes: u32, addresses: &[u64; LANES], bytes: u64) {
        let of = Shape { lanes, bytes, run: false };
        let first = lanes.trailing_zeros() as usize % LANES;
        let by = addresses[first].wrapping_sub(self.addresses[first]);
        if self.of != Some(of) || !is_moved(lanes, &self.addresses, addresses, by) || !self.shift(by) {
            self.part(lanes, addresses, bytes);
            self.of = Some(of);
        }
        self.addresses = *addresses;
    }

    /// Moves all by so many bytes, if that is a number of lines.
    fn shift(&mut self, by: u64) -> bool {
        if !by.is_multiple_of(LINE) {
            return false;
        }
        for piece in &mut self.list {
            piece.line = piece.line.wrapping_add((by as i64 / LINE as i64) as u64);
            piece.index = piece.line as usize;
        }
        true
    }

    fn part(&mut self, lanes: u32, addresses: &[u64; LANES], bytes: u64) {
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
            // Where one place is several lanes' most often all are.
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

    /// The access of `bytes` bytes (a power of two) by each lane, one after the other.
    pub(super) fn set_run(&mut self, start: u64, bytes: u64) {
        let of = Shape { lanes: u32::MAX, bytes, run: true };
        let by = start.wrapping_sub(std::mem::replace(&mut self.addresses[0], start));
        if self.of == Some(of) && self.shift(by) {
            return;
        }
        self.clear();
        self.of = Some(of);
        if !self.set_strided(u32::MAX, start, bytes, bytes) {
            for lane in 0..LANES as u64 {
                self.add(1 << lane, start + lane * bytes, bytes);
            }
        }
    }

    /// Lanes `stride` bytes apart (a power of two), of which lane 0 is or would be at `start`; false if that cannot be
    /// told by runs.
    fn set_strided(&mut self, lanes: u32, start: u64, stride: u64, bytes: u64) -> bool {
        let aligned = bytes.is_power_of_two() && bytes <= LINE && start.is_multiple_of(bytes);
        if !aligned || bytes > stride {
            return false;
        }
        if stride >= LINE {
            // Each in a line of its own.
            let mask = u32::MAX >> (LINE - bytes);
            for lane in lanes_of(lanes) {
                let address = start.wrapping_add((lane as u64).wrapping_mul(stride));
                self.push(Piece {
                    line: address / LINE,
                    bytes: mask << (address % LINE),
                    lanes: 1 << lane,
                    ..Piece::default()
                });
            }
            return true;
        }
        let inside = start % stride;
        if inside + bytes > stride || !(start - inside).is_multiple_of(LINE) {
            return false;
        }
        let each = (LINE / stride) as usize;
        let one = (u32::MAX >> (LINE - bytes)) << inside;
        for at in 0..stride as usize {
            let all = (u32::MAX >> (LANES - each)) << (at * each);
            let lanes = lanes & all;
            let bytes = match lanes == all && bytes == stride {
                true => u32::MAX,
                false => lanes_of(lanes).fold(0, |sum, lane| sum | one << ((lane % each) as u64 * stride)),
            };
            if bytes != 0 {
                let by = By::Run((stride as usize + at) as u8);
                let line = start.wrapping_add(at as u64 * LINE) / LINE;
                self.push(Piece { line, index: 0, bytes, lanes, by });
            }
        }
        true
    }

    /// How many bytes there are in all pieces.
    pub(super) fn count(&self) -> u64 {
        self.list.iter().map(|piece| piece.bytes.count_ones() as u64).sum()
    }

    #[inline(always)]
    fn push(&mut self, piece: Piece) {
        self.list.push(Piece { index: piece.line as usize, ..piece });
        if self.tables.len() < self.list.len() {
            self.tables.push([0; LINE as usize]);
        }
    }

    /// A range that each of some lanes accesses, besides those so far, which are none that [`Pieces::set`] took for
    /// strided.
    pub(super) fn add(&mut self, lanes: u32, address: u64, bytes: u64) {
        let end = address + bytes;
        let mut from = address;
        while from < end {
            let line = from / LINE;
            let to = end.min((line + 1) * LINE);
            let mask = (u32::MAX >> (LINE - (to - from))) << (from % LINE);
            self.add_in(line, mask, lanes);
            from = to;
        }
    }

    #[inline(always)]
    fn add_in(&mut self, line: u64, bytes: u32, lanes: u32) {
        let Some(index) = self.list.iter().rposition(|piece| piece.line == line) else {
            return self.push(Piece { line, index: 0, bytes, lanes, by: By::All });
        };
        let piece = &mut self.list[index];
        if piece.by == By::All && piece.bytes == bytes {
            piece.lanes |= lanes;
            return;
        }
        let table = &mut self.tables[index];
        if piece.by != By::Table {
            let before = piece.lanes;
            for (byte, entry) in table.iter_mut().enumerate() {
                *entry = if piece.bytes >> byte & 1 != 0 { before } else { 0 };
            }
            piece.by = By::Table;
        }
        let (first, count) = (bytes.trailing_zeros() as usize, bytes.count_ones() as usize);
        table[first..first + count].iter_mut().for_each(|entry| *entry |= lanes);
        piece.bytes |= bytes;
        piece.lanes |= lanes;
    }
}

/// Whether lanes are `by` bytes from where they were.
fn is_moved(lanes: u32, before: &[u64; LANES], now: &[u64; LANES], by: u64) -> bool {
    let mut differs = 0;
    for lane in 0..LANES {
        let active = (lanes >> lane & 1) as u64;
        differs |= (now[lane] ^ before[lane].wrapping_add(by)) & active.wrapping_neg();
    }
    differs == 0
}

/// Whether lanes are `stride` bytes apart.
fn is_strided(lanes: u32, addresses: &[u64; LANES], start: u64, stride: u64) -> bool {
    let mut differs = 0;
    for (lane, address) in addresses.iter().enumerate() {
        let active = (lanes >> lane & 1) as u64;
        differs |= (address ^ start.wrapping_add((lane as u64).wrapping_mul(stride))) & active.wrapping_neg();
    }
    differs == 0
}
