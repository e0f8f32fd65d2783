//! Products of `wgmma`: one warp's 16 rows of `D = A · B + D`.
//!
//! A sum adds the exact products in the order of K to the accumulator in double precision, and is rounded once. Integer
//! sums are exact; they wrap, or saturate once at the end. Sums of 8-bit floats are those of Hopper, bit by bit; it also cuts
//! the terms of other floats, but at 25 bits (`benches/tensor-core-sums.py`).

use std::cell::Cell;
use std::sync::LazyLock;

use crate::exec::convert_packed::{E4m3, E5m2, Float8};
use crate::exec::rounding::{Bf16, F16, Format};
use crate::lanes::LANES;

/// Rows of a warp's part.
pub(super) const ROWS: usize = 16;
/// Maximum number of columns of `B`.
pub(super) const MAX_COLUMNS: usize = 256;
/// Maximum number of elements along K.
pub(super) const MAX_DEPTH: usize = 32;
/// Bytes along K of all types but `.b1`.
pub(super) const DEPTH_BYTES: usize = 32;

/// Type of the elements of `A` or `B`. Sums of the products of all types are exact in double precision as far as `K`
/// goes, for integers with the accumulator.
pub(crate) trait Operand: 'static {
    /// Bytes of an element.
    const BYTES: usize;
    /// Exponent of the smallest normal number of an 8-bit float.
    const LOWEST_EXPONENT: Option<i32> = None;
    /// Value of an element's bits, in the low bits of `bits`.
    fn value(bits: u32) -> f64;
}

macro_rules! operands {
    ($($name:ident $bytes:literal $($lowest:literal)?: ($bits:ident) $value:expr;)*) => { $(
        pub(crate) struct $name;
        impl Operand for $name {
            const BYTES: usize = $bytes;
            $(const LOWEST_EXPONENT: Option<i32> = Some($lowest);)?
            #[inline(always)]
            fn value($bits: u32) -> f64 { $value }
        }
    )* };
}
operands! {
    HalfOperand 2: (bits) F16::to_f32(bits as u16) as f64;
    BfloatOperand 2: (bits) Bf16::to_f32(bits as u16) as f64;
    // The lower 13 bits are ignored.
    Tf32Operand 4: (bits) f32::from_bits(bits & !0x1fff) as f64;
    E4m3Operand 1 -6: (bits) E4M3_VALUES[bits as u8 as usize];
    E5m2Operand 1 -14: (bits) E5M2_VALUES[bits as u8 as usize];
    SignedOperand 1: (bits) bits as u8 as i8 as f64;
    UnsignedOperand 1: (bits) bits as u8 as f64;
}

/// Values of all 8-bit floats of a format.
fn values<F: Float8>() -> [f64; 256] {
    std::array::from_fn(|bits| F16::to_f32(F::to_f16(bits as u8)) as f64)
}
static E4M3_VALUES: LazyLock<[f64; 256]> = LazyLock::new(values::<E4m3>);
static E5M2_VALUES: LazyLock<[f64; 256]> = LazyLock::new(values::<E5m2>);

/// Matrices of one warp's part; a box, since they are large.
pub(super) struct Matrices {
    /// Columns of `A` by position along K.
    pub(super) a: [[f64; ROWS]; MAX_DEPTH],
    /// Rows of `B` by position along K.
    pub(super) b: [[f64; MAX_COLUMNS]; MAX_DEPTH],
    pub(super) sums: [[f64; MAX_COLUMNS]; ROWS],
}

thread_local! {
    /// Matrices of the thread's last operation, whose memory the next one takes.
    static UNUSED: Cell<Option<Box<Matrices>>> = const { Cell::new(None) };
}

impl Matrices {
    /// Matrices with any values.
    pub(super) fn take() -> Box<Matrices> {
        UNUSED.take().unwrap_or_else(|| {
            Box::new(Matrices {
                a: [[0.0; ROWS]; MAX_DEPTH],
                b: [[0.0; MAX_COLUMNS]; MAX_DEPTH],
                sums: [[0.0; MAX_COLUMNS]; ROWS],
            })
        })
    }

