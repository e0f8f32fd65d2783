//! Arithmetic of `.f16`, `.f16x2`, `.bf16` and `.bf16x2`.
//!
//! Results are computed in double precision. Sums and `fma` are rounded to odd there, so that the final rounding to 16
//! bits gives the correctly rounded result. `ex2` and `tanh` return the 16-bit number nearest to the double result.

use std::marker::PhantomData;

use super::lane_loop::{Op1, Op2, Op3, op1, op2, op3, ops};
use super::rounding::{self, Bf16, F16, Format, NAN16, add_odd};
use crate::code::cursor::InstructionCursor;
use crate::context::Exec;
use crate::load::error::ParseError;
use crate::load::types::Ty;

// Flags in `imm` of 16-bit float instructions.
const FTZ: u64 = 1;
const SAT: u64 = 2;
const RELU: u64 = 4;
const NAN: u64 = 8;
const XORSIGN: u64 = 16;

/// Flushes a 16-bit float with an exponent field of 0 to zero if `imm` has `.ftz`.
#[inline(always)]
fn input<F: Format>(bits: u16, imm: u64) -> u16 {
    let exponent = F::MAX_FINITE + 1;
    if imm & FTZ != 0 && bits & exponent == 0 { bits & 0x8000 } else { bits }
}

/// `result`, or the canonical NaN if `a` is a NaN.
#[inline(always)]
fn number<F: Format>(a: u16, result: u16) -> u16 {
    if a & 0x7fff > F::MAX_FINITE + 1 { NAN16 } else { result }
}

/// Applies `.ftz`, `.sat` and `.relu` from `imm` to a result.
#[inline(always)]
fn output<F: Format>(bits: u16, imm: u64) -> u16 {
    let bits = input::<F>(bits, imm);
    let x = F::to_f32(bits);
    if imm & SAT != 0 {
        return F::from_f32(rounding::saturate(x));
    }
    if imm & RELU != 0 && (x < 0.0 || bits == 0x8000) { 0 } else { bits }
}

#[inline(always)]
fn binary<F: Format>(a: u16, b: u16, imm: u64, f: impl Fn(f64, f64) -> f64) -> u16 {
    let (a, b) = (F::to_f32(input::<F>(a, imm)), F::to_f32(input::<F>(b, imm)));
    let result = f(a as f64, b as f64);
    let bits = F::from_f64(result);
    // `.ftz` also flushes a result that is below the smallest normal number and rounds up to it.
    let smallest = F::to_f32(1 << (F::PRECISION - 1));
    let tiny = imm & FTZ != 0 && F::to_f32(F::from_f64(4.0 * result)).abs() < 4.0 * smallest;
    output::<F>(if tiny { bits & 0x8000 } else { bits }, imm)
}

ops! {
    // A double can hold the exact product of two 16-bit floats; a sum is rounded to odd.
    Add[F: Format][F](a: u16, b: u16; imm) -> u16 { binary::<F>(a, b, imm, add_odd) }
    Sub[F: Format][F](a: u16, b: u16; imm) -> u16 { binary::<F>(a, b, imm, |a, b| add_odd(a, -b)) }
    Mul[F: Format][F](a: u16, b: u16; imm) -> u16 { binary::<F>(a, b, imm, |a, b| a * b) }
    Fma[F: Format][F](a: u16, b: u16, c: u16; imm) -> u16 {
        let c = F::to_f32(input::<F>(c, imm)) as f64;
        binary::<F>(a, b, imm, |a, b| add_odd(a * b, c))
    }
    Neg[F: Format][F](a: u16; imm) -> u16 { number::<F>(a, input::<F>(a, imm) ^ 0x8000) }
    Abs[F: Format][F](a: u16; imm) -> u16 { number::<F>(a, input::<F>(a, imm) & 0x7fff) }
    Min[F: Format][F](a: u16, b: u16; imm) -> u16 { extremum::<F>(a, b, imm, true) }
    Max[F: Format][F](a: u16, b: u16; imm) -> u16 { extremum::<F>(a, b, imm, false) }
    Ex2[F: Format][F](a: u16; imm) -> u16 {
        output::<F>(F::from_f64((F::to_f32(input::<F>(a, imm)) as f64).exp2()), imm)
    }
    Tanh[F: Format][F](a: u16) -> u16 { F::from_f64((F::to_f32(a) as f64).tanh()) }
}

// Without flags. A single holds the product of two halves exactly, and has more than twice as many bits as a half, so that rounding a
// sum twice gives the correctly rounded one (Figueroa, "When is double rounding innocuous?", 1995).
ops! {
    AddHalves(a: u16, b: u16) -> u16 { F16::from_f32(F16::to_f32(a) + F16::to_f32(b)) }
    SubHalves(a: u16, b: u16) -> u16 { F16::from_f32(F16::to_f32(a) - F16::to_f32(b)) }
    MulHalves(a: u16, b: u16) -> u16 { F16::from_f32(F16::to_f32(a) * F16::to_f32(b)) }
}

