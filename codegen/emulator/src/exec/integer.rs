//! Integer arithmetic: wrapping and saturating, high and wide products, carry chains, packed halves, dot products.

use super::lane_loop::{by_type, lane_loop, op2, op3, ops};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, C, D, NONE};
use crate::context::Exec;
use crate::lanes::{LANES, Pod};
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Integer type of PTX with its arithmetic operations.
pub(crate) trait Int: Pod + Ord {
    /// Type of twice the width; for 64-bit types, which have no wider type, the type itself.
    type Wide: Pod + Ord;
    const BITS: u32;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn mul_wide(self, other: Self) -> Self::Wide;
    fn add_wide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn abs_diff(self, other: Self) -> Self;
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

macro_rules! ints {
    ($($ty:ident $unsigned:ident $wide:ident $product:ident $signed:literal)*) => { $(
        impl Int for $ty {
            type Wide = $wide;
            const BITS: u32 = $ty::BITS;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $product * other as $product) >> $ty::BITS) as $ty
            }
            #[inline(always)]
            fn mul_wide(self, other: Self) -> $wide { (self as $wide).wrapping_mul(other as $wide) }
            #[inline(always)]
            fn add_wide(a: $wide, b: $wide) -> $wide { a.wrapping_add(b) }
            // The ISA leaves division by zero unspecified. Devices return all ones as quotient and remainder.
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self { if $signed && self >> ($ty::BITS - 1) != 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            fn abs_diff(self, other: Self) -> Self { $ty::abs_diff(self, other) as $ty }
            #[inline(always)]
            fn bits(self) -> u64 { self as $unsigned as u64 }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self { bits as $ty }
        }
    )* };
}

ints! {
    u16 u16 u32 u32 false
    i16 u16 i32 i32 true
    u32 u32 u64 u64 false
    i32 u32 i64 i64 true
    u64 u64 u64 u128 false
    i64 u64 i64 i128 true
}

ops! {
    Add[T: Int][T](a: T, b: T) -> T { a.add(b) }
    Sub[T: Int][T](a: T, b: T) -> T { a.sub(b) }
    Mul[T: Int][T](a: T, b: T) -> T { a.mul(b) }
    MulHigh[T: Int][T](a: T, b: T) -> T { a.mul_high(b) }
    MulWide[T: Int][T](a: T, b: T) -> T::Wide { a.mul_wide(b) }
    Mad[T: Int][T](a: T, b: T, c: T) -> T { a.mul(b).add(c) }
    MadHigh[T: Int][T](a: T, b: T, c: T) -> T { a.mul_high(b).add(c) }
    MadWide[T: Int][T](a: T, b: T, c: T::Wide) -> T::Wide { T::add_wide(a.mul_wide(b), c) }
    Div[T: Int][T](a: T, b: T) -> T { a.div(b) }
    Rem[T: Int][T](a: T, b: T) -> T { a.rem(b) }
    Neg[T: Int][T](a: T) -> T { a.neg() }
    Abs[T: Int][T](a: T) -> T { a.abs() }
    Min[T: Int][T](a: T, b: T) -> T { a.min(b) }
    Max[T: Int][T](a: T, b: T) -> T { a.max(b) }
    Sad[T: Int][T](a: T, b: T, c: T) -> T { a.abs_diff(b).add(c) }
    AddSat(a: i32, b: i32) -> i32 { a.saturating_add(b) }
    SubSat(a: i32, b: i32) -> i32 { a.saturating_sub(b) }
    MadHighSat(a: i32, b: i32, c: i32) -> i32 { a.mul_high(b).saturating_add(c) }
    MinRelu(a: i32, b: i32) -> i32 { a.min(b).max(0) }
    MaxRelu(a: i32, b: i32) -> i32 { a.max(b).max(0) }
    // Operations on two 16-bit halves per register; `imm` is not 0 for `.relu`.
    AddPair(a: u32, b: u32) -> u32 { pairwise(a, b, |a, b| a.wrapping_add(b)) }
    MinPairU(a: u32, b: u32) -> u32 { pairwise(a, b, |a, b| a.min(b)) }
    MaxPairU(a: u32, b: u32) -> u32 { pairwise(a, b, |a, b| a.max(b)) }
    MinPairS(a: u32, b: u32; imm) -> u32 { pairwise_signed(a, b, imm, |a, b| a.min(b)) }
    MaxPairS(a: u32, b: u32; imm) -> u32 { pairwise_signed(a, b, imm, |a, b| a.max(b)) }
    Mad24HighSat(a: u32, b: u32, c: u32) -> u32 { (mul24(a, b, 3) as i32).saturating_add(c as i32) as u32 }
    // 24-bit products: `.lo` returns bits 0..32 and `.hi` bits 16..48 of the 48-bit product.
    Mul24(a: u32, b: u32; imm) -> u32 { mul24(a, b, imm) }
    Mad24(a: u32, b: u32, c: u32; imm) -> u32 { mul24(a, b, imm).wrapping_add(c) }
    Dp4a[S: Signedness][S](a: u32, b: u32, c: u32) -> u32 {
        let mut sum = c as i32;
        for byte in [24, 16, 8, 0] {
            sum = sum.wrapping_add(S::a8(a << byte) * S::b8(b << byte));
        }
        sum as u32
    }
    Dp2a[S: Signedness][S](a: u32, b: u32, c: u32; imm) -> u32 {
        let b = b >> imm;
        let low = S::a16(a << 16).wrapping_mul(S::b8(b << 24));
        let high = S::a16(a).wrapping_mul(S::b8(b << 16));
        c.wrapping_add(low as u32).wrapping_add(high as u32)
    }
}

