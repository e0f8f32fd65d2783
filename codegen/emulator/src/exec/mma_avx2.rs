//! `mma` of 8-bit integers with AVX2.
//!
//! In a fragment register (layout: [`super::fragment`]), lanes `4g ..+ 4` hold 16 consecutive columns of a row of `A`,
//! or 16 consecutive rows of a column of `B`: 16 adjacent bytes. Widened to 16-bit integers, these bytes fill a 256-bit
//! vector. `vpmaddwd` multiplies two such vectors and adds neighbouring products. Products of bytes and sums of 32
//! products are exact in 32 bits.
//!
//! This file uses no closures: an iterator adapter that calls a closure is compiled without the target feature, so the
//! call would not be inlined.
//!
//! Columns of `B` that are all zero are skipped: in a matrix-vector product, most columns are zero.

use std::arch::x86_64::{
    __m256i, _mm_load_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16, _mm256_hadd_epi32,
    _mm256_madd_epi16, _mm256_permute2x128_si256, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

use super::fragment::{ACCUMULATORS, COLUMNS};
use crate::lanes::LANES;

/// One fragment register of a warp: a 32-bit word per lane.
type Fragment = [u32; LANES];

/// Rows whose sums are computed together: one per 32-bit element of a vector.
const GROUP: usize = 8;

/// Row or column number `group` of a fragment register: 16 bytes, widened to 16-bit integers.
#[target_feature(enable = "avx2")]
#[inline]
fn widen(fragment: &Fragment, group: usize, signed: bool) -> __m256i {
    let words: &[u32; 4] = fragment.as_chunks().0.get(group).unwrap_or(&[0; 4]);
    // SAFETY: `words` has 16 bytes, aligned to 16 because registers start at multiples of 64 bytes.
    let bytes = unsafe { _mm_load_si128(words.as_ptr().cast()) };
    if signed { _mm256_cvtepi8_epi16(bytes) } else { _mm256_cvtepu8_epi16(bytes) }
}

/// Horizontal sums of eight vectors: element `n` of the result is the sum of vector `n`.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_each(v: [__m256i; GROUP]) -> __m256i {
    let first = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let second = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    let low = _mm256_permute2x128_si256::<0x20>(first, second);
    let high = _mm256_permute2x128_si256::<0x31>(first, second);
    _mm256_add_epi32(low, high)
}

/// Transposes four columns of eight rows to eight rows of four, the layout of an accumulator register.
#[target_feature(enable = "avx2")]
#[inline]
fn interleave(columns: [__m256i; 4], out: &mut [i32; LANES]) {
    let [a, b, c, d] = columns;
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ef, gh) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    // Each vector holds two rows: 0 and 4, 1 and 5, 2 and 6, 3 and 7.
    let rows = [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ef, gh),
        _mm256_unpackhi_epi64(ef, gh),
    ];
    let quads = [
        _mm256_permute2x128_si256::<0x20>(rows[0], rows[1]),
        _mm256_permute2x128_si256::<0x20>(rows[2], rows[3]),
        _mm256_permute2x128_si256::<0x31>(rows[0], rows[1]),
        _mm256_permute2x128_si256::<0x31>(rows[2], rows[3]),
    ];
    for (quad, out) in quads.into_iter().zip(out.as_chunks_mut::<8>().0) {
        // SAFETY: `out` has eight elements, the 32 bytes that the store writes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), quad) };
    }
}

/// `A · B` in the layout of the accumulators, with `RA` registers of `A` and `RA / 2` of `B`. Each operand is given as
/// registers and whether its bytes are signed.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn product<const RA: usize>(
    (a, a_signed): ([&Fragment; RA], bool),
    (b, b_signed): (&[&Fragment], bool),
) -> [[i32; LANES]; ACCUMULATORS] {
    let zero = _mm256_setzero_si256();
    let mut left = [[zero; GROUP]; RA];
    for (left, fragment) in left.iter_mut().zip(a) {
        for (row, left) in left.iter_mut().enumerate() {
            *left = widen(fragment, row, a_signed);
        }
    }
    // Even registers of `A` hold rows 0 to 7, odd registers rows 8 to 15.
    let mut sums = [[zero; COLUMNS]; 2];
    for column in 0..COLUMNS {
        let mut any = 0;
        for fragment in b {
            for word in 0..4 {
                any |= fragment[4 * column + word];
            }
        }
        if any == 0 {
            continue;
        }
        for (half, sums) in sums.iter_mut().enumerate() {
            let mut products = [zero; GROUP];
            for (step, fragment) in b.iter().enumerate() {
                let right = widen(fragment, column, b_signed);
                for row in 0..GROUP {
                    let product = _mm256_madd_epi16(left[2 * step + half][row], right);
                    products[row] = _mm256_add_epi32(products[row], product);
                }
            }
            sums[column] = sum_each(products);
        }
    }
    let mut out = [[0; LANES]; ACCUMULATORS];
    for (index, out) in out.iter_mut().enumerate() {
        let (sums, odd) = (&sums[index >> 1], index & 1);
        interleave([sums[odd], sums[2 + odd], sums[4 + odd], sums[6 + odd]], out);
    }
    out
}
