//! Arithmetic beyond the operators.

use std::panic::Location;

use half::f16;

use super::number::{Float, Fractional, Int, Number, WideFloat};
use super::recorder::emit1;
use super::scalar::{F16x2, Scalar};
use super::value::{IntoVal, Val, val};
use crate::ir::{Binary, Compare, Op, Type, Unary};

impl<T: Number> Val<T> {
    /// The minimum of the two values. Of a NaN and a number, the number.
    ///
    /// - PTX: `min.f32`, by the type `min.u32`, `min.s32`, `min.f16x2`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.min(2.0), "min.f32", [1.0f32, f32::NAN]), [1.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn min(self, other: impl IntoVal<T>) -> Val<T> {
        let other = other.into_val();
        Val::from_id(emit1(Op::Binary(Binary::Min), T::TYPE, &[self.id(), other.id()], Location::caller()))
    }

    /// The maximum of the two values. Of a NaN and a number, the number.
    ///
    /// - PTX: `max.s32`, by the type `max.u32`, `max.f32`, `max.f16x2`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.max(-1), "max.s32", [-2i32, 5]), [-1, 5]);
    /// ```
    #[track_caller]
    pub fn max(self, other: impl IntoVal<T>) -> Val<T> {
        let other = other.into_val();
        Val::from_id(emit1(Op::Binary(Binary::Max), T::TYPE, &[self.id(), other.id()], Location::caller()))
    }

    /// The absolute value of a signed integer or float.
    ///
    /// - PTX: `abs.s32`, by the type `abs.f32`, `abs.s64`, `abs.bf16x2`, …
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.abs(), "abs.s32", [-3i32, 4]), [3, 4]);
    /// ```
    #[track_caller]
    pub fn abs(self) -> Val<T> {
        Val::from_id(emit1(Op::Unary(Unary::Abs), T::TYPE, &[self.id()], Location::caller()))
    }
}

impl<T: Number> Val<T> {
    /// The value limited to the range from `low` to `high`; of a NaN, `low`.
    ///
    /// - PTX: `max.f32`, `min.f32`, by the type as [`Val::max`] and [`Val::min`]
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.clamp(-1.0, 1.0), "min.f32", [0.5f32, -7.0, f32::INFINITY]), [0.5, -1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn clamp(self, low: impl IntoVal<T>, high: impl IntoVal<T>) -> Val<T> {
        self.max(low).min(high)
    }
}

impl<T: Fractional> Val<T> {
    #[track_caller]
    fn unary(self, unary: Unary) -> Val<T> {
        Val::from_id(emit1(Op::Unary(unary), T::TYPE, &[self.id()], Location::caller()))
    }

    /// The largest integral value that is not greater.
    ///
    /// - PTX: `cvt.rmi.f32.f32`, by the type `cvt.rmi.f16.f16`, `cvt.rmi.f64.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.floor(), "cvt.rmi.f32.f32", [1.5f32, -0.5]), [1.0, -1.0]);
    /// ```
    #[track_caller]
    pub fn floor(self) -> Val<T> {
        self.unary(Unary::Floor)
    }

