//! Parts of tensor core sums: parameters of an instruction's addition, and exponents of terms.

/// Rows of `A`.
pub(in crate::exec) const ROWS: usize = 16;
/// Maximum number of elements along K.
pub(in crate::exec) const MAX_DEPTH: usize = 32;

/// How an instruction adds products of the elements of `A` and `B` to an accumulator.
#[derive(Clone, Copy)]
pub(in crate::exec) struct Addition {
    /// Exponents of the smallest normal numbers of the types of `A` and `B`.
    pub(in crate::exec) lowest: [i32; 2],
    /// Exponent of the smallest normal number of the accumulators' type.
    pub(in crate::exec) lowest_accumulator: i32,
    /// Number of bits below the largest exponent at which terms are truncated.
    pub(in crate::exec) cut: i32,
    /// Number of fraction bits that a sum keeps; lower bits are truncated toward zero. [`ALL_BITS`] if the caller rounds.
    pub(in crate::exec) kept: i32,
}

/// All fraction bits of a sum in double precision.
pub(in crate::exec) const ALL_BITS: i32 = 52;
/// Bits of the fraction of single precision.
pub(in crate::exec) const SINGLE_BITS: i32 = 23;

/// Number of bits below the largest exponent that terms of f16, bf16 and tf32 keep.
pub(in crate::exec) const CUT: i32 = 25;
/// As [`CUT`], of 8-bit floats in `wgmma`.
pub(in crate::exec) const CUT_FLOAT8: i32 = 13;

/// Sentinels for the exponent of zero, and of infinities and NaNs. The sum of a sentinel and any exponent is outside
/// [`SINGLE_PRECISION_RANGE`].
pub(super) const ZERO_EXPONENT: i32 = -4096;
pub(super) const NOT_FINITE: i32 = 1 << 20;

/// Range of the largest exponent of a sum for which single precision suffices: no product overflows, and subnormal products
/// are truncated to zero.
pub(super) const SINGLE_PRECISION_RANGE: std::ops::RangeInclusive<i32> = -80..=100;

/// Columns of sums that are computed together: as many as a vector register of the CPU has.
pub(super) const WIDTH: usize = 8;
/// Number of products, cut to integers below 2^27, whose sum 32 bits hold.
pub(super) const GROUP: usize = 8;

/// Columns of `A`, and the exponents of their elements.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) values: &'a [[f32; ROWS]],
    pub(super) exponents: &'a [[i32; ROWS]; MAX_DEPTH],
}

/// Exponent of a number; subnormal ones have that of the smallest normal number, `lowest`.
#[inline(always)]
pub(super) fn exponent(value: f32, lowest: i32) -> i32 {
    let exponent = (value.to_bits() >> 23 & 0xff) as i32 - 127;
    let exponent = if exponent == 128 { NOT_FINITE } else { exponent.max(lowest) };
    if value == 0.0 { ZERO_EXPONENT } else { exponent }
}

/// 2^`exponent`, a normal number of single precision.
#[inline(always)]
pub(super) fn power(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}
