//! Branches, exits, traps, barriers and `griddepcontrol`.

use super::fragment::whole_warp;
use super::{collective, print, programmatic, races};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, C, D, NONE};
use crate::context::barrier::{Arrival, Reduction};
use crate::context::registers::{Granted, RegisterMisuse, RegisterRequest};
use crate::context::warp::NEVER;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::FindingKind;
use crate::geometry::BARRIERS;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// `bra`; `imm` is the target in the lower half and the reconvergence point in the upper half.
fn branch(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.warp.branch(cx.active, i.imm as u32 as usize, (i.imm >> 32) as u32 as usize);
    Flow::Jump
}

fn exit(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    if let Some(fault) = cx.warp.fault_of_wait_for(cx.active) {
        cx.worker.fault = Some(fault);
        return Flow::Fault;
    }
    let left = cx.active == cx.warp.mask;
    if !cx.warp.exit(cx.active) {
        return Flow::Done;
    }
    if left { Flow::Jump } else { Flow::Next }
}

fn trap(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let detail = TRAPS.iter().find(|&&(_, _, number)| number == i.imm).map_or("", |trap| trap.1);
    let kind = if i.imm == FALSE_ASSUMPTION { FindingKind::Assumption } else { FindingKind::Trap };
    cx.fault(kind, cx.active.trailing_zeros(), detail)
}

/// Number of the cause of a trap that stands for a false assumption.
const FALSE_ASSUMPTION: u64 = 4;
/// Number of the cause of a trap that is a breakpoint.
const BREAKPOINT: u64 = 5;

/// Causes of a trap: modifier of a `trap` that the loader inserts (empty for one that the text contains), message, and
/// number in `imm`.
const TRAPS: [(&str, &str, u64); 7] = [
    ("", "the kernel executed `trap`", 0),
    ("brx", "the index is outside the list of targets", 1),
    ("assert", "an assertion of the kernel failed", 2),
    ("call", "the address of the indirect call is not that of a function of its type", 3),
    ("assume", "the kernel assumes what does not hold, and the compiler relies on it", FALSE_ASSUMPTION),
    ("brkpt", "the kernel executed `brkpt`, which ends a launch that no debugger watches", BREAKPOINT),
    ("free", "the kernel frees memory, but the emulator has no heap of the device", 6),
];

/// `setmaxnreg`; `imm` is the number of registers, and [`INCREASES`] for `.inc`. The registers are counted, but their contents
/// do not change. Without a limit on the kernel's registers, ptxas ignores the instruction, and so does the emulator.
fn set_max_registers(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    if cx.launch.program.entry_registers.is_none() || !cx.launch.checks.registers {
        return Flow::Next;
    }
    let request = RegisterRequest { increases: i.imm & INCREASES != 0, count: i.imm as u32 };
    let misuse = match cx.cluster.registers.request(cx.warp.index, request) {
        Granted::Done => return Flow::Next,
        Granted::Waits => return Flow::Retry,
        Granted::Misused(misuse) => misuse,
    };
    let name = |warp| cx.cluster.warp_name(warp);
    let detail = match misuse {
        RegisterMisuse::Has(has) => format!(
            "the warp has {has} registers per thread, which {request} does not {}",
            if request.increases { "increase" } else { "decrease" }
        ),
        RegisterMisuse::Differs { other, request: differs } => format!(
            "the warp executes {request}, and {} of the same warpgroup {differs}: all four warps must execute the same \
             instruction",
            name(other)
        ),
        RegisterMisuse::Behind { other } => format!(
            "the warp executes {request} before {} of the same warpgroup has executed the previous `setmaxnreg`: \
             synchronise the warpgroup between them",
            name(other)
        ),
    };
    cx.fault(FindingKind::Registers, 0, detail)
}

/// Flag in `imm` of `setmaxnreg`: the instruction increases the registers.
const INCREASES: u64 = 1 << 32;

fn nanosleep(_: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    Flow::Yield
}

/// Flag in `imm` of a barrier: the warp waits.
const WAITS: u64 = 1;
/// Flag in `imm` of a barrier: the instruction has a thread count.
const COUNTED: u64 = 2;
/// Bit offset of the reduction's code in a barrier's `imm`.
const REDUCES: u32 = 8;