    /// The smallest integral value that is not less.
    ///
    /// - PTX: `cvt.rpi.f32.f32`, by the type `cvt.rpi.f16.f16`, `cvt.rpi.f64.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.ceil(), "cvt.rpi.f32.f32", [1.5f32, -0.5]), [2.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn ceil(self) -> Val<T> {
        self.unary(Unary::Ceil)
    }

    /// The integral value next towards zero.
    ///
    /// - PTX: `cvt.rzi.f32.f32`, by the type `cvt.rzi.f16.f16`, `cvt.rzi.f64.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.trunc(), "cvt.rzi.f32.f32", [1.5f32, -1.5]), [1.0, -1.0]);
    /// ```
    #[track_caller]
    pub fn trunc(self) -> Val<T> {
        self.unary(Unary::Trunc)
    }

    /// The nearest integral value, ties to even: one instruction, unlike [`Val::round`].
    ///
    /// - PTX: `cvt.rni.f32.f32`, by the type `cvt.rni.f16.f16`, `cvt.rni.f64.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.round_ties_even(), "cvt.rni.f32.f32", [1.5f32, 2.5]), [2.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn round_ties_even(self) -> Val<T> {
        self.unary(Unary::RoundEven)
    }

    /// Whether the value is NaN.
    ///
    /// - PTX: `setp.neu.f32`, by the type `setp.neu.f16`, `setp.neu.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let zeroed = |x: Val<f32>| select(x.is_nan(), 0.0, x);
    /// assert_eq!(map(zeroed, "setp.neu.f32", [1.5f32, f32::NAN]), [1.5, 0.0]);
    /// ```
    #[track_caller]
    pub fn is_nan(self) -> Val<bool> {
        Val::from_id(emit1(Op::Compare(Compare::Ne), T::TYPE, &[self.id(), self.id()], Location::caller()))
    }

    /// Whether the value is neither infinite nor NaN.
    ///
    /// - PTX: `abs.f32`, `setp.lt.f32`, by the type `setp.lt.f16`, `setp.lt.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let zeroed = |x: Val<f32>| select(x.is_finite(), x, 0.0);
    /// assert_eq!(map(zeroed, "setp.lt.f32", [1.5f32, f32::NAN, f32::INFINITY]), [1.5, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn is_finite(self) -> Val<bool> {
        self.magnitude_to_infinity(Compare::Lt)
    }

    /// Whether the value is positive or negative infinity.
    ///
    /// - PTX: `abs.f32`, `setp.eq.f32`, by the type `setp.eq.f16`, `setp.eq.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let zeroed = |x: Val<f32>| select(x.is_infinite(), 0.0, x);
    /// assert_eq!(map(zeroed, "setp.eq.f32", [1.5f32, -f32::INFINITY]), [1.5, 0.0]);
    /// ```
    #[track_caller]
    pub fn is_infinite(self) -> Val<bool> {
        self.magnitude_to_infinity(Compare::Eq)
    }

    #[track_caller]
    fn magnitude_to_infinity(self, compare: Compare) -> Val<bool> {
        let site = Location::caller();
        let infinity = emit1(Op::Const(T::INFINITY.bits()), T::TYPE, &[], site);
        Val::from_id(emit1(Op::Compare(compare), T::TYPE, &[self.abs().id(), infinity], site))
    }
}

impl<T: WideFloat> Val<T> {
    /// The magnitude of the value with the sign of `sign`.
    ///
    /// - PTX: `copysign.f32`, `copysign.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.copysign(-1.0), "copysign.f32", [1.5f32, -2.0]), [-1.5, -2.0]);
    /// ```
    #[track_caller]
    pub fn copysign(self, sign: impl IntoVal<T>) -> Val<T> {
        let args = [self.id(), sign.into_val().id()];
        Val::from_id(emit1(Op::Binary(Binary::CopySign), T::TYPE, &args, Location::caller()))
    }

    /// The nearest integral value, ties away from zero.
    ///
    /// - PTX: `copysign.f32`, `add.rn.f32`, `cvt.rzi.f32.f32`, by the type `cvt.rzi.f64.f64` and so on
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.round(), "cvt.rzi.f32.f32", [1.5f32, 2.5, -0.4]), [2.0, 3.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn round(self) -> Val<T> {
        // With ½ itself, the largest number below ½ would be rounded to 1.
        (self + val(T::BELOW_HALF).copysign(self)).trunc()
    }
}

