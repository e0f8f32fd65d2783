//! Instructions that exchange values between the lanes of a warp, and `bar.warp.sync`.
//!
//! Every `.sync` instruction has a member mask: all members that have not exited must execute the instruction together.
//! If the lanes have different masks, each set of lanes with one mask executes it by itself, one set after the other.

use super::lane_loop::lane_loop;
use super::races;
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, C, D, NONE};
use crate::context::fault::Missing;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes_of};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Slot of the member mask.
pub(super) const MEMBERS: usize = 4;
/// Slot of the second destination of `d|p`, a predicate.
pub(super) const P: usize = 5;

/// Checks that the active lanes are exactly the members of an instruction that have not exited. Otherwise returns the
/// outcome of the instruction: a fault or, if lanes have different masks, another execution by only the lanes with the
/// first lane's mask.
#[inline(always)]
fn check_members(cx: &mut ExecutionContext<'_>, slot: u32) -> Result<(), Flow> {
    let masks = cx.warp.regs.lanes::<u32>(slot);
    let mask = masks[cx.active.trailing_zeros() as usize];
    let mut others = 0;
    for lane in 0..LANES {
        others |= if cx.active >> lane & 1 != 0 { masks[lane] ^ mask } else { 0 };
    }
    if others != 0 {
        return Err(split_by_mask(cx, slot));
    }
    let complete =
        |cx: &ExecutionContext<'_>| cx.active & !mask == 0 && mask & cx.warp.live & !cx.active == 0;
    if complete(cx) {
        return Ok(());
    }
    cx.exit_waiting_lanes();
    if complete(cx) { Ok(()) } else { Err(mask_fault(cx, slot, mask)) }
}

/// Splits the active lanes by their member masks.
#[cold]
fn split_by_mask(cx: &mut ExecutionContext<'_>, slot: u32) -> Flow {
    let masks = cx.warp.regs.lanes::<u32>(slot);
    let first = masks[cx.active.trailing_zeros() as usize];
    let same =
        cx.active_lanes().filter(|&lane| masks[lane] == first).fold(0, |lanes, lane| lanes | 1 << lane);
    cx.warp.split(same, cx.active & !same);
    Flow::Jump
}

#[cold]
fn mask_fault(cx: &mut ExecutionContext<'_>, slot: u32, mask: u32) -> Flow {
    let outside = cx.active & !mask;
    let missing = mask & cx.warp.live & !cx.active;
    let masks = cx.warp.regs.lanes::<u32>(slot);
    let lanes = if outside == 0 { missing } else { 0 };
    let joinable =
        lanes_of(lanes).filter(|&lane| masks[lane] == mask).fold(0, |lanes, lane| lanes | 1 << lane);
    let (lane, detail) = if outside != 0 {
        let lane = outside.trailing_zeros();
        (lane, format!("lane {lane} executes it but is not in its member mask {mask:#010x}"))
    } else {
        let lane = missing.trailing_zeros();
        let elsewhere = cx.warp.waiting().find(|&(lanes, pc)| lanes >> lane & 1 != 0 && pc != cx.warp.pc);
        let state = match elsewhere {
            Some((_, pc)) => waits_elsewhere(cx, pc),
            None => "has diverged and does not execute it".to_string(),
        };
        (lane, format!("lane {lane} is in its member mask {mask:#010x} but {state}"))
    };
    cx.fault_of_missing(FindingKind::MemberMask, Missing { lanes, joinable }, lane, detail)
}

/// Says that a member waits at instruction `pc`, and why the member cannot execute the current instruction there.
fn waits_elsewhere(cx: &ExecutionContext<'_>, pc: usize) -> String {
    let program = cx.launch.program;
    let collectives = [cx.warp.pc, pc].map(|pc| (program.collectives.get(&pc), cx.launch.insts[pc].imm));
    let reason = match collectives {
        [(Some(_), _), (Some(_), _)] if collectives[0] == collectives[1] => "with another member mask",
        [(None, _), _] => "and before sm_70 all members must execute one instruction",
        _ => "which has another opcode or other qualifiers",
    };
    let line = program.place(pc).line;
    format!("waits at PTX line {line} (`{}`), {reason}", program.line_text(line))
}

