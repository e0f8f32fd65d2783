//! Type conversion: `cvt`.
//!
//! Common conversions have vectorised loops. All others are executed lane by lane in [`general`], which reads the
//! source as an integer or a double, rounds once, and writes the result.

use super::lane_loop::{lane_loop, op1, op2, ops};
use super::rounding::{self, Bf16, F16, Format, Rounding, canonical, flush, narrow};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::exec::convert_packed;
use crate::lanes::LANES;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

ops! {
    F16ToSingle(a: u16) -> f32 { canonical(F16::to_f32(a)) }
    Bf16ToSingle(a: u16) -> f32 { Bf16::to_f32(a) }
    SingleToHalf[F: Format][F](a: f32) -> u16 { F::from_f32(a) }
    // The first operand becomes the upper half of the register.
    SinglesToPair[F: Format][F](a: f32, b: f32; imm) -> u32 {
        let convert = |x: f32| {
            let mode = Rounding::from_bits(imm);
            let bits = if mode == Rounding::Nearest { F::from_f32(x) } else { F::rounded(x as f64, mode) };
            let bits = if imm & RELU != 0 && (x < 0.0 || bits == 0x8000) { 0 } else { bits };
            if imm & FINITE != 0 { finite::<F>(bits) } else { bits }
        };
        (convert(a) as u32) << 16 | convert(b) as u32
    }
    IntToSingle(a: i32) -> f32 { a as f32 }
    UnsignedToSingle(a: u32) -> f32 { a as f32 }
    SingleToIntNearest(a: f32) -> i32 { a.round_ties_even() as i32 }
    SingleToIntZero(a: f32) -> i32 { a as i32 }
    // Tf32 stores ten significand bits.
    SingleToTf32(a: f32; imm) -> u32 { tf32(a, imm) }
    U16ToU32(a: u16) -> u32 { a as u32 }
    S16ToS32(a: i16) -> i32 { a as i32 }
    U32ToU64(a: u32) -> u64 { a as u64 }
    S32ToS64(a: i32) -> i64 { a as i64 }
    U64ToU32(a: u64) -> u32 { a as u32 }
    U32ToU16(a: u32) -> u16 { a as u16 }
    U8ToU16(a: u16) -> u16 { a & 0xff }
    S8ToS16(a: u16) -> i16 { a as i8 as i16 }
    U8ToU32(a: u32) -> u32 { a & 0xff }
    S8ToS32(a: u32) -> i32 { a as i8 as i32 }
}

/// Rounds to tf32. `imm` holds either [`AWAY`] or a rounding mode, and the flags [`RELU`] and [`FINITE`].
fn tf32(a: f32, imm: u64) -> u32 {
    let bits = a.to_bits();
    if a.is_nan() {
        return if imm & AWAY != 0 { bits & !0x1fff } else { 0x7fff_e000 };
    }
    if imm & RELU != 0 && a.is_sign_negative() {
        return 0;
    }
    let rounded = match Rounding::from_bits(imm) {
        _ if a.is_infinite() => bits,
        _ if imm & AWAY != 0 => bits + 0x1000,
        Rounding::Nearest => bits + 0xfff + (bits >> 13 & 1),
        _ => bits,
    };
    let rounded = rounded & !0x1fff;
    let infinite = rounded & 0x7fff_ffff == 0x7f80_0000;
    if infinite && imm & FINITE != 0 { bits & 0x8000_0000 | 0x7f7f_e000 } else { rounded }
}

/// Decodes `cvt.….tf32.f32`.
fn to_tf32(
    op: &mut InstructionCursor<'_, '_>,
    mode: Option<Rounding>,
    away: bool,
) -> Result<Exec, ParseError> {
    let known = matches!(mode, None | Some(Rounding::Nearest | Rounding::Zero));
    if away == mode.is_some() || !known || op.imm & (FTZ | SAT | INTEGER) != 0 {
        return Err(op.unsupported());
    }
    op.imm |= if away { AWAY } else { 0 };
    op.unary(Ty::B32, Ty::F32)?;
    Ok(op1::<SingleToTf32>())
}

