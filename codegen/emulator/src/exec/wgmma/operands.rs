//! Registers of `wgmma`: checks of their use by other instructions, and of `wgmma.fence`.
//!
//! Only kernels with `wgmma` pay for the checks: the loader lists the instructions that use a register which is an operand
//! of some `wgmma`, and a launch with checks runs [`watched`] in their place.

use crate::code::program::Program;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::FindingKind;

/// Decoded operands of a `wgmma.mma_async`: positions in its operand list.
pub(super) mod list {
    pub(in crate::exec::wgmma) const COLUMNS: usize = 0;
    pub(in crate::exec::wgmma) const SHAPE: usize = 1;
    pub(in crate::exec::wgmma) const FLAGS: usize = 2;
    /// Slot of the predicate `scale-d`.
    pub(in crate::exec::wgmma) const SCALE_D: usize = 3;
    /// Slots of the descriptors; `A`'s is [`NONE`](crate::code::operands::NONE) for a fragment in registers.
    pub(in crate::exec::wgmma) const DESCRIPTOR_A: usize = 4;
    pub(in crate::exec::wgmma) const DESCRIPTOR_B: usize = 5;
    /// Number of pairs of `A`'s registers; then slot and number of each, and of each accumulator.
    pub(in crate::exec::wgmma) const COUNT_A: usize = 6;
    pub(in crate::exec::wgmma) const REGISTERS: usize = 7;

    pub(in crate::exec::wgmma) const NEGATE_A: u32 = 1;
    pub(in crate::exec::wgmma) const NEGATE_B: u32 = 2;
    pub(in crate::exec::wgmma) const TRANSPOSE_A: u32 = 4;
    pub(in crate::exec::wgmma) const TRANSPOSE_B: u32 = 8;
    pub(in crate::exec::wgmma) const SATURATE: u32 = 16;
}

/// Registers of an operand: slot and number of each.
type Registers = Vec<(u32, u32)>;

/// Registers of a `wgmma.mma_async`: slot and number of each.
pub(super) fn registers(list: &[u32]) -> (Registers, Registers) {
    let pairs = |words: &[u32]| words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let (a, d) = list[list::REGISTERS..].split_at(2 * list[list::COUNT_A] as usize);
    (pairs(a), pairs(d))
}

#[cold]
pub(super) fn misuse(cx: &mut ExecutionContext<'_>, detail: String) -> Flow {
    cx.fault(FindingKind::Wgmma, cx.active.trailing_zeros(), detail)
}

/// Instructions with [`watched`] where an operand of a `wgmma` is used; empty if the kernel has none.
pub(crate) fn watch(insts: &[Inst], program: &Program) -> Vec<Inst> {
    let is_watched = program.wgmma.uses.iter().map(|uses| !uses.is_empty());
    let watch =
        |(inst, is_watched): (&Inst, bool)| if is_watched { Inst { run: watched, ..*inst } } else { *inst };
    insts.iter().zip(is_watched).map(watch).collect()
}

/// Checks that no operation in flight uses the registers of an instruction, and runs the instruction.
fn watched(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    let (launch, pc) = (cx.launch, cx.warp.pc);
    let insts = if launch.instrumented.is_empty() { launch.insts } else { &launch.instrumented };
    let (Some(own), Some(uses)) = (insts.get(pc), launch.program.wgmma.uses.get(pc)) else {
        return misuse(cx, "no such instruction".to_string());
    };
    let state = cx.cluster.asynchronous.wgmma.warp(cx.warp.index);
    for &(number, writes) in uses {
        let register = state.register(number);
        let holder = match register {
            _ if register.writers > 0 => Some((register.writer, "writes")),
            _ if register.readers > 0 && writes => Some((register.reader, "reads")),
            _ => None,
        };
        if let Some((at, does)) = holder {
            let name = launch.program.wgmma.name(launch.program, number);
            let (verb, line) = (if writes { "written" } else { "read" }, launch.program.place(at).line);
            let detail = format!(
                "register `{name}` is {verb} while the `wgmma` at PTX line {line}, which {does} it, is in flight: execute \
                 `wgmma.wait_group` in between"
            );
            return misuse(cx, detail);
        }
        register.was_read |= !writes;
        register.was_written |= writes;
    }
    // SAFETY: the instruction is the kernel's own, and the launch was set up to run it in this warp.
    unsafe { (own.run)(cx, own) }
}

/// Checks the registers of an operation that the warp is about to issue; returns false if a check reports a finding.
pub(super) fn check_issue(cx: &mut ExecutionContext<'_>, operands: &[u32]) -> bool {
    let (a, d) = registers(operands);
    let shape = operands[list::SHAPE];
    let program = cx.launch.program;
    let state = cx.cluster.asynchronous.wgmma.warp(cx.warp.index);
    if !state.fenced {
        let detail = "the warp's first `wgmma.mma_async` has no `wgmma.fence` before it".to_string();
        misuse(cx, detail);
        return false;
    }
    let uses =
        d.iter().map(|&(_, number)| (number, true)).chain(a.iter().map(|&(_, number)| (number, false)));
    for (number, accumulates) in uses {
        let register = state.register(number);
        let name = || program.wgmma.name(program, number);
        let line = |pc| program.place(pc).line;
        let detail = if accumulates && register.readers > 0 {
            format!(
                "accumulator `{}` is an operand of the `wgmma` at PTX line {}, which is in flight: execute \
                 `wgmma.wait_group` in between",
                name(),
                line(register.reader)
            )
        } else if !accumulates && register.writers > 0 {
            format!(
                "register `{}` of operand A is an accumulator of the `wgmma` at PTX line {}, which is in flight: \
                 execute `wgmma.wait_group` in between",
                name(),
                line(register.writer)
            )
        } else if register.was_written || accumulates && register.was_read {
            let verb = if register.was_written { "written" } else { "read" };
            format!(
                "register `{}` was {verb} after the last `wgmma.fence`: execute `wgmma.fence` between the access and \
                 this `wgmma.mma_async`",
                name()
            )
        } else if accumulates && register.shape != 0 && register.shape != shape {
            format!(
                "accumulator `{}` is that of a `wgmma.mma_async` of another shape or type: execute `wgmma.fence` in \
                 between",
                name()
            )
        } else {
            continue;
        };
        misuse(cx, detail);
        return false;
    }
    true
}
