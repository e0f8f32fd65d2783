//! Logic, shifts, byte permutation and bit fields.

use super::integer::Int;
use super::lane_loop::{by_type, lane_loop, op1, op2, op3, ops};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, C, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

ops! {
    And[T: Int][T](a: T, b: T) -> T { T::from_bits(a.bits() & b.bits()) }
    Or[T: Int][T](a: T, b: T) -> T { T::from_bits(a.bits() | b.bits()) }
    Xor[T: Int][T](a: T, b: T) -> T { T::from_bits(a.bits() ^ b.bits()) }
    Not[T: Int][T](a: T) -> T { T::from_bits(!a.bits()) }
    Cnot[T: Int][T](a: T) -> T { T::from_bits((a.bits() == 0) as u64) }
    // PTX clamps shift amounts to the register width; the CPU takes shift amounts modulo the width.
    Shl16(a: u16, b: u32) -> u16 { if b < 16 { a << b } else { 0 } }
    Shl32(a: u32, b: u32) -> u32 { if b < 32 { a << b } else { 0 } }
    Shl64(a: u64, b: u32) -> u64 { if b < 64 { a << b } else { 0 } }
    ShrU16(a: u16, b: u32) -> u16 { if b < 16 { a >> b } else { 0 } }
    ShrU32(a: u32, b: u32) -> u32 { if b < 32 { a >> b } else { 0 } }
    ShrU64(a: u64, b: u32) -> u64 { if b < 64 { a >> b } else { 0 } }
    ShrS16(a: i16, b: u32) -> i16 { a >> b.min(15) }
    ShrS32(a: i32, b: u32) -> i32 { a >> b.min(31) }
    ShrS64(a: i64, b: u32) -> i64 { a >> b.min(63) }
    // `imm` is the truth table of `lop3`: each set bit selects one minterm.
    Lop3(a: u32, b: u32, c: u32; imm) -> u32 {
        let mut result = 0;
        for term in 0..8 {
            let chosen = if imm >> term & 1 != 0 { u32::MAX } else { 0 };
            let x = if term & 4 != 0 { a } else { !a };
            let y = if term & 2 != 0 { b } else { !b };
            let z = if term & 1 != 0 { c } else { !c };
            result |= x & y & z & chosen;
        }
        result
    }
    FunnelLeftWrap(a: u32, b: u32, c: u32) -> u32 { funnel_left(a, b, c & 31) }
    FunnelLeftClamp(a: u32, b: u32, c: u32) -> u32 { funnel_left(a, b, c.min(32)) }
    FunnelRightWrap(a: u32, b: u32, c: u32) -> u32 { funnel_right(a, b, c & 31) }
    FunnelRightClamp(a: u32, b: u32, c: u32) -> u32 { funnel_right(a, b, c.min(32)) }
    // `prmt` with a mode; `imm` is the mode's number in `PRMT_MODES`.
    Prmt(a: u32, b: u32, c: u32; imm) -> u32 { prmt(a, b, c, imm) }
    BfeU32(a: u32, b: u32, c: u32) -> u32 { extract(a as u64, b, c, 32, false) as u32 }
    BfeS32(a: u32, b: u32, c: u32) -> u32 { extract(a as u64, b, c, 32, true) as u32 }
    BfeU64(a: u64, b: u32, c: u32) -> u64 { extract(a, b, c, 64, false) }
    BfeS64(a: u64, b: u32, c: u32) -> u64 { extract(a, b, c, 64, true) }
    SignExtend(a: u32, b: u32; imm) -> u32 { sign_extend(a, b, imm) }
    BitMask(a: u32, b: u32; imm) -> u32 { bit_mask(a, b, imm) }
    FindNth(a: u32, b: u32, c: i32) -> u32 { find_nth(a, b, c) }
    Brev32(a: u32) -> u32 { a.reverse_bits() }
    Brev64(a: u64) -> u64 { a.reverse_bits() }
    Popc32(a: u32) -> u32 { a.count_ones() }
    Popc64(a: u64) -> u32 { a.count_ones() }
    Clz32(a: u32) -> u32 { a.leading_zeros() }
    Clz64(a: u64) -> u32 { a.leading_zeros() }
    FindU32(a: u32; imm) -> u32 { find(a as u64, 32, imm) }
    FindS32(a: i32; imm) -> u32 { find((a ^ (a >> 31)) as u32 as u64, 32, imm) }
    FindU64(a: u64; imm) -> u32 { find(a, 64, imm) }
    FindS64(a: i64; imm) -> u32 { find((a ^ (a >> 63)) as u64, 64, imm) }
}

