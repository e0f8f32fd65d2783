//! Interpreter of one warp.

use crate::checks::initialisation::first_unwritten;
use crate::code::operands::NONE;
use crate::context::cluster::ClusterState;
use crate::context::fault::Fault;
use crate::context::warp::{Waited, Warp};
use crate::context::{ExecutionContext, Flow, Inst, Launch, Worker};
use crate::exec::divergent_collective::execute_together;
use crate::exec::observe::{forget, observe};
use crate::exec::uninitialised;
use crate::finding::FindingKind;

/// Warp instructions after which the next warp gets its turn.
const WARP_TURN: u64 = 1 << 16;

/// Runs one warp until it waits, ends, faults, yields or has had its turn.
pub(super) fn run_warp(
    warp: &mut Warp,
    cluster: &mut ClusterState,
    worker: &mut Worker,
    launch: &Launch<'_>,
) -> Flow {
    let insts = [&launch.watched, &launch.instrumented].into_iter().find(|insts| !insts.is_empty());
    let insts = insts.map_or(launch.insts, Vec::as_slice);
    warp.start_turn();
    let mut cx = ExecutionContext { warp, active: 0, cluster, worker, launch };
    let mut lanes = 0u64;
    let start = cx.worker.clock;
    // A profile counts every instruction, so instructions run one by one.
    let profiled = cx.worker.profile.is_some();
    let flow = loop {
        if cx.warp.pc == cx.warp.reconvergence {
            cx.warp.pop();
            continue;
        }
        if cx.worker.clock - start >= WARP_TURN {
            cx.warp.end_turn();
            break Flow::Next;
        }
        let rest = &insts[cx.warp.pc..];
        // Lanes that `Warp::split` has divided reconverge inside a basic block.
        let to_reconvergence = cx.warp.reconvergence.wrapping_sub(cx.warp.pc);
        let one_by_one = profiled || cx.warp.uninitialised.is_some();
        let mut flow = match to_reconvergence.min(rest[0].unconditional as usize) {
            count if count > 0 && !one_by_one => run_unconditional(&mut cx, &rest[..count], &mut lanes),
            _ => step(&mut cx, &rest[0], &mut lanes),
        };
        if flow == Flow::Fault && uninitialised::start(&mut cx) {
            let inst = &insts[cx.warp.pc];
            flow = uninitialised::execute(&mut cx, inst);
        }
        match flow {
            Flow::Next => cx.warp.pc += 1,
            Flow::Jump => {}
            flow @ (Flow::Yield | Flow::Stall | Flow::Wait) => {
                cx.warp.yielded_at = (cx.warp.pc, cx.warp.mask.trailing_zeros());
                cx.warp.pc += 1;
                if flow != Flow::Wait {
                    cx.warp.end_turn();
                }
                break flow;
            }
            Flow::Fault => {
                if cx.worker.missing_lanes().is_some()
                    && let Some(flow) = execute_together(&mut cx)
                {
                    if flow == Flow::Fault {
                        break Flow::Fault;
                    }
                    cx.worker.fault = None;
                    cx.warp.pc += 1;
                    continue;
                }
                let pc = cx.warp.pc;
                let Some(waited) = wait_for_lanes(&mut cx) else { break Flow::Fault };
                // The instruction is executed again, and counts once.
                cx.worker.clock -= 1;
                lanes -= u64::from(cx.active.count_ones());
                forget(&mut cx, pc);
                if waited == Waited::NextGroup {
                    break Flow::Retry;
                }
            }
            Flow::Retry => {
                cx.warp.yielded_at = (cx.warp.pc, cx.warp.mask.trailing_zeros());
                break Flow::Retry;
            }
            Flow::Done => break Flow::Done,
        }
    };
    cx.worker.counters.warp_instructions += cx.worker.clock - start;
    cx.worker.counters.lane_instructions += lanes;
    flow
}

/// Lets the current lanes wait, if they have failed to execute an instruction together with others. Returns `None` if waiting
/// cannot help.
#[cold]
fn wait_for_lanes(cx: &mut ExecutionContext<'_>) -> Option<Waited> {
    let missing = cx.worker.missing_lanes()?;
    let (pc, lanes) = (cx.warp.pc, cx.warp.mask);
    let has_members = cx.launch.program.collectives.contains_key(&pc);
    let mut waited = cx.warp.wait_for_lanes(missing);
    if waited == Waited::No && has_members {
        waited = cx.warp.wait_as_group(missing);
    }
    if waited == Waited::No {
        return None;
    }
    let fault = cx.worker.fault.take()?;
    if waited == Waited::NextGroup && has_members {
        let fault = Fault { missing: None, ..fault.at(pc) };
        cx.warp.record_member_wait(lanes, missing.lanes, Box::new(fault));
    }
    Some(waited)
}

/// Runs instructions that all lanes of the warp's mask execute, up to the first that does not return [`Flow::Next`];
/// `warp.pc` is left at the last instruction run.
#[inline(always)]
fn run_unconditional(cx: &mut ExecutionContext<'_>, insts: &[Inst], lanes: &mut u64) -> Flow {
    cx.active = cx.warp.mask;
    let each = cx.active.count_ones() as u64;
    let first = cx.warp.pc;
    for (index, inst) in insts.iter().enumerate() {
        cx.warp.pc = first + index;
        cx.worker.clock += 1;
        *lanes += each;
        // SAFETY: the decoder laid out the slots for this kernel's register file, which `warp` has, and
        // chose functions that the CPU can run.
        let flow = unsafe { (inst.run)(cx, inst) };
        if flow != Flow::Next {
            return flow;
        }
    }
    Flow::Next
}

/// Runs one instruction in the lanes for which its guard holds.
#[inline(always)]
fn step(cx: &mut ExecutionContext<'_>, inst: &Inst, lanes: &mut u64) -> Flow {
    let mask = cx.warp.mask;
    cx.active = if inst.guard == NONE { mask } else { mask & cx.mask(inst.guard) };
    cx.worker.clock += 1;
    if cx.worker.profile.is_some() {
        observe(cx, inst);
    }
    if cx.warp.uninitialised.is_some() {
        *lanes += cx.active.count_ones() as u64;
        return uninitialised::execute(cx, inst);
    }
    if inst.register_check != 0 && !check_registers(cx, inst, mask) {
        return Flow::Fault;
    }
    if cx.active == 0 {
        return Flow::Next;
    }
    *lanes += cx.active.count_ones() as u64;
    // SAFETY: as in `run_unconditional`.
    unsafe { (inst.run)(cx, inst) }
}

/// Checks that the tracked registers that an instruction reads have been written, and records the tracked registers
/// that it writes. A register is tracked if some path reads the register before writing it.
#[cold]
fn check_registers(cx: &mut ExecutionContext<'_>, inst: &Inst, mask: u32) -> bool {
    let program = cx.launch.program;
    let check = &program.register_checks[inst.register_check as usize - 1];
    if cx.launch.checks.memory {
        let lanes = |register| if program.is_guard(inst.guard, register) { mask } else { cx.active };
        let conditionally = match check.conditional_reads[..] {
            [] => 0,
            _ => cx.active & cx.mask(check.condition),
        };
        if let Some((register, lane)) = first_unwritten(check, &cx.warp.written, lanes, conditionally) {
            let name = &program.register_names[register as usize];
            cx.fault(
                FindingKind::Uninitialised,
                lane,
                format!("register `{name}` is read but nothing has written it"),
            );
            return false;
        }
    }
    for &tracked in &check.writes {
        cx.warp.written[tracked] |= cx.active;
    }
    true
}
