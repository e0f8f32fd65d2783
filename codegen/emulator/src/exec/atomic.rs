//! `atom` and `red`: the lanes of a warp execute one after the other, each atomically with respect to all threads.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::load_store::{address_operand, take_hints, take_space};
use super::races;
use super::resolve::resolve;
use super::rounding::{self, Format, add_odd, canonical, flush};
use crate::code::access::{Access, StateSpace};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{B, C, D, NONE};
use crate::context::{Exec, ExecutionContext, Flow, Inst, Resolved};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes_of};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Operation of an atomic instruction: computes the new value from the old value and the operands, as bits.
pub(crate) trait Update: 'static {
    fn update(old: u64, b: u64, c: u64) -> u64;
}

macro_rules! updates {
    ($($name:ident($old:ident, $b:ident, $c:ident) $body:expr;)*) => { $(
        pub(crate) struct $name;
        impl Update for $name {
            #[inline(always)]
            fn update($old: u64, $b: u64, $c: u64) -> u64 { $body }
        }
    )* };
}
updates! {
    Add(old, b, _c) old.wrapping_add(b);
    And(old, b, _c) old & b;
    Or(old, b, _c) old | b;
    Xor(old, b, _c) old ^ b;
    Exch(_old, b, _c) b;
    Cas(old, b, c) if old == b { c } else { old };
    // `inc` gives 0 if the old value has reached the operand. `dec` gives the operand if the old value is 0 or exceeds
    // the operand.
    Inc(old, b, _c) if old >= b { 0 } else { old + 1 };
    Dec(old, b, _c) if old == 0 || old > b { b } else { old - 1 };
    MinU(old, b, _c) old.min(b);
    MaxU(old, b, _c) old.max(b);
    MinS32(old, b, _c) (old as i32).min(b as i32) as u32 as u64;
    MaxS32(old, b, _c) (old as i32).max(b as i32) as u32 as u64;
    MinS64(old, b, _c) (old as i64).min(b as i64) as u64;
    MaxS64(old, b, _c) (old as i64).max(b as i64) as u64;
    AddF32(old, b, _c) canonical(f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits() as u64;
    AddF64(old, b, _c) {
        let (x, y) = (f64::from_bits(old), f64::from_bits(b));
        rounding::propagate(x + y, [y, x]).to_bits()
    };
    // In global memory f32 additions flush subnormals, and f64 additions return NaN operands unchanged.
    AddF32Global(old, b, _c) {
        let (x, y) = (flush(f32::from_bits(old as u32)), flush(f32::from_bits(b as u32)));
        canonical(flush(x + y)).to_bits() as u64
    };
    AddF64Global(old, b, _c) {
        let (x, y) = (f64::from_bits(old), f64::from_bits(b));
        if y.is_nan() { b } else if x.is_nan() { old } else { rounding::propagate(x + y, [x, y]).to_bits() }
    };
    AddF16x2(old, b, _c) add_pair::<rounding::F16>(old, b);
    AddBf16x2(old, b, _c) add_pair::<rounding::Bf16>(old, b);
    AddF16(old, b, _c) add_pair::<rounding::F16>(old, b);
    AddBf16(old, b, _c) add_pair::<rounding::Bf16>(old, b);
}

fn add_pair<F: Format>(a: u64, b: u64) -> u64 {
    let add = |shift: u32| {
        let (x, y) = (F::to_f32((a >> shift) as u16), F::to_f32((b >> shift) as u16));
        (F::from_f64(add_odd(x as f64, y as f64)) as u64) << shift
    };
    add(0) | add(16)
}

fn atomic16<U: Update>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some(pointers) = pointers(cx, i, 2) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    let b = *cx.warp.regs.lanes::<u16>(i.slots[B]);
    let c = *cx.warp.regs.lanes::<u16>(i.slots[C]);
    let mut d = [0u16; 32];
    for lane in lanes_of(cx.active) {
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        let cell = unsafe { AtomicU16::from_ptr(pointers[lane].cast()) };
        let update = |old: u16| Some(U::update(old as u64, b[lane] as u64, c[lane] as u64) as u16);
        d[lane] = cell.fetch_update(SeqCst, SeqCst, update).unwrap_or_default();
    }
    if i.slots[D] != NONE {
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if cx.cluster.races.is_some() {
            races::acquire_at(cx, i, Access::Atomic, turn);
        }
        if cx.warp.polls(d[cx.active.trailing_zeros() as usize % LANES] as u64) {
            return Flow::Yield;
        }
    }
    Flow::Next
}

fn atomic32<U: Update>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some(pointers) = pointers(cx, i, 4) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    let b = *cx.warp.regs.lanes::<u32>(i.slots[B]);
    let c = *cx.warp.regs.lanes::<u32>(i.slots[C]);
    let mut d = [0u32; 32];
    for lane in lanes_of(cx.active) {
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        let cell = unsafe { AtomicU32::from_ptr(pointers[lane].cast()) };
        let update = |old: u32| Some(U::update(old as u64, b[lane] as u64, c[lane] as u64) as u32);
        d[lane] = cell.fetch_update(SeqCst, SeqCst, update).unwrap_or_default();
    }
    if i.slots[D] != NONE {
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if cx.cluster.races.is_some() {
            races::acquire_at(cx, i, Access::Atomic, turn);
        }
        if cx.warp.polls(d[cx.active.trailing_zeros() as usize % LANES] as u64) {
            return Flow::Yield;
        }
    }
    Flow::Next
}