/// Flags in `imm` of `szext` and `bmsk`: `.clamp`, and for `szext` also a signed type.
const CLAMPS: u64 = 1;
const SIGNED: u64 = 2;

/// `szext`: the low `b` bits of `a`, sign-extended or zero-extended to 32 bits.
fn sign_extend(a: u32, b: u32, imm: u64) -> u32 {
    let length = b & 31;
    if imm & CLAMPS != 0 && b >= 32 {
        return a;
    }
    let mask = u32::MAX << length;
    let negative = imm & SIGNED != 0 && length > 0 && a >> (length - 1) & 1 != 0;
    a & !mask | if negative { mask } else { 0 }
}

/// `bmsk`: a mask of `b` ones that starts at bit `a`.
fn bit_mask(a: u32, b: u32, imm: u64) -> u32 {
    let (position, length) = (a & 31, b & 31);
    let (from, end) = (u32::MAX << position, position + length);
    if imm & CLAMPS != 0 && a >= 32 {
        return 0;
    }
    if end >= 32 || imm & CLAMPS != 0 && b >= 32 {
        return from;
    }
    from & !(u32::MAX << end)
}

/// `fns`: position of the `offset`-th set bit of `mask`, counted from bit `base`; all ones if `mask` has no such bit.
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let set = |position: i64| (0..32).contains(&position) && mask >> position & 1 != 0;
    let step = if offset < 0 { -1 } else { 1 };
    let mut left = offset.unsigned_abs().saturating_sub(1);
    let mut position = base as i64;
    if offset == 0 {
        return if set(position) { base } else { u32::MAX };
    }
    while (0..32).contains(&position) {
        if set(position) {
            if left == 0 {
                return position as u32;
            }
            left -= 1;
        }
        position += step;
    }
    u32::MAX
}

#[inline(always)]
fn funnel_left(low: u32, high: u32, amount: u32) -> u32 {
    ((((high as u64) << 32 | low as u64) << amount) >> 32) as u32
}

#[inline(always)]
fn funnel_right(low: u32, high: u32, amount: u32) -> u32 {
    (((high as u64) << 32 | low as u64) >> amount) as u32
}

/// `bfind`: position of the highest set bit, or with `.shiftamt` (`imm` is not 0) the shift that moves it to the top
/// bit.
#[inline(always)]
fn find(a: u64, bits: u32, imm: u64) -> u32 {
    if a == 0 {
        return u32::MAX;
    }
    let position = 63 - a.leading_zeros();
    if imm != 0 { bits - 1 - position } else { position }
}

/// Bit position or length operand of `bfe` and `bfi`. The ISA leaves values above 255 undefined. Devices use only the
/// low eight bits for 32-bit fields, and the whole value for 64-bit fields.
#[inline(always)]
fn field(amount: u32, bits: u32) -> u32 {
    if bits == 32 { amount & 0xff } else { amount.min(0xff) }
}

/// `bfe`: extracts a bit field. A signed field that extends past the register's top bit is filled with the highest
/// field bit inside the register.
#[inline(always)]
fn extract(a: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = (field(position, bits), field(length, bits));
    if length == 0 {
        return 0;
    }
    let shifted = if position < bits { a >> position } else { 0 };
    let mask = if length < 64 { (1 << length) - 1 } else { u64::MAX };
    let top = (position + length - 1).min(bits - 1);
    let fill = signed && a >> top & 1 != 0;
    let inside = if position < bits { (bits - position).min(length) } else { 0 };
    let sign = if fill && inside < 64 { u64::MAX << inside } else { 0 };
    shifted & mask | sign
}

/// Modes of `prmt` with their number in `imm`; 0 is the generic mode.
const PRMT_MODES: [(&str, u64); 6] =
    [("f4e", 1), ("b4e", 2), ("rc8", 3), ("ecl", 4), ("ecr", 5), ("rc16", 6)];

#[inline(always)]
fn prmt(a: u32, b: u32, c: u32, mode: u64) -> u32 {
    let bytes = (b as u64) << 32 | a as u64;
    let s = c & 3;
    let mut result = 0;
    for at in 0..4u32 {
        let select = match mode {
            0 => c >> (4 * at) & 15,
            1 => s + at,
            2 => s.wrapping_sub(at) & 7,
            3 => s,
            4 => s.max(at),
            5 => s.min(at),
            _ => (s & 1) * 2 + (at & 1),
        };
        let byte = (bytes >> (8 * (select & 7))) as u32 & 0xff;
        let sign = if byte & 0x80 != 0 { 0xff } else { 0 };
        result |= if select & 8 != 0 { sign } else { byte } << (8 * at);
    }
    result
}

