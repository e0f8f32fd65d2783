//! Position of the codes of a row's chunk in the parts of a block.

use super::format::{BlockPart, mask_of_word};

/// Bytes of a fragment array: 16 rows × 32 columns of one byte each.
pub(super) const FRAGMENTS: usize = 512;

/// Index of a row within a tile, 0 to 15.
#[derive(Clone, Copy)]
pub(super) struct Row(pub usize);

impl Row {
    /// Index of the lane that has quarter `t` of every 16 columns of this row.
    fn lane(self, t: usize) -> usize {
        self.0 % 8 * 4 + t
    }

    /// Half of the tile: 0 for the first eight rows, 1 for the others.
    pub fn half(self) -> usize {
        self.0 / 8
    }

    /// Row within the half of the tile, 0 to 7.
    pub fn group(self) -> usize {
        self.0 % 8
    }

    /// Byte offset of the entry of this row's lane `t` in an array with `size` bytes per lane.
    pub fn of_lane(self, t: usize, size: usize) -> usize {
        self.lane(t) * size
    }
}

/// Writes the 32 bytes of a row in a fragment array.
pub(super) fn put_fragment(array: &mut [u8], row: Row, bytes: &[u8]) {
    for (run, four) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let at = row.of_lane(run % 4, 16) + (row.half() + run / 4 * 2) * 4;
        array[at..at + 4].copy_from_slice(four);
    }
}

/// Reads the 32 bytes of a row in a fragment array: the inverse of [`put_fragment`].
pub(super) fn fragment(array: &[u8], row: Row, bytes: &mut [u8]) {
    for (run, four) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let at = row.of_lane(run % 4, 16) + (row.half() + run / 4 * 2) * 4;
        four.copy_from_slice(&array[at..at + 4]);
    }
}

/// Adds the codes of chunk `chunk` of a row, four in a word, to a part, in which they must be zero.
#[inline]
pub(super) fn put_codes(part: BlockPart, to: &mut [u8], row: Row, chunk: usize, codes: [u32; 8]) {
    // One call for each part, so that each is compiled with its constants.
    match part {
        BlockPart::Bytes => Words::of_fragments(1, 8, chunk).put(to, row, codes, |four| four),
        BlockPart::Low => Words::of_fragments(2, 4, chunk).put(to, row, codes, |four| four),
        BlockPart::Low2 => Words::of_fragments(4, 2, chunk).put(to, row, codes, |four| four),
        BlockPart::Index => Words::of_fragments(2, 16, chunk).put(to, row, codes, |four| {
            let pairs = four | four >> 4;
            (pairs & 0xFF) | (pairs >> 8 & 0xFF00)
        }),
        BlockPart::High1 => Words::high1(to.len(), chunk).put(to, row, codes, |four| four),
        other => unreachable!("{other:?} has no codes, or those of four chunks at once"),
    }
}

/// Adds the codes of four chunks of a row to an array of `High2`, as [`put_codes`] does; byte k of `bytes` has column k of the
/// chunks.
pub(super) fn put_high2(array: &mut [u8], row: Row, bytes: &[u8; 32]) {
    for (run, four) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let four = u32::from_le_bytes(*four);
        let shift = 2 * (row.half() + run / 4 * 2);
        let Some(lane) = array[row.of_lane(run % 4, 16)..].first_chunk_mut::<16>() else {
            unreachable!("the array has the row")
        };
        for (chunk, word) in lane.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let codes = (four >> (2 * chunk) & 0x0303_0303) ^ 0x0202_0202;
            *word = (u32::from_le_bytes(*word) | codes << shift).to_le_bytes();
        }
    }
}

/// The codes of chunk `chunk` of a row: the inverse of [`put_codes`].
pub(super) fn codes(part: BlockPart, from: &[u8], row: Row, chunk: usize) -> [u32; 8] {
    let masked = |bits: u32| bits & mask_of_word(part.width());
    match part {
        BlockPart::Bytes => Words::of_fragments(1, 8, chunk).codes(from, row, masked),
        BlockPart::Low => Words::of_fragments(2, 4, chunk).codes(from, row, masked),
        BlockPart::Low2 => Words::of_fragments(4, 2, chunk).codes(from, row, masked),
        BlockPart::Index => Words::of_fragments(2, 16, chunk).codes(from, row, |bits| {
            u32::from_le_bytes(std::array::from_fn(|i| (bits >> (4 * i)) as u8 & 15))
        }),
        BlockPart::High1 => Words::high1(from.len(), chunk).codes(from, row, masked),
        BlockPart::High2 => Words::high2(chunk).codes(from, row, |bits| masked(bits ^ 0x0202_0202)),
        scales => unreachable!("{scales:?} has no codes"),
    }
}

/// Words that have a chunk's codes: one for each lane and word of its fragment, or one for each lane.
#[derive(Clone, Copy)]
struct Words {
    /// Byte offset of the first lane's first word.
    at: usize,
    /// Bytes per lane.
    stride: usize,
    /// Bytes from one word of a lane to the next; 0 if they share a word.
    step: usize,
    /// Bit offset of the codes in the word, and from one word of the fragment to the next.
    bits: [usize; 2],
}

impl Words {
    /// Fragment arrays that `chunks` chunks share; the codes of one are `bits` bits above those of the one before.
    #[inline(always)]
    fn of_fragments(chunks: usize, bits: usize, chunk: usize) -> Words {
        let at = chunk / chunks * FRAGMENTS;
        Words { at, stride: 16, step: 4, bits: [chunk % chunks * bits, 0] }
    }

    /// `High1` in `bytes` bytes.
    #[inline(always)]
    fn high1(bytes: usize, chunk: usize) -> Words {
        Words { at: chunk / 2 * 4, stride: bytes / 32, step: 0, bits: [chunk % 2 * 4, 1] }
    }

    #[inline(always)]
    fn high2(chunk: usize) -> Words {
        Words { at: chunk / 4 * FRAGMENTS + chunk % 4 * 4, stride: 16, step: 0, bits: [0, 2] }
    }

    /// Adds the codes, which `pack` puts into the lowest bits of a word four at a time.
    #[inline(always)]
    fn put(self, to: &mut [u8], row: Row, codes: [u32; 8], pack: impl Fn(u32) -> u32) {
        let to = &mut to[self.at + row.of_lane(0, self.stride)..];
        // The row's lanes and words, whose end is checked once.
        let end = 3 * self.stride + 3 * self.step + 4;
        let to = &mut to[..end];
        for (run, four) in codes.into_iter().enumerate() {
            let word = row.half() + run / 4 * 2;
            let at = run % 4 * self.stride + word * self.step;
            let Some(to) = to[at..].first_chunk_mut::<4>() else { unreachable!("the part has the row") };
            let bits = pack(four) << (self.bits[0] + word * self.bits[1]);
            *to = (u32::from_le_bytes(*to) | bits).to_le_bytes();
        }
    }

    /// Reads the codes; `unpack` takes four out of the lowest bits of a word.
    #[inline(always)]
    fn codes(self, from: &[u8], row: Row, unpack: impl Fn(u32) -> u32) -> [u32; 8] {
        let from = &from[self.at + row.of_lane(0, self.stride)..];
        std::array::from_fn(|run| {
            let word = row.half() + run / 4 * 2;
            let at = run % 4 * self.stride + word * self.step;
            let Some(from) = from[at..].first_chunk::<4>() else { unreachable!("the part has the row") };
            unpack(u32::from_le_bytes(*from) >> (self.bits[0] + word * self.bits[1]))
        })
    }
}
