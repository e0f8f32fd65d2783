//! Comparison and selection: `setp`, `set`, `selp`, `slct`.

use std::cmp::Ordering;

use super::lane_loop::{lane_loop, op3, ops};
use super::rounding::{Bf16, F16, Format, flush};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, C, D, NONE};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::{LANES, Pod};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// `f32` that is compared with subnormals flushed to zero (`.ftz`).
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Flushed(f32);
/// Bits of an `.f16` that is compared as a number.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct F16Bits(u16);
/// Bits of a `.bf16` that is compared as a number.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Bf16Bits(u16);

macro_rules! compared {
    ($($name:ident: $value:ident => $key:expr;)*) => { $(
        // SAFETY: `$name` is a transparent wrapper of a primitive number.
        unsafe impl Pod for $name {}
        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool { self.partial_cmp(other) == Some(Ordering::Equal) }
        }
        impl PartialOrd for $name {
            #[inline(always)]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                let key = |$value: &$name| $key;
                key(self).partial_cmp(&key(other))
            }
        }
    )* };
}
compared! {
    Flushed: x => flush(x.0);
    F16Bits: x => F16::to_f32(x.0);
    Bf16Bits: x => Bf16::to_f32(x.0);
}

/// Comparison operator over any ordered type. For integers, the unordered operators (`equ`, …) equal the ordered
/// operators.
pub(crate) trait Relation: 'static {
    fn test<T: PartialOrd>(a: T, b: T) -> bool;
}

macro_rules! relations {
    ($($name:ident($a:ident, $b:ident) $test:expr;)*) => { $(
        pub(crate) struct $name;
        impl Relation for $name {
            #[inline(always)]
            #[allow(
                clippy::neg_cmp_op_on_partial_ord,
                clippy::double_comparisons,
                reason = "NaN tells these apart from the simpler forms"
            )]
            fn test<T: PartialOrd>($a: T, $b: T) -> bool { $test }
        }
    )* };
}
relations! {
    Eq(a, b) a == b;
    // Ordered operators: false if either operand is NaN.
    Ne(a, b) a < b || a > b;
    Lt(a, b) a < b;
    Le(a, b) a <= b;
    Gt(a, b) a > b;
    Ge(a, b) a >= b;
    // Unordered operators: true if either operand is NaN.
    Equ(a, b) !(a < b || a > b);
    Neu(a, b) a != b;
    Ltu(a, b) !(a >= b);
    Leu(a, b) !(a > b);
    Gtu(a, b) !(a <= b);
    Geu(a, b) !(a < b);
    Num(a, b) a.partial_cmp(&b).is_some();
    Nan(a, b) a.partial_cmp(&b).is_none();
}

/// Boolean operators that combine a comparison with a predicate operand. The operator's number is in `imm` of `setp`,
/// and in the low bits of `imm` of `set`.
const COMBINE: [(&str, u64); 3] = [("and", 1), ("or", 2), ("xor", 3)];

/// Mask of lanes for which a comparison is true, combined with the predicate in `slot`.
#[inline(always)]
fn combine(cx: &ExecutionContext<'_>, operator: u64, compared: u32, slot: u32) -> u32 {
    match operator & 3 {
        0 => compared,
        1 => compared & cx.mask(slot),
        2 => compared | cx.mask(slot),
        _ => compared ^ cx.mask(slot),
    }
}

/// Slot of the second destination of `setp p|q`.
const Q: usize = 4;

lane_loop! {
    fn setp[R: Relation, T: Pod + PartialOrd][R, T](cx, i) {
        let a = cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = cx.warp.regs.lanes::<T>(i.slots[B]);
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= (R::test(a[lane], b[lane]) as u32) << lane;
        }
        let p = combine(cx, i.imm, mask, i.slots[C]);
        let q = combine(cx, i.imm, !mask, i.slots[C]);
        if i.slots[D] != NONE {
            cx.set_mask(i.slots[D], p);
        }
        if i.slots[Q] != NONE {
            cx.set_mask(i.slots[Q], q);
        }
        Flow::Next
    }
}

lane_loop! {
    /// `setp.….f16x2 p|q`: `p` compares the low halves, `q` the high halves.
    fn setp_packed[R: Relation, F: Format][R, F](cx, i) {
        let a = cx.warp.regs.lanes::<u32>(i.slots[A]);
        let b = cx.warp.regs.lanes::<u32>(i.slots[B]);
        let (mut low, mut high) = (0, 0);
        for lane in 0..LANES {
            let test = |shift: u32| {
                R::test(F::to_f32((a[lane] >> shift) as u16), F::to_f32((b[lane] >> shift) as u16)) as u32
            };
            low |= test(0) << lane;
            high |= test(16) << lane;
        }
        let p = combine(cx, i.imm, low, i.slots[C]);
        let q = combine(cx, i.imm, high, i.slots[C]);
        if i.slots[D] != NONE {
            cx.set_mask(i.slots[D], p);
        }
        if i.slots[Q] != NONE {
            cx.set_mask(i.slots[Q], q);
        }
        Flow::Next
    }
}