lane_loop! {
    /// `prmt` without a mode. If all lanes have the same selector, which is the usual case, each result byte is a fixed
    /// shift of a source byte.
    fn permute[][](cx, i) {
        let a = cx.warp.regs.lanes::<u32>(i.slots[A]);
        let b = cx.warp.regs.lanes::<u32>(i.slots[B]);
        let c = cx.warp.regs.lanes::<u32>(i.slots[C]);
        let mut d = [0; LANES];
        let selectors = c[0];
        if c.iter().fold(0, |differs, selector| differs | (selector ^ selectors)) == 0 {
            for at in 0..4 {
                let select = selectors >> (4 * at) & 15;
                let (source, shift) = (if select & 4 == 0 { a } else { b }, 8 * (select & 3));
                let signs = if select & 8 == 0 { 0 } else { u32::MAX };
                for lane in 0..LANES {
                    let byte = source[lane] >> shift & 0xff;
                    let sign = (byte >> 7) * 0xff;
                    d[lane] |= (byte & !signs | sign & signs) << (8 * at);
                }
            }
        } else {
            for lane in 0..LANES {
                d[lane] = prmt(a[lane], b[lane], c[lane], 0);
            }
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    /// `bfi f, a, b, c, d`: inserts the low `d` bits of `a` into `b` at bit `c`.
    fn insert[T: Int][T](cx, i) {
        let a = *cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = *cx.warp.regs.lanes::<T>(i.slots[B]);
        let positions = *cx.warp.regs.lanes::<u32>(i.slots[C]);
        let lengths = *cx.warp.regs.lanes::<u32>(i.slots[4]);
        let mut d = [T::default(); LANES];
        for lane in 0..LANES {
            let (position, length) = (field(positions[lane], T::BITS), field(lengths[lane], T::BITS));
            let field = if length < 64 { (1u64 << length) - 1 } else { u64::MAX };
            let mask = if position < 64 { field << position } else { 0 };
            let value = if position < 64 { a[lane].bits() << position } else { 0 };
            d[lane] = T::from_bits(b[lane].bits() & !mask | value & mask);
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

fn and_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.set_mask(i.slots[D], cx.mask(i.slots[A]) & cx.mask(i.slots[B]));
    Flow::Next
}

fn or_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.set_mask(i.slots[D], cx.mask(i.slots[A]) | cx.mask(i.slots[B]));
    Flow::Next
}

fn xor_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.set_mask(i.slots[D], cx.mask(i.slots[A]) ^ cx.mask(i.slots[B]));
    Flow::Next
}

fn not_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.set_mask(i.slots[D], !cx.mask(i.slots[A]));
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let name = op.opcode();
    if name == "shf" {
        return funnel(op);
    }
    if matches!(name, "szext" | "bmsk") {
        op.imm = if op.take("clamp") { CLAMPS } else { 0 };
        if op.imm == 0 && !op.take("wrap") {
            return Err(op.unsupported());
        }
    }
    // In `prmt`, the type precedes the mode.
    let ty = op.take_ty()?;
    macro_rules! by_width {
        ($driver:ident, $op:ident) => {
            by_type!(ty, $driver, $op, [B16 => u16, B32 => u32, B64 => u64])
        };
    }
    let found = match name {
        "and" | "or" | "xor" => {
            op.binary(ty, ty, ty)?;
            match (name, ty) {
                ("and", Ty::Pred) => Some(and_pred as Exec),
                ("or", Ty::Pred) => Some(or_pred as Exec),
                ("xor", Ty::Pred) => Some(xor_pred as Exec),
                ("and", _) => by_width!(op2, And),
                ("or", _) => by_width!(op2, Or),
                _ => by_width!(op2, Xor),
            }
        }
        "not" | "cnot" => {
            op.unary(ty, ty)?;
            match (name, ty) {
                ("not", Ty::Pred) => Some(not_pred as Exec),
                ("not", _) => by_width!(op1, Not),
                _ => by_width!(op1, Cnot),
            }
        }
        "shl" | "shr" => {
            op.binary(ty, ty, Ty::U32)?;
            match (name, ty) {
                ("shl", Ty::B16) => Some(op2::<Shl16>()),
                ("shl", Ty::B32) => Some(op2::<Shl32>()),
                ("shl", Ty::B64) => Some(op2::<Shl64>()),
                ("shr", Ty::B16 | Ty::U16) => Some(op2::<ShrU16>()),
                ("shr", Ty::B32 | Ty::U32) => Some(op2::<ShrU32>()),
                ("shr", Ty::B64 | Ty::U64) => Some(op2::<ShrU64>()),
                ("shr", Ty::S16) => Some(op2::<ShrS16>()),
                ("shr", Ty::S32) => Some(op2::<ShrS32>()),
                ("shr", Ty::S64) => Some(op2::<ShrS64>()),
                _ => None,
            }
        }
        "szext" | "bmsk" => {
            op.binary(ty, ty, Ty::U32)?;
            match (name, ty) {
                ("szext", Ty::U32) => Some(op2::<SignExtend>()),
                ("szext", Ty::S32) => {
                    op.imm |= SIGNED;
                    Some(op2::<SignExtend>())
                }
                ("bmsk", Ty::B32) => Some(op2::<BitMask>()),
                _ => None,
            }
        }
        "fns" if ty == Ty::B32 => {
            op.ternary(ty, ty, Ty::S32)?;
            Some(op3::<FindNth>())
        }
        "lop3" if ty == Ty::B32 => {
            op.ternary(ty, ty, ty)?;
            op.imm = op.constant_operand(4)?;
            Some(op3::<Lop3>())
        }
        "prmt" if ty == Ty::B32 => {
            op.ternary(ty, ty, ty)?;
            op.imm = op.take_any(&PRMT_MODES).unwrap_or(0);
            Some(if op.imm == 0 { permute() } else { op3::<Prmt>() })
        }
        "bfe" => {
            op.binary(ty, ty, Ty::U32)?;
            op.slots[C] = op.src(3, Ty::U32)?;
            match ty {
                Ty::U32 => Some(op3::<BfeU32>()),
                Ty::S32 => Some(op3::<BfeS32>()),
                Ty::U64 => Some(op3::<BfeU64>()),
                Ty::S64 => Some(op3::<BfeS64>()),
                _ => None,
            }
        }
        "bfi" => {
            op.ternary(ty, ty, Ty::U32)?;
            op.slots[4] = op.src(4, Ty::U32)?;
            match ty {
                Ty::B32 => Some(insert::<u32>()),
                Ty::B64 => Some(insert::<u64>()),
                _ => None,
            }
        }
        "bfind" => {
            op.imm = op.take("shiftamt") as u64;
            op.slots[D] = op.dst(0, Width::W32)?;
            op.slots[A] = op.src(1, ty)?;
            match ty {
                Ty::U32 => Some(op1::<FindU32>()),
                Ty::S32 => Some(op1::<FindS32>()),
                Ty::U64 => Some(op1::<FindU64>()),
                Ty::S64 => Some(op1::<FindS64>()),
                _ => None,
            }
        }
        "brev" => {
            op.unary(ty, ty)?;
            match ty {
                Ty::B32 => Some(op1::<Brev32>()),
                Ty::B64 => Some(op1::<Brev64>()),
                _ => None,
            }
        }
        _ => {
            op.unary(Ty::U32, ty)?;
            match (name, ty) {
                ("popc", Ty::B32) => Some(op1::<Popc32>()),
                ("popc", Ty::B64) => Some(op1::<Popc64>()),
                ("clz", Ty::B32) => Some(op1::<Clz32>()),
                ("clz", Ty::B64) => Some(op1::<Clz64>()),
                _ => None,
            }
        }
    };
    found.ok_or_else(|| op.unsupported())
}

/// Decodes `shf`, the funnel shift.
fn funnel(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let left = op.take("l");
    if !left && !op.take("r") {
        return Err(op.unsupported());
    }
    let wrap = op.take("wrap");
    if !wrap && !op.take("clamp") || op.take_ty()? != Ty::B32 {
        return Err(op.unsupported());
    }
    op.ternary(Ty::B32, Ty::B32, Ty::U32)?;
    Ok(match (left, wrap) {
        (true, true) => op3::<FunnelLeftWrap>(),
        (true, false) => op3::<FunnelLeftClamp>(),
        (false, true) => op3::<FunnelRightWrap>(),
        (false, false) => op3::<FunnelRightClamp>(),
    })
}
