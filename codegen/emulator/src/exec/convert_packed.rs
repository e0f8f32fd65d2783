//! `cvt` to and from pairs of 8-bit floats, and `cvt.pack`.
//!
//! The 8-bit formats are those of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022). E5M2 has infinities, as
//! in IEEE formats; E4M3 has no infinities, and one NaN per sign.

use super::half::pack;
use super::lane_loop::{op1, op2, op3, ops};
use super::rounding::{F16, Format, Rounding};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::C;
use crate::context::Exec;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// 8-bit floating-point format.
pub(crate) trait Float8: 'static {
    /// Stored significand bits, without the hidden bit.
    const FRACTION: i32;
    /// Exponent of the smallest normal number.
    const MIN_EXPONENT: i32;
    /// Largest finite number: its bits and its value.
    const MAX: (u8, f64);
    fn is_nan(bits: u8) -> bool;
    fn is_infinite(bits: u8) -> bool;

    /// Rounds to nearest, ties to even. Values that are too large, including infinities, become the largest finite
    /// number.
    fn from_f64(x: f64) -> u8 {
        if x.is_nan() {
            return 0x7f;
        }
        let sign = (x.is_sign_negative() as u8) << 7;
        let magnitude = x.abs();
        if magnitude == 0.0 {
            return sign;
        }
        let exponent = (((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(Self::MIN_EXPONENT);
        let quantum = 2f64.powi(exponent - Self::FRACTION);
        let steps = (magnitude / quantum).round_ties_even();
        if steps * quantum > Self::MAX.1 {
            return sign | Self::MAX.0;
        }
        // A carry out of the significand increments the exponent.
        let biased = ((exponent - Self::MIN_EXPONENT) as u8) << Self::FRACTION;
        sign | (biased + steps as u8)
    }

    fn to_f16(bits: u8) -> u16 {
        let sign = ((bits & 0x80) as u16) << 8;
        if Self::is_nan(bits) {
            return 0x7fff;
        }
        if Self::is_infinite(bits) {
            return sign | 0x7c00;
        }
        let fraction = (bits & ((1 << Self::FRACTION) - 1)) as f64;
        let exponent = ((bits & 0x7f) >> Self::FRACTION) as i32;
        let hidden = if exponent > 0 { (1 << Self::FRACTION) as f64 } else { 0.0 };
        let scale = 2f64.powi(exponent.max(1) - 1 + Self::MIN_EXPONENT - Self::FRACTION);
        sign | F16::from_f64((hidden + fraction) * scale)
    }
}

/// E4M3: four exponent bits, three significand bits.
pub(crate) struct E4m3;
/// E5M2: five exponent bits, two significand bits.
pub(crate) struct E5m2;

impl Float8 for E4m3 {
    const FRACTION: i32 = 3;
    const MIN_EXPONENT: i32 = -6;
    const MAX: (u8, f64) = (0x7e, 448.0);
    fn is_nan(bits: u8) -> bool {
        bits & 0x7f == 0x7f
    }
    fn is_infinite(_: u8) -> bool {
        false
    }
}

impl Float8 for E5m2 {
    const FRACTION: i32 = 2;
    const MIN_EXPONENT: i32 = -14;
    const MAX: (u8, f64) = (0x7b, 57344.0);
    fn is_nan(bits: u8) -> bool {
        bits & 0x7f > 0x7c
    }
    fn is_infinite(bits: u8) -> bool {
        bits & 0x7f == 0x7c
    }
}

/// Flag in `imm` of a conversion: `.relu`.
const RELU: u64 = 1;

fn narrow<S: Float8>(x: f64, imm: u64) -> u8 {
    let negative = x.is_sign_negative() && !x.is_nan();
    if imm & RELU != 0 && negative { 0 } else { S::from_f64(x) }
}

ops! {
    // The first operand becomes the upper byte of the pair.
    PairFromSingles[S: Float8][S](a: f32, b: f32; imm) -> u16 {
        (narrow::<S>(a as f64, imm) as u16) << 8 | narrow::<S>(b as f64, imm) as u16
    }
    PairFromHalves[S: Float8][S](a: u32; imm) -> u16 {
        let half = |shift: u32| narrow::<S>(F16::to_f32((a >> shift) as u16) as f64, imm) as u16;
        half(16) << 8 | half(0)
    }
    PairToHalves[S: Float8][S](a: u16; imm) -> u32 {
        let half = |bits: u8| {
            let half = S::to_f16(bits);
            if imm & RELU != 0 && half & 0x8000 != 0 { 0 } else { half }
        };
        pack(half(a as u8), half((a >> 8) as u8))
    }
    // `imm` of `cvt.pack` holds the target type's number of bits, and the flag `SIGNED`.
    Pack2(a: i32, b: i32; imm) -> u32 { saturated(a, imm) << 16 | saturated(b, imm) }
    Pack3(a: i32, b: i32, c: u32; imm) -> u32 {
        let bits = (imm & 0xff) as u32;
        c << (2 * bits) | saturated(a, imm) << bits | saturated(b, imm)
    }
}

/// Flag in `imm` of `cvt.pack`: the target type is signed.
const SIGNED: u64 = 1 << 8;

/// Clamps `x` to the target type of `cvt.pack` that `imm` describes.
fn saturated(x: i32, imm: u64) -> u32 {
    let bits = (imm & 0xff) as u32;
    let (low, high) =
        if imm & SIGNED != 0 { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    x.clamp(low, high) as u32 & ((1 << bits) - 1)
}

/// Modifiers of a conversion, without the types.
pub(crate) struct Modifiers {
    pub(crate) rounding: Option<Rounding>,
    pub(crate) finite: bool,
    pub(crate) relu: bool,
}

/// Decodes a conversion to or from a pair of 8-bit floats.
pub(crate) fn decode(
    op: &mut InstructionCursor<'_, '_>,
    (target, source): (Ty, Ty),
    modifiers: &Modifiers,
) -> Result<Exec, ParseError> {
    let narrows = matches!(target, Ty::E4m3x2 | Ty::E5m2x2);
    if modifiers.rounding != Some(Rounding::Nearest) || modifiers.finite != narrows {
        return Err(op.unsupported());
    }
    op.imm = if modifiers.relu { RELU } else { 0 };
    match source {
        Ty::F32 => op.binary(target, source, source)?,
        _ => op.unary(target, source)?,
    }
    Ok(match (target, source) {
        (Ty::E4m3x2, Ty::F32) => op2::<PairFromSingles<E4m3>>(),
        (Ty::E5m2x2, Ty::F32) => op2::<PairFromSingles<E5m2>>(),
        (Ty::E4m3x2, Ty::F16x2) => op1::<PairFromHalves<E4m3>>(),
        (Ty::E5m2x2, Ty::F16x2) => op1::<PairFromHalves<E5m2>>(),
        (Ty::F16x2, Ty::E4m3x2) => op1::<PairToHalves<E4m3>>(),
        (Ty::F16x2, Ty::E5m2x2) => op1::<PairToHalves<E5m2>>(),
        _ => return Err(op.unsupported()),
    })
}

/// Decodes `cvt.pack.sat`.
pub(crate) fn decode_pack(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let types = [("u16", 16), ("s16", 16 | SIGNED), ("u8", 8), ("s8", 8 | SIGNED)];
    let small = [("u4", 4), ("s4", 4 | SIGNED), ("u2", 2), ("s2", 2 | SIGNED)];
    let saturates = op.take("sat");
    let ty = op.take_any(&types).or_else(|| op.take_any(&small));
    let (true, Some(ty), true) = (saturates, ty, op.take("s32")) else { return Err(op.unsupported()) };
    op.binary(Ty::B32, Ty::S32, Ty::S32)?;
    op.imm = ty;
    if op.take("b32") {
        op.slots[C] = op.src(3, Ty::B32)?;
        return if ty & 0xff < 16 { Ok(op3::<Pack3>()) } else { Err(op.unsupported()) };
    }
    if ty & 0xff == 16 { Ok(op2::<Pack2>()) } else { Err(op.unsupported()) }
}
