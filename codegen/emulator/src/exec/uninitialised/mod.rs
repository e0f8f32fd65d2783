//! Execution of a warp that has read uninitialised memory or registers.
//!
//! Reading uninitialised bits is not an error as long as no result depends on them: compilers copy the padding of structures,
//! and shuffle registers of lanes whose results they drop. So a read only marks the bits of the register that it writes
//! ([`UninitialisedBits`]), instructions pass the marks on to their results, and stores to the memory that they write. The
//! finding, at the read, is reported when uninitialised bits decide a branch or whether an instruction executes, are part of an
//! address, are stored to global memory, or are operands of an instruction with another effect.
//!
//! A store to global memory may write copies of uninitialised bytes if it writes initialised bytes as well: that is padding.
//! Elements of shared memory are no padding.
//!
//! Warps without uninitialised bits in their registers execute without this module.

mod memory;
mod results;

use crate::code::operands::{NEGATED, NONE};
use crate::code::value_flow::{Dependence, RegisterSlot, ValueFlow};
use crate::context::fault::Fault;
use crate::context::uninitialised::UninitialisedBits;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, PlaceText};
use crate::load::types::Width;

/// How an uninitialised value is used, as a clause of the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    Branch,
    Guard,
    Address,
    Stored,
    Operand,
}

impl Usage {
    fn clause(self) -> &'static str {
        match self {
            Usage::Branch => "the value decides the branch",
            Usage::Guard => "the value decides whether an instruction executes",
            Usage::Address => "the value is part of an address",
            Usage::Stored => "the value is stored to global memory",
            Usage::Operand => "the value is an operand of an instruction with an effect",
        }
    }
}

/// Starts to track uninitialised bits, if the warp's fault is a read of such bits that a register can hold. Returns whether
/// the instruction is to be executed again, by [`execute`].
pub(crate) fn start(cx: &mut ExecutionContext<'_>) -> bool {
    let is_read = |fault: &Fault| fault.kind == FindingKind::Uninitialised && fault.pc.is_none();
    let Some(fault) = cx.worker.fault.as_deref().filter(|fault| is_read(fault)) else { return false };
    let dependence = cx.launch.program.value_flow[cx.warp.pc].dependence;
    let of_register = fault.space.is_none();
    let admitted = of_register || matches!(dependence, Dependence::Load(_) | Dependence::MatrixLoad);
    if !admitted || cx.warp.uninitialised.is_some() {
        return false;
    }
    cx.worker.fault = None;
    let (end, _) = cx.launch.program.layout.image();
    cx.warp.uninitialised = Some(Box::new(UninitialisedBits::new(end)));
    true
}

/// Executes an instruction of a warp that tracks uninitialised bits.
#[cold]
#[inline(never)]
pub(crate) fn execute(cx: &mut ExecutionContext<'_>, inst: &Inst) -> Flow {
    let Some(mut tracked) = cx.warp.uninitialised.take() else { return run(cx, inst) };
    if inst.register_check != 0 {
        mark_unwritten(cx, inst, &mut tracked);
    }
    let flow = execute_with(cx, inst, &mut tracked);
    if !tracked.count() {
        cx.warp.uninitialised = Some(tracked);
    }
    flow
}

fn execute_with(cx: &mut ExecutionContext<'_>, inst: &Inst, tracked: &mut UninitialisedBits) -> Flow {
    let flow = &cx.launch.program.value_flow[cx.warp.pc];
    let guard = RegisterSlot { slot: inst.guard & !NEGATED, width: Width::Predicate };
    let undecided = if inst.guard == NONE { 0 } else { tracked.mask(guard) & cx.warp.mask };
    if undecided != 0 && !flow.dependence.is_of_lanes() {
        let usage = if flow.dependence == Dependence::Branch { Usage::Branch } else { Usage::Guard };
        return report(cx, tracked, (guard, undecided), usage);
    }
    if cx.active == 0 && undecided == 0 {
        return Flow::Next;
    }
    let outcome = match flow.dependence {
        Dependence::Bits => results::by_trials(cx, inst, flow, tracked),
        Dependence::Shuffle | Dependence::Matrix | Dependence::IntegerMatrix => {
            results::of_warp(cx, inst, flow, tracked, results::by_trials)
        }
        Dependence::Lane => results::by_lanes(cx, inst, flow, tracked),
        Dependence::Halves | Dependence::PackedPair => results::by_halves(cx, inst, flow, tracked),
        Dependence::Warp => results::of_warp(cx, inst, flow, tracked, results::by_lanes),
        Dependence::Load(elements) => memory::load(cx, inst, flow, elements, tracked),
        Dependence::Store(elements) => memory::store(cx, inst, flow, elements, tracked),
        Dependence::MatrixLoad => memory::load_matrices(cx, inst, flow, tracked),
        Dependence::MatrixStore(count) => memory::store_matrices(cx, inst, flow, count, tracked),
        Dependence::Branch | Dependence::Effect => effect(cx, inst, flow, tracked),
    };
    if undecided != 0 && has_finished(outcome) {
        // Whether these lanes have the new value or the old one depends on the guard.
        let origin = tracked.origin(guard, undecided);
        for &write in &flow.writes {
            tracked.set_whole(write, undecided, undecided, (undecided, origin));
        }
    }
    outcome
}

