//! Conversions of 8-bit floats, which the hardware has for pairs: [`E4m3x2`] and [`E5m2x2`].

use std::panic::Location;

use super::recorder::emit1;
use super::scalar::{E4m3, E4m3x2, E5m2, E5m2x2, F16x2, Scalar};
use super::value::{IntoVal, Val};
use crate::ir::{Float8, Op, Type};

/// Two 8-bit floats in one register.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pair of 8-bit floats",
    label = "expected E4m3x2 or E5m2x2"
)]
pub trait Float8Pair: Scalar {
    /// The format in the IR.
    const FORMAT: Float8;
    /// The type of each of the two.
    type Element: Scalar;
}

impl Float8Pair for E4m3x2 {
    const FORMAT: Float8 = Float8::E4m3;
    type Element = E4m3;
}

impl Float8Pair for E5m2x2 {
    const FORMAT: Float8 = Float8::E5m2;
    type Element = E5m2;
}

/// A pair of two f32, each rounded to the nearest 8-bit float, ties to even. Numbers that are too large, and infinities,
/// become the largest finite number. The first argument is in the low byte.
///
/// - PTX: `cvt.rn.satfinite.e4m3x2.f32`, `cvt.rn.satfinite.e5m2x2.f32`
/// - Target: sm_89
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// let pairs = map(|x| pack_float8::<E4m3x2>(x, -1.0), "cvt.rn.satfinite.e4m3x2.f32", [2.0f32, 1e9]);
/// assert_eq!(pairs, [E4m3x2(E4m3(0x40), E4m3(0xb8)), E4m3x2(E4m3(0x7e), E4m3(0xb8))]);
/// ```
#[track_caller]
pub fn pack_float8<P: Float8Pair>(low: impl IntoVal<f32>, high: impl IntoVal<f32>) -> Val<P> {
    let args = [low.into_val().id(), high.into_val().id()];
    Val::from_id(emit1(Op::ConvertToFloat8(P::FORMAT), Type::F32, &args, Location::caller()))
}

impl Val<F16x2> {
    /// Both halves rounded to 8-bit floats, as by [`pack_float8`].
    ///
    /// - PTX: `cvt.rn.satfinite.e4m3x2.f16x2`, `cvt.rn.satfinite.e5m2x2.f16x2`
    /// - Target: sm_89
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let half = F16x2(f16::from_f32(0.5), f16::ONE);
    /// let pairs = map(|x| x.to_float8::<E5m2x2>(), "cvt.rn.satfinite.e5m2x2.f16x2", [half]);
    /// assert_eq!(pairs, [E5m2x2(E5m2(0x38), E5m2(0x3c))]);
    /// ```
    #[track_caller]
    pub fn to_float8<P: Float8Pair>(self) -> Val<P> {
        let op = Op::ConvertToFloat8(P::FORMAT);
        Val::from_id(emit1(op, Type::F16x2, &[self.id()], Location::caller()))
    }
}

impl<P: Float8Pair> Val<P> {
    /// A pair of two 8-bit floats. The first argument is in the low byte.
    ///
    /// - PTX: `cvt.u16.u8`, `shl.b16`, `or.b16`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let pairs = map(|x: Val<E4m3>| Val::<E4m3x2>::pair(x, x), "or.b16", [E4m3(0x38)]);
    /// assert_eq!(pairs, [E4m3x2(E4m3(0x38), E4m3(0x38))]);
    /// ```
    #[track_caller]
    pub fn pair(low: Val<P::Element>, high: Val<P::Element>) -> Val<P> {
        let [low, high] = [low, high].map(|element| element.bitcast::<u8>().cast::<u16>());
        (low | high << 8).bitcast()
    }

    /// The low and the high float of the pair.
    ///
    /// - PTX: `cvt.u8.u16`, `shr.u16`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let pair = E4m3x2(E4m3(0x38), E4m3(0x40));
    /// assert_eq!(map(|x: Val<E4m3x2>| x.elements()[1], "shr.u16", [pair]), [E4m3(0x40)]);
    /// ```
    #[track_caller]
    pub fn elements(self) -> [Val<P::Element>; 2] {
        let bits = self.bitcast::<u16>();
        [bits, bits >> 8].map(|byte| byte.cast::<u8>().bitcast())
    }

    /// The values of both floats as f16, exactly.
    ///
    /// - PTX: `cvt.rn.f16x2.e4m3x2`, `cvt.rn.f16x2.e5m2x2`
    /// - Target: sm_89
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let pair = E4m3x2(E4m3(0x38), E4m3(0xc0));
    /// let values = map(|x: Val<E4m3x2>| x.to_f16x2(), "cvt.rn.f16x2.e4m3x2", [pair]);
    /// assert_eq!(values, [F16x2(f16::ONE, f16::from_f32(-2.0))]);
    /// ```
    #[track_caller]
    pub fn to_f16x2(self) -> Val<F16x2> {
        let op = Op::ConvertFromFloat8(P::FORMAT);
        Val::from_id(emit1(op, Type::F16x2, &[self.id()], Location::caller()))
    }
}