#[inline(always)]
fn pairwise(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    f(a as u16, b as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16) as u32) << 16
}

#[inline(always)]
fn pairwise_signed(a: u32, b: u32, imm: u64, f: impl Fn(i16, i16) -> i16) -> u32 {
    let least = if imm != 0 { 0 } else { i16::MIN };
    pairwise(a, b, |a, b| f(a as i16, b as i16).max(least) as u16)
}

#[inline(always)]
fn mul24(a: u32, b: u32, imm: u64) -> u32 {
    let (high, signed) = (imm & 1 != 0, imm & 2 != 0);
    let extend = |x: u32| if signed { ((x << 8) as i32 >> 8) as i64 } else { (x & 0xff_ffff) as i64 };
    let product = extend(a) * extend(b);
    if high { (product >> 16) as u32 } else { product as u32 }
}

/// Signedness of the operands `a` and `b` of a dot product. Each function extends the 8-bit or 16-bit field in the top
/// bits of `x`.
pub(crate) trait Signedness: 'static {
    fn a8(x: u32) -> i32;
    fn a16(x: u32) -> i32;
    fn b8(x: u32) -> i32;
}

macro_rules! signedness {
    ($($name:ident: $a:ident $b:ident)*) => { $(
        pub(crate) struct $name;
        impl Signedness for $name {
            #[inline(always)]
            fn a8(x: u32) -> i32 { (x as $a >> 24) as i32 }
            #[inline(always)]
            fn a16(x: u32) -> i32 { (x as $a >> 16) as i32 }
            #[inline(always)]
            fn b8(x: u32) -> i32 { (x as $b >> 24) as i32 }
        }
    )* };
}
signedness! { UnsignedUnsigned: u32 u32 UnsignedSigned: u32 i32 SignedUnsigned: i32 u32 SignedSigned: i32 i32 }

// Flags in `imm` of the extended-precision instructions (carry chains).
const CARRY_IN: u64 = 1;
const CARRY_OUT: u64 = 2;
const SUBTRACT: u64 = 4;
const MULTIPLY: u64 = 8;
const HIGH: u64 = 16;