macro_rules! unary {
    ($ty:ty; $($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Val<$ty> {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Val<$ty> {
                Val::from_id(emit1(Op::Unary(Unary::$op), <$ty>::TYPE, &[self.id()], Location::caller()))
            })*
        }
    };
}
unary! {
    f32;
    /// 1/x, correctly rounded.
    ///
    /// - PTX: `rcp.rn.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rcp(), "rcp.rn.f32", [4.0f32, 3.0]), [0.25, 1.0 / 3.0]);
    /// ```
    rcp => Rcp;
    /// 1/x within 1 ulp.
    ///
    /// - PTX: `rcp.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rcp_approx(), "rcp.approx.f32", [4.0f32]), [0.25]);
    /// ```
    rcp_approx => RcpApprox;
    /// √x, correctly rounded.
    ///
    /// - PTX: `sqrt.rn.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.sqrt(), "sqrt.rn.f32", [9.0f32, 2.0]), [3.0, 2f32.sqrt()]);
    /// ```
    sqrt => Sqrt;
    /// √x, approximate: relative error about 2^-23.
    ///
    /// - PTX: `sqrt.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.sqrt_approx(), "sqrt.approx.f32", [9.0f32]), [3.0]);
    /// ```
    sqrt_approx => SqrtApprox;
    /// 1/√x, approximate: relative error about 2^-22.9.
    ///
    /// - PTX: `rsqrt.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rsqrt_approx(), "rsqrt.approx.f32", [4.0f32]), [0.5]);
    /// ```
    rsqrt_approx => Rsqrt;
    /// 2^x, approximate: about 2 ulp.
    ///
    /// - PTX: `ex2.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp2_approx(), "ex2.approx.f32", [3.0f32, -1.0]), [8.0, 0.5]);
    /// ```
    exp2_approx => Exp2;
    /// log₂ x, approximate: 2^-22 relative outside (0.5, 2), absolute inside.
    ///
    /// - PTX: `lg2.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.log2_approx(), "lg2.approx.f32", [8.0f32, 0.5]), [3.0, -1.0]);
    /// ```
    log2_approx => Log2;
    /// sin x, approximate: absolute error 2^-20.5 in [−π, π].
    ///
    /// - PTX: `sin.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [zero, one] = map(|x| x.sin_approx(), "sin.approx.f32", [0.0, std::f32::consts::FRAC_PI_2]);
    /// assert!(zero == 0.0 && (one - 1.0).abs() < 1e-6);
    /// ```
    sin_approx => Sin;
    /// cos x, approximate: absolute error 2^-20.5 in [−π, π].
    ///
    /// - PTX: `cos.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [one, zero] = map(|x| x.cos_approx(), "cos.approx.f32", [0.0, std::f32::consts::FRAC_PI_2]);
    /// assert!(one == 1.0 && zero.abs() < 1e-6);
    /// ```
    cos_approx => Cos;
    /// tanh x, approximate: relative error 2^-11.
    ///
    /// - PTX: `tanh.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.tanh_approx(), "tanh.approx.f32", [0.0f32, 100.0, -100.0]), [0.0, 1.0, -1.0]);
    /// ```
    tanh_approx => Tanh;
}

unary! {
    f64;
    /// 1/x, correctly rounded.
    ///
    /// - PTX: `rcp.rn.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.rcp(), "rcp.rn.f64", [4.0f64, 3.0]), [0.25, 1.0 / 3.0]);
    /// ```
    rcp => Rcp;
    /// √x, correctly rounded.
    ///
    /// - PTX: `sqrt.rn.f64`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.sqrt(), "sqrt.rn.f64", [9.0f64, 2.0]), [3.0, 2f64.sqrt()]);
    /// ```
    sqrt => Sqrt;
}
unary! {
    f16;
    /// 2^x, approximate: about 2^-9.9 relative.
    ///
    /// - PTX: `ex2.approx.f16`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [four] = map(|x| x.exp2_approx(), "ex2.approx.f16", [f16::from_f32(2.0)]);
    /// assert_eq!(four.to_f32(), 4.0);
    /// ```
    exp2_approx => Exp2;
    /// tanh x, approximate: about 2^-11 absolute.
    ///
    /// - PTX: `tanh.approx.f16`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.tanh_approx(), "tanh.approx.f16", [f16::ZERO]), [f16::ZERO]);
    /// ```
    tanh_approx => Tanh;
}
unary! {
    F16x2;
    /// 2^x of both halves, approximate: about 2^-9.9 relative.
    ///
    /// - PTX: `ex2.approx.f16x2`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.exp2_approx(), "ex2.approx.f16x2", [F16x2(f16::ZERO, f16::ZERO)]), [F16x2(f16::ONE, f16::ONE)]);
    /// ```
    exp2_approx => Exp2;
    /// tanh x of both halves, approximate: about 2^-11 absolute.
    ///
    /// - PTX: `tanh.approx.f16x2`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let zeros = [F16x2(f16::ZERO, f16::ZERO)];
    /// assert_eq!(map(|x| x.tanh_approx(), "tanh.approx.f16x2", zeros), zeros);
    /// ```
    tanh_approx => Tanh;
}

