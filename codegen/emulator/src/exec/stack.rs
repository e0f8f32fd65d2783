//! `alloca`, `stacksave` and `stackrestore`: the stack of a thread, in its local memory.

use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Alignment of an allocation that gives none.
const ALIGNMENT: u64 = 8;
/// Largest alignment of an allocation.
const MAX_ALIGNMENT: u64 = 1 << 23;

/// Reads a 32-bit or 64-bit register.
fn values(cx: &ExecutionContext<'_>, slot: u32, wide: bool) -> [u64; LANES] {
    match wide {
        true => *cx.warp.regs.lanes::<u64>(slot),
        false => cx.warp.regs.lanes::<u32>(slot).map(u64::from),
    }
}

/// Writes a 32-bit or 64-bit register of the active lanes.
fn write(cx: &mut ExecutionContext<'_>, slot: u32, values: &[u64; LANES], wide: bool) {
    match wide {
        true => cx.warp.regs.write(slot, values, cx.active),
        false => cx.warp.regs.write(slot, &values.map(|value| value as u32), cx.active),
    }
}

/// Flag in `imm`: the registers have 64 bits. The other bits are the alignment.
const WIDE: u64 = 1 << 63;

fn allocate(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let (alignment, wide) = (i.imm & !WIDE, i.imm & WIDE != 0);
    let sizes = values(cx, i.slots[A], wide);
    let bytes = cx.warp.local.bytes;
    let mut starts = cx.warp.local.top;
    for lane in cx.active_lanes() {
        let start = starts[lane].next_multiple_of(alignment);
        let size = sizes[lane];
        if start > bytes || size > bytes - start {
            let left = bytes.saturating_sub(start);
            let detail = format!("`alloca` of {size} bytes; {left} bytes of the thread's stack are left");
            cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
            if let Some(fault) = &mut cx.worker.fault {
                fault.space = Some(Space::Local);
            }
            return Flow::Fault;
        }
        starts[lane] = start;
        cx.warp.local.top[lane] = start + size;
        // An earlier allocation may have initialised the same bytes.
        cx.warp.local.map.unmark(lane as u64 * bytes + start, size);
    }
    write(cx, i.slots[D], &starts, wide);
    Flow::Next
}

fn save(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let tops = cx.warp.local.top;
    write(cx, i.slots[D], &tops, i.imm & WIDE != 0);
    Flow::Next
}

fn restore(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let saved = values(cx, i.slots[A], i.imm & WIDE != 0);
    for lane in cx.active_lanes() {
        let (stack, top) = (cx.warp.local.stack, cx.warp.local.top[lane]);
        if !(stack..=top).contains(&saved[lane]) {
            let detail = format!(
                "`stackrestore` of {:#x}, which is not a state of the stack between {stack:#x} and {top:#x}",
                saved[lane]
            );
            return cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
        }
        cx.warp.local.top[lane] = saved[lane];
    }
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let ty = op.take_ty()?;
    if !matches!(ty, Ty::U32 | Ty::U64) {
        return Err(op.unsupported());
    }
    op.imm = if ty == Ty::U64 { WIDE } else { 0 };
    match op.opcode() {
        "alloca" => {
            op.slots[D] = op.dst(0, ty.width())?;
            op.slots[A] = op.src(1, ty)?;
            let alignment = if op.operand_count() > 2 { op.constant_operand(2)? } else { ALIGNMENT };
            if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
                return Err(op.error(format!("the alignment {alignment} is not a power of two up to 2^23")));
            }
            op.imm |= alignment;
            Ok(allocate)
        }
        "stacksave" => {
            op.slots[D] = op.dst(0, ty.width())?;
            Ok(save)
        }
        _ => {
            op.slots[A] = op.src(0, ty)?;
            Ok(restore)
        }
    }
}