fn barrier(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let lane = cx.active.trailing_zeros();
    let id = cx.warp.regs.lanes::<u32>(i.slots[A])[lane as usize];
    if id as usize >= BARRIERS {
        return cx.fault(FindingKind::BarrierDivergence, lane, format!("barrier {id} does not exist"));
    }
    if cx.active != cx.warp.live {
        cx.exit_waiting_lanes();
    }
    if cx.active != cx.warp.live {
        let missing = cx.missing().lanes.trailing_zeros();
        let detail = format!(
            "lane {missing} of the warp does not execute the barrier together with lane {lane}: the warp has \
             diverged"
        );
        return cx.fault_of_missing(FindingKind::BarrierDivergence, cx.missing(), missing, detail);
    }
    let counted = i.imm & COUNTED != 0;
    let threads = match counted {
        true => cx.warp.regs.lanes::<u32>(i.slots[B])[lane as usize],
        false => cx.cluster.warps as u32 * 32,
    };
    if counted && (threads == 0 || threads % 32 != 0 || threads > cx.cluster.warps as u32 * 32) {
        let detail = format!(
            "a barrier for {threads} threads: not a multiple of 32 up to the CTA's {} warps",
            cx.cluster.warps
        );
        return cx.fault(FindingKind::BarrierDivergence, lane, detail);
    }
    let predicate = if i.slots[C] == NONE { 0 } else { cx.mask(i.slots[C]) & cx.active };
    let arrival = Arrival {
        warp: cx.warp.index,
        waits: i.imm & WAITS != 0,
        waited: cx.warp.waited != 0,
        warps: threads / 32,
        all: !counted,
        trues: predicate.count_ones(),
        falses: (cx.active & !predicate).count_ones(),
        result: Reduction::from_code(i.imm >> REDUCES).map(|reduction| (reduction, i.slots[D])),
    };
    let released = cx.cluster.released.len();
    let outcome = cx.cluster.arrive(id as usize, arrival);
    if cx.cluster.races.is_some() && outcome.is_ok() {
        races::arrive_at_barrier(cx, id as usize, released);
    }
    match outcome {
        Ok(()) if i.imm & WAITS != 0 => Flow::Wait,
        Ok(()) => Flow::Next,
        Err(detail) => cx.fault(FindingKind::BarrierDivergence, lane, detail),
    }
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    match op.opcode() {
        "bra" => {
            op.take("uni");
            op.operand(0)?;
            let Some((target, reconvergence)) = op.branch else { return Err(op.unsupported()) };
            op.imm = target as u64 | (reconvergence.unwrap_or(NEVER) as u64) << 32;
            Ok(branch)
        }
        "ret" => {
            op.take("uni");
            Ok(exit)
        }
        "exit" => Ok(exit),
        "trap" if op.has("assert") && op.operand_count() > 0 => {
            op.take("assert");
            op.slots[A] = op.src(0, Ty::B64)?;
            Ok(print::failed_assertion)
        }
        "trap" => {
            let made = TRAPS.iter().find(|&&(modifier, ..)| op.take(modifier));
            op.imm = made.map_or(0, |trap| trap.2);
            Ok(trap)
        }
        "brkpt" => {
            op.imm = BREAKPOINT;
            Ok(trap)
        }
        "nanosleep" => {
            op.take_ty()?;
            op.src(0, Ty::U32)?;
            Ok(nanosleep)
        }
        "setmaxnreg" => {
            let increases = op.take("inc");
            let known = increases || op.take("dec");
            if !known || !op.take("sync") || !op.take("aligned") || op.take_ty()? != Ty::U32 {
                return Err(op.unsupported());
            }
            let registers = op.constant_operand(0)?;
            if !registers.is_multiple_of(8) || !(24..=256).contains(&registers) {
                return Err(op.error(format!(
                    "`{}` takes a multiple of 8 from 24 to 256 registers, not {registers}",
                    op.text()
                )));
            }
            op.imm = registers | if increases { INCREASES } else { 0 };
            Ok(set_max_registers)
        }
        "griddepcontrol" => {
            if op.take("wait") {
                return Ok(programmatic::wait);
            }
            if op.take("launch_dependents") {
                return Ok(programmatic::launch_dependents);
            }
            Err(op.unsupported())
        }
        _ => barriers(op),
    }
}

fn barriers(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    op.take("cta");
    if op.opcode() == "bar" && op.take("warp") {
        if !op.take("sync") {
            return Err(op.unsupported());
        }
        op.slots[collective::MEMBERS] = op.src(0, Ty::B32)?;
        return Ok(collective::warp_sync);
    }
    let arrive = op.take("arrive");
    let reduction = if op.take("red") { Some(op.take_any(&Reduction::NAMES)) } else { None };
    let sync = op.take("sync");
    op.take("aligned");
    let first = match reduction {
        Some(Some(reduction)) => {
            let ty = op.take_ty()?;
            let wanted = if reduction == Reduction::Popc { Ty::U32 } else { Ty::Pred };
            if ty != wanted {
                return Err(op.unsupported());
            }
            op.slots[D] = op.dst(0, ty.width())?;
            op.imm = reduction.code() << REDUCES;
            1
        }
        Some(None) => return Err(op.unsupported()),
        None if arrive != sync => 0,
        None => return Err(op.unsupported()),
    };
    op.imm |= if arrive { 0 } else { WAITS };
    op.slots[A] = op.src(first, Ty::U32)?;
    let trailing = op.operand_count().saturating_sub(first + 1 + reduction.is_some() as usize);
    if trailing > 0 {
        op.slots[B] = op.src(first + 1, Ty::U32)?;
        op.imm |= COUNTED;
    } else if arrive {
        return Err(op.error("an arrival needs a thread count"));
    }
    op.slots[C] = NONE;
    if reduction.is_some() {
        op.slots[C] = op.src(first + 1 + trailing.min(1), Ty::Pred)?;
    }
    Ok(barrier)
}
