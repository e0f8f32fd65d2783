//! Evaluation of instructions on constants, bit for bit as the GPU computes them.
//!
//! Not evaluated are cases that the PTX specification leaves open: approximate functions, NaN results (their payload),
//! division by zero, conversions out of the integer's range.

use smallvec::{SmallVec, smallvec};

use super::float;
use crate::ir::{Binary, Op, Rounding, Type, Unary};

/// Raw bits of each result.
pub(in crate::passes) type Bits = SmallVec<[u64; 2]>;

/// Results of `op` at type `ty`; `args` are the types and raw bits of the constant operands. None if not evaluated.
pub(in crate::passes) fn evaluate(op: Op, ty: Type, args: &[(Type, u64)]) -> Option<Bits> {
    let arg = |index: usize| args.get(index).map(|&(_, bits)| bits);
    let word = |index: usize| arg(index).map(|bits| bits as u32);
    let one = match op {
        Op::Unary(unary) if ty.is_float() => float::unary(unary, ty, arg(0)?)?,
        Op::Unary(unary) => int_unary(unary, ty, arg(0)?)?,
        Op::Binary(binary) if ty.is_float() => float::binary(binary, ty, arg(0)?, arg(1)?)?,
        Op::Binary(binary) => int_binary(binary, ty, arg(0)?, arg(1)?)?,
        Op::MulWide => number(ty, arg(0)?).wrapping_mul(number(ty, arg(1)?)) as u64,
        Op::MulAdd if ty.is_float() => float::mul_add(ty, arg(0)?, arg(1)?, arg(2)?)?,
        Op::MulAdd => arg(0)?.wrapping_mul(arg(1)?).wrapping_add(arg(2)?) & ty.mask(),
        Op::Compare(compare) => u64::from(if ty.is_float() {
            float::compare(compare, ty, arg(0)?, arg(1)?)
        } else {
            compare.holds(&number(ty, arg(0)?), &number(ty, arg(1)?))
        }),
        Op::Convert { rounding, saturate } => convert(*args.first()?, ty, rounding, saturate)?,
        // There are no constant pointers.
        Op::Bitcast if !ty.is_pointer() => arg(0)?,
        Op::Lop3(table) => lop3(table, word(0)?, word(1)?, word(2)?).into(),
        Op::Prmt => prmt(word(0)?, word(1)?, word(2)?).into(),
        // The specification takes position and length of a field modulo 256; devices do not for 64-bit fields.
        Op::BitField if ty.bits() == 64 && (arg(1)? > 255 || arg(2)? > 255) => return None,
        Op::BitField => bit_field(ty, arg(0)?, arg(1)?, arg(2)?),
        Op::Funnel { left } => {
            let (pair, amount) = (u64::from(word(1)?) << 32 | u64::from(word(0)?), word(2)? & 31);
            if left { pair << amount >> 32 } else { pair >> amount & 0xffff_ffff }
        }
        Op::Dp4a { a_signed, b_signed } => {
            let (a, b) = (word(0)?, word(1)?);
            let dot = (0..4).map(|i| byte(a, i, a_signed) * byte(b, i, b_signed)).sum::<i64>();
            arg(2)?.wrapping_add(dot as u64) & ty.mask()
        }
        Op::Dp2a { a_signed, b_signed, high } => {
            let (a, b, first) = (word(0)?, word(1)?, if high { 2 } else { 0 });
            let dot = (0..2).map(|i| half(a, i, a_signed) * byte(b, first + i, b_signed)).sum::<i64>();
            arg(2)?.wrapping_add(dot as u64) & ty.mask()
        }
        Op::ConvertPack => {
            let round = |bits| float::of_float(ty.half()?, Type::F32, bits, Rounding::Nearest);
            round(arg(1)?)? << 16 | round(arg(0)?)?
        }
        Op::Pack => arg(1)? << (ty.bits() / 2) | arg(0)?,
        Op::Unpack => return Some(smallvec![arg(0)? & ty.mask(), arg(0)? >> ty.bits()]),
        _ => return None,
    };
    Some(smallvec![one])
}

/// Integer value of the raw bits of type `ty`.
pub(super) fn number(ty: Type, bits: u64) -> i128 {
    if ty.is_signed() { ty.sign_extend(bits).into() } else { bits.into() }
}

fn int_unary(unary: Unary, ty: Type, a: u64) -> Option<u64> {
    let unused = 64 - ty.bits();
    Some(match unary {
        Unary::Neg => a.wrapping_neg() & ty.mask(),
        Unary::Not => !a & ty.mask(),
        Unary::Abs => ty.sign_extend(a).unsigned_abs() & ty.mask(),
        Unary::Popc => a.count_ones().into(),
        Unary::Clz => (a.leading_zeros() - unused).into(),
        Unary::Brev => a.reverse_bits() >> unused,
        _ => return None,
    })
}