// Flags in `imm` of a conversion; the lowest two bits are the rounding mode.
const RELU: u64 = 1 << 2;
const FTZ: u64 = 1 << 3;
const SAT: u64 = 1 << 4;
/// Flag: rounds to an integral value (`.rni`, …).
const INTEGER: u64 = 1 << 5;
/// Flag `.satfinite`: values that are too large become the largest finite number.
const FINITE: u64 = 1 << 6;
/// Flag `.rna`: rounds to nearest, ties away from zero.
const AWAY: u64 = 1 << 7;
// Bit offsets in `imm` of source and target type (indices into `TYPES`), and of the codes of their register widths.
const SOURCE: u32 = 8;
const TARGET: u32 = 16;
const SOURCE_WIDTH: u32 = 24;
const TARGET_WIDTH: u32 = 28;

/// Types that [`general`] converts; `imm` holds indices into this list.
const TYPES: [Ty; 12] = [
    Ty::U8,
    Ty::S8,
    Ty::U16,
    Ty::S16,
    Ty::U32,
    Ty::S32,
    Ty::U64,
    Ty::S64,
    Ty::F16,
    Ty::Bf16,
    Ty::F32,
    Ty::F64,
];

fn type_number(ty: Ty) -> Option<u64> {
    TYPES.iter().position(|&known| known == ty).map(|at| at as u64)
}

fn type_of(imm: u64, shift: u32) -> Ty {
    TYPES[(imm >> shift & 15) as usize]
}

/// Source value of a conversion, before it is rounded to the target type.
#[derive(Clone, Copy)]
enum Value {
    Int(i128),
    Float(f64),
}

fn read(bits: u64, ty: Ty, ftz: bool) -> Value {
    // `.ftz` makes the conversion an arithmetic operation, which returns the canonical NaN.
    let flushed = |x: f32| if ftz { canonical(flush(x)) } else { x } as f64;
    match ty {
        Ty::F16 => Value::Float(F16::to_f32(bits as u16) as f64),
        Ty::Bf16 => Value::Float(Bf16::to_f32(bits as u16) as f64),
        Ty::F32 => Value::Float(flushed(f32::from_bits(bits as u32))),
        Ty::F64 => Value::Float(f64::from_bits(bits)),
        _ => {
            let unused = 64 - ty.bits();
            Value::Int(match ty.is_signed() {
                true => ((bits << unused) as i64 >> unused) as i128,
                false => (bits << unused >> unused) as i128,
            })
        }
    }
}

/// Smallest and largest value of an integer type.
fn limits(ty: Ty) -> (i128, i128) {
    match (ty.is_signed(), ty.bits()) {
        (true, bits) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (false, bits) => (0, (1 << bits) - 1),
    }
}

/// An integer as a double, rounded to odd, so that a second rounding to a narrower type is correct.
fn int_to_odd(x: i128) -> f64 {
    let nearest = x as f64;
    let error = x - nearest as i128;
    if error == 0 {
        return nearest;
    }
    rounding::add_odd(nearest, error as f64)
}

