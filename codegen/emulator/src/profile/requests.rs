//! What a warp's request costs the memory: sectors of global memory, wavefronts of shared memory.

use crate::lanes::lanes_of;

/// Bytes of the unit in which global memory is read and written.
const SECTOR: u64 = 32;
/// Shared memory has so many banks, each a word wide.
const BANKS: usize = 32;
const WORD: u64 = 4;

/// Sectors that the lanes of `active` touch with `bytes` each, and the fewest that could hold as many
/// different bytes. Addresses are multiples of `bytes`, a power of two.
pub(crate) fn sectors(addresses: &[u64; 32], active: u32, bytes: u64) -> (u64, u64) {
    let mut touched = Distinct::default();
    for lane in lanes_of(active) {
        touched.push(addresses[lane]);
    }
    let touched = touched.sorted();
    let per_lane = bytes.div_ceil(SECTOR);
    let mut sectors = 0;
    let mut last = None;
    for address in touched {
        let sector = address / SECTOR;
        if last != Some(sector) {
            sectors += per_lane;
        }
        last = Some(sector);
    }
    (sectors, (touched.len() as u64 * bytes).div_ceil(SECTOR))
}

/// Sectors of a range, and the fewest that could hold it.
pub(crate) fn sectors_of_range(start: u64, bytes: u64) -> (u64, u64) {
    match bytes {
        0 => (0, 0),
        _ => ((start + bytes - 1) / SECTOR - start / SECTOR + 1, bytes.div_ceil(SECTOR)),
    }
}

/// How shared memory serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wavefronts {
    /// One after the other.
    pub(crate) taken: u64,
    /// Those that a request of this size takes in any case.
    pub(crate) ideal: u64,
    /// The most words that one part of the request wants of one bank.
    pub(crate) ways: u64,
}

/// A request for `bytes` by each lane of `active`. Up to a word a lane, it is served whole; two words a
/// lane by half-warps, four by quarter-warps, but by twice as many lanes at a time where throughout the
/// warp lanes want the same as their neighbours, or as the lanes two on. A part takes as many wavefronts as
/// its busiest bank has different words to deliver; lanes that want the same word share it.
///
/// All of 126 patterns take as many on an H200 (`benches/bank.py`).
pub(crate) fn wavefronts(addresses: &[u64; 32], active: u32, bytes: u64) -> Wavefronts {
    let words = bytes.div_ceil(WORD).max(1);
    let mut part = (BANKS as u64 / words).max(1) as u32;
    let mut active = active;
    if let Some(apart) = twins(addresses, active).filter(|_| words > 1) {
        active &= !lanes_with(apart);
        part *= 2;
    }
    let mut seen = Wavefronts::default();
    for first in (0..32).step_by(part as usize) {
        let lanes = active & (u32::MAX >> (32 - part)) << first;
        if lanes == 0 {
            continue;
        }
        let mut wanted = Distinct::default();
        for lane in lanes_of(lanes) {
            (0..words).for_each(|word| wanted.push(addresses[lane] / WORD + word));
        }
        let mut banks = [0u64; BANKS];
        for word in wanted.sorted() {
            banks[*word as usize % BANKS] += 1;
        }
        let ways = banks.into_iter().max().unwrap_or(0);
        seen.taken += ways;
        seen.ideal += 1;
        seen.ways = seen.ways.max(ways);
    }
    seen
}

/// How far apart lanes are that want the same, if every lane has such a twin: 1 or 2.
fn twins(addresses: &[u64; 32], active: u32) -> Option<u32> {
    let same = |apart: u32| {
        twins_of(active, apart) == active
            && lanes_of(active).all(|lane| addresses[lane] == addresses[lane ^ apart as usize])
    };
    [1, 2].into_iter().find(|&apart| same(apart))
}

/// The lanes whose twins are among `lanes`.
fn twins_of(lanes: u32, apart: u32) -> u32 {
    let upper = lanes & lanes_with(apart);
    let lower = lanes & !lanes_with(apart);
    upper >> apart | lower << apart
}

/// The lanes whose number has the bit `apart`.
fn lanes_with(apart: u32) -> u32 {
    if apart == 1 { 0xAAAA_AAAA } else { 0xCCCC_CCCC }
}

/// Up to 32 numbers, each once.
#[derive(Default)]
struct Distinct {
    numbers: [u64; 32],
    count: usize,
}

