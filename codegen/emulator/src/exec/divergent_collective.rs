//! Execution of an instruction with a member mask by a diverged warp, whose members are at different instructions.
//!
//! Since sm_70, `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `elect.sync` and `bar.warp.sync` wait until all members
//! that have not exited have executed an instruction of the same opcode with the same qualifiers and the same member mask. It
//! need not be one instruction of the text: each side of a branch may have its own, with operands of its own.
//!
//! The lanes that reach their instruction first wait ([`Warp::waiting`](crate::context::warp::Warp::waiting)). The lanes
//! that reach theirs last call [`execute_together`], which executes the instruction for all members.

use super::collective::{
    BALLOT, MATCH_64, MATCH_ALL, MEMBERS, P, REDUCTIONS, equal_lanes, from_inactive, sources, verdict,
};
use super::observe::observe;
use super::races;
use crate::code::collective::Collective;
use crate::code::operands::{A, B, C, D, NEGATED, NONE};
use crate::code::value_flow::RegisterSlot;
use crate::context::uninitialised::mask_of;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::lanes::{LANES, Pod, lanes_of};

/// Members that are at the same instruction.
struct Participant<'i> {
    inst: &'i Inst,
    pc: usize,
    /// The lanes that execute the instruction.
    active: u32,
    /// All lanes at the instruction; the guard holds in those of `active`.
    lanes: u32,
}

/// Results of the instruction in each lane.
#[derive(Default)]
struct Results {
    d: [u32; LANES],
    /// The predicate `p` of `d|p`, or the result of `vote` in a mode other than `ballot`.
    p: u32,
    /// The uninitialised bits of `d`.
    uninitialised: [u64; LANES],
}

/// Executes the current instruction together with lanes that wait at other instructions. Returns `None`, and changes
/// nothing, if members are missing.
#[cold]
pub(crate) fn execute_together(cx: &mut ExecutionContext<'_>) -> Option<Flow> {
    let participants = participants(cx)?;
    let (own, pc) = (cx.active, cx.warp.pc);
    let all = participants.iter().fold(0, |all, participant| all | participant.active);
    count(cx, &participants[1..]);
    cx.active = all;
    let flow = execute(cx, &participants);
    (cx.active, cx.warp.pc) = (own, pc);
    if flow == Flow::Next {
        cx.warp.advance_waiting(all);
    }
    Some(flow)
}

/// The current lanes, and those that wait for them at other instructions; `None` if members are missing.
fn participants<'a>(cx: &ExecutionContext<'a>) -> Option<Vec<Participant<'a>>> {
    let launch = cx.launch;
    let collective = *launch.program.collectives.get(&cx.warp.pc)?;
    let own = &launch.insts[cx.warp.pc];
    let member_mask = |inst: &Inst, active: u32| -> Option<u32> {
        let masks = cx.warp.regs.lanes::<u32>(inst.slots[MEMBERS]);
        let mask = masks[lanes_of(active).next()?];
        lanes_of(active).all(|lane| masks[lane] == mask).then_some(mask)
    };
    let mask = member_mask(own, cx.active)?;
    let mut participants =
        vec![Participant { inst: own, pc: cx.warp.pc, active: cx.active, lanes: cx.warp.mask }];
    for (lanes, pc) in cx.warp.waiting() {
        let inst = &launch.insts[pc];
        let active = if inst.guard == NONE { lanes } else { lanes & cx.mask(inst.guard) };
        let is_same = launch.program.collectives.get(&pc) == Some(&collective) && inst.imm == own.imm;
        if is_same && member_mask(inst, active) == Some(mask) {
            // Lanes at the current instruction join the current lanes first, and stay with them.
            if pc == cx.warp.pc {
                return None;
            }
            participants.push(Participant { inst, pc, active, lanes });
        }
    }
    let all = participants.iter().fold(0, |all, participant| all | participant.active);
    (participants.len() > 1 && all == mask & cx.warp.live).then_some(participants)
}