lane_loop! {
    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`. A warp's carry flag is a mask with one bit per lane. As on devices, a
    /// subtraction adds the complement and 1, so that the flag is clear after a borrow: nvcc's 128-bit division reads that flag
    /// with `addc`.
    fn carrying[T: Int][T](cx, i) {
        let a = *cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = *cx.warp.regs.lanes::<T>(i.slots[B]);
        let c = if i.slots[C] == NONE { a } else { *cx.warp.regs.lanes::<T>(i.slots[C]) };
        let mut d = [T::default(); LANES];
        let mut carries = 0;
        for lane in 0..LANES {
            let (x, y) = match i.imm & (MULTIPLY | HIGH) {
                0 => (a[lane], b[lane]),
                MULTIPLY => (a[lane].mul(b[lane]), c[lane]),
                _ => (a[lane].mul_high(b[lane]), c[lane]),
            };
            let subtracts = i.imm & SUBTRACT != 0;
            let y = if subtracts { T::from_bits(!y.bits()) } else { y };
            let carry = if i.imm & CARRY_IN != 0 { cx.warp.carry >> lane & 1 != 0 } else { subtracts };
            let total = x.bits() as u128 + y.bits() as u128 + carry as u128;
            d[lane] = T::from_bits(total as u64);
            carries |= ((total >> T::BITS & 1) as u32) << lane;
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if i.imm & CARRY_OUT != 0 {
            cx.warp.carry = cx.warp.carry & !cx.active | carries & cx.active;
        }
        Flow::Next
    }
}

macro_rules! all_ints {
    ($ty:expr, $driver:ident, $op:ident) => {
        by_type!($ty, $driver, $op, [
            U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64,
        ])
    };
}

macro_rules! narrow_ints {
    ($ty:expr, $driver:ident, $op:ident) => {
        by_type!($ty, $driver, $op, [U16 => u16, S16 => i16, U32 => u32, S32 => i32])
    };
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let name = op.opcode();
    if matches!(name, "dp4a" | "dp2a") {
        return dot_product(op);
    }
    let ty = op.take_ty()?;
    if matches!(name, "addc" | "subc" | "madc") || op.take("cc") {
        return extended(op, ty);
    }
    if matches!(ty, Ty::U16x2 | Ty::S16x2) {
        return pairs(op, ty);
    }
    let high = op.take("hi");
    let wide = op.take("wide");
    if matches!(name, "mul" | "mad" | "mul24" | "mad24") && !op.take("lo") && !high && !wide {
        let parts = if name.ends_with("24") { "`.lo` or `.hi`" } else { "`.lo`, `.hi` or `.wide`" };
        return Err(op.malformed(format!("`{}` needs {parts}", op.text())));
    }
    let sat = op.take("sat");
    let relu = matches!(name, "min" | "max") && op.take("relu");
    if (sat || relu) && ty != Ty::S32 {
        return Err(op.unsupported());
    }
    let result = if wide { widened(ty) } else { Some(ty) };
    let Some(result) = result else { return Err(op.unsupported()) };
    match name {
        "neg" | "abs" => op.unary(result, ty)?,
        "mad" | "mad24" | "sad" => op.ternary(result, ty, result)?,
        _ => op.binary(result, ty, ty)?,
    }
    if matches!(name, "mul24" | "mad24") {
        if !matches!(ty, Ty::U32 | Ty::S32) {
            return Err(op.unsupported());
        }
        op.imm = high as u64 | (ty.is_signed() as u64) << 1;
    }
    let exec = match name {
        "add" if sat => Some(op2::<AddSat>()),
        "sub" if sat => Some(op2::<SubSat>()),
        "mad24" if sat && high => Some(op3::<Mad24HighSat>()),
        "mad" if sat && high => Some(op3::<MadHighSat>()),
        "min" if relu => Some(op2::<MinRelu>()),
        "max" if relu => Some(op2::<MaxRelu>()),
        _ if sat => None,
        "mul24" => Some(op2::<Mul24>()),
        "mad24" => Some(op3::<Mad24>()),
        "mul" if wide => narrow_ints!(ty, op2, MulWide),
        "mad" if wide => narrow_ints!(ty, op3, MadWide),
        "mul" if high => all_ints!(ty, op2, MulHigh),
        "mad" if high => all_ints!(ty, op3, MadHigh),
        _ if high || wide => None,
        "add" => all_ints!(ty, op2, Add),
        "sub" => all_ints!(ty, op2, Sub),
        "mul" => all_ints!(ty, op2, Mul),
        "mad" => all_ints!(ty, op3, Mad),
        "div" => all_ints!(ty, op2, Div),
        "rem" => all_ints!(ty, op2, Rem),
        "min" => all_ints!(ty, op2, Min),
        "max" => all_ints!(ty, op2, Max),
        "sad" => all_ints!(ty, op3, Sad),
        "neg" if ty.is_signed() => all_ints!(ty, op1, Neg),
        "abs" if ty.is_signed() => all_ints!(ty, op1, Abs),
        _ => None,
    };
    exec.ok_or_else(|| op.unsupported())
}

/// Decodes arithmetic on two packed 16-bit halves.
fn pairs(op: &mut InstructionCursor<'_, '_>, ty: Ty) -> Result<Exec, ParseError> {
    let name = op.opcode();
    op.imm = (ty == Ty::S16x2 && matches!(name, "min" | "max") && op.take("relu")) as u64;
    op.binary(ty, ty, ty)?;
    Ok(match (name, ty) {
        ("add", _) => op2::<AddPair>(),
        ("min", Ty::U16x2) => op2::<MinPairU>(),
        ("max", Ty::U16x2) => op2::<MaxPairU>(),
        ("min", _) => op2::<MinPairS>(),
        ("max", _) => op2::<MaxPairS>(),
        _ => return Err(op.unsupported()),
    })
}

/// Result type of a `.wide` product of type `ty`.
fn widened(ty: Ty) -> Option<Ty> {
    Some(match ty {
        Ty::U16 => Ty::U32,
        Ty::S16 => Ty::S32,
        Ty::U32 => Ty::U64,
        Ty::S32 => Ty::S64,
        _ => return None,
    })
}

/// Decodes the extended-precision instructions, such as `add.cc` and `madc`.
fn extended(op: &mut InstructionCursor<'_, '_>, ty: Ty) -> Result<Exec, ParseError> {
    let name = op.opcode();
    let carry_in = name.ends_with('c');
    // The caller has already taken `.cc` of `add.cc`; `addc` may still have a `.cc`.
    op.imm |= if carry_in { CARRY_IN } else { CARRY_OUT };
    op.imm |= if op.take("cc") { CARRY_OUT } else { 0 };
    op.slots[C] = NONE;
    if name.starts_with("mad") {
        let high = op.take("hi");
        if !high && !op.take("lo") {
            return Err(op.malformed(format!("`{}` needs `.lo` or `.hi`", op.text())));
        }
        op.imm |= MULTIPLY | if high { HIGH } else { 0 };
        op.ternary(ty, ty, ty)?;
    } else {
        op.imm |= if name.starts_with("sub") { SUBTRACT } else { 0 };
        op.binary(ty, ty, ty)?;
    }
    match ty {
        Ty::U32 => Ok(carrying::<u32>()),
        Ty::S32 => Ok(carrying::<i32>()),
        Ty::U64 => Ok(carrying::<u64>()),
        Ty::S64 => Ok(carrying::<i64>()),
        _ => Err(op.unsupported()),
    }
}

/// Decodes `dp4a` and `dp2a`.
fn dot_product(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let quad = op.opcode() == "dp4a";
    if !quad {
        op.imm = match (op.take("lo"), op.take("hi")) {
            (true, false) => 0,
            (false, true) => 16,
            _ => return Err(op.unsupported()),
        };
    }
    let (a, b) = (op.take_ty()?, op.take_ty()?);
    for ty in [a, b] {
        if ty.width() != Width::W32 || !matches!(ty, Ty::U32 | Ty::S32) {
            return Err(op.unsupported());
        }
    }
    op.ternary(Ty::B32, Ty::B32, Ty::B32)?;
    macro_rules! by_signedness {
        ($op:ident) => {
            match (a.is_signed(), b.is_signed()) {
                (false, false) => op3::<$op<UnsignedUnsigned>>(),
                (false, true) => op3::<$op<UnsignedSigned>>(),
                (true, false) => op3::<$op<SignedUnsigned>>(),
                (true, true) => op3::<$op<SignedSigned>>(),
            }
        };
    }
    Ok(if quad { by_signedness!(Dp4a) } else { by_signedness!(Dp2a) })
}
