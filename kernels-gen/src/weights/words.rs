//! Position of the bits of a row's weights in a block's fragment arrays.

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

/// Writes the 32 bytes of a row's chunk into a fragment array.
pub(super) fn put_fragment(array: &mut [u8], row: Row, bytes: &[u8]) {
    for (upper, sixteen) in bytes.chunks_exact(16).enumerate() {
        for (t, four) in sixteen.chunks_exact(4).enumerate() {
            let at = row.of_lane(t, 16) + (row.half() + 2 * upper) * 4;
            array[at..at + 4].copy_from_slice(four);
        }
    }
}

/// Reads the 32 bytes of a row's chunk from a fragment array: the inverse of [`put_fragment`].
pub(super) fn fragment(array: &[u8], row: Row) -> [u8; 32] {
    std::array::from_fn(|k| {
        let (upper, t, byte) = (k / 16, k % 16 / 4, k % 4);
        array[row.of_lane(t, 16) + (row.half() + 2 * upper) * 4 + byte]
    })
}

/// Byte offset and shift of the `width` upper bits of column `k` of a chunk, in an array with `stride` bytes per lane.
fn upper_bits(row: Row, k: usize, width: usize, stride: usize) -> (usize, usize) {
    let word = row.half() + 2 * (k / 16);
    (row.of_lane(k % 16 / 4, stride) + k % 4, word * width)
}

/// Adds the upper bits of a row's chunk to `array`, in which they must be zero.
pub(super) fn put_upper(array: &mut [u8], row: Row, codes: &[u8; 32], field: Field) {
    for (k, code) in codes.iter().enumerate() {
        let (at, shift) = upper_bits(row, k, field.width, field.stride);
        array[at] |= (code & field.mask()) << (shift + field.shift);
    }
}

/// Reads the upper bits of a row's chunk: the inverse of [`put_upper`].
pub(super) fn upper(array: &[u8], row: Row, field: Field) -> [u8; 32] {
    std::array::from_fn(|k| {
        let (at, shift) = upper_bits(row, k, field.width, field.stride);
        array[at] >> (shift + field.shift) & field.mask()
    })
}

/// Layout of an array of upper bits.
#[derive(Clone, Copy)]
pub(super) struct Field {
    /// Number of upper bits per weight.
    pub width: usize,
    /// Number of bytes per lane.
    pub stride: usize,
    /// Shift of the chunk's bits in each byte.
    pub shift: usize,
}

impl Field {
    fn mask(self) -> u8 {
        (1 << self.width) - 1
    }
}

/// Packs the nibbles of an even and an odd chunk into the bytes of their pair.
pub(super) fn pair(even: &[u8; 32], odd: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|k| (even[k] & 15) | odd[k] << 4)
}

/// First byte and shift of the low nibbles of chunk `index`, of 8, in the file's Q6_K block. In each half of 128
/// weights, chunks 0 and 1 are the low nibbles of 64 bytes, chunks 2 and 3 the high nibbles.
pub(super) fn q6_low(index: usize) -> (usize, usize) {
    (index / 4 * 64 + index % 2 * 32, index % 4 / 2 * 4)
}

/// First byte and shift of the upper bit pairs of chunk `index` in the file's Q6_K block.
pub(super) fn q6_high(index: usize) -> (usize, usize) {
    (index / 4 * 32, index % 4 * 2)
}
