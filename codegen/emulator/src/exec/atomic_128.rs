//! `atom.cas` and `atom.exch` of 128 bits.

use std::sync::{Mutex, PoisonError};

use super::atomic::pointers;
use super::load_store::{address_operand, take_hints, take_space};
use super::races;
use crate::code::access::Access;
use crate::code::cursor::InstructionCursor;
use crate::code::operands::NONE;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::lanes_of;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Held while memory is updated, as the host has no portable atomic operation of 128 bits.
static UPDATE: Mutex<()> = Mutex::new(());

/// Slot of the number of the operand list: the halves of the result, or [`NONE`], of the value compared with, if there is
/// one, and of the new value.
const LIST: usize = 5;
const BYTES: u64 = 16;

fn atomic(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.slots[LIST].into());
    let Some(pointers) = pointers(cx, i, BYTES) else { return Flow::Fault };
    let turn = if cx.cluster.races.is_some() { races::release_at(cx, i, Access::Atomic) } else { None };
    let value = |cx: &ExecutionContext<'_>, slots: &[u32], lane: usize| {
        let half = |slot: u32| u128::from(cx.warp.regs.lanes::<u64>(slot)[lane]);
        half(slots[0]) | half(slots[1]) << 64
    };
    let (results, operands) = list.split_at(2);
    let (compared, new) = operands.split_at(operands.len() - 2);
    for lane in lanes_of(cx.active) {
        let _held = UPDATE.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pointers[lane].cast::<u128>();
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        let old = unsafe { at.read_unaligned() };
        if compared.is_empty() || value(cx, compared, lane) == old {
            // SAFETY: as above.
            unsafe { at.write_unaligned(value(cx, new, lane)) };
        }
        for (half, &slot) in results.iter().enumerate().filter(|&(_, &slot)| slot != NONE) {
            cx.warp.regs.lanes_mut::<u64>(slot)[lane] = (old >> (64 * half)) as u64;
        }
    }
    if cx.cluster.races.is_some() {
        races::acquire_at(cx, i, Access::Atomic, turn);
    }
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let space = take_space(op);
    let (flags, policy) = take_hints(op);
    let compares = op.take("cas");
    if compares == op.take("exch") || !op.take("b128") {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    match op.operand(0)? {
        Operand::Vector(halves) => {
            for half in halves {
                let Operand::Reg(register) = half else {
                    return Err(op.error("a result must be a register"));
                };
                list.push(op.write_register(*register, Width::W64)?);
            }
        }
        _ => list.extend([NONE; 2]),
    }
    address_operand(op, 1, space, flags)?;
    let last = 2 + usize::from(compares);
    for index in 2..=last {
        let Operand::Vector(halves) = op.operand(index)? else { return Err(op.unsupported()) };
        for half in halves {
            list.push(op.value(half, Ty::B64)?);
        }
    }
    if policy {
        op.src(last + 1, Ty::B64)?;
    }
    op.slots[LIST] = op.list(list) as u32;
    Ok(atomic)
}