pub(crate) fn warp_sync(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
        return flow;
    }
    if cx.warp.waited & cx.active != 0 {
        cx.warp.waited |= cx.active;
    }
    if cx.cluster.races.is_some() {
        races::sync_lanes(cx);
    }
    Flow::Next
}

/// Modes of `shfl` with their numbers.
const SHUFFLES: [(&str, u64); 4] = [("up", 0), ("down", 1), ("bfly", 2), ("idx", 3)];

lane_loop! {
    /// `shfl` in the mode with the number `MODE` of [`SHUFFLES`].
    fn shuffle[const MODE: u64][MODE](cx, i) {
        if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
            return flow;
        }
        let values = *cx.warp.regs.lanes::<u32>(i.slots[A]);
        let amounts = cx.warp.regs.lanes::<u32>(i.slots[B]);
        let controls = cx.warp.regs.lanes::<u32>(i.slots[C]);
        if MODE == 2
            && cx.active == u32::MAX
            && let Some(d) = exchange(&values, amounts, controls)
        {
            *cx.warp.regs.lanes_mut(i.slots[D]) = d;
            if i.slots[P] != NONE {
                cx.set_mask(i.slots[P], u32::MAX);
            }
            return Flow::Next;
        }
        let (sources, valid) = sources(MODE, amounts, controls);
        if cx.active != u32::MAX && cx.launch.checks.memory {
            let read = lanes_of(cx.active).fold(0, |read, lane| read | 1 << sources[lane]);
            if read & !cx.active != 0 {
                return from_inactive(cx, read & !cx.active);
            }
        }
        let d: [u32; LANES] = std::array::from_fn(|lane| values[sources[lane] as usize % LANES]);
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        if i.slots[P] != NONE {
            cx.set_mask(i.slots[P], valid);
        }
        Flow::Next
    }
}

/// The lane from which each lane reads in a `shfl` in mode `mode`, and the lanes whose source is in their segment.
#[inline(always)]
pub(super) fn sources(mode: u64, amounts: &[u32; LANES], controls: &[u32; LANES]) -> ([u32; LANES], u32) {
    let mut sources = [0; LANES];
    let mut valid = 0;
    for lane in 0..LANES {
        let (amount, control) = ((amounts[lane] & 31) as i32, controls[lane]);
        let (clamp, segment) = ((control & 31) as i32, (control >> 8 & 31) as i32);
        let own = lane as i32;
        let last = own & segment | clamp & !segment;
        let first = own & segment;
        let (source, inside) = match mode {
            0 => (own - amount, own - amount >= last),
            1 => (own + amount, own + amount <= last),
            2 => (own ^ amount, own ^ amount <= last),
            _ => (first | amount & !segment, (first | amount & !segment) <= last),
        };
        sources[lane] = if inside { source as u32 & 31 } else { own as u32 };
        valid |= (inside as u32) << lane;
    }
    (sources, valid)
}

/// `shfl.bfly` by the same power of two in all lanes of a full warp, as in a warp-wide sum; `None` for any other
/// operands.
#[inline(always)]
fn exchange(values: &[u32; LANES], amounts: &[u32; LANES], controls: &[u32; LANES]) -> Option<[u32; LANES]> {
    let (amount, control) = (amounts[0], controls[0]);
    let mut differs = control & 0x1f1f ^ 0x1f;
    for lane in 0..LANES {
        differs |= amounts[lane] ^ amount | controls[lane] ^ control;
    }
    // With a constant distance, the exchange compiles to a vector permutation.
    #[inline(always)]
    fn by<const AMOUNT: usize>(values: &[u32; LANES]) -> Option<[u32; LANES]> {
        let mut d = [0; LANES];
        for lane in 0..LANES {
            d[lane] = values[lane ^ AMOUNT];
        }
        Some(d)
    }
    match amount & 31 {
        _ if differs != 0 => None,
        1 => by::<1>(values),
        2 => by::<2>(values),
        4 => by::<4>(values),
        8 => by::<8>(values),
        16 => by::<16>(values),
        _ => None,
    }
}

