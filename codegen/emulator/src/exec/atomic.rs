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
use crate::lanes::{LANES, Pod, lanes_of};
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
pub(super) use updates;

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

/// A word that atomic instructions update.
pub(super) trait Word: Pod {
    /// Replaces the word in memory by `update` of it, atomically, and returns the old word.
    ///
    /// # Safety
    /// `at` is valid for reads and writes of a word and aligned to it, and all accesses by other threads meanwhile are by raw
    /// pointers or atomic.
    unsafe fn update(at: *mut u8, update: impl Fn(u64) -> u64) -> Self;
    /// The word's bits.
    fn bits(self) -> u64;
}

macro_rules! words {
    ($($word:ty: $atomic:ty),*) => { $(
        impl Word for $word {
            #[inline(always)]
            unsafe fn update(at: *mut u8, update: impl Fn(u64) -> u64) -> $word {
                // SAFETY: the caller's promise.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                let old = cell.fetch_update(SeqCst, SeqCst, |old| Some(update(old as u64) as $word));
                old.unwrap_or_default()
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )* };
}
words!(u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// An atomic instruction on words of a width.
fn atomic<W: Word, U: Update>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some(pointers) = pointers(cx, i, size_of::<W>() as u64) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    let b = *cx.warp.regs.lanes::<W>(i.slots[B]);
    let c = *cx.warp.regs.lanes::<W>(i.slots[C]);
    let mut d = [W::default(); LANES];
    for lane in lanes_of(cx.active) {
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        d[lane] = unsafe { W::update(pointers[lane], |old| U::update(old, b[lane].bits(), c[lane].bits())) };
    }
    if i.slots[D] != NONE {
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if cx.cluster.races.is_some() {
            races::acquire_at(cx, i, Access::Atomic, turn);
        }
        if cx.warp.polls(d[cx.active.trailing_zeros() as usize % LANES].bits()) {
            return Flow::Yield;
        }
    }
    Flow::Next
}

pub(super) fn pointers(cx: &mut ExecutionContext<'_>, i: &Inst, bytes: u64) -> Option<[*mut u8; 32]> {
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
        ("add", U32 | S32) => atomic::<u32, Add>,
        ("add", U64 | S64) => atomic::<u64, Add>,
        ("add", F32) if shared => atomic::<u32, AddF32>,
        ("add", F64) if shared => atomic::<u64, AddF64>,
        ("add", F32) => atomic::<u32, AddF32Global>,
        ("add", F64) => atomic::<u64, AddF64Global>,
        ("add", F16x2) => atomic::<u32, AddF16x2>,
        ("add", Bf16x2) => atomic::<u32, AddBf16x2>,
        ("add", F16) => atomic::<u16, AddF16>,
        ("add", Bf16) => atomic::<u16, AddBf16>,
        ("cas", B16) if !reduction => atomic::<u16, Cas>,
        ("and", B32) => atomic::<u32, And>,
        ("and", B64) => atomic::<u64, And>,
        ("or", B32) => atomic::<u32, Or>,
        ("or", B64) => atomic::<u64, Or>,
        ("xor", B32) => atomic::<u32, Xor>,
        ("xor", B64) => atomic::<u64, Xor>,
        ("exch", B32) if !reduction => atomic::<u32, Exch>,
        ("exch", B64) if !reduction => atomic::<u64, Exch>,
        ("cas", B32) if !reduction => atomic::<u32, Cas>,
        ("cas", B64) if !reduction => atomic::<u64, Cas>,
        ("inc", U32) => atomic::<u32, Inc>,
        ("dec", U32) => atomic::<u32, Dec>,
        ("min", U32) => atomic::<u32, MinU>,
        ("max", U32) => atomic::<u32, MaxU>,
        ("min", S32) => atomic::<u32, MinS32>,
        ("max", S32) => atomic::<u32, MaxS32>,
        ("min", U64) => atomic::<u64, MinU>,
        ("max", U64) => atomic::<u64, MaxU>,
        ("min", S64) => atomic::<u64, MinS64>,
        ("max", S64) => atomic::<u64, MaxS64>,
        _ => return Err(op.unsupported()),
    })
}

fn sink_or_register(op: &mut InstructionCursor<'_, '_>, ty: Ty) -> Result<u32, ParseError> {
    if *op.operand(0)? == Operand::Sink {
        return Ok(NONE);
    }
    op.dst(0, ty.width())
}
