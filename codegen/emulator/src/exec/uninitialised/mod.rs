//! Execution of a warp that has read uninitialised memory or registers.
//!
//! Reading uninitialised bits is no mistake as long as nothing depends on them: compilers copy the padding of structures, and
//! shuffle registers of lanes whose results they drop. So a read only marks the bits of the register that it writes
//! ([`UninitialisedBits`]), instructions pass the marks on to their results, and stores to the memory that they write. The
//! finding, at the read, comes when uninitialised bits decide a branch or whether an instruction executes, are part of an
//! address, are stored to global memory, or are operands of an instruction with another effect.
//!
//! A store to global memory may write copies of uninitialised bytes if it writes initialised bytes as well: that is padding.
//!
//! A warp without uninitialised bits in its registers does not come here, so that correct kernels lose no time.

mod memory;

use crate::code::operands::{NEGATED, NONE};
use crate::code::value_flow::{Dependence, RegisterSlot, ValueFlow};
use crate::context::fault::Fault;
use crate::context::uninitialised::UninitialisedBits;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, PlaceText};
use crate::lanes::{LANES, lanes_of};
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
            Usage::Operand => "the value is an operand of an instruction",
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
    let has_result = matches!(flow.dependence, Dependence::Bits | Dependence::Lane | Dependence::Warp);
    if undecided != 0 && !has_result {
        let usage = if flow.dependence == Dependence::Branch { Usage::Branch } else { Usage::Guard };
        return report(cx, tracked, guard.slot, usage);
    }
    if cx.active == 0 && undecided == 0 {
        return Flow::Next;
    }
    let outcome = match flow.dependence {
        Dependence::Bits => by_bits(cx, inst, flow, tracked),
        Dependence::Lane | Dependence::Warp => by_lanes(cx, inst, flow, tracked),
        Dependence::Load(elements) => memory::load(cx, inst, flow, elements, tracked),
        Dependence::Store(elements) => memory::store(cx, inst, elements, tracked),
        Dependence::MatrixLoad => memory::load_matrices(cx, inst, flow, tracked),
        Dependence::Branch | Dependence::Effect => effect(cx, inst, flow, tracked),
    };
    if undecided != 0 && has_finished(outcome) {
        // Whether these lanes have the new value or the old one depends on the guard.
        let origin = tracked.origin(guard.slot);
        for &write in &flow.writes {
            tracked.set_whole(write, undecided, undecided, (undecided, origin));
        }
    }
    outcome
}

/// Whether the instruction's results have been written: it is not executed again.
fn has_finished(flow: Flow) -> bool {
    matches!(flow, Flow::Next | Flow::Jump | Flow::Yield | Flow::Stall)
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
        let operands = flow.reads.iter().chain(&flow.conditional_reads);
        let width =
            operands.clone().find(|read| read.slot == slot).map_or(Width::Predicate, |read| read.width);
        let origin = tracked.add_read(pc, || {
            let name = &program.register_names[register as usize];
            let detail = format!("register `{name}` is read but nothing has written it");
            Fault::new(FindingKind::Uninitialised, unwritten.trailing_zeros(), detail)
        });
        tracked.set_whole(RegisterSlot { slot, width }, unwritten, unwritten, (0, origin));
        cx.warp.written[index] |= unwritten;
    }
    for &index in &check.writes {
        cx.warp.written[index] |= cx.active;
    }
}

/// The lanes of `active` in which some of the registers have uninitialised bits, and the read that these come from.
fn find(registers: &[RegisterSlot], active: u32, tracked: &UninitialisedBits) -> (u32, u32) {
    let (mut lanes, mut origin) = (0, None);
    for register in registers {
        let found = tracked.mask(*register) & active;
        if found != 0 {
            origin.get_or_insert(tracked.origin(register.slot));
        }
        lanes |= found;
    }
    (lanes, origin.unwrap_or(0))
}

/// Executes an instruction whose results depend on whole operands.
fn by_lanes(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let (found, origin) = find(&flow.reads, active, tracked);
    let uninitialised = if flow.dependence == Dependence::Warp && found != 0 { active } else { found };
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        for &write in &flow.writes {
            tracked.set_whole(write, active, uninitialised, (uninitialised, origin));
        }
    }
    outcome
}

/// Executes an instruction whose results depend on single bits of the operands: it runs twice more, with all uninitialised
/// bits of the operands zeros, and ones. The result bits that differ are uninitialised.
fn by_bits(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let (found, origin) = find(&flow.reads, u32::MAX, tracked);
    if found == 0 {
        let outcome = run(cx, inst);
        if has_finished(outcome) {
            flow.writes.iter().for_each(|&write| tracked.set_whole(write, active, 0, (0, 0)));
        }
        return outcome;
    }
    let computed = flow.reads.iter().fold(0, |lanes, read| lanes | tracked.computed(read.slot));
    let saved: Vec<(RegisterSlot, [u64; LANES])> =
        flow.reads.iter().chain(&flow.writes).map(|&at| (at, at.values(&cx.warp.regs))).collect();
    let plain = &cx.launch.insts[cx.warp.pc];
    let mut results = [Vec::new(), Vec::new()];
    for (ones, results) in results.iter_mut().enumerate() {
        for (register, old) in &saved[..flow.reads.len()] {
            let bits = tracked.lanes(*register);
            let filled = std::array::from_fn(|lane| old[lane] & !bits[lane] | bits[lane] * ones as u64);
            register.write(&mut cx.warp.regs, &filled, u32::MAX);
        }
        let outcome = run(cx, plain);
        results.extend(flow.writes.iter().map(|&write| write.values(&cx.warp.regs)));
        saved.iter().for_each(|(register, old)| register.write(&mut cx.warp.regs, old, u32::MAX));
        cx.active = active;
        if outcome != Flow::Next {
            // Only the first run can come here, since it has changed the state that decides.
            return outcome;
        }
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        let computed = if computed != 0 { u32::MAX } else { 0 };
        for ((&write, zeros), ones) in flow.writes.iter().zip(&results[0]).zip(&results[1]) {
            let bits = std::array::from_fn(|lane| zeros[lane] ^ ones[lane]);
            tracked.set(write, active, &bits, (computed, origin));
        }
    }
    outcome
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
        if let Some(slot) = first_uninitialised(registers, lanes, tracked) {
            return report(cx, tracked, slot, Usage::Operand);
        }
    }
    let outcome = run(cx, inst);
    if has_finished(outcome) {
        flow.writes.iter().for_each(|&write| tracked.set_whole(write, active, 0, (0, 0)));
    }
    outcome
}

/// Slot of the first of the registers with uninitialised bits in one of the lanes.
fn first_uninitialised(registers: &[RegisterSlot], lanes: u32, tracked: &UninitialisedBits) -> Option<u32> {
    registers.iter().find(|register| tracked.mask(**register) & lanes != 0).map(|register| register.slot)
}

/// Sets the worker's fault: the current instruction uses uninitialised bits of the register at a slot.
fn report(cx: &mut ExecutionContext<'_>, tracked: &UninitialisedBits, slot: u32, usage: Usage) -> Flow {
    let (program, pc) = (cx.launch.program, cx.warp.pc);
    let Some(read) = tracked.read(tracked.origin(slot)) else {
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

/// The lanes of a mask, lowest first, with the bit of each.
fn bits_of(mask: u32) -> impl Iterator<Item = (usize, u32)> {
    lanes_of(mask).map(|lane| (lane, 1 << lane))
}