#[cold]
pub(super) fn from_inactive(cx: &mut ExecutionContext<'_>, inactive: u32) -> Flow {
    let source = inactive.trailing_zeros();
    let state = if cx.warp.live >> source & 1 != 0 { "is inactive" } else { "has exited" };
    let detail = format!("it reads lane {source}, which {state}");
    cx.fault(FindingKind::ShuffleFromInactiveLane, cx.active.trailing_zeros(), detail)
}

/// `vote`; the mode in `imm` is 0 for `all`, 1 for `any`, 2 for `uni`, [`BALLOT`] for `ballot`.
fn vote(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
        return flow;
    }
    let votes = cx.mask(i.slots[A]) & cx.active;
    if i.imm == BALLOT {
        cx.warp.regs.write(i.slots[D], &[votes; LANES], cx.active);
    } else {
        cx.set_mask(i.slots[D], verdict(i.imm, votes, cx.active));
    }
    Flow::Next
}

/// Mode of `vote.ballot`.
pub(super) const BALLOT: u64 = 3;

/// Result of a `vote` of the lanes of `active` in another mode than [`BALLOT`], as a mask of all lanes or none.
pub(super) fn verdict(mode: u64, votes: u32, active: u32) -> u32 {
    let holds = match mode {
        0 => votes == active,
        1 => votes != 0,
        _ => votes == 0 || votes == active,
    };
    if holds { u32::MAX } else { 0 }
}

fn activemask(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.warp.regs.write(i.slots[D], &[cx.active; LANES], cx.active);
    Flow::Next
}

/// Flag in `imm` of a `match`: values have 64 bits.
pub(super) const MATCH_64: u64 = 1;
/// Flag in `imm` of a `match`: the mode is `all`.
pub(super) const MATCH_ALL: u64 = 2;

/// For each lane, the lanes of `active` with the same value.
pub(super) fn equal_lanes(values: &[u64; LANES], active: u32) -> [u32; LANES] {
    values.map(|value| {
        lanes_of(active).filter(|&lane| values[lane] == value).fold(0, |mask, lane| mask | 1 << lane)
    })
}

fn match_lanes(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
        return flow;
    }
    let values: [u64; LANES] = match i.imm & MATCH_64 {
        0 => cx.warp.regs.lanes::<u32>(i.slots[A]).map(u64::from),
        _ => *cx.warp.regs.lanes::<u64>(i.slots[A]),
    };
    let d = equal_lanes(&values, cx.active);
    if i.imm & MATCH_ALL == 0 {
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        return Flow::Next;
    }
    let all = d[cx.active.trailing_zeros() as usize % LANES] == cx.active;
    cx.warp.regs.write(i.slots[D], &[if all { cx.active } else { 0 }; LANES], cx.active);
    if i.slots[P] != NONE {
        cx.set_mask(i.slots[P], if all { u32::MAX } else { 0 });
    }
    Flow::Next
}

/// Operation that combines the values of two lanes.
type Combine = fn(u32, u32) -> u32;

/// Operations of `redux` by type; `imm` of the instruction is an index into this list.
pub(super) const REDUCTIONS: [(&str, Ty, Combine); 9] = [
    ("add", Ty::U32, u32::wrapping_add),
    ("add", Ty::S32, u32::wrapping_add),
    ("min", Ty::U32, |a, b| a.min(b)),
    ("max", Ty::U32, |a, b| a.max(b)),
    ("min", Ty::S32, |a, b| (a as i32).min(b as i32) as u32),
    ("max", Ty::S32, |a, b| (a as i32).max(b as i32) as u32),
    ("and", Ty::B32, |a, b| a & b),
    ("or", Ty::B32, |a, b| a | b),
    ("xor", Ty::B32, |a, b| a ^ b),
];

fn reduce(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
        return flow;
    }
    let values = cx.warp.regs.lanes::<u32>(i.slots[A]);
    let (_, _, combine) = REDUCTIONS[i.imm as usize % REDUCTIONS.len()];
    let result = cx.active_lanes().map(|lane| values[lane]).reduce(combine).unwrap_or_default();
    cx.warp.regs.write(i.slots[D], &[result; LANES], cx.active);
    Flow::Next
}

