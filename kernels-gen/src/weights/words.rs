//! Where the bits of a row's weights lie in a block, and back.

/// A row of a tile.
#[derive(Clone, Copy)]
pub(super) struct Row(pub usize);

impl Row {
    /// The lane that holds quarter `t` of every 16 columns.
    fn lane(self, t: usize) -> usize {
        self.0 % 8 * 4 + t
    }

    /// 0 for the first eight rows, 1 for the others.
    pub fn half(self) -> usize {
        self.0 / 8
    }

    /// The row within its half.
    pub fn group(self) -> usize {
        self.0 % 8
    }

    /// The offset of something `size` bytes large that lane (g, t) has.
    pub fn of_lane(self, t: usize, size: usize) -> usize {
        self.lane(t) * size
    }
}

/// Puts the 32 bytes of a row and chunk into a fragment array.
pub(super) fn put_fragment(array: &mut [u8], row: Row, bytes: &[u8]) {
    for (upper, sixteen) in bytes.chunks_exact(16).enumerate() {
        for (t, four) in sixteen.chunks_exact(4).enumerate() {
            let at = row.of_lane(t, 16) + (row.half() + 2 * upper) * 4;
            array[at..at + 4].copy_from_slice(four);
        }
    }
}

/// The inverse of [`put_fragment`].
pub(super) fn fragment(array: &[u8], row: Row) -> [u8; 32] {
    std::array::from_fn(|k| {
        let (upper, t, byte) = (k / 16, k % 16 / 4, k % 4);
        array[row.of_lane(t, 16) + (row.half() + 2 * upper) * 4 + byte]
    })
}

/// Where the `width` upper bits of column `k` of a chunk lie in the words of `stride` bytes a lane: the first byte's
/// offset and the shift.
fn upper_bits(row: Row, k: usize, width: usize, stride: usize) -> (usize, usize) {
    let word = row.half() + 2 * (k / 16);
    (row.of_lane(k % 16 / 4, stride) + k % 4, word * width)
}

/// Ors the low `width` bits of 32 columns into the words of a lane at `array`, zero before; `shift` more bits up.
pub(super) fn put_upper(array: &mut [u8], row: Row, codes: &[u8; 32], field: Field) {
    for (k, code) in codes.iter().enumerate() {
        let (at, shift) = upper_bits(row, k, field.width, field.stride);
        array[at] |= (code & field.mask()) << (shift + field.shift);
    }
}

/// The inverse of [`put_upper`].
pub(super) fn upper(array: &[u8], row: Row, field: Field) -> [u8; 32] {
    std::array::from_fn(|k| {
        let (at, shift) = upper_bits(row, k, field.width, field.stride);
        array[at] >> (shift + field.shift) & field.mask()
    })
}

/// The form of an array of upper bits.
#[derive(Clone, Copy)]
pub(super) struct Field {
    /// Bits a weight.
    pub width: usize,
    /// Bytes a lane.
    pub stride: usize,
    /// Bits to skip in each byte.
    pub shift: usize,
}

impl Field {
    fn mask(self) -> u8 {
        (1 << self.width) - 1
    }
}

/// Nibbles of an even and an odd chunk as the bytes of their pair.
pub(super) fn pair(even: &[u8; 32], odd: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|k| (even[k] & 15) | odd[k] << 4)
}

/// Where Q6_K keeps the low nibbles of chunk `index` of 8: the first byte and the shift. Within each half of 128
/// weights, chunks 0 and 1 are the low, chunks 2 and 3 the high nibbles of 64 bytes.
pub(super) fn q6_low(index: usize) -> (usize, usize) {
    (index / 4 * 64 + index % 2 * 32, index % 4 / 2 * 4)
}

/// Where Q6_K keeps the upper bit pairs of chunk `index`: the first byte and the shift.
pub(super) fn q6_high(index: usize) -> (usize, usize) {
    (index / 4 * 32, index % 4 * 2)
}
