//! Conversions between all pairs of number types.

use bespoke_codegen::prelude::*;

use crate::host::{Host, HostNumber, convert, same, saturate};
use crate::table::Table;

fn column<A: Host>() -> Vec<(A, u32, u32)> {
    A::edges().into_iter().map(|x| (x, 0, 0)).collect()
}

fn default_rounding<A: Scalar, R: Scalar>() -> Rounding {
    if A::TYPE.is_float() && R::TYPE.is_int() { Rounding::Zero } else { Rounding::Nearest }
}

/// Raw bits of a number in the low end of a u64.
fn raw<R: Scalar>(x: Val<R>) -> Val<u64> {
    match R::TYPE.bits() {
        8 => x.bitcast::<u8>().cast(),
        16 => x.bitcast::<u16>().cast(),
        32 => x.bitcast::<u32>().cast(),
        _ => x.bitcast(),
    }
}

/// Describes the error if the bits `found` are not the expected number.
fn judge<R: Host>(found: u64, expected: R) -> Option<String> {
    let fits = found & !R::TYPE.mask() == 0 && same(R::from_bits(found), expected);
    (!fits).then(|| format!("{expected:?} ({:#x})", expected.bits()))
}

/// The result of a conversion from `A`. A NaN of f64 becomes the integer of which only the top bit is set (PTX ISA,
/// `cvt`).
fn expected<A: HostNumber, R: HostNumber>(x: A, mode: Rounding) -> R {
    if A::TYPE == f64::TYPE && R::TYPE.is_int() && x.is_nan() {
        return R::from_bits(1 << (R::TYPE.bits() - 1));
    }
    convert(x.exact(), mode)
}

/// Table of conversions from the type `A`.
struct Casts<A>(Table<A, u32, u32, u64>);

impl<A: HostNumber> Casts<A> {
    fn new(oldest: Target) -> Casts<A> {
        Casts(Table::new(column()).needs(oldest))
    }

    fn rounded<R: HostNumber>(self, mode: Rounding) -> Casts<A> {
        // A float is not rounded to its own type or a wider one.
        let (from, to) = (A::TYPE, R::TYPE);
        if from.is_int() && to.is_int()
            || from == to
            || from.is_float() && to.is_float() && from.bits() < to.bits()
        {
            return self;
        }
        let name = format!("{} as {} by {mode}", A::TYPE, R::TYPE);
        let gpu = move |x: Val<A>, _, _| raw(x.cast_rounded::<R>(mode));
        Casts(self.0.judged(name, gpu, move |(x, ..), found| judge(found, expected::<A, R>(x, mode))))
    }

    fn default<R: HostNumber>(self) -> Casts<A> {
        let mode = default_rounding::<A, R>();
        let name = format!("{} as {}", A::TYPE, R::TYPE);
        let gpu = |x: Val<A>, _, _| raw(x.cast::<R>());
        Casts(self.0.judged(name, gpu, move |(x, ..), found| judge(found, expected::<A, R>(x, mode))))
    }

    fn saturating<R: HostNumber + Int>(self) -> Casts<A>
    where
        A: Int,
    {
        let name = format!("{} as {}, saturating", A::TYPE, R::TYPE);
        let gpu = |x: Val<A>, _, _| raw(x.saturating_cast::<R>());
        Casts(self.0.judged(name, gpu, |(x, ..), found| judge(found, saturate::<R>(x.exact()))))
    }
}

macro_rules! integers {
    ($($from:ident)*) => { $(
        #[test]
        fn $from() {
            let casts = Casts::<$from>::new(Target::Sm80);
            let wrapping = casts
                .default::<u8>().default::<u16>().default::<u32>().default::<u64>()
                .default::<i8>().default::<i16>().default::<i32>().default::<i64>();
            let saturating = wrapping
                .saturating::<u8>().saturating::<u16>().saturating::<u32>().saturating::<u64>()
                .saturating::<i8>().saturating::<i16>().saturating::<i32>().saturating::<i64>();
            let floats = saturating.default::<f64>().default::<f32>().default::<f16>();
            let floats = Rounding::ALL.iter().fold(floats, |casts, &mode| {
                casts.rounded::<f64>(mode).rounded::<f32>(mode).rounded::<f16>(mode)
            });
            floats.0.check();
            let casts = Casts::<$from>::new(Target::Sm90).default::<bf16>();
            Rounding::ALL.iter().fold(casts, |casts, &mode| casts.rounded::<bf16>(mode)).0.check();
        }
    )* };
}
integers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! floats {
    ($($from:ident)*) => { $(
        #[test]
        fn $from() {
            let casts = Casts::<$from>::new(Target::Sm80)
                .default::<u8>().default::<u16>().default::<u32>().default::<u64>()
                .default::<i8>().default::<i16>().default::<i32>().default::<i64>()
                .default::<f16>().default::<f32>().default::<f64>();
            let casts = if f64::TYPE == <$from>::TYPE { casts } else { casts.default::<bf16>() };
            Rounding::ALL.iter().fold(casts, |casts, &mode| {
                casts
                    .rounded::<u8>(mode).rounded::<u16>(mode).rounded::<u32>(mode).rounded::<u64>(mode)
                    .rounded::<i8>(mode).rounded::<i16>(mode).rounded::<i32>(mode).rounded::<i64>(mode)
                    .rounded::<f16>(mode).rounded::<f32>(mode).rounded::<f64>(mode)
            }).0.check();
        }
    )* };
}
floats!(f16 bf16 f32 f64);

#[test]
fn to_bf16() {
    let modes =
        |casts: Casts<f16>| Rounding::ALL.iter().fold(casts, |casts, &mode| casts.rounded::<bf16>(mode));
    modes(Casts::new(Target::Sm80)).0.check();
    let modes =
        |casts: Casts<f32>| Rounding::ALL.iter().fold(casts, |casts, &mode| casts.rounded::<bf16>(mode));
    modes(Casts::new(Target::Sm80)).0.check();
    let modes =
        |casts: Casts<f64>| Rounding::ALL.iter().fold(casts, |casts, &mode| casts.rounded::<bf16>(mode));
    modes(Casts::new(Target::Sm90)).0.check();
}

fn bitcast<A: Host, R: Host>() {
    let name = format!("bits of {} as {}", A::TYPE, R::TYPE);
    // A NaN has several encodings.
    let rows = column::<A>().into_iter().filter(|row| !row.0.is_nan()).collect();
    Table::<A, u32, u32, R>::new(rows).unary(name, |x| x.bitcast::<R>(), |x| R::from_bits(x.bits())).check();
}

#[test]
fn bitcasts() {
    bitcast::<u8, i8>();
    bitcast::<i8, u8>();
    bitcast::<u16, i16>();
    bitcast::<u16, f16>();
    bitcast::<f16, i16>();
    bitcast::<bf16, u16>();
    bitcast::<u16, bf16>();
    bitcast::<u32, i32>();
    bitcast::<f32, u32>();
    bitcast::<i32, f32>();
    bitcast::<u32, F16x2>();
    bitcast::<F16x2, f32>();
    bitcast::<u64, i64>();
    bitcast::<i64, u64>();
    bitcast::<f64, u64>();
    bitcast::<i64, f64>();
    bitcast::<f32, f32>();
}