fn elect(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if let Err(flow) = check_members(cx, i.slots[MEMBERS]) {
        return flow;
    }
    let leader = cx.active.trailing_zeros();
    cx.warp.regs.write(i.slots[D], &[leader; LANES], cx.active);
    if i.slots[P] != NONE {
        cx.set_mask(i.slots[P], 1 << leader);
    }
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let name = op.opcode();
    if name == "activemask" {
        op.take("b32");
        op.slots[D] = op.dst(0, Width::W32)?;
        return Ok(activemask);
    }
    if !op.take("sync") {
        return Err(op.malformed(format!("`{}` needs `.sync`", op.text())));
    }
    op.slots[P] = NONE;
    match name {
        "shfl" => {
            let Some(mode) = op.take_any(&SHUFFLES) else { return Err(op.unsupported()) };
            if op.take_ty()? != Ty::B32 {
                return Err(op.unsupported());
            }
            destinations(op)?;
            op.slots[A] = op.src(1, Ty::B32)?;
            op.slots[B] = op.src(2, Ty::B32)?;
            op.slots[C] = op.src(3, Ty::B32)?;
            op.slots[MEMBERS] = op.src(4, Ty::B32)?;
            op.imm = mode;
            Ok(match mode {
                0 => shuffle::<0>(),
                1 => shuffle::<1>(),
                2 => shuffle::<2>(),
                _ => shuffle::<3>(),
            })
        }
        "vote" => {
            let modes = [("all", 0), ("any", 1), ("uni", 2), ("ballot", BALLOT)];
            let Some(mode) = op.take_any(&modes) else { return Err(op.unsupported()) };
            let ty = op.take_ty()?;
            if ty != if mode == BALLOT { Ty::B32 } else { Ty::Pred } {
                return Err(op.unsupported());
            }
            op.slots[D] = op.dst(0, ty.width())?;
            op.slots[A] = op.src(1, Ty::Pred)?;
            op.slots[MEMBERS] = op.src(2, Ty::B32)?;
            op.imm = mode;
            Ok(vote)
        }
        "match" => {
            let all = op.take("all");
            if !all && !op.take("any") {
                return Err(op.unsupported());
            }
            let ty = op.take_ty()?;
            if !matches!(ty, Ty::B32 | Ty::B64) {
                return Err(op.unsupported());
            }
            destinations(op)?;
            op.slots[A] = op.src(1, ty)?;
            op.slots[MEMBERS] = op.src(2, Ty::B32)?;
            op.imm = if ty == Ty::B64 { MATCH_64 } else { 0 } | if all { MATCH_ALL } else { 0 };
            Ok(match_lanes)
        }
        "redux" => {
            let operation = op.take_map(|name| REDUCTIONS.iter().map(|r| r.0).find(|&known| known == name));
            let ty = op.take_ty()?;
            let found = REDUCTIONS.iter().position(|&(name, of, _)| Some(name) == operation && of == ty);
            let Some(found) = found else { return Err(op.unsupported()) };
            op.unary(Ty::B32, Ty::B32)?;
            op.slots[MEMBERS] = op.src(2, Ty::B32)?;
            op.imm = found as u64;
            Ok(reduce)
        }
        _ => {
            destinations(op)?;
            op.slots[MEMBERS] = op.src(1, Ty::B32)?;
            Ok(elect)
        }
    }
}

/// Takes a destination `d` or `d|p` and fills its slots.
fn destinations(op: &mut InstructionCursor<'_, '_>) -> Result<(), ParseError> {
    let Operand::Pair(d, p) = op.operand(0)? else {
        op.slots[D] = op.dst(0, Width::W32)?;
        return Ok(());
    };
    op.slots[D] = op.written_element(d, Width::W32)?;
    op.slots[P] = match &**p {
        Operand::Reg(register) => op.write_register(*register, Width::Predicate)?,
        Operand::Sink => NONE,
        _ => return Err(op.unsupported()),
    };
    Ok(())
}
