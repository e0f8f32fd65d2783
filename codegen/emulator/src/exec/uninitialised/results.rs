//! Results of instructions that only compute: which of their bits depend on uninitialised bits of the operands.

use super::{Usage, first_uninitialised, has_finished, report, run};
use crate::code::operands::{A, B};
use crate::code::value_flow::{Dependence, RegisterSlot, ValueFlow};
use crate::context::uninitialised::UninitialisedBits;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::lanes::LANES;

/// Most operands with uninitialised bits whose combinations of values are tried.
const MOST_COMBINED: usize = 4;

/// A function that executes an instruction and marks its results.
type Executor = fn(&mut ExecutionContext<'_>, &Inst, &ValueFlow, &mut UninitialisedBits) -> Flow;

/// Executes an instruction of the whole warp by `execute`. Its lanes and its member mask may not be uninitialised.
pub(super) fn of_warp(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
    execute: Executor,
) -> Flow {
    match first_uninitialised(&flow.selectors, cx.active, tracked) {
        Some(register) => report(cx, tracked, (register, cx.active), Usage::Operand),
        None => execute(cx, inst, flow, tracked),
    }
}

/// The lanes of `active` in which some of the registers have uninitialised bits, and the read that these come from.
fn find(registers: &[RegisterSlot], active: u32, tracked: &UninitialisedBits) -> (u32, u32) {
    let (mut lanes, mut origin) = (0, None);
    for register in registers {
        let found = tracked.mask(*register) & active;
        if found != 0 {
            origin.get_or_insert_with(|| tracked.origin(*register, active));
        }
        lanes |= found;
    }
    (lanes, origin.unwrap_or(0))
}

/// Executes an instruction whose results depend on whole operands.
pub(super) fn by_lanes(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let (mut found, mut origin) = find(&flow.reads, active, tracked);
    let carry = tracked.carry();
    if flow.reads_carry && carry.0 & active != 0 {
        origin = if found == 0 { carry.1 } else { origin };
        found |= carry.0 & active;
    }
    let uninitialised = if flow.dependence == Dependence::Warp && found != 0 { active } else { found };
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        for &write in &flow.writes {
            tracked.set_whole(write, active, uninitialised, (uninitialised, origin));
        }
        if flow.writes_carry {
            tracked.set_carry(active, (uninitialised, origin));
        }
    }
    outcome
}

/// Executes an instruction whose result has two halves. `depends` maps an operand, and whether its upper and its lower half have
/// uninitialised bits, to the halves of the result that depend on these.
pub(super) fn by_halves(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
    depends: fn(bool, [bool; 2]) -> [bool; 2],
) -> Flow {
    let active = cx.active;
    let (found, origin) = find(&flow.reads, active, tracked);
    // Upper and lower half of the result in each lane.
    let mut halves = [[false; 2]; LANES];
    for read in flow.reads.iter().filter(|read| tracked.mask(**read) & active != 0) {
        let (bits, half) = (tracked.lanes(*read), read.width.bits() / 2);
        for (lane, halves) in halves.iter_mut().enumerate() {
            let found = [bits[lane] >> half != 0, bits[lane] & ((1 << half) - 1) != 0];
            let first = depends(true, found);
            let second = depends(false, found);
            // The same register may be both operands.
            let uses = [inst.slots[A] == read.slot, inst.slots[A] != read.slot || inst.slots[B] == read.slot];
            for (result, half) in halves.iter_mut().enumerate() {
                *half |= uses[0] && first[result] || uses[1] && second[result];
            }
        }
    }
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        for &write in &flow.writes {
            let half = write.width.bits() / 2;
            let ones = (1u64 << half) - 1;
            let bits =
                halves.map(|[upper, lower]| (u64::from(upper) * (ones << half)) | (u64::from(lower) * ones));
            tracked.set(write, active, &bits, (u32::MAX, origin));
        }
    }
    outcome
}

/// The halves of a packed pair that depend on its first operand, or on the second.
pub(super) fn pack(is_first: bool, found: [bool; 2]) -> [bool; 2] {
    let is_found = found[0] || found[1];
    [is_first && is_found, !is_first && is_found]
}

/// Runs an instruction; without numeric checks if operands are uninitialised in lanes of `found`.
fn run_unchecked(cx: &mut ExecutionContext<'_>, inst: &Inst, found: u32) -> Flow {
    let plain = &cx.launch.insts[cx.warp.pc];
    run(cx, if found == 0 { inst } else { plain })
}