impl Distinct {
    fn push(&mut self, number: u64) {
        if let Some(place) = self.numbers.get_mut(self.count) {
            *place = number;
            self.count += 1;
        }
    }

    fn sorted(&mut self) -> &[u64] {
        let numbers = &mut self.numbers[..self.count];
        numbers.sort_unstable();
        let mut kept = 0;
        for index in 0..numbers.len() {
            if index == 0 || numbers[index] != numbers[kept - 1] {
                numbers[kept] = numbers[index];
                kept += 1;
            }
        }
        &self.numbers[..kept]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(address: impl Fn(u64) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| address(lane as u64))
    }

    #[test]
    fn sectors_by_hand() {
        const ALL: u32 = u32::MAX;
        let cases = [
            ("words in a row", lanes(|l| 4 * l), ALL, 4, (4, 4)),
            ("words in a row from the middle of a sector", lanes(|l| 16 + 4 * l), ALL, 4, (5, 4)),
            ("words in reverse", lanes(|l| 124 - 4 * l), ALL, 4, (4, 4)),
            ("every other word", lanes(|l| 8 * l), ALL, 4, (8, 4)),
            ("a word a sector", lanes(|l| 32 * l), ALL, 4, (32, 4)),
            ("one word for all", lanes(|_| 64), ALL, 4, (1, 1)),
            ("16 bytes in a row", lanes(|l| 16 * l), ALL, 16, (16, 16)),
            ("bytes in a row", lanes(|l| l), ALL, 1, (1, 1)),
            ("one lane", lanes(|l| 4 * l), 1 << 9, 4, (1, 1)),
        ];
        for (what, addresses, active, bytes, expected) in cases {
            assert_eq!(sectors(&addresses, active, bytes), expected, "{what}");
        }
        assert_eq!(sectors_of_range(0, 64), (2, 2));
        assert_eq!(sectors_of_range(16, 64), (3, 2));
        assert_eq!(sectors_of_range(16, 0), (0, 0));
    }

    #[test]
    fn wavefronts_by_hand() {
        const ALL: u32 = u32::MAX;
        let cases = [
            ("words in a row", lanes(|l| 4 * l), ALL, 4, [1, 1, 1]),
            ("one word for all", lanes(|_| 64), ALL, 4, [1, 1, 1]),
            ("bytes in a row share words", lanes(|l| l), ALL, 1, [1, 1, 1]),
            ("a column of a 32 × 32 tile", lanes(|l| 128 * l), ALL, 4, [32, 1, 32]),
            ("a column of a 32 × 33 tile", lanes(|l| 132 * l), ALL, 4, [1, 1, 1]),
            ("every other word", lanes(|l| 8 * l), ALL, 4, [2, 1, 2]),
            ("every third word", lanes(|l| 12 * l), ALL, 4, [1, 1, 1]),
            ("half the lanes of a column", lanes(|l| 128 * l), 0xffff, 4, [16, 1, 16]),
            ("8 bytes in a row: two halves", lanes(|l| 8 * l), ALL, 8, [2, 2, 1]),
            ("16 bytes in a row: four quarters", lanes(|l| 16 * l), ALL, 16, [4, 4, 1]),
            ("16 bytes at 32", lanes(|l| 32 * l), ALL, 16, [8, 4, 2]),
            ("8 bytes for all", lanes(|_| 64), ALL, 8, [1, 1, 1]),
            ("8 bytes for two lanes each", lanes(|l| l / 2 * 8), ALL, 8, [1, 1, 1]),
            ("8 bytes for lanes two apart", lanes(|l| (l & 1 | l >> 2 << 1) * 8), ALL, 8, [1, 1, 1]),
            ("8 bytes for lanes four apart", lanes(|l| (l & 3 | l >> 3 << 2) * 8), ALL, 8, [2, 2, 1]),
            ("16 bytes for two lanes each", lanes(|l| l / 2 * 16), ALL, 16, [2, 2, 1]),
            ("16 bytes for two lanes each, 256 apart", lanes(|l| l / 2 * 256), ALL, 16, [16, 2, 8]),
            ("16 bytes down a column of 128 bytes", lanes(|l| 128 * l), ALL, 16, [32, 4, 8]),
        ];
        for (what, addresses, active, bytes, [taken, ideal, ways]) in cases {
            assert_eq!(wavefronts(&addresses, active, bytes), Wavefronts { taken, ideal, ways }, "{what}");
        }
    }
}