#[inline(always)]
fn extremum<F: Format>(a: u16, b: u16, imm: u64, smaller: bool) -> u16 {
    let (mut a, mut b) = (input::<F>(a, imm), input::<F>(b, imm));
    let sign = (a ^ b) & 0x8000;
    if imm & XORSIGN != 0 {
        (a, b) = (a & 0x7fff, b & 0x7fff);
    }
    let (x, y) = (F::to_f32(a), F::to_f32(b));
    if x.is_nan() && y.is_nan() || imm & NAN != 0 && (x.is_nan() || y.is_nan()) {
        return NAN16;
    }
    let less = x < y || x == y && x.is_sign_negative();
    let result = match (x.is_nan(), y.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if less == smaller => a,
        _ => b,
    };
    if imm & XORSIGN != 0 { result | sign } else { output::<F>(result, imm) }
}

/// Lane operation that applies the 16-bit operation `O` to both halves of a 32-bit register.
pub(crate) struct Packed<O>(PhantomData<O>);

impl<O: Op1<A = u16, D = u16>> Op1 for Packed<O> {
    type A = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, imm: u64) -> u32 {
        pack(O::apply(a as u16, imm), O::apply((a >> 16) as u16, imm))
    }
}

impl<O: Op2<A = u16, B = u16, D = u16>> Op2 for Packed<O> {
    type A = u32;
    type B = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, imm: u64) -> u32 {
        pack(O::apply(a as u16, b as u16, imm), O::apply((a >> 16) as u16, (b >> 16) as u16, imm))
    }
}

impl<O: Op3<A = u16, B = u16, C = u16, D = u16>> Op3 for Packed<O> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn apply(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        let low = O::apply(a as u16, b as u16, c as u16, imm);
        pack(low, O::apply((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16, imm))
    }
}

/// Packs two 16-bit values into a 32-bit register.
#[inline(always)]
pub(crate) fn pack(low: u16, high: u16) -> u32 {
    low as u32 | (high as u32) << 16
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.take_ty()?;
    macro_rules! by_format {
        ($driver:ident, $op:ident) => {
            Ok(match ty {
                Ty::F16 => $driver::<$op<F16>>(),
                Ty::Bf16 => $driver::<$op<Bf16>>(),
                Ty::F16x2 => $driver::<Packed<$op<F16>>>(),
                _ => $driver::<Packed<$op<Bf16>>>(),
            })
        };
    }
    let name = op.opcode();
    if matches!(name, "min" | "max") && op.take("xorsign") {
        if !op.take("abs") {
            return Err(op.unsupported());
        }
        op.imm |= XORSIGN;
    }
    for (modifier, bit) in [("ftz", FTZ), ("sat", SAT), ("relu", RELU), ("NaN", NAN)] {
        let allowed = match modifier {
            "NaN" => matches!(name, "min" | "max"),
            "relu" => name == "fma",
            "sat" => matches!(name, "add" | "sub" | "mul" | "fma"),
            _ => true,
        };
        if allowed && op.take(modifier) {
            op.imm |= bit;
        }
    }
    let rounds = matches!(name, "add" | "sub" | "mul" | "fma");
    if rounds && !op.take("rn") && name == "fma" {
        return Err(op.malformed(format!("`{}` needs `.rn`", op.text())));
    }
    let approximate = matches!(name, "ex2" | "tanh");
    if approximate && !op.take("approx") {
        return Err(op.malformed(format!("`{}` needs `.approx`", op.text())));
    }
    match name {
        "neg" | "abs" | "ex2" | "tanh" => op.unary(ty, ty)?,
        "fma" => op.ternary(ty, ty, ty)?,
        _ => op.binary(ty, ty, ty)?,
    }
    macro_rules! of_halves {
        ($op:ident) => {
            Ok(if ty == Ty::F16 { op2::<$op>() } else { op2::<Packed<$op>>() })
        };
    }
    let halves = op.imm == 0 && matches!(ty, Ty::F16 | Ty::F16x2);
    match name {
        "add" if halves => of_halves!(AddHalves),
        "sub" if halves => of_halves!(SubHalves),
        "mul" if halves => of_halves!(MulHalves),
        "add" => by_format!(op2, Add),
        "sub" => by_format!(op2, Sub),
        "mul" => by_format!(op2, Mul),
        "fma" => by_format!(op3, Fma),
        "neg" => by_format!(op1, Neg),
        "abs" => by_format!(op1, Abs),
        "min" => by_format!(op2, Min),
        "max" => by_format!(op2, Max),
        "ex2" => by_format!(op1, Ex2),
        "tanh" => by_format!(op1, Tanh),
        _ => Err(op.unsupported()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_in_single_precision_are_those_in_double_precision() {
        let operands: Vec<u16> = (0..=u16::MAX).step_by(7).collect();
        for (index, &a) in operands.iter().enumerate() {
            for step in [1, 2, 100, 1001, 4099] {
                let b = operands[index * step % operands.len()];
                let found = [AddHalves::apply(a, b, 0), SubHalves::apply(a, b, 0), MulHalves::apply(a, b, 0)];
                let expected =
                    [Add::<F16>::apply(a, b, 0), Sub::<F16>::apply(a, b, 0), Mul::<F16>::apply(a, b, 0)];
                assert_eq!(found, expected, "{a:#06x}, {b:#06x}");
            }
        }
    }
}