/// Executes an instruction whose results depend on single bits of the operands: it also runs with all combinations of zeros
/// and ones for the uninitialised bits of each operand. The result bits that are not always the same are uninitialised.
pub(super) fn by_bits(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let is_shuffle = flow.dependence == Dependence::Shuffle;
    let lanes = if is_shuffle { u32::MAX } else { active };
    let (found, origin) = find(&flow.reads, lanes, tracked);
    let (selected, selector) = find(&flow.selectors, active, tracked);
    let computed = flow.reads.iter().fold(0, |computed, read| computed | tracked.computed(read.slot));
    let results = match found {
        0 => vec![[0; LANES]; flow.writes.len()],
        _ => match dependent_bits(cx, flow, tracked, lanes) {
            Ok(results) => results,
            Err(outcome) => return outcome,
        },
    };
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        let computed = if is_shuffle && computed != 0 { u32::MAX } else { computed };
        for (&write, bits) in flow.writes.iter().zip(&results) {
            tracked.set(write, active, bits, (computed, origin));
            if selected != 0 {
                tracked.set_whole(write, selected, selected, (selected, selector));
            }
        }
    }
    outcome
}

/// Executes a product of matrices of floats. A result is uninitialised as a whole if any of its bits is.
pub(super) fn of_matrices(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let (found, origin) = find(&flow.reads, u32::MAX, tracked);
    let results = match found {
        0 => vec![[0; LANES]; flow.writes.len()],
        _ => match dependent_bits(cx, flow, tracked, u32::MAX) {
            Ok(results) => results,
            Err(outcome) => return outcome,
        },
    };
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        for (&write, bits) in flow.writes.iter().zip(&results) {
            let lanes = crate::context::uninitialised::mask_of(bits);
            tracked.set_whole(write, active, lanes, (lanes, origin));
        }
    }
    outcome
}

/// The bits of each result that depend on uninitialised bits of the operands. Of more than [`MOST_COMBINED`] operands all have
/// zeros, or all have ones, which are a NaN. The error is how the instruction ends if it does not end as usual; then nothing
/// else has changed.
fn dependent_bits(
    cx: &mut ExecutionContext<'_>,
    flow: &ValueFlow,
    tracked: &UninitialisedBits,
    lanes: u32,
) -> Result<Vec<[u64; LANES]>, Flow> {
    let active = cx.active;
    let mut filled: Vec<RegisterSlot> = Vec::new();
    for &read in &flow.reads {
        if tracked.mask(read) & lanes != 0 && filled.iter().all(|known| known.slot != read.slot) {
            filled.push(read);
        }
    }
    let save = |registers: &[RegisterSlot], cx: &ExecutionContext<'_>| -> Vec<[u64; LANES]> {
        registers.iter().map(|register| register.values(&cx.warp.regs)).collect()
    };
    let (operands, results) = (save(&filled, cx), save(&flow.writes, cx));
    let combinations = match filled.len() {
        count if count <= MOST_COMBINED => 1u32 << count,
        _ => 2,
    };
    let plain = &cx.launch.insts[cx.warp.pc];
    let mut first: Option<Vec<[u64; LANES]>> = None;
    let mut dependent = vec![[0; LANES]; flow.writes.len()];
    for combination in 0..combinations {
        for (index, (register, old)) in filled.iter().zip(&operands).enumerate() {
            let mut bits = tracked.lanes(*register);
            if flow.dependence == Dependence::Matrix {
                // Only whole elements of ones are a NaN.
                bits = bits.map(|bits| if bits == 0 { 0 } else { u64::MAX });
            }
            let has_ones = match combinations {
                2 => combination == 1,
                _ => combination >> index & 1 != 0,
            };
            let fill = u64::from(has_ones);
            let values = std::array::from_fn(|lane| old[lane] & !bits[lane] | (bits[lane] * fill));
            register.write(&mut cx.warp.regs, &values, u32::MAX);
        }
        let outcome = run(cx, plain);
        cx.active = active;
        let values = save(&flow.writes, cx);
        let written = flow.writes.iter().zip(&results).chain(filled.iter().zip(&operands));
        written.for_each(|(register, old)| register.write(&mut cx.warp.regs, old, u32::MAX));
        if outcome != Flow::Next {
            return Err(outcome);
        }
        let first = first.get_or_insert_with(|| values.clone());
        for ((bits, first), values) in dependent.iter_mut().zip(first).zip(&values) {
            (0..LANES).for_each(|lane| bits[lane] |= first[lane] ^ values[lane]);
        }
    }
    Ok(dependent)
}