fn write(value: Value, source: Ty, ty: Ty, imm: u64) -> u64 {
    let mode = Rounding::from_bits(imm);
    let float = match value {
        Value::Int(x) if ty.is_integer() => {
            let (low, high) = limits(ty);
            return if imm & SAT != 0 { x.clamp(low, high) as u64 } else { x as u64 };
        }
        Value::Float(x) if ty.is_integer() => {
            let (low, high) = limits(ty);
            if x.is_nan() {
                return if source == Ty::F64 || ty.bits() == 64 { 1 << (ty.bits() - 1) } else { 0 };
            }
            // A conversion from float to integer clamps to the range of the target type.
            return (mode.integer(x) as i128).clamp(low, high) as u64;
        }
        Value::Int(x) if ty == Ty::F64 && mode != Rounding::Nearest => {
            let nearest = x as f64;
            return rounding::direct(nearest, (x - nearest as i128) as f64, mode).to_bits();
        }
        Value::Int(x) if ty == Ty::F64 => x as f64,
        Value::Int(x) => int_to_odd(x),
        Value::Float(x) if imm & INTEGER != 0 => mode.integer(x),
        Value::Float(x) => x,
    };
    let float = match imm & SAT != 0 {
        true if float > 0.0 => float.min(1.0),
        true => 0.0,
        false => float,
    };
    let float = if imm & RELU != 0 && float <= 0.0 { 0.0 } else { float };
    if source == Ty::F64 && float.is_nan() && imm & (SAT | RELU) == 0 {
        match ty {
            Ty::F16 => return rounding::narrow_nan(float, 10),
            Ty::F32 => return rounding::narrow_nan(float, 23),
            _ => {}
        }
    }
    match ty {
        Ty::F16 if imm & FINITE != 0 => finite::<F16>(F16::rounded(float, mode)) as u64,
        Ty::Bf16 if imm & FINITE != 0 => finite::<Bf16>(Bf16::rounded(float, mode)) as u64,
        Ty::F16 => F16::rounded(float, mode) as u64,
        Ty::Bf16 => Bf16::rounded(float, mode) as u64,
        Ty::F32 => {
            let single = canonical(narrow(float, mode));
            if imm & FTZ != 0 { flush(single).to_bits() as u64 } else { single.to_bits() as u64 }
        }
        _ => rounding::quiet(float).to_bits(),
    }
}

/// `.satfinite` of 16-bit floats: infinity becomes the largest finite number.
fn finite<F: Format>(bits: u16) -> u16 {
    let infinity = F::MAX_FINITE + 1;
    if bits & 0x7fff == infinity { bits & 0x8000 | F::MAX_FINITE } else { bits }
}

/// Code of a register width in `imm`.
fn width_number(width: Width) -> u64 {
    match width {
        Width::Predicate | Width::W16 => 0,
        Width::W32 => 1,
        Width::W64 => 2,
    }
}

/// Executes any conversion, lane by lane.
fn general(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let (source, target) = (type_of(i.imm, SOURCE), type_of(i.imm, TARGET));
    let regs = &cx.warp.regs;
    let mut bits = [0u64; LANES];
    match i.imm >> SOURCE_WIDTH & 3 {
        0 => bits.iter_mut().zip(regs.lanes::<u16>(i.slots[A])).for_each(|(d, &a)| *d = a as u64),
        1 => bits.iter_mut().zip(regs.lanes::<u32>(i.slots[A])).for_each(|(d, &a)| *d = a as u64),
        _ => bits = *regs.lanes::<u64>(i.slots[A]),
    }
    for value in &mut bits {
        *value = write(read(*value, source, i.imm & FTZ != 0), source, target, i.imm);
        // An integer narrower than the target register is sign-extended or zero-extended.
        if target.is_integer() {
            let unused = 64 - target.bits();
            *value = match target.is_signed() {
                true => ((*value << unused) as i64 >> unused) as u64,
                false => *value << unused >> unused,
            };
        }
    }
    match i.imm >> TARGET_WIDTH & 3 {
        0 => cx.warp.regs.write(i.slots[D], &bits.map(|bits| bits as u16), cx.active),
        1 => cx.warp.regs.write(i.slots[D], &bits.map(|bits| bits as u32), cx.active),
        _ => cx.warp.regs.write(i.slots[D], &bits, cx.active),
    }
    Flow::Next
}

