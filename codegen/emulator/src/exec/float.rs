//! `add`, `sub`, `mul`, `fma`, `mad`, `div`, `neg`, `abs`, `min`, `max` of `.f32` and `.f64`.
//!
//! Single precision returns the canonical NaN; double precision keeps payloads as the CPU does.
//! Round-to-nearest forms are plain CPU arithmetic, directed ones go through [`super::rounding`].

use super::Exec;
use super::lanes::{op1, op2, op3, ops};
use super::rounding::{self, Rounding, canonical, flush, saturate};
use crate::decode::Op;
use crate::module::ParseError;
use crate::types::Ty;

/// `.ftz` and `.sat`, known when the lane loop is compiled.
pub(crate) trait Mode: 'static {
    const FTZ: bool;
    const SAT: bool;

    #[inline(always)]
    fn input(x: f32) -> f32 {
        if Self::FTZ { flush(x) } else { x }
    }

    #[inline(always)]
    fn output(x: f32) -> f32 {
        let x = if Self::FTZ { flush(x) } else { x };
        if Self::SAT { saturate(x) } else { canonical(x) }
    }
}

macro_rules! modes {
    ($($name:ident: $ftz:literal $sat:literal)*) => { $(
        pub(crate) struct $name;
        impl Mode for $name {
            const FTZ: bool = $ftz;
            const SAT: bool = $sat;
        }
    )* };
}
modes! { Plain: false false Ftz: true false Sat: false true FtzSat: true true }

/// `$driver::<$op<Mode>>()` for the mode of two flags.
macro_rules! by_mode {
    ($driver:ident, $op:ident, $ftz:expr, $sat:expr) => {
        match ($ftz, $sat) {
            (false, false) => $driver::<$op<Plain>>(),
            (true, false) => $driver::<$op<Ftz>>(),
            (false, true) => $driver::<$op<Sat>>(),
            (true, true) => $driver::<$op<FtzSat>>(),
        }
    };
}

ops! {
    Add[M: Mode][M](a: f32, b: f32) -> f32 { M::output(M::input(a) + M::input(b)) }
    Sub[M: Mode][M](a: f32, b: f32) -> f32 { M::output(M::input(a) - M::input(b)) }
    Mul[M: Mode][M](a: f32, b: f32) -> f32 { M::output(M::input(a) * M::input(b)) }
    Div[M: Mode][M](a: f32, b: f32) -> f32 { M::output(M::input(a) / M::input(b)) }
    Fma[M: Mode][M](a: f32, b: f32, c: f32) -> f32 {
        M::output(M::input(a).mul_add(M::input(b), M::input(c)))
    }
    Neg[M: Mode][M](a: f32) -> f32 { -M::input(a) }
    Abs[M: Mode][M](a: f32) -> f32 { M::input(a).abs() }
    Min[M: Mode][M](a: f32, b: f32; imm) -> f32 { extremum::<M>(a, b, imm, true) }
    Max[M: Mode][M](a: f32, b: f32; imm) -> f32 { extremum::<M>(a, b, imm, false) }
    AddDirected(a: f32, b: f32; imm) -> f32 { directed_sum(imm, a, 1.0, b) }
    SubDirected(a: f32, b: f32; imm) -> f32 { directed_sum(imm, a, 1.0, -b) }
    MulDirected(a: f32, b: f32; imm) -> f32 {
        directed(imm, |flush| flush(a) as f64 * flush(b) as f64)
    }
    DivDirected(a: f32, b: f32; imm) -> f32 {
        directed(imm, |flush| rounding::div_odd(flush(a) as f64, flush(b) as f64))
    }
    FmaDirected(a: f32, b: f32, c: f32; imm) -> f32 { directed_sum(imm, a, b, c) }

    AddDouble(a: f64, b: f64; imm) -> f64 { double_sum(a, b, imm) }
    SubDouble(a: f64, b: f64; imm) -> f64 { double_sum(a, -b, imm) }
    MulDouble(a: f64, b: f64; imm) -> f64 {
        let product = a * b;
        match Rounding::from_bits(imm) {
            Rounding::Nearest => product,
            mode => double_result(product, a.mul_add(b, -product), a.is_finite() && b.is_finite(), mode),
        }
    }
    DivDouble(a: f64, b: f64; imm) -> f64 {
        let quotient = a / b;
        match Rounding::from_bits(imm) {
            Rounding::Nearest => quotient,
            mode => {
                let remainder = (-quotient).mul_add(b, a);
                let error = if b < 0.0 { -remainder } else { remainder };
                double_result(quotient, error, a.is_finite() && b.is_finite() && b != 0.0, mode)
            }
        }
    }
    FmaDouble(a: f64, b: f64, c: f64) -> f64 { a.mul_add(b, c) }
    NegDouble(a: f64) -> f64 { -a }
    AbsDouble(a: f64) -> f64 { a.abs() }
    MinDouble(a: f64, b: f64) -> f64 { extremum_double(a, b, true) }
    MaxDouble(a: f64, b: f64) -> f64 { extremum_double(a, b, false) }
}

/// Bits of `imm`: rounding mode below, then these.
pub(crate) const IMM_FTZ: u64 = 4;
pub(crate) const IMM_SAT: u64 = 8;
/// `min.NaN`: a NaN operand gives NaN.
pub(crate) const IMM_NAN: u64 = 1;
/// `min.xorsign.abs`: of the magnitudes, with the product's sign.
pub(crate) const IMM_XORSIGN: u64 = 2;

