//! Conversions between scalars, and words made of halves.

use std::panic::Location;

use super::number::{Int, Number};
use super::recorder::{Site, emit, emit1, fail};
use super::scalar::Scalar;
use super::value::Val;
use crate::ir::{Op, Rounding, Type};

impl<T: Scalar> Val<T> {
    /// Converts the value: integers wrap or extend, integers to floats and narrower floats round to nearest even,
    /// floats to integers truncate and clamp to the range.
    ///
    /// - PTX: `cvt.rzi.s32.f32`; by the types `cvt.rn.f32.u32`, `cvt.u8.u32`, …
    /// - Target: sm_80; integers and f64 to bf16 sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.cast::<i32>(), "cvt.rzi.s32.f32", [-1.7f32, 2.5, 1e20]), [-1, 2, i32::MAX]);
    /// ```
    #[track_caller]
    pub fn cast<U: Number>(self) -> Val<U>
    where
        T: Number,
    {
        let to_int = U::TYPE.is_int() && T::TYPE.is_float();
        self.convert(if to_int { Rounding::Zero } else { Rounding::Nearest }, Location::caller())
    }

    /// Converts the value, as [`Val::cast`], with an explicit rounding mode. A float has no rounding to its own type:
    /// [`Val::floor`], [`Val::ceil`], [`Val::trunc`] and [`Val::round_ties_even`] give integral values. Conversions to
    /// wider floats and between integers round nothing, and are an error.
    ///
    /// - PTX: `cvt.rni.s32.f32`; to floats `cvt.rn`, `cvt.rz`, `cvt.rm`, `cvt.rp`
    /// - Target: sm_80; integers and f64 to bf16 sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let nearest = |x: Val<f32>| x.cast_rounded::<i32>(Rounding::Nearest);
    /// assert_eq!(map(nearest, "cvt.rni.s32.f32", [1.5f32, 2.5]), [2, 2]);
    /// ```
    #[track_caller]
    pub fn cast_rounded<U: Number>(self, rounding: Rounding) -> Val<U>
    where
        T: Number,
    {
        let site = Location::caller();
        let (from, to) = (T::TYPE, U::TYPE);
        let widens = from.is_float() && to.is_float() && from.bits() < to.bits();
        if widens || from.is_int() && to.is_int() {
            let which = if widens { "is exact" } else { "wraps or extends" };
            let what =
                format!("a conversion from {from} to {to} {which}, and rounds nothing: write `.cast()`");
            fail(site, what);
        }
        if from.is_float() && from == to {
            let ty = from;
            fail(
                site,
                format!(
                    "a conversion from {ty} to {ty} rounds nothing: write `.floor()`, `.ceil()`, `.trunc()` or \
                     `.round_ties_even()` for an integral value, or remove the conversion"
                ),
            );
        }
        self.convert(rounding, site)
    }

    fn convert<U: Number>(self, rounding: Rounding, site: Site) -> Val<U> {
        let op = Op::Convert { rounding, saturate: false };
        Val::from_id(emit1(op, U::TYPE, &[self.id()], site))
    }

    /// Converts between integers, clamping to the result's range.
    ///
    /// - PTX: `cvt.sat.u8.s32` and the like
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.saturating_cast::<u8>(), "cvt.sat.u8.s32", [-5i32, 300]), [0, 255]);
    /// ```
    #[track_caller]
    pub fn saturating_cast<U: Int>(self) -> Val<U>
    where
        T: Int,
    {
        let op = Op::Convert { rounding: Rounding::Nearest, saturate: true };
        Val::from_id(emit1(op, U::TYPE, &[self.id()], Location::caller()))
    }

    /// Reinterprets the bits as another type of the same width.
    ///
    /// - PTX: `mov.b32`, by the width `mov.b16`, `mov.b64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.bitcast::<u32>(), "mov.b32", [1.0f32]), [0x3f80_0000]);
    /// ```
    #[track_caller]
    pub fn bitcast<U: Scalar>(self) -> Val<U> {
        Val::from_id(emit1(Op::Bitcast, U::TYPE, &[self.id()], Location::caller()))
    }
}

/// Packs two 16-bit halves into a 32-bit word.
///
/// - PTX: `mov.b32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| pack_u16(x, x + 1), "mov.b32", [0x1234u16]), [0x1235_1234u32]);
/// ```
#[track_caller]
pub fn pack_u16(low: Val<u16>, high: Val<u16>) -> Val<u32> {
    Val::from_id(emit1(Op::Pack, Type::U32, &[low.id(), high.id()], Location::caller()))
}

impl Val<u32> {
    /// The low half and the high half of a 32-bit word.
    ///
    /// - PTX: `mov.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.unpack_u16()[1], "mov.b32", [0xaaaa_bbbbu32]), [0xaaaa]);
    /// ```
    #[track_caller]
    pub fn unpack_u16(self) -> [Val<u16>; 2] {
        let halves = emit(Op::Unpack, Type::U16, &[self.id()], Location::caller());
        [Val::from_id(halves[0]), Val::from_id(halves[1])]
    }
}
