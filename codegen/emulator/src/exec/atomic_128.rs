//! `atom.cas` and `atom.exch` of 128 bits. They are atomic among each other; another access of the same memory while one is
//! executed, by a CTA that another host thread runs, may see one half of the new value.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
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
    let mut first = None;
    for lane in lanes_of(cx.active) {
        let _held = UPDATE.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pointers[lane].cast::<u64>();
        // SAFETY: `resolve` checked bounds and alignment; other threads access the memory by raw pointers or atomics.
        let halves = [0, 1].map(|half| unsafe { AtomicU64::from_ptr(at.wrapping_add(half)) });
        let old = u128::from(halves[0].load(SeqCst)) | u128::from(halves[1].load(SeqCst)) << 64;
        if compared.is_empty() || value(cx, compared, lane) == old {
            let new = value(cx, new, lane);
            halves[0].store(new as u64, SeqCst);
            halves[1].store((new >> 64) as u64, SeqCst);
        }
        first.get_or_insert(old);
        for (half, &slot) in results.iter().enumerate().filter(|&(_, &slot)| slot != NONE) {
            cx.warp.regs.lanes_mut::<u64>(slot)[lane] = (old >> (64 * half)) as u64;
        }
    }
    if cx.cluster.races.is_some() {
        races::acquire_at(cx, i, Access::Atomic, turn);
    }
    let old = first.unwrap_or(0);
    match cx.warp.polls(old as u64 ^ (old >> 64) as u64) {
        true => Flow::Yield,
        false => Flow::Next,
    }
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
        Operand::Vector(halves) if halves.len() == 2 => {
            for half in halves {
                let Operand::Reg(register) = half else {
                    return Err(op.error("a result must be a register"));
                };
                list.push(op.write_register(*register, Width::W64)?);
            }
        }
        Operand::Sink => list.extend([NONE; 2]),
        _ => return Err(op.unsupported()),
    }
    address_operand(op, 1, space, flags)?;
    let last = 2 + usize::from(compares);
    for index in 2..=last {
        let halves = match op.operand(index)? {
            Operand::Vector(halves) if halves.len() == 2 => halves,
            _ => return Err(op.unsupported()),
        };
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
