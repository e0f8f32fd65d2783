//! The sums on any CPU.

use super::terms::{
    ALL_BITS, Addition, GROUP, Left, MAX_DEPTH, ROWS, SINGLE_PRECISION_RANGE, WIDTH, ZERO_EXPONENT, exponent,
    power,
};

/// Exponents of the elements of `A`.
pub(super) fn exponents(a: &[[f32; ROWS]], lowest: i32) -> [[i32; ROWS]; MAX_DEPTH] {
    let mut exponents = [[0; ROWS]; MAX_DEPTH];
    for (exponents, values) in exponents.iter_mut().zip(a) {
        *exponents = values.map(|value| exponent(value, lowest));
    }
    exponents
}

/// Adds products in [`WIDTH`] columns from `column` on. Returns the rows to which nothing was added, since a sum is not in the
/// range of single precision, as bits.
pub(super) fn add_block<const N: usize>(
    a: Left<'_>,
    (b, column): (&[[f32; N]], usize),
    sums: &mut [[f64; N]; ROWS],
    addition: Addition,
) -> u32 {
    let mut outside = 0;
    for row in 0..ROWS {
        let mut row_sums = [0.0; WIDTH];
        for x in column..column + WIDTH {
            let accumulator = sums[row][x] as f32;
            let mut largest = exponent(accumulator, addition.lowest_accumulator);
            for (b, exponents) in b.iter().zip(a.exponents) {
                largest = largest.max(exponents[row] + exponent(b[x], addition.lowest[1]));
            }
            // Any exponent will do for a sum of zeros.
            let largest = if largest < ZERO_EXPONENT / 2 { 0 } else { largest };
            if !SINGLE_PRECISION_RANGE.contains(&largest) {
                outside |= 1 << row;
                break;
            }
            let scale = power(addition.cut - largest);
            let mut total = (accumulator * scale).trunc() as f64;
            for (a, b) in a.values.chunks(GROUP).zip(b.chunks(GROUP)) {
                let mut group = 0;
                for (a, b) in a.iter().zip(b) {
                    // Less than 2^27, since a product is less than 4 · 2^largest.
                    group += (a[row] * b[x] * scale) as i32;
                }
                total += group as f64;
            }
            // A multiple of 2^-105, so not subnormal in single precision.
            let sum = total * power(largest - addition.cut) as f64;
            row_sums[x - column] = f64::from_bits(sum.to_bits() & (u64::MAX << (ALL_BITS - addition.kept)));
        }
        if outside >> row & 1 == 0 {
            sums[row][column..column + WIDTH].copy_from_slice(&row_sums);
        }
    }
    outside
}
