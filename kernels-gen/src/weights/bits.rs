//! The regrouping of bits within a chunk of 32 weights, and back.

/// The low nibbles of 32 weights as the `Low` plane holds them.
pub(super) fn low(weights: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| (weights[i] & 15) | (weights[i + 16] & 15) << 4)
}

/// The inverse of [`low`], in the low four bits.
pub(super) fn from_low(low: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { low[i] & 15 } else { low[i - 16] >> 4 })
}

/// Bit 4 of 32 weights as the `High1` plane holds them.
pub(super) fn high1(weights: &[u8; 32]) -> u32 {
    (0..32).fold(0, |word, i| word | u32::from(weights[i] >> 4 & 1) << (8 * (i % 4) + i / 4))
}

/// The inverse of [`high1`], in bit 4.
pub(super) fn from_high1(word: u32) -> [u8; 32] {
    std::array::from_fn(|i| (word >> (8 * (i % 4) + i / 4) & 1) as u8).map(|bit| bit << 4)
}

/// Bits 4 and 5 of 32 weights as the `High2` plane holds them.
pub(super) fn high2(weights: &[u8; 32]) -> [u32; 2] {
    std::array::from_fn(|half| {
        (0..16).fold(0, |word, i| {
            word | u32::from(weights[16 * half + i] >> 4 & 3) << (8 * (i % 4) + 2 * (i / 4))
        })
    })
}

/// The inverse of [`high2`], in bits 4 and 5.
pub(super) fn from_high2(words: [u32; 2]) -> [u8; 32] {
    std::array::from_fn(|i| {
        let (half, i) = (i / 16, i % 16);
        ((words[half] >> (8 * (i % 4) + 2 * (i / 4)) & 3) as u8) << 4
    })
}

/// The 32 low nibbles of sub-block `index` in a K-quant's 128 bytes: sub-blocks 2j and 2j + 1 are the low and the
/// high nibbles of bytes 32j to 32j + 31.
pub(super) fn k_nibbles(bytes: &[u8], index: usize) -> [u8; 32] {
    let (from, shift) = (index / 2 * 32, index % 2 * 4);
    std::array::from_fn(|i| bytes[from + i] >> shift & 15)
}

/// The inverse of [`k_nibbles`]: ors the nibbles into `bytes`, zero before.
pub(super) fn put_k_nibbles(bytes: &mut [u8], index: usize, weights: &[u8; 32]) {
    let (from, shift) = (index / 2 * 32, index % 2 * 4);
    for (i, weight) in weights.iter().enumerate() {
        bytes[from + i] |= (weight & 15) << shift;
    }
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
