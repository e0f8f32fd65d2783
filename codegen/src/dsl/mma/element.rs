//! Element types of matrix products.

use super::sums::MatrixSum;
use crate::dsl::scalar::{E4m3, E5m2, F16x2, Scalar};
use crate::ir;

/// Element type of A and B. Products of f64 have functions of their own: [`mma_f64`](super::mma_f64) and
/// [`mma_m8n8k4_f64`](super::mma_m8n8k4_f64).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the element of a matrix",
    label = "expected u8, i8, f16, bf16, f32, E4m3 or E5m2; for f64 call `mma_f64`"
)]
pub trait MmaElement: Scalar {
    /// The IR's element type.
    const ELEMENT: ir::MmaElement;
    /// Element type of C and D.
    type Sum: MatrixSum;
}

/// Element type of A that can be multiplied by elements of type `B` with sums of type `S`: bytes by bytes of any
/// signedness, [`E4m3`] and [`E5m2`] by each other, other floats by the same type. Products of f16 and of 8-bit floats also
/// have f16 sums ([`F16x2`]).
#[diagnostic::on_unimplemented(
    message = "a matrix of `{Self}` cannot be multiplied by one of `{B}`",
    label = "expected fragments of bytes, of 8-bit floats, of f16, of bf16 or of f32",
    note = "u8 and i8 can be mixed, E4m3 and E5m2 too; f16 and bf16 cannot. f16, E4m3 and E5m2 also have F16x2 sums"
)]
pub trait MmaWith<B: MmaElement<Sum = Self::Sum>, S: MatrixSum = <Self as MmaElement>::Sum>:
    MmaElement
{
}

macro_rules! elements {
    ($($ty:ty: $name:ident, $sum:ty, $($with:ty)*, $($half_sums:ty)*;)*) => {
        $(impl MmaElement for $ty {
            const ELEMENT: ir::MmaElement = ir::MmaElement::$name;
            type Sum = $sum;
        }
        $(impl MmaWith<$with, $sum> for $ty {})*
        $(impl MmaWith<$half_sums, F16x2> for $ty {})*)*
    };
}
elements! {
    u8: U8, i32, u8 i8,;
    i8: I8, i32, u8 i8,;
    half::f16: F16, f32, half::f16, half::f16;
    half::bf16: Bf16, f32, half::bf16,;
    f32: Tf32, f32, f32,;
    E4m3: E4m3, f32, E4m3 E5m2, E4m3 E5m2;
    E5m2: E5m2, f32, E4m3 E5m2, E4m3 E5m2;
}
