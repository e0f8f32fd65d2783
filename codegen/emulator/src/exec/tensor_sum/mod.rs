//! Sums of products of floats as Hopper's tensor cores add them, bit by bit.
//!
//! The terms of a sum are the products and the accumulator. Their significands, in [1, 4) of products and in [1, 2) of
//! accumulators, are aligned to the largest exponent among the terms and truncated toward zero a number of bits below it.
//! The sum of the truncated terms is exact. `benches/tensor-core-sums.py` compares this with a device.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
mod terms;

pub(super) use terms::{ALL_BITS, Addition, CUT, CUT_FLOAT8, MAX_DEPTH, ROWS, SINGLE_BITS};
use terms::{Left, WIDTH, ZERO_EXPONENT, exponent};

/// Calls a function with AVX2 if the CPU has it, or else the portable one of the same name.
macro_rules! vectorised {
    ($function:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has AVX2.
        let result = match crate::lanes::wide() {
            true => unsafe { avx2::$function($($argument),*) },
            false => portable::$function($($argument),*),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let result = portable::$function($($argument),*);
        result
    }};
}

/// Adds the product of `A`, given as columns, and `B`, given as rows, to the first `columns` columns of `sums` (a multiple of
/// 8). The accumulators in `sums` are numbers of single precision.
pub(super) fn add_products<const N: usize>(
    (a, b): (&[[f32; ROWS]], &[[f32; N]]),
    sums: &mut [[f64; N]; ROWS],
    columns: usize,
    addition: Addition,
) {
    let lowest = addition.lowest[0];
    let exponents = vectorised!(exponents(a, lowest));
    let left = Left { values: a, exponents: &exponents };
    for column in (0..columns).step_by(WIDTH) {
        let outside = vectorised!(add_block(left, (b, column), sums, addition));
        for row in (0..ROWS).filter(|row| outside >> row & 1 != 0) {
            for column in column..column + WIDTH {
                let factors = a.iter().zip(b).map(|(a, b)| [a[row], b[column]]);
                sums[row][column] = add(factors, sums[row][column], addition);
            }
        }
    }
}