/// Counts the instruction for participants that have waited: the count was taken back when they began to wait.
fn count(cx: &mut ExecutionContext<'_>, waited: &[Participant<'_>]) {
    let current = (cx.warp.pc, cx.warp.mask, cx.active);
    for participant in waited {
        (cx.warp.pc, cx.warp.mask, cx.active) = (participant.pc, participant.lanes, participant.active);
        cx.worker.clock += 1;
        cx.worker.counters.lane_instructions += u64::from(participant.active.count_ones());
        if cx.worker.profile.is_some() {
            observe(cx, participant.inst);
        }
    }
    (cx.warp.pc, cx.warp.mask, cx.active) = current;
}

/// Executes the instruction; the active lanes are those of all participants.
fn execute(cx: &mut ExecutionContext<'_>, participants: &[Participant<'_>]) -> Flow {
    let (collective, imm) = (cx.launch.program.collectives[&cx.warp.pc], participants[0].inst.imm);
    let all = cx.active;
    let results = match collective {
        Collective::Barrier => {
            if cx.warp.waited & all != 0 {
                cx.warp.waited |= all;
            }
            races::sync_lanes(cx);
            return Flow::Next;
        }
        Collective::Shuffle => {
            let [values, amounts, controls] = [A, B, C].map(|slot| gather::<u32>(cx, participants, slot));
            let (sources, p) = sources(imm, &amounts, &controls);
            let read = lanes_of(all).fold(0, |read, lane| read | 1 << sources[lane]) & !all;
            if read != 0 && cx.launch.checks.memory {
                return from_inactive(cx, read);
            }
            let bits = uninitialised_bits(cx, participants);
            let source = |lane: usize| sources[lane] as usize % LANES;
            Results {
                d: std::array::from_fn(|lane| values[source(lane)]),
                p,
                uninitialised: std::array::from_fn(|lane| bits[source(lane)]),
            }
        }
        Collective::Vote => {
            let votes_of =
                |participant: &Participant<'_>| cx.mask(participant.inst.slots[A]) & participant.active;
            let votes = participants.iter().fold(0, |votes, participant| votes | votes_of(participant));
            let unknown = mask_of(&uninitialised_bits(cx, participants));
            match imm {
                BALLOT => Results { d: [votes; LANES], p: 0, uninitialised: [u64::from(unknown); LANES] },
                mode => {
                    Results { p: verdict(mode, votes, all), uninitialised: whole(unknown), d: [0; LANES] }
                }
            }
        }
        Collective::Match => {
            let values = match imm & MATCH_64 {
                0 => gather::<u32>(cx, participants, A).map(u64::from),
                _ => gather::<u64>(cx, participants, A),
            };
            let uninitialised = whole(mask_of(&uninitialised_bits(cx, participants)));
            let equal = equal_lanes(&values, all);
            if imm & MATCH_ALL == 0 {
                Results { d: equal, p: 0, uninitialised }
            } else {
                let is_equal = equal[all.trailing_zeros() as usize % LANES] == all;
                let p = if is_equal { u32::MAX } else { 0 };
                Results { d: [all & p; LANES], p, uninitialised }
            }
        }
        Collective::Reduce => {
            let values = gather::<u32>(cx, participants, A);
            let (_, _, combine) = REDUCTIONS[imm as usize % REDUCTIONS.len()];
            let d = lanes_of(all).map(|lane| values[lane]).reduce(combine).unwrap_or_default();
            let uninitialised = whole(mask_of(&uninitialised_bits(cx, participants)));
            Results { d: [d; LANES], p: 0, uninitialised }
        }
        Collective::Elect => {
            let leader = all.trailing_zeros();
            Results { d: [leader; LANES], p: 1 << leader, ..Results::default() }
        }
    };
    write(cx, participants, collective, &results);
    Flow::Next
}