lane_loop! {
    /// `set` with a 32-bit result. `imm` holds the boolean operator, and in its upper 32 bits the result for true.
    fn set[R: Relation, T: Pod + PartialOrd][R, T](cx, i) {
        let a = cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = cx.warp.regs.lanes::<T>(i.slots[B]);
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= (R::test(a[lane], b[lane]) as u32) << lane;
        }
        let mask = combine(cx, i.imm, mask, i.slots[C]);
        let truth = (i.imm >> 32) as u32;
        let mut d = [0u32; LANES];
        for (lane, d) in d.iter_mut().enumerate() {
            *d = if mask >> lane & 1 != 0 { truth } else { 0 };
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    fn selp[T: Pod][T](cx, i) {
        let a = cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = cx.warp.regs.lanes::<T>(i.slots[B]);
        let mask = cx.mask(i.slots[C]);
        let mut d = [T::default(); LANES];
        for lane in 0..LANES {
            d[lane] = T::choose(mask >> lane & 1 != 0, a[lane], b[lane]);
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

fn selp_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let chosen = cx.mask(i.slots[C]);
    let value = cx.mask(i.slots[A]) & chosen | cx.mask(i.slots[B]) & !chosen;
    cx.set_mask(i.slots[D], value);
    Flow::Next
}

ops! {
    SlctInt[T: Pod][T](a: T, b: T, c: i32) -> T { if c >= 0 { a } else { b } }
    SlctFloat[T: Pod][T](a: T, b: T, c: f32; imm) -> T {
        let c = if imm != 0 { flush(c) } else { c };
        if c >= 0.0 { a } else { b }
    }
}

lane_loop! {
    /// `set` with a 16-bit result; `imm` has the same layout as for [`set`].
    fn set_half[R: Relation, T: Pod + PartialOrd][R, T](cx, i) {
        let a = cx.warp.regs.lanes::<T>(i.slots[A]);
        let b = cx.warp.regs.lanes::<T>(i.slots[B]);
        let mut mask = 0;
        for lane in 0..LANES {
            mask |= (R::test(a[lane], b[lane]) as u32) << lane;
        }
        let mask = combine(cx, i.imm, mask, i.slots[C]);
        let truth = (i.imm >> 32) as u16;
        let mut d = [0u16; LANES];
        for (lane, d) in d.iter_mut().enumerate() {
            *d = if mask >> lane & 1 != 0 { truth } else { 0 };
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    /// `set` of packed 16-bit floats: each half of the register gets its own result.
    fn set_packed[R: Relation, F: Format][R, F](cx, i) {
        let a = cx.warp.regs.lanes::<u32>(i.slots[A]);
        let b = cx.warp.regs.lanes::<u32>(i.slots[B]);
        let truth = i.imm >> 32;
        let mut d = [0u32; LANES];
        for shift in [0, 16] {
            let mut mask = 0;
            for lane in 0..LANES {
                let (x, y) = (F::to_f32((a[lane] >> shift) as u16), F::to_f32((b[lane] >> shift) as u16));
                mask |= (R::test(x, y) as u32) << lane;
            }
            let mask = combine(cx, i.imm, mask, i.slots[C]);
            for (lane, d) in d.iter_mut().enumerate() {
                *d |= if mask >> lane & 1 != 0 { truth as u32 & 0xffff } else { 0 } << shift;
            }
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

/// Instantiates the lane loop `$driver` for the relation that `$relation` names; `None` if there is none.
macro_rules! by_relation {
    ($driver:ident, $relation:expr, $second:ty, $float:expr) => {
        match $relation {
            "eq" => Some($driver::<Eq, $second>()),
            "ne" => Some($driver::<Ne, $second>()),
            "lt" | "lo" => Some($driver::<Lt, $second>()),
            "le" | "ls" => Some($driver::<Le, $second>()),
            "gt" | "hi" => Some($driver::<Gt, $second>()),
            "ge" | "hs" => Some($driver::<Ge, $second>()),
            _ if !$float => None,
            "equ" => Some($driver::<Equ, $second>()),
            "neu" => Some($driver::<Neu, $second>()),
            "ltu" => Some($driver::<Ltu, $second>()),
            "leu" => Some($driver::<Leu, $second>()),
            "gtu" => Some($driver::<Gtu, $second>()),
            "geu" => Some($driver::<Geu, $second>()),
            "num" => Some($driver::<Num, $second>()),
            "nan" => Some($driver::<Nan, $second>()),
            _ => None,
        }
    };
}

/// Instantiates the lane loop `$driver` for the relation that `$relation` names and the operand type `$ty`.
macro_rules! by_compared_type {
    ($driver:ident, $relation:expr, $ty:expr, $ftz:expr) => {
        match $ty {
            Ty::B16 | Ty::U16 => by_relation!($driver, $relation, u16, false),
            Ty::S16 => by_relation!($driver, $relation, i16, false),
            Ty::B32 | Ty::U32 => by_relation!($driver, $relation, u32, false),
            Ty::S32 => by_relation!($driver, $relation, i32, false),
            Ty::B64 | Ty::U64 => by_relation!($driver, $relation, u64, false),
            Ty::S64 => by_relation!($driver, $relation, i64, false),
            Ty::F32 if $ftz => by_relation!($driver, $relation, Flushed, true),
            Ty::F32 => by_relation!($driver, $relation, f32, true),
            Ty::F64 => by_relation!($driver, $relation, f64, true),
            Ty::F16 => by_relation!($driver, $relation, F16Bits, true),
            Ty::Bf16 => by_relation!($driver, $relation, Bf16Bits, true),
            _ => None,
        }
    };
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    match op.opcode() {
        "selp" => select(op),
        "slct" => slct(op),
        name => comparison(op, name == "set"),
    }
}

const RELATIONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

fn comparison(op: &mut InstructionCursor<'_, '_>, as_value: bool) -> Result<Exec, ParseError> {
    let relation = op.take_map(|name| RELATIONS.iter().find(|&&known| known == name).copied());
    let Some(relation) = relation else {
        return Err(op.malformed(format!("`{}` needs a comparison operator, such as `.lt`", op.text())));
    };
    let operator = op.take_any(&COMBINE);
    let ftz = op.take("ftz");
    let result = if as_value { Some(op.take_ty()?) } else { None };
    let ty = op.take_ty()?;
    if matches!(ty, Ty::B16 | Ty::B32 | Ty::B64) && !matches!(relation, "eq" | "ne") {
        return Err(op.unsupported());
    }
    op.slots[D] = NONE;
    op.slots[Q] = NONE;
    let mut narrow = false;
    match (result, op.operand(0)?) {
        (Some(result), _) => {
            let truth: u64 = match result {
                Ty::U32 | Ty::S32 => u32::MAX as u64,
                Ty::F32 => 1.0f32.to_bits() as u64,
                Ty::U16 | Ty::S16 => u16::MAX as u64,
                Ty::F16 | Ty::F16x2 => 0x3c00,
                Ty::Bf16 | Ty::Bf16x2 => 0x3f80,
                _ => return Err(op.unsupported()),
            };
            narrow = result.width() == Width::W16;
            let packed = matches!(ty, Ty::F16x2 | Ty::Bf16x2);
            let same = result == ty || matches!(result, Ty::U32 | Ty::S32);
            if packed && !same || !packed && matches!(result, Ty::F16x2 | Ty::Bf16x2) {
                return Err(op.unsupported());
            }
            op.slots[D] = op.dst(0, result.width())?;
            op.imm = truth << 32;
        }
        (None, Operand::Pair(p, q)) => {
            for (slot, side) in [(D, p), (Q, q)] {
                op.slots[slot] = match &**side {
                    Operand::Reg(register) => op.write_register(*register, Width::Predicate)?,
                    Operand::Sink => NONE,
                    _ => return Err(op.unsupported()),
                };
            }
        }
        (None, _) => op.slots[D] = op.dst(0, Width::Predicate)?,
    }
    op.slots[A] = op.src(1, ty)?;
    op.slots[B] = op.src(2, ty)?;
    if let Some(operator) = operator {
        op.imm |= operator;
        op.slots[C] = op.src(3, Ty::Pred)?;
    }
    let found = match ty {
        Ty::F16x2 if !as_value => by_relation!(setp_packed, relation, F16, true),
        Ty::Bf16x2 if !as_value => by_relation!(setp_packed, relation, Bf16, true),
        Ty::F16x2 => by_relation!(set_packed, relation, F16, true),
        Ty::Bf16x2 => by_relation!(set_packed, relation, Bf16, true),
        _ if narrow => by_compared_type!(set_half, relation, ty, ftz),
        _ if as_value => by_compared_type!(set, relation, ty, ftz),
        _ => by_compared_type!(setp, relation, ty, ftz),
    };
    found.ok_or_else(|| op.unsupported())
}

fn select(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.take_ty()?;
    op.ternary(ty, ty, Ty::Pred)?;
    Ok(match ty.width() {
        Width::Predicate => selp_pred,
        Width::W16 => selp::<u16>(),
        Width::W32 => selp::<u32>(),
        Width::W64 => selp::<u64>(),
    })
}

fn slct(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    op.imm = op.take("ftz") as u64;
    let (ty, by) = (op.take_ty()?, op.take_ty()?);
    op.ternary(ty, ty, by)?;
    match (ty.width(), by) {
        (Width::W16, Ty::S32) => Ok(op3::<SlctInt<u16>>()),
        (Width::W32, Ty::S32) => Ok(op3::<SlctInt<u32>>()),
        (Width::W64, Ty::S32) => Ok(op3::<SlctInt<u64>>()),
        (Width::W16, Ty::F32) => Ok(op3::<SlctFloat<u16>>()),
        (Width::W32, Ty::F32) => Ok(op3::<SlctFloat<u32>>()),
        (Width::W64, Ty::F32) => Ok(op3::<SlctFloat<u64>>()),
        _ => Err(op.unsupported()),
    }
}