lane_loop! {
    /// Conversion between integers of any widths without saturation: extends the source, then truncates to the target
    /// type.
    fn resize[][](cx, i) {
        let (source, target) = (type_of(i.imm, SOURCE), type_of(i.imm, TARGET));
        let mut bits = [0u64; LANES];
        match i.imm >> SOURCE_WIDTH & 3 {
            0 => bits.iter_mut().zip(cx.warp.regs.lanes::<u16>(i.slots[A])).for_each(|(d, &a)| *d = a as u64),
            1 => bits.iter_mut().zip(cx.warp.regs.lanes::<u32>(i.slots[A])).for_each(|(d, &a)| *d = a as u64),
            _ => bits = *cx.warp.regs.lanes::<u64>(i.slots[A]),
        }
        for ty in [source, target] {
            let unused = 64 - ty.bits();
            for value in &mut bits {
                let up = *value << unused;
                *value = if ty.is_signed() { (up as i64 >> unused) as u64 } else { up >> unused };
            }
        }
        match i.imm >> TARGET_WIDTH & 3 {
            0 => cx.warp.regs.write(i.slots[D], &bits.map(|bits| bits as u16), cx.active),
            1 => cx.warp.regs.write(i.slots[D], &bits.map(|bits| bits as u32), cx.active),
            _ => cx.warp.regs.write(i.slots[D], &bits, cx.active),
        }
        Flow::Next
    }
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if op.take("pack") {
        return convert_packed::decode_pack(op);
    }
    let integer = op.take_any(&Rounding::INTEGER);
    let float = op.take_any(&Rounding::FLOAT);
    let away = op.take("rna");
    let mode = integer.or(float).unwrap_or(Rounding::Nearest);
    op.imm = mode as u64 | if integer.is_some() { INTEGER } else { 0 };
    for (modifier, bit) in [("relu", RELU), ("ftz", FTZ), ("sat", SAT)] {
        op.imm |= if op.take(modifier) { bit } else { 0 };
    }
    let finite = op.take("satfinite");
    let (target, source) = (op.take_ty()?, op.take_ty()?);
    if [target, source].iter().any(|ty| matches!(ty, Ty::E4m3x2 | Ty::E5m2x2)) {
        let relu = op.imm & RELU != 0;
        let modifiers = convert_packed::Modifiers { rounding: float, finite, relu };
        return match op.imm & !RELU {
            0 => convert_packed::decode(op, (target, source), &modifiers),
            _ => Err(op.unsupported()),
        };
    }
    op.imm |= if finite { FINITE } else { 0 };
    if target == Ty::Tf32 && source == Ty::F32 {
        return to_tf32(op, float, away);
    }
    if matches!(target, Ty::F16x2 | Ty::Bf16x2) && source == Ty::F32 && float.is_some() {
        op.binary(target, source, source)?;
        if op.imm & (FTZ | SAT) != 0 {
            return Err(op.unsupported());
        }
        return Ok(if target == Ty::F16x2 {
            op2::<SinglesToPair<F16>>()
        } else {
            op2::<SinglesToPair<Bf16>>()
        });
    }
    if away {
        return Err(op.unsupported());
    }
    check_rounding(op, target, source, integer.is_some(), float.is_some())?;
    let (target_width, source_width) = (register_width(op, 0, target)?, register_width(op, 1, source)?);
    let (Some(target_number), Some(source_number)) = (type_number(target), type_number(source)) else {
        return Err(op.unsupported());
    };
    op.slots[D] = op.dst(0, target_width)?;
    op.slots[A] = match op.operand(1)? {
        Operand::Reg(register) => op.read_register(*register),
        _ => op.src(1, source)?,
    };
    if finite && !matches!(target, Ty::F16 | Ty::Bf16) {
        return Err(op.unsupported());
    }
    let plain = op.imm & (RELU | FTZ | SAT | FINITE) == 0;
    op.imm |= source_number << SOURCE | target_number << TARGET;
    op.imm |= width_number(source_width) << SOURCE_WIDTH | width_number(target_width) << TARGET_WIDTH;
    if plain && let Some(exec) = common(target, source, mode, (target_width, source_width)) {
        return Ok(exec);
    }
    if target.is_integer() && source.is_integer() && op.imm & SAT == 0 {
        return Ok(resize());
    }
    Ok(general)
}