fn int_binary(binary: Binary, ty: Type, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (number(ty, a), number(ty, b));
    let shift = |amount: u64| amount.min(u64::from(ty.bits())) as u32;
    let value = match binary {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x.wrapping_mul(y),
        Binary::MulHi => x.wrapping_mul(y) >> ty.bits(),
        Binary::Div | Binary::Rem if y == 0 => return None,
        // The quotient of the least number by -1 overflows.
        Binary::Div | Binary::Rem if y == -1 && ty.is_signed() && a == 1 << (ty.bits() - 1) => return None,
        Binary::Div => x / y,
        Binary::Rem => x % y,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl => x << shift(b),
        Binary::Shr => x >> shift(b),
        Binary::DivApprox | Binary::CopySign => return None,
    };
    Some(value as u64 & ty.mask())
}

fn convert((from, bits): (Type, u64), to: Type, rounding: Rounding, saturate: bool) -> Option<u64> {
    if from.is_int() && to.is_int() {
        let value = number(from, bits);
        let limited = if saturate { value.clamp(least(to), greatest(to)) } else { value };
        Some(limited as u64 & to.mask())
    } else if from.is_int() && !saturate {
        float::of_int(to, number(from, bits), rounding)
    } else if from.is_float() && to.is_int() {
        let value = float::to_int(from, bits, rounding)?;
        (least(to)..=greatest(to)).contains(&value).then_some(value as u64 & to.mask())
    } else if from.is_float() && to.is_float() && !saturate {
        float::of_float(to, from, bits, rounding)
    } else {
        None
    }
}

/// The least value of an integer type.
pub(super) fn least(ty: Type) -> i128 {
    if ty.is_signed() { -(1 << (ty.bits() - 1)) } else { 0 }
}

/// The greatest value of an integer type.
pub(super) fn greatest(ty: Type) -> i128 {
    let bits = ty.bits() - u32::from(ty.is_signed());
    (1 << bits) - 1
}

fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |result, row| {
        let pick = |bits: u32, on: bool| if on { bits } else { !bits };
        result | pick(a, row & 4 != 0) & pick(b, row & 2 != 0) & pick(c, row & 1 != 0)
    })
}

fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |result, index| {
        let select = selector >> (4 * index) & 15;
        let byte = (bytes >> (8 * (select & 7))) as u8;
        // The top bit of a selector replicates the byte's sign.
        let byte = if select & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        result | u32::from(byte) << (8 * index)
    })
}

/// PTX `bfe`: position and length are taken modulo 256, and bits above the top replicate the sign of the field.
fn bit_field(ty: Type, a: u64, position: u64, length: u64) -> u64 {
    let (position, length, top) = (position & 255, length & 255, u64::from(ty.bits()) - 1);
    let bit = |index: u64| a >> index & 1;
    let sign = if ty.is_unsigned() || length == 0 { 0 } else { bit((position + length - 1).min(top)) };
    (0..=top).fold(0, |result, index| {
        let inside = index < length && position + index <= top;
        result | (if inside { bit(position + index) } else { sign }) << index
    })
}

fn byte(word: u32, index: u32, signed: bool) -> i64 {
    let byte = (word >> (8 * index)) as u8;
    if signed { (byte as i8).into() } else { byte.into() }
}

