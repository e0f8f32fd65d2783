//! Elementary functions and sign tests: `rcp`, `sqrt`, `rsqrt`, `ex2`, `lg2`, `sin`, `cos`, `tanh`, `copysign`,
//! `testp`.
//!
//! Approximate instructions return the `f32` nearest to the double-precision result: at least as accurate as a device,
//! but not bit-identical to a device.

use super::float::{Ftz, IMM_FTZ, Mode, Plain, directed};
use super::lane_loop::{op1, op2, ops};
use super::rounding::{self, Rounding, propagate};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::exec::double;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Evaluates `f` in double precision; flushes the operand and the result if the mode has `.ftz`.
#[inline(always)]
fn via_double<M: Mode>(a: f32, f: impl Fn(f64) -> f64) -> f32 {
    M::output(f(M::input(a) as f64) as f32)
}

ops! {
    Rcp[M: Mode][M](a: f32) -> f32 { M::output(1.0 / M::input(a)) }
    Sqrt[M: Mode][M](a: f32) -> f32 { M::output(M::input(a).sqrt()) }
    Rsqrt[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, |x| 1.0 / x.sqrt()) }
    Ex2[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, f64::exp2) }
    Lg2[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, f64::log2) }
    Sin[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, f64::sin) }
    Cos[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, f64::cos) }
    Tanh[M: Mode][M](a: f32) -> f32 { via_double::<M>(a, f64::tanh) }
    RcpDirected(a: f32; imm) -> f32 { directed(imm, |flush| rounding::div_odd(1.0, flush(a) as f64)) }
    SqrtDirected(a: f32; imm) -> f32 { directed(imm, |flush| rounding::sqrt_odd(flush(a) as f64)) }
    RcpDoubleDirected(a: f64; imm) -> f64 {
        propagate(double::div(1.0, a, Rounding::from_bits(imm)), [a])
    }
    SqrtDoubleDirected(a: f64; imm) -> f64 {
        propagate(double::sqrt(a, Rounding::from_bits(imm)), [a])
    }
    RcpDouble(a: f64) -> f64 { propagate(1.0 / a, [a]) }
    SqrtDouble(a: f64) -> f64 { propagate(a.sqrt(), [a]) }
    RsqrtDouble(a: f64) -> f64 { propagate(1.0 / a.sqrt(), [a]) }
    RcpDoubleFast(a: f64) -> f64 { upper_half(a, |a| 1.0 / a) }
    RsqrtDoubleFast(a: f64) -> f64 { upper_half(a, |a| 1.0 / a.sqrt()) }
    // In PTX, the first operand gives the sign.
    Copysign(a: f32, b: f32) -> f32 { b.copysign(a) }
    CopysignDouble(a: f64, b: f64) -> f64 { b.copysign(a) }
}

/// `.approx.ftz.f64`: applies `f` to the upper 32 bits of the operand and returns only the upper 32 bits of the result.
fn upper_half(a: f64, f: impl Fn(f64) -> f64) -> f64 {
    let flush = |x: f64| if x.abs() < f64::MIN_POSITIVE { 0.0f64.copysign(x) } else { x };
    let upper = f64::from_bits(a.to_bits() >> 32 << 32);
    let result = flush(f(flush(upper)));
    if result.is_nan() {
        return f64::from_bits(0x7fff_ffff_0000_0000);
    }
    let bits = result.to_bits();
    // Rounds to nearest, ties to even.
    f64::from_bits((bits + 0x7fff_ffff + (bits >> 32 & 1)) >> 32 << 32)
}

/// Classes of `testp`, each with its number in `imm`.
const TESTS: [(&str, u64); 6] =
    [("finite", 0), ("infinite", 1), ("number", 2), ("notanumber", 3), ("normal", 4), ("subnormal", 5)];

fn testp(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let double = i.imm & 8 != 0;
    let mut mask = 0;
    for lane in 0..32 {
        // Each width is classified by itself, because conversion to the other width could change the class.
        let class = if double {
            cx.warp.regs.lanes::<f64>(i.slots[A])[lane].classify()
        } else {
            cx.warp.regs.lanes::<f32>(i.slots[A])[lane].classify()
        };
        use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal};
        let holds = match i.imm & 7 {
            0 => !matches!(class, Infinite | Nan),
            1 => class == Infinite,
            2 => class != Nan,
            3 => class == Nan,
            // `testp.normal` counts zeros as normal.
            4 => matches!(class, Normal | std::num::FpCategory::Zero),
            _ => class == Subnormal,
        };
        mask |= (holds as u32) << lane;
    }
    cx.set_mask(i.slots[D], mask);
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let name = op.opcode();
    let ty = op.take_ty()?;
    if !matches!(ty, Ty::F32 | Ty::F64) {
        return Err(op.unsupported());
    }
    let double = ty == Ty::F64;
    match name {
        "testp" => {
            let Some(test) = op.take_any(&TESTS) else { return Err(op.unsupported()) };
            op.slots[D] = op.dst(0, Width::Predicate)?;
            op.slots[A] = op.src(1, ty)?;
            op.imm = test | if double { 8 } else { 0 };
            return Ok(testp);
        }
        "copysign" => {
            op.binary(ty, ty, ty)?;
            return Ok(if double { op2::<CopysignDouble>() } else { op2::<Copysign>() });
        }
        _ => op.unary(ty, ty)?,
    }
    let approx = op.take("approx");
    let ftz = op.take("ftz");
    let mode = op.take_any(&Rounding::FLOAT);
    if approx == mode.is_some() {
        return Err(op.malformed(format!("`{}` needs either `.approx` or a rounding mode", op.text())));
    }
    if double {
        return match (name, mode) {
            ("rcp", Some(Rounding::Nearest)) => Ok(op1::<RcpDouble>()),
            ("sqrt", Some(Rounding::Nearest)) => Ok(op1::<SqrtDouble>()),
            ("rcp", Some(mode)) => {
                op.imm = mode as u64;
                Ok(op1::<RcpDoubleDirected>())
            }
            ("sqrt", Some(mode)) => {
                op.imm = mode as u64;
                Ok(op1::<SqrtDoubleDirected>())
            }
            ("rcp", None) if ftz => Ok(op1::<RcpDoubleFast>()),
            ("rsqrt", None) if ftz => Ok(op1::<RsqrtDoubleFast>()),
            ("rsqrt", None) => Ok(op1::<RsqrtDouble>()),
            _ => Err(op.unsupported()),
        };
    }
    if let Some(mode) = mode.filter(|&mode| mode != Rounding::Nearest) {
        op.imm = mode as u64 | if ftz { IMM_FTZ } else { 0 };
        return match name {
            "rcp" => Ok(op1::<RcpDirected>()),
            "sqrt" => Ok(op1::<SqrtDirected>()),
            _ => Err(op.unsupported()),
        };
    }
    macro_rules! by_ftz {
        ($op:ident) => {
            if ftz { op1::<$op<Ftz>>() } else { op1::<$op<Plain>>() }
        };
    }
    Ok(match name {
        "rcp" => by_ftz!(Rcp),
        "sqrt" => by_ftz!(Sqrt),
        "rsqrt" if approx => by_ftz!(Rsqrt),
        "ex2" if approx => by_ftz!(Ex2),
        "lg2" if approx => by_ftz!(Lg2),
        "sin" if approx => by_ftz!(Sin),
        "cos" if approx => by_ftz!(Cos),
        "tanh" if approx => by_ftz!(Tanh),
        _ => return Err(op.unsupported()),
    })
}
