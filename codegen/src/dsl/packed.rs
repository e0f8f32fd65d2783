//! Pairs of 16-bit floats in one register: [`F16x2`] and [`Bf16x2`].
//!
//! The operators, [`super::fma`], `min`, `max`, negation and `abs` work on both halves, with the rounding of the scalar
//! (`add.rn.f16x2`, `fma.rn.bf16x2` and so on). `+`, `-` and `*` of [`Bf16x2`] need sm_90; `fma`, `min`, `max`,
//! negation and `abs` need sm_80.

use std::panic::Location;

use half::{bf16, f16};

use super::number::{Float, Number};
use super::recorder::{emit, emit1};
use super::scalar::{Bf16x2, F16x2, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::Op;

/// Two 16-bit floats in one register.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pair of halves",
    label = "expected F16x2 or Bf16x2"
)]
pub trait FloatPair: Float {
    /// The type of each half.
    type Half: Number;
}

impl FloatPair for F16x2 {
    type Half = f16;
}

impl FloatPair for Bf16x2 {
    type Half = bf16;
}

impl<P: FloatPair> Val<P> {
    /// A pair of two halves. The first argument is in the low half.
    ///
    /// - PTX: `mov.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let pair = map(|x| Val::<F16x2>::pack(x, -x), "mov.b32", [f16::ONE]);
    /// assert_eq!(pair, [F16x2(f16::ONE, f16::NEG_ONE)]);
    /// ```
    #[track_caller]
    pub fn pack(low: Val<P::Half>, high: Val<P::Half>) -> Val<P> {
        Val::from_id(emit1(Op::Pack, P::TYPE, &[low.id(), high.id()], Location::caller()))
    }

    /// The low half and the high half of the pair.
    ///
    /// - PTX: `mov.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.unpack()[1], "mov.b32", [F16x2(f16::ONE, f16::NEG_ONE)]), [f16::NEG_ONE]);
    /// ```
    #[track_caller]
    pub fn unpack(self) -> [Val<P::Half>; 2] {
        let halves = emit(Op::Unpack, P::Half::TYPE, &[self.id()], Location::caller());
        [Val::from_id(halves[0]), Val::from_id(halves[1])]
    }
}

/// A pair of two f32, each rounded to the nearest half. The first argument is in the low half.
///
/// - PTX: `cvt.rn.f16x2.f32`, `cvt.rn.bf16x2.f32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let pair = map(|x| pack_rounded::<F16x2>(x, -1.0), "cvt.rn.f16x2.f32", [1.0f32]);
/// assert_eq!(pair, [F16x2(f16::ONE, f16::NEG_ONE)]);
/// ```
#[track_caller]
pub fn pack_rounded<P: FloatPair>(low: impl IntoVal<f32>, high: impl IntoVal<f32>) -> Val<P> {
    let args = [low.into_val().id(), high.into_val().id()];
    Val::from_id(emit1(Op::ConvertPack, P::TYPE, &args, Location::caller()))
}

/// A pair of two f16. The first argument is in the low half.
///
/// - PTX: `mov.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| pack_half2(x, -x), "mov.b32", [f16::ONE]), [F16x2(f16::ONE, f16::NEG_ONE)]);
/// ```
#[track_caller]
pub fn pack_half2(low: Val<f16>, high: Val<f16>) -> Val<F16x2> {
    Val::pack(low, high)
}
