//! Cost of a warp's memory request: sectors of global memory, wavefronts of shared memory.

use crate::lanes::lanes_of;

/// Bytes of a sector, the unit in which global memory is read and written.
const SECTOR: u64 = 32;
/// Number of banks of shared memory, each one 4-byte word wide.
const BANKS: usize = 32;
const WORD: u64 = 4;

/// Number of sectors of an access of `bytes` bytes by each lane of `active`, and minimum number of sectors that could
/// hold as many distinct bytes. Addresses are multiples of `bytes`, a power of two.
pub(crate) fn sectors(addresses: &[u64; 32], active: u32, bytes: u64) -> (u64, u64) {
    let mut distinct = Distinct::default();
    for lane in lanes_of(active) {
        distinct.push(addresses[lane]);
    }
    let distinct = distinct.sorted();
    let per_lane = bytes.div_ceil(SECTOR);
    let mut sectors = 0;
    let mut last = None;
    for address in distinct {
        let sector = address / SECTOR;
        if last != Some(sector) {
            sectors += per_lane;
        }
        last = Some(sector);
    }
    (sectors, (distinct.len() as u64 * bytes).div_ceil(SECTOR))
}

/// Number of sectors of a range, and minimum number of sectors that could hold as many bytes.
pub(crate) fn sectors_of_range(start: u64, bytes: u64) -> (u64, u64) {
    match bytes {
        0 => (0, 0),
        _ => ((start + bytes - 1) / SECTOR - start / SECTOR + 1, bytes.div_ceil(SECTOR)),
    }
}

/// Cost of a request to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wavefronts {
    /// Wavefronts that serve the request.
    pub(crate) taken: u64,
    /// Wavefronts that a request of this size takes without bank conflicts.
    pub(crate) ideal: u64,
    /// Maximum number of words that a part of the request accesses in one bank; [`wavefronts`] describes the parts.
    pub(crate) ways: u64,
}

/// Wavefronts of a request for `bytes` bytes by each lane of `active`. A request of up to one word per lane is served
/// as a whole, of two words in half-warps, of four words in quarter-warps. The parts are twice as large if every lane
/// accesses the same address as its neighbour, or as the lane two further. A part takes as many wavefronts as its
/// busiest bank has distinct words to deliver; lanes that access the same word share it.
///
/// `benches/bank.py` compared 126 patterns with an H200: all agree.
pub(crate) fn wavefronts(addresses: &[u64; 32], active: u32, bytes: u64) -> Wavefronts {
    let words = bytes.div_ceil(WORD).max(1);
    let mut part = (BANKS as u64 / words).max(1) as u32;
    let mut active = active;
    if let Some(distance) = twin_distance(addresses, active).filter(|_| words > 1) {
        active &= !lanes_with(distance);
        part *= 2;
    }
    let mut wavefronts = Wavefronts::default();
    for first in (0..32).step_by(part as usize) {
        let lanes = active & (u32::MAX >> (32 - part)) << first;
        if lanes == 0 {
            continue;
        }
        let mut distinct = Distinct::default();
        for lane in lanes_of(lanes) {
            (0..words).for_each(|word| distinct.push(addresses[lane] / WORD + word));
        }
        let mut banks = [0u64; BANKS];
        for word in distinct.sorted() {
            banks[*word as usize % BANKS] += 1;
        }
        let ways = banks.into_iter().max().unwrap_or(0);
        wavefronts.taken += ways;
        wavefronts.ideal += 1;
        wavefronts.ways = wavefronts.ways.max(ways);
    }
    wavefronts
}

/// Distance, 1 or 2, at which every active lane has a twin: an active lane with the same address.
fn twin_distance(addresses: &[u64; 32], active: u32) -> Option<u32> {
    let same = |distance: u32| {
        twins_of(active, distance) == active
            && lanes_of(active).all(|lane| addresses[lane] == addresses[lane ^ distance as usize])
    };
    [1, 2].into_iter().find(|&distance| same(distance))
}

/// Twins of `lanes` at a distance of 1 or 2: the lane numbers with the bit `distance` flipped.
fn twins_of(lanes: u32, distance: u32) -> u32 {
    let upper = lanes & lanes_with(distance);
    let lower = lanes & !lanes_with(distance);
    upper >> distance | lower << distance
}

/// The lanes whose number has the bit `distance`, 1 or 2.
fn lanes_with(distance: u32) -> u32 {
    if distance == 1 { 0xAAAA_AAAA } else { 0xCCCC_CCCC }
}

/// Up to 32 distinct numbers.
#[derive(Default)]
struct Distinct {
    numbers: [u64; 32],
    count: usize,
}

impl Distinct {
    fn push(&mut self, number: u64) {
        if let Some(entry) = self.numbers.get_mut(self.count) {
            *entry = number;
            self.count += 1;
        }
    }

    fn sorted(&mut self) -> &[u64] {
        let numbers = &mut self.numbers[..self.count];
        numbers.sort_unstable();
        let mut distinct = 0;
        for index in 0..numbers.len() {
            if index == 0 || numbers[index] != numbers[distinct - 1] {
                numbers[distinct] = numbers[index];
                distinct += 1;
            }
        }
        &self.numbers[..distinct]
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
            ("consecutive words", lanes(|l| 4 * l), ALL, 4, (4, 4)),
            ("consecutive words from the middle of a sector", lanes(|l| 16 + 4 * l), ALL, 4, (5, 4)),
            ("words in reverse", lanes(|l| 124 - 4 * l), ALL, 4, (4, 4)),
            ("every other word", lanes(|l| 8 * l), ALL, 4, (8, 4)),
            ("one word per sector", lanes(|l| 32 * l), ALL, 4, (32, 4)),
            ("one word for all", lanes(|_| 64), ALL, 4, (1, 1)),
            ("consecutive 16 bytes", lanes(|l| 16 * l), ALL, 16, (16, 16)),
            ("consecutive bytes", lanes(|l| l), ALL, 1, (1, 1)),
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
            ("consecutive words", lanes(|l| 4 * l), ALL, 4, [1, 1, 1]),
            ("one word for all", lanes(|_| 64), ALL, 4, [1, 1, 1]),
            ("consecutive bytes share words", lanes(|l| l), ALL, 1, [1, 1, 1]),
            ("a column of a 32 × 32 tile", lanes(|l| 128 * l), ALL, 4, [32, 1, 32]),
            ("a column of a 32 × 33 tile", lanes(|l| 132 * l), ALL, 4, [1, 1, 1]),
            ("every other word", lanes(|l| 8 * l), ALL, 4, [2, 1, 2]),
            ("every third word", lanes(|l| 12 * l), ALL, 4, [1, 1, 1]),
            ("half the lanes of a column", lanes(|l| 128 * l), 0xffff, 4, [16, 1, 16]),
            ("consecutive 8 bytes: two halves", lanes(|l| 8 * l), ALL, 8, [2, 2, 1]),
            ("consecutive 16 bytes: four quarters", lanes(|l| 16 * l), ALL, 16, [4, 4, 1]),
            ("16 bytes with a stride of 32", lanes(|l| 32 * l), ALL, 16, [8, 4, 2]),
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