#[inline(always)]
fn extremum<M: Mode>(a: f32, b: f32, imm: u64, smaller: bool) -> f32 {
    let (mut a, mut b) = (M::input(a), M::input(b));
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    if imm & IMM_XORSIGN != 0 {
        (a, b) = (a.abs(), b.abs());
    }
    let less = a < b || a == b && a.is_sign_negative();
    let chosen = if less == smaller { a } else { b };
    let or_b = if a.is_nan() { b } else { chosen };
    let or_a = if b.is_nan() { a } else { or_b };
    let result = if imm & IMM_NAN != 0 && (a.is_nan() || b.is_nan()) { rounding::NAN32 } else { or_a };
    if imm & IMM_XORSIGN != 0 && !result.is_nan() {
        return f32::from_bits(result.to_bits() | sign);
    }
    canonical(result)
}

#[inline(always)]
fn extremum_double(a: f64, b: f64, smaller: bool) -> f64 {
    let less = a < b || a == b && a.is_sign_negative();
    let chosen = if less == smaller { a } else { b };
    if b.is_nan() {
        a
    } else if a.is_nan() {
        b
    } else {
        chosen
    }
}

/// Applies the mode in `imm` to an exact or odd-rounded result.
pub(crate) fn directed(imm: u64, exact: impl Fn(fn(f32) -> f32) -> f64) -> f32 {
    let ftz = imm & IMM_FTZ != 0;
    let result = exact(if ftz { flush } else { |x| x });
    let result = canonical(rounding::narrow(result, Rounding::from_bits(imm)));
    let result = if ftz { flush(result) } else { result };
    if imm & IMM_SAT != 0 { saturate(result) } else { result }
}

/// `a · b + c`.
fn directed_sum(imm: u64, a: f32, b: f32, c: f32) -> f32 {
    directed(imm, |flush| {
        let (product, c) = (flush(a) as f64 * flush(b) as f64, flush(c) as f64);
        rounding::zero_sum(rounding::add_odd(product, c), product, c, Rounding::from_bits(imm))
    })
}

#[inline(always)]
fn double_sum(a: f64, b: f64, imm: u64) -> f64 {
    match Rounding::from_bits(imm) {
        Rounding::Nearest => a + b,
        mode => {
            let sum = rounding::zero_sum(a + b, a, b, mode);
            double_result(sum, rounding::sum_error(a, b), a.is_finite() && b.is_finite(), mode)
        }
    }
}

fn double_result(nearest: f64, error: f64, finite: bool, mode: Rounding) -> f64 {
    if nearest.is_infinite() {
        return rounding::overflow(nearest, finite, mode);
    }
    rounding::direct(nearest, error, mode)
}

pub(crate) fn decode(op: &mut Op<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.take_ty()?;
    let rounding = op.take_any(&Rounding::FLOAT);
    let mode = rounding.unwrap_or(Rounding::Nearest);
    let name = op.opcode();
    if matches!(name, "neg" | "abs") {
        op.unary(ty, ty)?;
    } else if matches!(name, "fma" | "mad") {
        op.ternary(ty, ty, ty)?;
    } else {
        op.binary(ty, ty, ty)?;
    }
    if ty == Ty::F64 {
        op.imm = mode as u64;
        return match name {
            "add" => Ok(op2::<AddDouble>()),
            "sub" => Ok(op2::<SubDouble>()),
            "mul" => Ok(op2::<MulDouble>()),
            "div" => Ok(op2::<DivDouble>()),
            "fma" | "mad" if mode == Rounding::Nearest => Ok(op3::<FmaDouble>()),
            "neg" => Ok(op1::<NegDouble>()),
            "abs" => Ok(op1::<AbsDouble>()),
            "min" => Ok(op2::<MinDouble>()),
            "max" => Ok(op2::<MaxDouble>()),
            _ => Err(op.unsupported()),
        };
    }
    let ftz = op.take("ftz");
    if matches!(name, "min" | "max") {
        op.imm |= if op.take("NaN") { IMM_NAN } else { 0 };
        if op.take("xorsign") {
            if !op.take("abs") {
                return Err(op.unsupported());
            }
            op.imm |= IMM_XORSIGN;
        }
    }
    let sat = op.take("sat");
    if name == "div" && (op.take("approx") || op.take("full")) {
        return Ok(by_mode!(op2, Div, ftz, sat));
    }
    if mode != Rounding::Nearest {
        op.imm = mode as u64 | if ftz { IMM_FTZ } else { 0 } | if sat { IMM_SAT } else { 0 };
        return match name {
            "add" => Ok(op2::<AddDirected>()),
            "sub" => Ok(op2::<SubDirected>()),
            "mul" => Ok(op2::<MulDirected>()),
            "div" => Ok(op2::<DivDirected>()),
            "fma" | "mad" => Ok(op3::<FmaDirected>()),
            _ => Err(op.unsupported()),
        };
    }
    Ok(match name {
        "add" => by_mode!(op2, Add, ftz, sat),
        "sub" => by_mode!(op2, Sub, ftz, sat),
        "mul" => by_mode!(op2, Mul, ftz, sat),
        "div" => by_mode!(op2, Div, ftz, sat),
        "fma" | "mad" => by_mode!(op3, Fma, ftz, sat),
        "neg" => by_mode!(op1, Neg, ftz, false),
        "abs" => by_mode!(op1, Abs, ftz, false),
        "min" => by_mode!(op2, Min, ftz, false),
        "max" => by_mode!(op2, Max, ftz, false),
        _ => return Err(op.unsupported()),
    })
}