fn half(word: u32, index: u32, signed: bool) -> i64 {
    let half = (word >> (16 * index)) as u16;
    if signed { (half as i16).into() } else { half.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Type::{Bf16, F16, F32, I8, I32, I64, U8, U16, U32, U64};

    fn check(op: Op, ty: Type, args: &[(Type, u64)], expected: Option<u64>) {
        let found = evaluate(op, ty, args).map(|bits| bits[0]);
        assert_eq!(found, expected, "{op:?} {ty} {args:x?}: {found:x?} is not {expected:x?}");
    }

    #[test]
    fn integers() {
        let binary = |b, ty, x, y, expected| check(Op::Binary(b), ty, &[(ty, x), (ty, y)], expected);
        binary(Binary::Add, U8, 250, 10, Some(4));
        binary(Binary::MulHi, U64, u64::MAX, u64::MAX, Some(u64::MAX - 1));
        binary(Binary::MulHi, I64, u64::MAX, 2, Some(u64::MAX));
        binary(Binary::MulHi, I32, 0x8000_0000, 2, Some(0xffff_ffff));
        binary(Binary::Div, I8, 0xf9, 2, Some(0xfd));
        binary(Binary::Rem, I8, 0xf9, 2, Some(0xff));
        binary(Binary::Div, U32, 1, 0, None);
        binary(Binary::Div, I32, 0x8000_0000, 0xffff_ffff, None);
        binary(Binary::Min, I32, 0xffff_ffff, 1, Some(0xffff_ffff));
        binary(Binary::Min, U32, 0xffff_ffff, 1, Some(1));
        binary(Binary::Shl, U32, 1, 32, Some(0));
        binary(Binary::Shr, I32, 0x8000_0000, 40, Some(0xffff_ffff));
        binary(Binary::Shr, U64, 1 << 63, 63, Some(1));
        check(Op::Unary(Unary::Abs), I8, &[(I8, 0x80)], Some(0x80));
        check(Op::Unary(Unary::Clz), U32, &[(U32, 1)], Some(31));
        check(Op::Unary(Unary::Brev), U32, &[(U32, 1)], Some(1 << 31));
        check(Op::MulWide, I32, &[(I32, 0xffff_ffff), (I32, 3)], Some(-3i64 as u64));
    }

    #[test]
    fn bits_and_bytes() {
        let words =
            |op, ty, a, b, c, expected| check(op, ty, &[(U32, a), (U32, b), (U32, c)], Some(expected));
        words(Op::Lop3(0x96), U32, 0xf0f0, 0xff00, 0x0ff0, 0xf0f0 ^ 0xff00 ^ 0x0ff0);
        words(Op::Lop3(0xca), U32, 0xff00, 0x1234, 0x5678, 0x1278);
        words(Op::Prmt, U32, 0x8322_1100, 0x7766_5544, 0x7b40, 0x77ff_4400);
        words(Op::BitField, U32, 0x1234_5678, 8, 12, 0x456);
        words(Op::BitField, I32, 0x0000_0f00, 8, 4, 0xffff_ffff);
        words(Op::BitField, I32, 0x8000_0000, 28, 8, 0xffff_fff8);
        words(Op::BitField, U32, 0xffff_ffff, 40, 4, 0);
        words(Op::Funnel { left: true }, U32, 0x8000_0001, 0x0000_0001, 33, 3);
        words(Op::Funnel { left: false }, U32, 0x8000_0001, 0x0000_0001, 0, 0x8000_0001);
        words(Op::Dp4a { a_signed: true, b_signed: true }, I32, 0xff01_ff01, 0x0101_0202, 5, 5);
        words(Op::Dp4a { a_signed: false, b_signed: true }, I32, 0xff, 0xff, 0, -255i32 as u32 as u64);
        words(Op::Dp2a { a_signed: true, b_signed: false, high: true }, I32, 0xffff_0002, 0x0305_0000, 1, 8);
        let halves = evaluate(Op::Unpack, U16, &[(U32, 0xaaaa_bbbb)]);
        assert_eq!(halves.as_deref(), Some(&[0xbbbb, 0xaaaa][..]));
    }

    #[test]
    fn conversions() {
        let convert = |from: Type, bits: u64, to, rounding, expected| {
            check(Op::Convert { rounding, saturate: false }, to, &[(from, bits)], expected);
        };
        let float = |x: f32| u64::from(x.to_bits());
        convert(I8, 0xff, U32, Rounding::Zero, Some(0xffff_ffff));
        convert(U8, 0xff, I64, Rounding::Zero, Some(255));
        convert(I32, 0x1ff, U8, Rounding::Zero, Some(0xff));
        convert(F32, float(-2.5), I32, Rounding::Nearest, Some(-2i32 as u32 as u64));
        convert(F32, float(-2.5), I32, Rounding::Down, Some(-3i32 as u32 as u64));
        convert(F32, float(2.5), U32, Rounding::Up, Some(3));
        convert(F32, float(-1.0), U32, Rounding::Zero, None);
        convert(F32, float(3e9), I32, Rounding::Zero, None);
        convert(F32, float(f32::NAN), I32, Rounding::Zero, None);
        convert(U32, 0x0100_0001, F32, Rounding::Nearest, Some(float(16777216.0)));
        convert(U32, 0x0100_0001, F32, Rounding::Zero, None);
        convert(F32, float(1.0 + 1.0 / 2048.0), F16, Rounding::Nearest, Some(0x3c00));
        convert(F32, float(1.0), Bf16, Rounding::Zero, Some(0x3f80));
        convert(F32, float(1e9), F16, Rounding::Nearest, None);
        let saturate = Op::Convert { rounding: Rounding::Zero, saturate: true };
        check(saturate, I8, &[(I32, 300)], Some(127));
        check(saturate, U8, &[(I32, 0xffff_ffff)], Some(0));
    }
}