/// The sum of products of pairs of elements and an accumulator.
pub(super) fn add(
    factors: impl Iterator<Item = [f32; 2]> + Clone,
    accumulator: f64,
    addition: Addition,
) -> f64 {
    let products = || factors.clone().map(|[a, b]| a as f64 * b as f64);
    let exact = products().fold(accumulator, |sum, product| sum + product);
    let exponents = factors.clone().map(|factors| {
        let [a, b] = std::array::from_fn(|at| exponent(factors[at], addition.lowest[at]));
        a + b
    });
    let largest = exponents.fold(exponent(accumulator as f32, addition.lowest_accumulator), i32::max);
    if largest < ZERO_EXPONENT / 2 {
        return 0.0;
    }
    if !exact.is_finite() {
        return exact;
    }
    let unit = ((largest - addition.cut) as f64).exp2();
    let cut = products().fold((accumulator / unit).trunc(), |sum, product| sum + (product / unit).trunc());
    let sum = cut * unit;
    if addition.kept == ALL_BITS || sum == 0.0 {
        return sum;
    }
    let leading = ((sum.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(addition.lowest_accumulator);
    let last = ((leading - addition.kept) as f64).exp2();
    (sum / last).trunc() * last
}

#[cfg(test)]
mod tests {
    use super::terms::power;
    use super::*;

    const HALVES: Addition =
        Addition { lowest: [-14; 2], lowest_accumulator: -126, cut: CUT, kept: SINGLE_BITS };
    const BFLOATS: Addition = Addition { lowest: [-126; 2], ..HALVES };
    const FLOAT8: Addition = Addition { lowest: [-6; 2], cut: CUT_FLOAT8, kept: CUT_FLOAT8, ..HALVES };
    const FLOAT8_TO_HALF: Addition = Addition { lowest_accumulator: -14, kept: ALL_BITS, ..FLOAT8 };

    /// The sum one by one, and in blocks, with and without AVX2 where the range allows it; all must agree.
    fn sum(products: &[[f32; 2]], accumulator: f64, addition: Addition) -> f64 {
        let a: Vec<[f32; ROWS]> = products.iter().map(|&[a, _]| [a; ROWS]).collect();
        let b: Vec<[f32; WIDTH]> = products.iter().map(|&[_, b]| [b; WIDTH]).collect();
        let mut sums = [[accumulator; WIDTH]; ROWS];
        add_products((&a, &b), &mut sums, WIDTH, addition);
        let expected = add(products.iter().copied(), accumulator, addition);
        let mut portable = [[accumulator; WIDTH]; ROWS];
        let exponents = portable::exponents(&a, addition.lowest[0]);
        let left = Left { values: &a, exponents: &exponents };
        if portable::add_block(left, (&b, 0), &mut portable, addition) != 0 {
            assert_eq!(portable, [[accumulator; WIDTH]; ROWS]);
            portable = sums;
        }
        for sum in [sums, portable].into_iter().flatten().flatten() {
            assert_eq!(
                sum.to_bits(),
                expected.to_bits(),
                "{sum} and {expected} of {products:?} {accumulator}"
            );
        }
        expected
    }

    #[test]
    fn terms_of_8_bit_floats_are_cut() {
        let (one, bit) = ([1.0, 1.0], [power(-6), power(-7)]);
        for (products, accumulator, addition, expected) in [
            (&[one, bit][..], 0.0, FLOAT8, 1.0 + power(-13)),
            (&[one, [power(-7), power(-7)]], 0.0, FLOAT8, 1.0),
            (&[one, [-power(-7), power(-7)]], 0.0, FLOAT8, 1.0),
            // The accumulator has the largest exponent.
            (&[[power(-6), power(-6)]], 4.0, FLOAT8, 4.0),
            (&[one], power(-14), FLOAT8, 1.0),
            // In single precision a sum keeps 14 bits, in half precision it is rounded later.
            (&[one, one, bit], 0.0, FLOAT8, 2.0),
            (&[one, one, bit], 0.0, FLOAT8_TO_HALF, 2.0 + power(-13)),
            // The significand of a product is not normalised.
            (&[[1.5, 1.5], bit], 0.0, FLOAT8_TO_HALF, 2.25 + power(-13)),
            // Neither is that of a subnormal number, which has the exponent -6.
            (&[[power(-9), power(-6)]], power(-26), FLOAT8, power(-15)),
            (&[[power(-6), power(-9)]], power(-24), FLOAT8, power(-15) + power(-24)),
            (&[one, [1.0, -1.0]], 0.0, FLOAT8, 0.0),
            (&[one], f32::INFINITY, FLOAT8, f32::INFINITY),
        ] {
            assert_eq!(
                sum(products, accumulator as f64, addition),
                expected as f64,
                "{products:?} {accumulator}"
            );
        }
    }

    #[test]
    fn terms_of_halves_are_cut_and_sums_are_cut_to_single_precision() {
        let one = [1.0, 1.0];
        let next = 1.0 + f32::EPSILON;
        for (products, accumulator, expected) in [
            // A term of 2^-24 is below the last bit of the sum; two of them are not, and of 2^-25 four.
            (&[one, [power(-12), power(-12)]][..], 0.0, 1.0),
            (&[one, [power(-12), power(-12)], [power(-12), power(-12)]], 0.0, next),
            (&[&[one][..], &[[power(-12), power(-13)]; 4]].concat(), 0.0, next),
            // Terms of 2^-26 are cut, however many there are.
            (&[&[one][..], &[[power(-13), power(-13)]; 15]].concat(), 0.0, 1.0),
            // Toward zero.
            (&[[-1.0, 1.0], [-power(-12), power(-12)]], 0.0, -1.0),
            (&[one, [-power(-12), power(-12)]], 0.0, 1.0 - f32::EPSILON / 2.0),
            (&[[65504.0, 65504.0]; 16], 0.0, 65504.0 * 65504.0 * 16.0),
            (&[[0.0, 1.0]], -0.0, 0.0),
            (&[[0.0, 1.0]], f32::from_bits(1), f32::from_bits(1)),
        ] {
            assert_eq!(
                sum(products, accumulator as f64, HALVES),
                expected as f64,
                "{products:?} {accumulator}"
            );
        }
    }

    #[test]
    fn exponents_beyond_those_of_halves() {
        for (products, accumulator, expected) in [
            (&[[power(100), power(27)]][..], 0.0, power(127)),
            (&[[power(-100), power(-40)]], 0.0, f32::from_bits(1 << 9)),
            (&[[power(-100), power(-50)]], 0.0, 0.0),
            (&[[power(-100), power(-40)], [power(-100), power(-50)]], 0.0, f32::from_bits(1 << 9)),
            (&[[power(100), power(100)], [-power(100), power(100)]], 1.0, 0.0),
        ] {
            assert_eq!(sum(products, accumulator, BFLOATS), expected as f64, "{products:?} {accumulator}");
        }
        for factors in [[f32::INFINITY, 0.0], [f32::NAN, 1.0]] {
            assert!(add([factors].into_iter(), 1.0, BFLOATS).is_nan());
            let mut sums = [[1.0; WIDTH]; ROWS];
            add_products((&[[factors[0]; ROWS]], &[[factors[1]; WIDTH]]), &mut sums, WIDTH, BFLOATS);
            assert!(sums.iter().flatten().all(|sum| sum.is_nan()));
        }
    }
}
