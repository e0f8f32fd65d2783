//! Arithmetic of `.f32` and `.f64`: `add`, `sub`, `mul`, `fma`, `mad`, `div`, `neg`, `abs`, `min`, `max`.
//!
//! Single-precision instructions return the canonical NaN, double-precision instructions the quieted NaN of an operand.
//! Round-to-nearest instructions use CPU arithmetic; directed rounding is in [`super::rounding`] and [`super::double`].

use super::lane_loop::{op1, op2, op3, ops};
use super::rounding::{self, Rounding, canonical, flush, propagate, quiet, saturate};
use crate::code::cursor::InstructionCursor;
use crate::context::Exec;
use crate::exec::double;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Largest divisor for which `div.approx` computes a quotient: 2^126. Larger finite divisors give zero.
const MAX_DIVISOR: f32 = f32::from_bits(0x7e80_0000);

/// Scale factor that keeps a product near the smallest normal number out of the subnormal range.
const SCALE: f32 = (1u64 << 32) as f32;

/// Modifiers `.ftz` and `.sat` as compile-time constants of a lane loop.
pub(crate) trait Mode: 'static {
    const FTZ: bool;
    const SAT: bool;

    #[inline(always)]
    fn input(x: f32) -> f32 {
        if Self::FTZ { flush(x) } else { x }
    }

    /// Applies `.ftz` to a result that is below the smallest normal number before rounding but rounds up to that
    /// number. `scaled` is the result times [`SCALE`], rounded at full precision.
    #[inline(always)]
    fn tiny(x: f32, scaled: f32) -> f32 {
        if Self::FTZ && scaled.abs() < SCALE * f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
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

/// Instantiates `$driver::<$op<Mode>>()` for the [`Mode`] with the given `.ftz` and `.sat`.
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
    Mul[M: Mode][M](a: f32, b: f32) -> f32 {
        let (a, b) = (M::input(a), M::input(b));
        M::output(M::tiny(a * b, a * SCALE * b))
    }
    Div[M: Mode][M](a: f32, b: f32) -> f32 { M::output(M::input(a) / M::input(b)) }
    // Divisors above 2^126, whose reciprocals are subnormal, give zero (ISA, `div`).
    DivApprox[M: Mode][M](a: f32, b: f32) -> f32 {
        let (a, b) = (M::input(a), M::input(b));
        let beyond = b.abs() > MAX_DIVISOR && b.is_finite();
        M::output(if beyond { a * 0.0f32.copysign(b) } else { a / b })
    }
    Fma[M: Mode][M](a: f32, b: f32, c: f32) -> f32 {
        let (a, b, c) = (M::input(a), M::input(b), M::input(c));
        M::output(M::tiny(a.mul_add(b, c), (a * SCALE).mul_add(b, c * SCALE)))
    }
    Neg[M: Mode][M](a: f32) -> f32 { canonical(-M::input(a)) }
    Abs[M: Mode][M](a: f32) -> f32 { canonical(M::input(a).abs()) }
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

    AddDouble(a: f64, b: f64) -> f64 { propagate(a + b, [a, b]) }
    SubDouble(a: f64, b: f64) -> f64 { propagate(a - b, [a, b]) }
    MulDouble(a: f64, b: f64) -> f64 { propagate(a * b, [a, b]) }
    DivDouble(a: f64, b: f64) -> f64 { propagate(a / b, [b, a]) }
    FmaDouble(a: f64, b: f64, c: f64) -> f64 { propagate(a.mul_add(b, c), [a, c, b]) }
    AddDoubleDirected(a: f64, b: f64; imm) -> f64 {
        propagate(double::fma(a, 1.0, b, Rounding::from_bits(imm)), [a, b])
    }
    SubDoubleDirected(a: f64, b: f64; imm) -> f64 {
        propagate(double::fma(a, 1.0, -b, Rounding::from_bits(imm)), [a, b])
    }
    MulDoubleDirected(a: f64, b: f64; imm) -> f64 {
        propagate(double::mul(a, b, Rounding::from_bits(imm)), [a, b])
    }
    DivDoubleDirected(a: f64, b: f64; imm) -> f64 {
        propagate(double::div(a, b, Rounding::from_bits(imm)), [b, a])
    }
    FmaDoubleDirected(a: f64, b: f64, c: f64; imm) -> f64 {
        propagate(double::fma(a, b, c, Rounding::from_bits(imm)), [a, c, b])
    }
    // `neg` and `abs` do not change the sign of a NaN.
    NegDouble(a: f64) -> f64 { if a.is_nan() { quiet(a) } else { -a } }
    AbsDouble(a: f64) -> f64 { if a.is_nan() { quiet(a) } else { a.abs() } }
    MinDouble(a: f64, b: f64) -> f64 { extremum_double(a, b, true) }
    MaxDouble(a: f64, b: f64) -> f64 { extremum_double(a, b, false) }
}