/// Vectorised loop of a common conversion; `None` for any other. `widths` are the register widths of target and source.
fn common(target: Ty, source: Ty, mode: Rounding, widths: (Width, Width)) -> Option<Exec> {
    use Width::{W16, W32, W64};
    Some(match (target, source, mode, widths) {
        (Ty::F32, Ty::F16, _, (W32, W16)) => op1::<F16ToSingle>(),
        (Ty::F32, Ty::Bf16, _, (W32, W16)) => op1::<Bf16ToSingle>(),
        (Ty::F16, Ty::F32, Rounding::Nearest, (W16, W32)) => op1::<SingleToHalf<F16>>(),
        (Ty::Bf16, Ty::F32, Rounding::Nearest, (W16, W32)) => op1::<SingleToHalf<Bf16>>(),
        (Ty::F32, Ty::S32, Rounding::Nearest, (W32, W32)) => op1::<IntToSingle>(),
        (Ty::F32, Ty::U32, Rounding::Nearest, (W32, W32)) => op1::<UnsignedToSingle>(),
        (Ty::S32, Ty::F32, Rounding::Nearest, (W32, W32)) => op1::<SingleToIntNearest>(),
        (Ty::S32, Ty::F32, Rounding::Zero, (W32, W32)) => op1::<SingleToIntZero>(),
        (Ty::U32 | Ty::S32, Ty::U16, _, (W32, W16)) => op1::<U16ToU32>(),
        (Ty::U32 | Ty::S32, Ty::S16, _, (W32, W16)) => op1::<S16ToS32>(),
        (Ty::U64 | Ty::S64, Ty::U32, _, (W64, W32)) => op1::<U32ToU64>(),
        (Ty::U64 | Ty::S64, Ty::S32, _, (W64, W32)) => op1::<S32ToS64>(),
        (Ty::U32 | Ty::S32, Ty::U64 | Ty::S64, _, (W32, W64)) => op1::<U64ToU32>(),
        (Ty::U16 | Ty::S16, Ty::U32 | Ty::S32, _, (W16, W32)) => op1::<U32ToU16>(),
        (Ty::U16 | Ty::S16, Ty::U8, _, (W16, W16)) => op1::<U8ToU16>(),
        (Ty::U16 | Ty::S16, Ty::S8, _, (W16, W16)) => op1::<S8ToS16>(),
        (Ty::U32 | Ty::S32, Ty::U8, _, (W32, W32)) => op1::<U8ToU32>(),
        (Ty::U32 | Ty::S32, Ty::S8, _, (W32, W32)) => op1::<S8ToS32>(),
        _ => return None,
    })
}

/// Checks the rounding mode: required if the conversion can be inexact, refused if the conversion is always exact.
fn check_rounding(
    op: &InstructionCursor<'_, '_>,
    target: Ty,
    source: Ty,
    integer: bool,
    float: bool,
) -> Result<(), ParseError> {
    let required = match (target.is_float(), source.is_float()) {
        (false, false) => (false, false),
        (false, true) => (true, false),
        (true, false) => (false, true),
        (true, true) if target.bytes() < source.bytes() => (false, true),
        (true, true) if target == source => (integer, false),
        // The ISA requires a mode, but ptxas does not, and Triton writes none.
        (true, true) if target.bytes() == source.bytes() => (false, float),
        (true, true) => (false, false),
    };
    if required == (integer, float) {
        return Ok(());
    }
    let wanted = match required {
        (true, _) => "needs an integer rounding modifier, such as `.rni`",
        (_, true) => "needs a rounding modifier, such as `.rn`",
        _ => "takes no rounding modifier",
    };
    Err(op.malformed(format!("`{}` {wanted}", op.text())))
}

/// Register width of operand `index`; an integer may be held in a wider register.
fn register_width(op: &mut InstructionCursor<'_, '_>, index: usize, ty: Ty) -> Result<Width, ParseError> {
    let Operand::Reg(register) = op.operand(index)? else { return Ok(ty.width()) };
    let width = op.register_ty(*register).width();
    if width == ty.width() || ty.is_integer() && width > ty.width() {
        return Ok(width);
    }
    Err(op.error(format!("operand {} of `{}` has the wrong width", index + 1, op.text())))
}