    /// Keeps the memory for this thread's next [`Matrices::take`].
    pub(super) fn put(self: Box<Matrices>) {
        UNUSED.set(Some(self));
    }

    /// Adds the product of the first `depth` columns of `A` and rows of `B`, in the first `columns` columns (a multiple
    /// of 8).
    #[inline(always)]
    pub(super) fn multiply(&mut self, depth: usize, columns: usize) {
        // Rows and columns of sums that fit into the vector registers of the CPU.
        const HEIGHT: usize = 4;
        const WIDTH: usize = 8;
        for column in (0..columns).step_by(WIDTH) {
            for row in (0..ROWS).step_by(HEIGHT) {
                let mut local = [[0.0; WIDTH]; HEIGHT];
                for (local, sums) in local.iter_mut().zip(&self.sums[row..row + HEIGHT]) {
                    local.copy_from_slice(&sums[column..column + WIDTH]);
                }
                for (a, b) in self.a[..depth].iter().zip(&self.b[..depth]) {
                    let b = &b[column..column + WIDTH];
                    for (local, &a) in local.iter_mut().zip(&a[row..row + HEIGHT]) {
                        for (sum, &b) in local.iter_mut().zip(b) {
                            *sum += a * b;
                        }
                    }
                }
                for (local, sums) in local.iter().zip(&mut self.sums[row..row + HEIGHT]) {
                    sums[column..column + WIDTH].copy_from_slice(local);
                }
            }
        }
    }

    /// As [`Matrices::multiply`], for 8-bit floats whose smallest exponents are `lowest`, as Hopper does: the significands of the
    /// products, in [1, 4), and the accumulator are aligned to the largest exponent among them and cut toward zero
    /// [`CUT_BITS`] bits below it. Their sum is exact; in single precision it keeps as many bits, cut toward zero.
    pub(super) fn multiply_float8(
        &mut self,
        (depth, columns): (usize, usize),
        lowest: [i32; 2],
        (accumulator_lowest, single): (i32, bool),
    ) {
        for row in 0..ROWS {
            for column in 0..columns {
                let sum = &mut self.sums[row][column];
                let factors = || (0..depth).map(|k| [self.a[k][row], self.b[k][column]]);
                let exact = factors().fold(*sum, |sum, [a, b]| sum + a * b);
                let largest = factors().filter(|[a, b]| a * b != 0.0);
                let largest = largest.map(|[a, b]| exponent(a, lowest[0]) + exponent(b, lowest[1]));
                let largest = largest.chain((*sum != 0.0).then(|| exponent(*sum, accumulator_lowest))).max();
                let Some(largest) = largest.filter(|_| exact.is_finite()) else {
                    *sum = exact;
                    continue;
                };
                let unit = ((largest - CUT_BITS) as f64).exp2();
                let cut = factors().fold(0.0, |total, [a, b]| total + (a * b / unit).trunc());
                *sum = (cut + (*sum / unit).trunc()) * unit;
                if single {
                    *sum = f64::from_bits(sum.to_bits() & (u64::MAX << (52 - CUT_BITS)));
                }
            }
        }
    }

    /// Reads `A` from four registers: register `r` of lane `l` has row `l / 4 + 8 · (r mod 2)`, and the 4 bytes of K at
    /// `16 · (r / 2) + 4 · (l mod 4)`.
    pub(super) fn set_a_registers<E: Operand>(&mut self, registers: [&[u32; LANES]; 4]) {
        let count = 4 / E::BYTES;
        for (number, values) in registers.into_iter().enumerate() {
            for lane in 0..LANES {
                let row = lane / 4 + 8 * (number % 2);
                let first = (16 * (number / 2) + 4 * (lane % 4)) / E::BYTES;
                for element in 0..count {
                    self.a[first + element][row] = E::value(values[lane] >> (8 * E::BYTES * element));
                }
            }
        }
    }