// Flags in `imm` of instructions with directed rounding; the two low bits of `imm` are the rounding mode.
pub(crate) const IMM_FTZ: u64 = 4;
pub(crate) const IMM_SAT: u64 = 8;
/// Flag in `imm` of `min` and `max`, `.NaN`: a NaN operand gives NaN.
pub(crate) const IMM_NAN: u64 = 1;
/// Flag in `imm` of `min` and `max`, `.xorsign.abs`: extremum of the magnitudes, with the sign of the product.
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
    match (a.is_nan(), b.is_nan()) {
        (true, true) => quiet(b),
        (true, false) => b,
        (false, true) => a,
        _ => chosen,
    }
}

/// Evaluates `exact` and rounds its result with the mode and flags in `imm`. The result must be exact or rounded to
/// odd. The argument of `exact` is the function that flushes subnormal operands if `.ftz` is set.
pub(crate) fn directed(imm: u64, exact: impl Fn(fn(f32) -> f32) -> f64) -> f32 {
    let ftz = imm & IMM_FTZ != 0;
    let exact = exact(if ftz { flush } else { |x| x });
    let mode = Rounding::from_bits(imm);
    let result = canonical(rounding::narrow(exact, mode));
    let scaled = rounding::narrow(exact * SCALE as f64, mode);
    let tiny = scaled.abs() < SCALE * f32::MIN_POSITIVE;
    let result = if ftz && tiny { 0.0f32.copysign(exact as f32) } else { result };
    if imm & IMM_SAT != 0 { saturate(result) } else { result }
}

/// `a · b + c` with directed rounding; `imm` holds the mode and flags.
fn directed_sum(imm: u64, a: f32, b: f32, c: f32) -> f32 {
    directed(imm, |flush| {
        let (product, c) = (flush(a) as f64 * flush(b) as f64, flush(c) as f64);
        rounding::zero_sum(rounding::add_odd(product, c), product, c, Rounding::from_bits(imm))
    })
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.take_ty()?;
    let rounding = op.take_any(&Rounding::FLOAT);
    let mode = rounding.unwrap_or(Rounding::Nearest);
    let name = op.opcode();
    let missing = match name {
        "fma" | "mad" => Some("a rounding mode"),
        "div" if ty == Ty::F64 => Some("a rounding mode"),
        "div" if !op.has("approx") && !op.has("full") => Some("`.approx`, `.full` or a rounding mode"),
        _ => None,
    };
    if let (None, Some(missing)) = (rounding, missing) {
        return Err(op.malformed(format!("`{}` needs {missing}", op.text())));
    }
    if matches!(name, "neg" | "abs") {
        op.unary(ty, ty)?;
    } else if matches!(name, "fma" | "mad") {
        op.ternary(ty, ty, ty)?;
    } else {
        op.binary(ty, ty, ty)?;
    }
    if ty == Ty::F64 {
        op.imm = mode as u64;
        return match (name, mode) {
            ("add", Rounding::Nearest) => Ok(op2::<AddDouble>()),
            ("sub", Rounding::Nearest) => Ok(op2::<SubDouble>()),
            ("mul", Rounding::Nearest) => Ok(op2::<MulDouble>()),
            ("div", Rounding::Nearest) => Ok(op2::<DivDouble>()),
            ("fma" | "mad", Rounding::Nearest) => Ok(op3::<FmaDouble>()),
            ("add", _) => Ok(op2::<AddDoubleDirected>()),
            ("sub", _) => Ok(op2::<SubDoubleDirected>()),
            ("mul", _) => Ok(op2::<MulDoubleDirected>()),
            ("div", _) => Ok(op2::<DivDoubleDirected>()),
            ("fma" | "mad", _) => Ok(op3::<FmaDoubleDirected>()),
            ("neg", _) => Ok(op1::<NegDouble>()),
            ("abs", _) => Ok(op1::<AbsDouble>()),
            ("min", _) => Ok(op2::<MinDouble>()),
            ("max", _) => Ok(op2::<MaxDouble>()),
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
    if name == "div" && op.take("approx") {
        return Ok(by_mode!(op2, DivApprox, ftz, sat));
    }
    if name == "div" && op.take("full") {
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