/// Whether the instruction's results have been written, or will be at the end of a wait: it is not executed again.
fn has_finished(flow: Flow) -> bool {
    matches!(flow, Flow::Next | Flow::Yield | Flow::Stall | Flow::Wait)
}

/// Runs the instruction, if a lane is active.
fn run(cx: &mut ExecutionContext<'_>, inst: &Inst) -> Flow {
    if cx.active == 0 {
        return Flow::Next;
    }
    // SAFETY: the decoder laid out the slots for this kernel's register file, which the warp has, and chose functions that the
    // CPU can run.
    unsafe { (inst.run)(cx, inst) }
}

/// Marks the registers that the instruction reads, and that no instruction has written, as uninitialised; records the
/// registers that it writes.
fn mark_unwritten(cx: &mut ExecutionContext<'_>, inst: &Inst, tracked: &mut UninitialisedBits) {
    let (program, pc) = (cx.launch.program, cx.warp.pc);
    let (check, flow) = (&program.register_checks[inst.register_check as usize - 1], &program.value_flow[pc]);
    let conditionally =
        if check.conditional_reads.is_empty() { 0 } else { cx.active & cx.mask(check.condition) };
    let reads = check.reads.iter().map(|&(index, register)| {
        let is_guard = program.is_guard(inst.guard, register);
        (index, register, if is_guard { cx.warp.mask } else { cx.active })
    });
    let conditional =
        check.conditional_reads.iter().map(|&(index, register)| (index, register, conditionally));
    let reads: Vec<_> = reads.chain(conditional).collect();
    for (index, register, lanes) in reads {
        let unwritten = lanes & !cx.warp.written[index];
        if unwritten == 0 {
            continue;
        }
        let slot = program.layout.register(register);
        let mut operands = flow.reads.iter().chain(&flow.selectors).chain(&flow.conditional_reads);
        let width = operands.find(|read| read.slot == slot).map_or(Width::Predicate, |read| read.width);
        let name = &program.register_names[register as usize];
        let detail = format!("register `{name}` is read but nothing has written it");
        let read = Fault::new(FindingKind::Uninitialised, unwritten.trailing_zeros(), detail);
        let origin = tracked.add_read(pc, read);
        tracked.set_whole(RegisterSlot { slot, width }, unwritten, unwritten, (0, origin));
        cx.warp.written[index] |= unwritten;
    }
    for &index in &check.writes {
        cx.warp.written[index] |= cx.active;
    }
}

/// Executes an instruction that may not have uninitialised operands.
fn effect(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let conditionally = if flow.conditional_reads.is_empty() { 0 } else { active & cx.mask(flow.condition) };
    for (registers, lanes) in [(&flow.reads, active), (&flow.conditional_reads, conditionally)] {
        if let Some(register) = first_uninitialised(registers, lanes, tracked) {
            return report(cx, tracked, (register, lanes), Usage::Operand);
        }
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        flow.writes.iter().for_each(|&write| tracked.set_whole(write, active, 0, (0, 0)));
    }
    outcome
}

/// The first of the registers with uninitialised bits in one of the lanes.
fn first_uninitialised(
    registers: &[RegisterSlot],
    lanes: u32,
    tracked: &UninitialisedBits,
) -> Option<RegisterSlot> {
    registers.iter().copied().find(|register| tracked.mask(*register) & lanes != 0)
}

/// Sets the worker's fault: the current instruction uses uninitialised bits of a register in some of the lanes.
fn report(
    cx: &mut ExecutionContext<'_>,
    tracked: &UninitialisedBits,
    (register, lanes): (RegisterSlot, u32),
    usage: Usage,
) -> Flow {
    let (program, pc) = (cx.launch.program, cx.warp.pc);
    let Some(read) = tracked.read(tracked.origin(register, lanes)) else {
        return cx.fault(FindingKind::Uninitialised, 0, "a register has uninitialised bits");
    };
    let mut fault = read.clone();
    if fault.pc != Some(pc) {
        let place = program.place(pc);
        let (source, inlined_at) = (program.source_line(place), program.inlined_at(place));
        let at = PlaceText(source.as_ref(), &inlined_at);
        let text = program.line_text(place.line);
        fault.detail += &format!("; {}{at} (PTX line {}: `{text}`)", usage.clause(), place.line);
    }
    cx.worker.fault = Some(Box::new(fault));
    Flow::Fault
}