    /// Sets 16 bytes along K of a row of `A` that start at position `k`.
    #[inline(always)]
    pub(super) fn set_a_chunk<E: Operand>(&mut self, row: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.a[k + element][row] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along M of `A` at position `k`, from row `row` on.
    #[inline(always)]
    pub(super) fn set_a_column<E: Operand>(&mut self, row: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.a[k][row + element] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along K of a column of `B` that start at position `k`.
    #[inline(always)]
    pub(super) fn set_b_chunk<E: Operand>(&mut self, column: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.b[k + element][column] = element_of::<E>(chunk, element);
        }
    }

    /// Sets 16 bytes along N of `B` at position `k`, from column `column` on.
    #[inline(always)]
    pub(super) fn set_b_row<E: Operand>(&mut self, column: usize, k: usize, chunk: &[u8; 16]) {
        for element in 0..16 / E::BYTES {
            self.b[k][column + element] = element_of::<E>(chunk, element);
        }
    }
}

/// Bits behind the point that sums of 8-bit floats keep.
const CUT_BITS: i32 = 13;

/// Exponent of a number; subnormal ones have the exponent of the smallest normal number, `lowest`.
fn exponent(value: f64, lowest: i32) -> i32 {
    ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(lowest)
}

/// Element number `index` of 16 bytes.
#[inline(always)]
fn element_of<E: Operand>(chunk: &[u8; 16], index: usize) -> f64 {
    let mut bytes = [0; 4];
    bytes[..E::BYTES].copy_from_slice(&chunk[index * E::BYTES..(index + 1) * E::BYTES]);
    E::value(u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sum of products of E4M3 in an accumulator of single or half precision.
    fn sum(products: &[[f64; 2]], accumulator: f64, single: bool) -> f64 {
        let mut matrices = Matrices::take();
        for (k, &[a, b]) in products.iter().enumerate() {
            matrices.a[k][0] = a;
            matrices.b[k][0] = b;
        }
        matrices.sums[0][0] = accumulator;
        let lowest = if single { -126 } else { -14 };
        matrices.multiply_float8((products.len(), 1), [-6, -6], (lowest, single));
        matrices.sums[0][0]
    }

    #[test]
    fn terms_of_8_bit_floats_are_cut() {
        let power = |exponent: i32| (exponent as f64).exp2();
        let (one, bit) = ([1.0, 1.0], [power(-6), power(-7)]);
        for (products, accumulator, single, expected) in [
            (&[one, bit][..], 0.0, true, 1.0 + power(-13)),
            (&[one, [power(-7), power(-7)]], 0.0, true, 1.0),
            (&[one, [-power(-7), power(-7)]], 0.0, true, 1.0),
            // The accumulator has the largest exponent.
            (&[[power(-6), power(-6)]], 4.0, true, 4.0),
            (&[one], power(-14), true, 1.0),
            // In single precision a sum keeps 14 bits, in half precision it is rounded later.
            (&[one, one, bit], 0.0, true, 2.0),
            (&[one, one, bit], 0.0, false, 2.0 + power(-13)),
            // The significand of a product is not normalised.
            (&[[1.5, 1.5], bit], 0.0, false, 2.25 + power(-13)),
            // Neither is that of a subnormal number, which has the exponent -6.
            (&[[power(-9), power(-6)]], power(-26), true, power(-15)),
            (&[[power(-6), power(-9)]], power(-24), true, power(-15) + power(-24)),
            (&[one, [1.0, -1.0]], 0.0, true, 0.0),
            (&[one], f64::INFINITY, true, f64::INFINITY),
        ] {
            assert_eq!(sum(products, accumulator, single), expected, "{products:?} {accumulator} {single}");
        }
    }
}
