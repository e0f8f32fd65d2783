//! `atom` and `red` of vectors in global memory: every element is updated atomically, the vector as a whole is not.

use super::atomic::{AddBf16, AddBf16x2, AddF16, AddF16x2, AddF32Global, Update, Word, pointers, updates};
use super::half::{Max, Min, Packed};
use super::lane_loop::Op2;
use super::load_store::{address_operand, take_hints};
use super::races;
use super::rounding::{Bf16, F16};
use crate::code::access::{Access, StateSpace};
use crate::code::cursor::{InstructionCursor, quantity};
use crate::code::operands::NONE;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::{LANES, lanes_of};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Slot of the number of the operand list: the slots of the results, or [`NONE`], then those of the sources.
const LIST: usize = 5;

updates! {
    MinF16(old, b, _c) Min::<F16>::apply(old as u16, b as u16, 0).into();
    MaxF16(old, b, _c) Max::<F16>::apply(old as u16, b as u16, 0).into();
    MinBf16(old, b, _c) Min::<Bf16>::apply(old as u16, b as u16, 0).into();
    MaxBf16(old, b, _c) Max::<Bf16>::apply(old as u16, b as u16, 0).into();
    MinF16x2(old, b, _c) Packed::<Min<F16>>::apply(old as u32, b as u32, 0).into();
    MaxF16x2(old, b, _c) Packed::<Max<F16>>::apply(old as u32, b as u32, 0).into();
    MinBf16x2(old, b, _c) Packed::<Min<Bf16>>::apply(old as u32, b as u32, 0).into();
    MaxBf16x2(old, b, _c) Packed::<Max<Bf16>>::apply(old as u32, b as u32, 0).into();
}

/// An atomic instruction on vectors of words of a width.
fn atomic_vector<W: Word, U: Update>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.slots[LIST].into());
    let (results, sources) = list.split_at(list.len() / 2);
    let bytes = size_of::<W>();
    // Hash of the first lane's old values: a polling loop gets the same hash again.
    let mut first = 0u64;
    let Some(pointers) = pointers(cx, i, (sources.len() * bytes) as u64) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    for (element, (&result, &source)) in results.iter().zip(sources).enumerate() {
        let b = *cx.warp.regs.lanes::<W>(source);
        let mut d = [W::default(); LANES];
        for lane in lanes_of(cx.active) {
            let at = pointers[lane].wrapping_add(element * bytes);
            // SAFETY: `resolve` checked the whole vector; other threads access the memory by raw pointers or atomics.
            d[lane] = unsafe { W::update(at, |old| U::update(old, b[lane].bits(), 0)) };
        }
        first = first.rotate_left(16) ^ d[cx.active.trailing_zeros() as usize % LANES].bits();
        if result != NONE {
            cx.warp.regs.write(result, &d, cx.active);
        }
    }
    if results.iter().all(|&result| result == NONE) {
        return Flow::Next;
    }
    if cx.cluster.races.is_some() {
        races::acquire_at(cx, i, Access::Atomic, turn);
    }
    if cx.warp.polls(first) { Flow::Yield } else { Flow::Next }
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let returns = op.opcode() == "atom";
    let is_global = op.take("global");
    let (flags, policy) = take_hints(op);
    let count = op.take_any(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let operation = op.take_any(&[("add", "add"), ("min", "min"), ("max", "max")]);
    let is_rounded = !op.take("noftz");
    let ty = op.take_ty()?;
    let bytes = count as u32 * ty.bytes();
    if !is_global || is_rounded != (ty == Ty::F32) || !(4..=16).contains(&bytes) {
        return Err(op.unsupported());
    }
    let address = usize::from(returns);
    let results = if returns { elements(op, 0, count, ty, true)? } else { vec![NONE; count] };
    address_operand(op, address, StateSpace::Global, flags)?;
    let sources = elements(op, address + 1, count, ty, false)?;
    if policy {
        op.src(address + 2, Ty::B64)?;
    }
    op.slots[LIST] = op.list([results, sources].concat()) as u32;
    use Ty::{Bf16, Bf16x2, F16, F16x2, F32};
    Ok(match (operation, ty) {
        (Some("add"), F32) => atomic_vector::<u32, AddF32Global>,
        (Some("add"), F16) => atomic_vector::<u16, AddF16>,
        (Some("add"), Bf16) => atomic_vector::<u16, AddBf16>,
        (Some("add"), F16x2) => atomic_vector::<u32, AddF16x2>,
        (Some("add"), Bf16x2) => atomic_vector::<u32, AddBf16x2>,
        (Some("min"), F16) => atomic_vector::<u16, MinF16>,
        (Some("max"), F16) => atomic_vector::<u16, MaxF16>,
        (Some("min"), Bf16) => atomic_vector::<u16, MinBf16>,
        (Some("max"), Bf16) => atomic_vector::<u16, MaxBf16>,
        (Some("min"), F16x2) => atomic_vector::<u32, MinF16x2>,
        (Some("max"), F16x2) => atomic_vector::<u32, MaxF16x2>,
        (Some("min"), Bf16x2) => atomic_vector::<u32, MinBf16x2>,
        (Some("max"), Bf16x2) => atomic_vector::<u32, MaxBf16x2>,
        _ => return Err(op.unsupported()),
    })
}

/// Slots of the elements of a vector operand.
fn elements(
    op: &mut InstructionCursor<'_, '_>,
    index: usize,
    count: usize,
    ty: Ty,
    writes: bool,
) -> Result<Vec<u32>, ParseError> {
    let Operand::Vector(elements) = op.operand(index)? else {
        return Err(op.error(format!("operand {} of `{}` must be a vector", index + 1, op.text())));
    };
    if elements.len() != count {
        return Err(op.error(format!("`{}` takes {}", op.text(), quantity(count, "element"))));
    }
    let slot = |element: &Operand| match element {
        Operand::Reg(register) if writes => op.write_register(*register, ty.width()),
        Operand::Sink if writes => Ok(NONE),
        source if !writes => op.value(source, ty),
        _ => Err(op.error("a result must be a register")),
    };
    elements.iter().map(slot).collect()
}