impl Val<f32> {
    /// x / y, approximate: 2 ulp for |y| in [2^-126, 2^126].
    ///
    /// - PTX: `div.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// assert_eq!(map(|x| x.div_approx(4.0), "div.approx.f32", [1.0f32]), [0.25]);
    /// ```
    #[track_caller]
    pub fn div_approx(self, divisor: impl IntoVal<f32>) -> Val<f32> {
        let divisor = divisor.into_val();
        let op = Op::Binary(Binary::DivApprox);
        Val::from_id(emit1(op, Type::F32, &[self.id(), divisor.id()], Location::caller()))
    }

    /// eˣ as 2^(x·log₂e), approximate: the relative error grows with |x|, to about 2^-17 at 80.
    ///
    /// - PTX: `mul.rn.f32`, `ex2.approx.f32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// let [one, e] = map(|x| x.exp_approx(), "ex2.approx.f32", [0.0f32, 1.0]);
    /// assert!(one == 1.0 && (e - std::f32::consts::E).abs() < 1e-6);
    /// ```
    #[track_caller]
    pub fn exp_approx(self) -> Val<f32> {
        (self * std::f32::consts::LOG2_E).exp2_approx()
    }
}

/// a·b + c with one rounding.
///
/// - PTX: `fma.rn.f32`, by the type `fma.rn.f16`, `fma.rn.bf16x2`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| fma(x, 2.0, 1.0), "fma.rn.f32", [3.0f32]), [7.0]);
/// ```
#[track_caller]
pub fn fma<T: Float>(a: impl IntoVal<T>, b: impl IntoVal<T>, c: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id(), b.into_val().id(), c.into_val().id()];
    Val::from_id(emit1(Op::MulAdd, T::TYPE, &args, Location::caller()))
}

/// a·b + c of any number: integers wrap, floats are rounded once, as by [`fma`].
///
/// - PTX: `mad.lo.u32`, by the type `mad.lo.s64`, `fma.rn.f32`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| mul_add(x, x, x), "mad.lo.u32", [5u32]), [30]);
/// assert_eq!(map(|x| mul_add(x, x, x), "fma.rn.f64", [5.0f64]), [30.0]);
/// ```
#[track_caller]
pub fn mul_add<T: Number>(a: impl IntoVal<T>, b: impl IntoVal<T>, c: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id(), b.into_val().id(), c.into_val().id()];
    Val::from_id(emit1(Op::MulAdd, T::TYPE, &args, Location::caller()))
}

/// The 64-bit product of two 32-bit integers.
///
/// - PTX: `mul.wide.u32`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| mul_wide(x, x), "mul.wide.u32", [1u32 << 20]), [1u64 << 40]);
/// ```
#[track_caller]
pub fn mul_wide(a: impl IntoVal<u32>, b: impl IntoVal<u32>) -> Val<u64> {
    Val::from_id(emit1(Op::MulWide, Type::U32, &[a.into_val().id(), b.into_val().id()], Location::caller()))
}

/// The high half of the product of integers of at least 16 bits.
///
/// - PTX: `mul.hi.u32`, by the type `mul.hi.s32`, `mul.hi.u64`, …
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// assert_eq!(map(|x| mul_high(x, x), "mul.hi.u32", [1u32 << 20]), [1 << 8]);
/// ```
#[track_caller]
pub fn mul_high<T: Int>(a: impl IntoVal<T>, b: impl IntoVal<T>) -> Val<T> {
    let args = [a.into_val().id(), b.into_val().id()];
    Val::from_id(emit1(Op::Binary(Binary::MulHi), T::TYPE, &args, Location::caller()))
}

/// `yes` if the condition is true, else `no`. Both values are evaluated.
///
/// - PTX: `selp.b32`, by the type `selp.f32`, `selp.b16`, `selp.b64`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[device]
/// fn capped(x: Val<u32>) -> Val<u32> {
///     select(x > 3, 7, x)
/// }
/// assert_eq!(map(capped, "selp.b32", [2u32, 5]), [2, 7]);
/// ```
#[track_caller]
pub fn select<T: Scalar>(condition: Val<bool>, yes: impl IntoVal<T>, no: impl IntoVal<T>) -> Val<T> {
    let args = [condition.id(), yes.into_val().id(), no.into_val().id()];
    Val::from_id(emit1(Op::Select, T::TYPE, &args, Location::caller()))
}
