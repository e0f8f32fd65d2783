//! Classes of numbers: integers, floats, and numbers with atomic sums.

use half::{bf16, f16};

use super::scalar::{Bf16x2, F16x2, Scalar, mark};
use super::value::IntoVal;

/// Scalars with `+ - *`, `min` and `max`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number",
    label = "expected an integer or a float",
    note = "to compare two `Val<bool>`, write `a ^ b`"
)]
pub trait Number: Scalar + IntoVal<Self> {}

/// Integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer",
    label = "expected u8 to u64 or i8 to i64",
    note = "`.cast::<i32>()` converts a handle, `.bitcast::<u32>()` gives its bits"
)]
pub trait Int: Number {}

/// Floating-point scalars, packed ones included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float",
    label = "expected f16, bf16, f32, f64, F16x2 or Bf16x2",
    note = "`.cast::<f32>()` converts a handle; for integers and generic numbers, use `mul_add` instead of `fma`"
)]
pub trait Float: Number {}

/// Floats that are not packed, with rounding to integral values and comparisons on every target: f16, f32 and f64.
#[diagnostic::on_unimplemented(
    message = "this function is not available for `{Self}`",
    label = "expected f16, f32 or f64; convert bf16 with `.cast::<f32>()`, and convert the result back"
)]
pub trait Fractional: Float {
    /// Positive infinity.
    const INFINITY: Self;
}

/// f32 and f64.
#[diagnostic::on_unimplemented(
    message = "this function is not available for `{Self}`",
    label = "expected f32 or f64; convert halves with `.cast::<f32>()`, and convert the result back"
)]
pub trait WideFloat: Fractional + IntoVal<Self> {
    /// The largest number below ½.
    const BELOW_HALF: Self;
}

impl Fractional for f16 {
    const INFINITY: f16 = f16::INFINITY;
}

impl Fractional for f32 {
    const INFINITY: f32 = f32::INFINITY;
}

impl Fractional for f64 {
    const INFINITY: f64 = f64::INFINITY;
}

impl WideFloat for f32 {
    const BELOW_HALF: f32 = 0.5f32.next_down();
}

impl WideFloat for f64 {
    const BELOW_HALF: f64 = 0.5f64.next_down();
}

/// Numbers with atomic sums.
#[diagnostic::on_unimplemented(
    message = "there is no atomic sum of `{Self}`",
    label = "expected u32, i32, u64, i64, f16, bf16, f32, f64, F16x2 or Bf16x2",
    note = "keep the sum in a wider type"
)]
pub trait AtomicNumber: Number {}

mark! {
    Number: u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 F16x2 Bf16x2;
    Int: u8 u16 u32 u64 i8 i16 i32 i64;
    Float: f16 bf16 f32 f64 F16x2 Bf16x2;
    AtomicNumber: u32 i32 u64 i64 f16 bf16 f32 f64 F16x2 Bf16x2;
}
