//! AVX2 version of the sums. The compiler vectorises the portable loops along K, and gathers their operands one by one.

use std::arch::x86_64::{
    __m256, __m256d, __m256i, _CMP_EQ_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_ZERO, _mm256_add_epi32,
    _mm256_add_pd, _mm256_and_pd, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256,
    _mm256_castps256_ps128, _mm256_castsi256_pd, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_cvtepi32_pd, _mm256_cvtpd_ps, _mm256_cvtps_pd,
    _mm256_cvttps_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_loadu_pd, _mm256_loadu_ps,
    _mm256_max_epi32, _mm256_mul_pd, _mm256_mul_ps, _mm256_or_si256, _mm256_round_ps, _mm256_set_m128,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setzero_pd, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_pd, _mm256_storeu_si256,
    _mm256_sub_epi32, _mm256_testz_si256,
};

use super::terms::{
    ALL_BITS, Addition, GROUP, Left, MAX_DEPTH, NOT_FINITE, ROWS, SINGLE_PRECISION_RANGE, WIDTH,
    ZERO_EXPONENT,
};

/// As [`super::terms::exponent`], of eight numbers.
#[target_feature(enable = "avx2")]
#[inline]
fn exponents_of(values: __m256, lowest: i32) -> __m256i {
    let biased = _mm256_srli_epi32::<23>(_mm256_castps_si256(values));
    let biased = _mm256_and_si256(biased, _mm256_set1_epi32(0xff));
    let exponent = _mm256_sub_epi32(biased, _mm256_set1_epi32(127));
    let exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(lowest));
    let not_finite = _mm256_cmpeq_epi32(biased, _mm256_set1_epi32(0xff));
    let exponent = _mm256_blendv_epi8(exponent, _mm256_set1_epi32(NOT_FINITE), not_finite);
    let zero = _mm256_cmp_ps::<_CMP_EQ_OQ>(values, _mm256_setzero_ps());
    _mm256_blendv_epi8(exponent, _mm256_set1_epi32(ZERO_EXPONENT), _mm256_castps_si256(zero))
}

/// Eight numbers from `first` on.
#[target_feature(enable = "avx2")]
#[inline]
fn load(values: &[f32], first: usize) -> __m256 {
    let values: &[f32; WIDTH] = values[first..].first_chunk().expect("eight numbers");
    // SAFETY: `values` has the eight numbers.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// Exponents of the elements of `A`.
#[target_feature(enable = "avx2")]
pub(super) fn exponents(a: &[[f32; ROWS]], lowest: i32) -> [[i32; ROWS]; MAX_DEPTH] {
    let mut exponents = [[0; ROWS]; MAX_DEPTH];
    for (exponents, values) in exponents.iter_mut().zip(a) {
        for (at, exponents) in exponents.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            let found = exponents_of(load(values, WIDTH * at), lowest);
            // SAFETY: `exponents` has the eight elements.
            unsafe { _mm256_storeu_si256(exponents.as_mut_ptr().cast(), found) };
        }
    }
    exponents
}

/// As [`super::terms::power`].
#[target_feature(enable = "avx2")]
#[inline]
fn power(exponent: __m256i) -> __m256 {
    let biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
}

/// The first and the last four numbers in double precision.
#[target_feature(enable = "avx2")]
#[inline]
fn doubles(values: __m256) -> [__m256d; 2] {
    [_mm256_cvtps_pd(_mm256_castps256_ps128(values)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(values))]
}

/// As [`super::portable::add_block`].
#[target_feature(enable = "avx2")]
pub(super) fn add_block<const N: usize>(
    a: Left<'_>,
    (b, column): (&[[f32; N]], usize),
    sums: &mut [[f64; N]; ROWS],
    addition: Addition,
) -> u32 {
    let mut values = [_mm256_setzero_ps(); MAX_DEPTH];
    let mut exponents = [_mm256_setzero_si256(); MAX_DEPTH];
    for (k, b) in b.iter().enumerate() {
        values[k] = load(b, column);
        exponents[k] = exponents_of(values[k], addition.lowest[1]);
    }
    let (values, exponents) = (&values[..b.len()], &exponents[..b.len()]);
    let mut outside = 0;
    for row in 0..ROWS {
        let sums: &mut [f64; WIDTH] = sums[row][column..].first_chunk_mut().expect("eight columns");
        let added = add_row(a, row, (values, exponents), sums, addition);
        outside |= (!added as u32) << row;
    }
    outside
}

/// Adds a row of products in eight columns of `B`, given as values and exponents. Returns false if a sum is not in the range
/// of single precision: then nothing is added.
#[target_feature(enable = "avx2")]
#[inline]
fn add_row(
    a: Left<'_>,
    row: usize,
    (values, exponents): (&[__m256], &[__m256i]),
    sums: &mut [f64; WIDTH],
    addition: Addition,
) -> bool {
    // SAFETY: `sums` has the eight elements.
    let [low, high] = unsafe { [_mm256_loadu_pd(sums.as_ptr()), _mm256_loadu_pd(sums.as_ptr().add(4))] };
    let accumulators = _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
    let mut largest = exponents_of(accumulators, addition.lowest_accumulator);
    for (left, &right) in a.exponents.iter().zip(exponents) {
        largest = _mm256_max_epi32(largest, _mm256_add_epi32(_mm256_set1_epi32(left[row]), right));
    }
    // Any exponent will do for a sum of zeros.
    let largest =
        _mm256_and_si256(largest, _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(ZERO_EXPONENT / 2 - 1)));
    let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(*SINGLE_PRECISION_RANGE.start()), largest);
    let above = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(*SINGLE_PRECISION_RANGE.end()));
    let outside = _mm256_or_si256(below, above);
    if _mm256_testz_si256(outside, outside) == 0 {
        return false;
    }
    let cut = _mm256_set1_epi32(addition.cut);
    let scales = power(_mm256_sub_epi32(cut, largest));
    let mut totals = [_mm256_setzero_pd(); 2];
    for (left, right) in a.values.chunks(GROUP).zip(values.chunks(GROUP)) {
        let mut group = _mm256_setzero_si256();
        for (left, &right) in left.iter().zip(right) {
            let product = _mm256_mul_ps(_mm256_set1_ps(left[row]), right);
            group = _mm256_add_epi32(group, _mm256_cvttps_epi32(_mm256_mul_ps(product, scales)));
        }
        let [first, last] = [_mm256_castsi256_si128(group), _mm256_extracti128_si256::<1>(group)];
        totals[0] = _mm256_add_pd(totals[0], _mm256_cvtepi32_pd(first));
        totals[1] = _mm256_add_pd(totals[1], _mm256_cvtepi32_pd(last));
    }
    const TOWARD_ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    let accumulators = doubles(_mm256_round_ps::<TOWARD_ZERO>(_mm256_mul_ps(accumulators, scales)));
    let units = doubles(power(_mm256_sub_epi32(largest, cut)));
    let mask = _mm256_castsi256_pd(_mm256_set1_epi64x(-1 << (ALL_BITS - addition.kept)));
    for half in 0..2 {
        let sum = _mm256_mul_pd(_mm256_add_pd(totals[half], accumulators[half]), units[half]);
        // SAFETY: `sums` has the eight elements.
        unsafe { _mm256_storeu_pd(sums.as_mut_ptr().add(4 * half), _mm256_and_pd(sum, mask)) };
    }
    true
}