/// The value of an operand in each lane, from the registers of the lane's instruction.
fn gather<T: Pod>(cx: &ExecutionContext<'_>, participants: &[Participant<'_>], slot: usize) -> [T; LANES] {
    let mut values = [T::default(); LANES];
    for participant in participants {
        let from = cx.warp.regs.lanes::<T>(participant.inst.slots[slot]);
        lanes_of(participant.active).for_each(|lane| values[lane] = from[lane]);
    }
    values
}

/// All bits if a lane has uninitialised bits, none otherwise.
fn whole(uninitialised: u32) -> [u64; LANES] {
    [if uninitialised == 0 { 0 } else { u64::MAX }; LANES]
}

/// The register that is operand `A` of a participant; `None` if it is a constant.
fn operand(cx: &ExecutionContext<'_>, participant: &Participant<'_>) -> Option<RegisterSlot> {
    let slot = participant.inst.slots[A] & !NEGATED;
    cx.launch.program.value_flow[participant.pc].reads.iter().copied().find(|read| read.slot == slot)
}

/// The uninitialised bits of operand `A` in each lane.
fn uninitialised_bits(cx: &ExecutionContext<'_>, participants: &[Participant<'_>]) -> [u64; LANES] {
    let mut bits = [0; LANES];
    let Some(tracked) = cx.warp.uninitialised.as_deref() else { return bits };
    for participant in participants {
        let Some(register) = operand(cx, participant) else { continue };
        let from = tracked.lanes(register);
        lanes_of(participant.active & tracked.mask(register)).for_each(|lane| bits[lane] = from[lane]);
    }
    bits
}

/// Writes the results to the registers of each participant, and marks their uninitialised bits.
fn write(
    cx: &mut ExecutionContext<'_>,
    participants: &[Participant<'_>],
    collective: Collective,
    results: &Results,
) {
    let marks = uninitialised_marks(cx, participants);
    for participant in participants {
        let Inst { slots, imm, .. } = *participant.inst;
        cx.active = participant.active;
        if collective == Collective::Vote && imm != BALLOT {
            cx.set_mask(slots[D], results.p);
            continue;
        }
        cx.warp.regs.write(slots[D], &results.d, participant.active);
        if slots[P] != NONE
            && matches!(collective, Collective::Shuffle | Collective::Match | Collective::Elect)
        {
            cx.set_mask(slots[P], results.p);
        }
    }
    if cx.launch.numeric.overflow {
        for participant in participants {
            let writes = cx.launch.program.value_flow[participant.pc].writes.iter();
            writes.for_each(|register| *cx.warp.overflowed_mut(register.slot) &= !participant.active);
        }
    }
    let Some(tracked) = cx.warp.uninitialised.as_deref_mut() else { return };
    for participant in participants {
        for &register in &cx.launch.program.value_flow[participant.pc].writes {
            // The predicate of a shuffle depends on operands that must be initialised.
            let is_valid = collective == Collective::Shuffle && register.slot == participant.inst.slots[P];
            let bits = if is_valid { [0; LANES] } else { results.uninitialised };
            tracked.set(register, participant.active, &bits, marks);
        }
    }
}

/// The lanes whose uninitialised bits are results of arithmetic, and the origin of the bits.
fn uninitialised_marks(cx: &ExecutionContext<'_>, participants: &[Participant<'_>]) -> (u32, u32) {
    let Some(tracked) = cx.warp.uninitialised.as_deref() else { return (0, 0) };
    let operands =
        participants.iter().filter_map(|participant| Some((operand(cx, participant)?, participant.active)));
    let mut uninitialised = operands.filter(|&(register, active)| tracked.mask(register) & active != 0);
    let Some((register, active)) = uninitialised.next() else { return (0, 0) };
    let computed = uninitialised.fold(tracked.computed(register.slot), |computed, (register, _)| {
        computed | tracked.computed(register.slot)
    });
    (if computed != 0 { u32::MAX } else { 0 }, tracked.origin(register, active))
}
