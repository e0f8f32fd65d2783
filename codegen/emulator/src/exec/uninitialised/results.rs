//! Results of instructions that only compute: which of their bits depend on uninitialised bits of the operands.

use super::{Usage, first_uninitialised, has_finished, report, run};
use crate::code::operands::{A, B};
use crate::code::value_flow::{Dependence, RegisterSlot, ValueFlow};
use crate::context::uninitialised::{UninitialisedBits, mask_of};
use crate::context::{ExecutionContext, Flow, Inst};
use crate::lanes::LANES;

/// Largest number of operands with uninitialised bits for which all combinations of values are tried.
const MAX_COMBINED: usize = 4;

/// Function that executes an instruction and sets the uninitialised bits of its results.
type Executor = fn(&mut ExecutionContext<'_>, &Inst, &ValueFlow, &mut UninitialisedBits) -> Flow;

/// Executes an instruction of the whole warp by `execute`; reports an uninitialised lane operand or member mask.
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

/// The lanes of `active` in which some of the registers have uninitialised bits, and the origin of the bits.
fn uninitialised_lanes(registers: &[RegisterSlot], active: u32, tracked: &UninitialisedBits) -> (u32, u32) {
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
    let (mut found, mut origin) = uninitialised_lanes(&flow.reads, active, tracked);
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

/// Executes an instruction with a result of two halves. The lower half depends on the lower halves of the operands and the upper
/// half on the upper ones; in a packed pair, each half depends on one operand.
pub(super) fn by_halves(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    let (found, origin) = uninitialised_lanes(&flow.reads, active, tracked);
    // Whether the lower and the upper half of the result are uninitialised in each lane.
    let mut halves = [[false; 2]; LANES];
    for &read in flow.reads.iter().filter(|read| tracked.mask(**read) & active != 0) {
        let (bits, half) = (tracked.lanes(read), read.width.bits() / 2);
        for (result, bits) in halves.iter_mut().zip(bits) {
            let (lower, upper) = (bits & ((1 << half) - 1) != 0, bits >> half != 0);
            let [to_lower, to_upper] = match flow.dependence {
                Dependence::PackedPair => {
                    let is_any = lower || upper;
                    [is_any && inst.slots[B] == read.slot, is_any && inst.slots[A] == read.slot]
                }
                _ => [lower, upper],
            };
            result[0] |= to_lower;
            result[1] |= to_upper;
        }
    }
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        for &write in &flow.writes {
            let half = write.width.bits() / 2;
            let ones = (1u64 << half) - 1;
            let bits =
                halves.map(|[lower, upper]| (u64::from(lower) * ones) | (u64::from(upper) * (ones << half)));
            tracked.set(write, active, &bits, (u32::MAX, origin));
        }
    }
    outcome
}

/// Runs an instruction; without numeric checks if operands are uninitialised in lanes of `found`.
fn run_unchecked(cx: &mut ExecutionContext<'_>, inst: &Inst, found: u32) -> Flow {
    let plain = &cx.launch.insts[cx.warp.pc];
    run(cx, if found == 0 { inst } else { plain })
}

/// Executes an instruction by trial: also runs it with other values of the operands' uninitialised bits. Result bits that
/// differ between the runs are uninitialised; in a product of matrices, every result with such a bit.
pub(super) fn by_trials(
    cx: &mut ExecutionContext<'_>,
    inst: &Inst,
    flow: &ValueFlow,
    tracked: &mut UninitialisedBits,
) -> Flow {
    let active = cx.active;
    // Results in one lane may depend on operands in others.
    let lanes = if flow.dependence == Dependence::Bits { active } else { u32::MAX };
    let (found, origin) = uninitialised_lanes(&flow.reads, lanes, tracked);
    let (selected, selector) = uninitialised_lanes(&flow.selectors, active, tracked);
    let computed = flow.reads.iter().fold(0, |computed, read| computed | tracked.computed(read.slot));
    let results = match dependent_bits(cx, flow, tracked, lanes) {
        Ok(results) => results,
        Err(outcome) => return outcome,
    };
    let outcome = run_unchecked(cx, inst, found);
    if has_finished(outcome) {
        for (&write, bits) in flow.writes.iter().zip(&results) {
            let uninitialised = mask_of(bits);
            match flow.dependence {
                Dependence::Matrix | Dependence::IntegerMatrix => {
                    tracked.set_whole(write, active, uninitialised, (uninitialised, origin));
                }
                Dependence::Shuffle if computed != 0 => tracked.set(write, active, bits, (u32::MAX, origin)),
                _ => tracked.set(write, active, bits, (computed, origin)),
            }
            tracked.set_whole(write, selected, selected, (selected, selector));
        }
    }
    outcome
}

/// Elements of 4, 8 or 32 bits that are positive.
const POSITIVE: u64 = 0x1111_1111_1111_1111;

/// All bits of the groups of four in which a bit is set.
fn nibbles(bits: u64) -> u64 {
    let any = (bits | bits >> 1 | bits >> 2 | bits >> 3) & POSITIVE;
    any * 0xf
}

/// The bits of each result that depend on uninitialised bits of the operands. Tries each combination of zeros and ones for the
/// operands' uninitialised bits; if more than [`MAX_COMBINED`] operands have such bits, only all zeros and all ones, which are a
/// NaN. The error is the outcome of a run that did not end as usual; no register has changed then.
fn dependent_bits(
    cx: &mut ExecutionContext<'_>,
    flow: &ValueFlow,
    tracked: &UninitialisedBits,
    lanes: u32,
) -> Result<Vec<[u64; LANES]>, Flow> {
    let active = cx.active;
    let of_integers = flow.dependence == Dependence::IntegerMatrix;
    let mut filled: Vec<RegisterSlot> = Vec::new();
    for &read in &flow.reads {
        let has_bits = tracked.mask(read) & lanes != 0;
        if (has_bits || of_integers) && filled.iter().all(|known| known.slot != read.slot) {
            filled.push(read);
        }
    }
    if filled.iter().all(|read| tracked.mask(*read) & lanes == 0) {
        return Ok(vec![[0; LANES]; flow.writes.len()]);
    }
    let save = |registers: &[RegisterSlot], cx: &ExecutionContext<'_>| -> Vec<[u64; LANES]> {
        registers.iter().map(|register| register.values(&cx.warp.regs)).collect()
    };
    let (operands, results) = (save(&filled, cx), save(&flow.writes, cx));
    let combinations = match filled.len() {
        count if count <= MAX_COMBINED && !of_integers => 1u32 << count,
        _ => 2,
    };
    let plain = &cx.launch.insts[cx.warp.pc];
    let mut first: Option<Vec<[u64; LANES]>> = None;
    let mut dependent = vec![[0; LANES]; flow.writes.len()];
    for combination in 0..combinations {
        for (index, (register, old)) in filled.iter().zip(&operands).enumerate() {
            let mut bits = tracked.lanes(*register);
            if flow.dependence == Dependence::Matrix {
                // An element is a NaN only if all its bits are ones, so whole elements are set.
                bits = bits.map(|bits| if bits == 0 { 0 } else { u64::MAX });
            }
            let has_ones = match combinations {
                2 => combination == 1,
                _ => combination >> index & 1 != 0,
            };
            let fill = u64::from(has_ones);
            let values = if of_integers {
                // All elements are positive, so no two differences cancel each other.
                bits.map(|bits| (POSITIVE & !nibbles(bits)) | (POSITIVE & (nibbles(bits) * fill)))
            } else {
                std::array::from_fn(|lane| old[lane] & !bits[lane] | (bits[lane] * fill))
            };
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