fn atomic64<U: Update>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some(pointers) = pointers(cx, i, 8) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    let b = *cx.warp.regs.lanes::<u64>(i.slots[B]);
    let c = *cx.warp.regs.lanes::<u64>(i.slots[C]);
    let mut d = [0u64; 32];
    for lane in lanes_of(cx.active) {
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        let cell = unsafe { AtomicU64::from_ptr(pointers[lane].cast()) };
        let update = |old: u64| Some(U::update(old, b[lane], c[lane]));
        d[lane] = cell.fetch_update(SeqCst, SeqCst, update).unwrap_or_default();
    }
    if i.slots[D] != NONE {
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if cx.cluster.races.is_some() {
            races::acquire_at(cx, i, Access::Atomic, turn);
        }
        if cx.warp.polls(d[cx.active.trailing_zeros() as usize % LANES]) {
            return Flow::Yield;
        }
    }
    Flow::Next
}

fn pointers(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64) -> Option<[*mut u8; 32]> {
    match resolve(cx, i, bytes, Access::Atomic) {
        Resolved::Run(start) => Some(std::array::from_fn(|lane| start.wrapping_add(lane * bytes as usize))),
        Resolved::Same(start) => Some([start; 32]),
        Resolved::Lanes(pointers) => Some(pointers),
        Resolved::Fault => {
            debug_assert!(cx.worker.fault.as_ref().is_some_and(|fault| fault.kind != FindingKind::Trap));
            None
        }
    }
}

const OPERATIONS: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let reduction = op.opcode() == "red";
    let space = take_space(op);
    let (flags, policy) = take_hints(op);
    let operation = op.take_map(|name| OPERATIONS.iter().find(|&&known| known == name).copied());
    let Some(operation) = operation else { return Err(op.unsupported()) };
    op.take("noftz");
    let ty = op.take_ty()?;
    let address = !reduction as usize;
    op.slots[D] = if reduction { NONE } else { sink_or_register(op, ty)? };
    address_operand(op, address, space, flags)?;
    op.slots[B] = op.src(address + 1, ty)?;
    let cas = operation == "cas";
    op.slots[C] = if cas { op.src(address + 2, ty)? } else { op.slots[B] };
    if policy {
        op.src(address + 2 + cas as usize, Ty::B64)?;
    }
    let shared = matches!(space, StateSpace::Shared | StateSpace::SharedCluster);
    use Ty::{B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
    Ok(match (operation, ty) {
        ("add", U32 | S32) => atomic32::<Add>,
        ("add", U64 | S64) => atomic64::<Add>,
        ("add", F32) if shared => atomic32::<AddF32>,
        ("add", F64) if shared => atomic64::<AddF64>,
        ("add", F32) => atomic32::<AddF32Global>,
        ("add", F64) => atomic64::<AddF64Global>,
        ("add", F16x2) => atomic32::<AddF16x2>,
        ("add", Bf16x2) => atomic32::<AddBf16x2>,
        ("add", F16) => atomic16::<AddF16>,
        ("add", Bf16) => atomic16::<AddBf16>,
        ("cas", B16) if !reduction => atomic16::<Cas>,
        ("and", B32) => atomic32::<And>,
        ("and", B64) => atomic64::<And>,
        ("or", B32) => atomic32::<Or>,
        ("or", B64) => atomic64::<Or>,
        ("xor", B32) => atomic32::<Xor>,
        ("xor", B64) => atomic64::<Xor>,
        ("exch", B32) if !reduction => atomic32::<Exch>,
        ("exch", B64) if !reduction => atomic64::<Exch>,
        ("cas", B32) if !reduction => atomic32::<Cas>,
        ("cas", B64) if !reduction => atomic64::<Cas>,
        ("inc", U32) => atomic32::<Inc>,
        ("dec", U32) => atomic32::<Dec>,
        ("min", U32) => atomic32::<MinU>,
        ("max", U32) => atomic32::<MaxU>,
        ("min", S32) => atomic32::<MinS32>,
        ("max", S32) => atomic32::<MaxS32>,
        ("min", U64) => atomic64::<MinU>,
        ("max", U64) => atomic64::<MaxU>,
        ("min", S64) => atomic64::<MinS64>,
        ("max", S64) => atomic64::<MaxS64>,
        _ => return Err(op.unsupported()),
    })
}

fn sink_or_register(op: &mut InstructionCursor<'_, '_>, ty: Ty) -> Result<u32, ParseError> {
    if *op.operand(0)? == Operand::Sink {
        return Ok(NONE);
    }
    op.dst(0, ty.width())
}
