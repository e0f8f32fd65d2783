//! Clusters: `mapa`, `getctarank`, `isspacep` of shared memory, and `barrier.cluster`.

use super::moves::{WINDOWS, in_window};
use super::races;
use crate::code::access::{SHARED_WINDOW, WINDOW_BYTES, classify};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Slots of two options of an address operand: whether the address has 64 bits, and whether the address is generic.
const WIDE: usize = 5;
const GENERIC: usize = 6;

/// Address of each lane as an offset in the cluster's shared memory, and the start of the shared window if the
/// addresses are generic (otherwise 0).
fn shared_operands(cx: &ExecutionContext<'_>, i: &Inst) -> ([u64; LANES], u64) {
    let window = if i.slots[GENERIC] != 0 { SHARED_WINDOW } else { 0 };
    let at = match i.slots[WIDE] {
        0 => cx.warp.regs.lanes::<u32>(i.slots[A]).map(u64::from),
        _ => *cx.warp.regs.lanes::<u64>(i.slots[A]),
    };
    (at.map(|address| address.wrapping_sub(window)), window)
}

/// Rank of the CTA and offset in its shared memory for each lane's address, and the start of the shared window; reports
/// a finding if the address of an active lane is in no CTA's shared memory.
fn located(cx: &mut ExecutionContext<'_>, i: &Inst) -> Option<([(usize, u64); LANES], u64)> {
    let (at, window) = shared_operands(cx, i);
    let places = at.map(|address| cx.cluster.layout.locate(address));
    let size = cx.cluster.layout.ctas;
    let outside = |&lane: &usize| places[lane].0 >= size || at[lane] >= WINDOW_BYTES;
    match cx.active_lanes().find(outside) {
        None => Some((places, window)),
        Some(lane) => {
            let detail = format!("{:#x} is not an address of shared memory", at[lane].wrapping_add(window));
            cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
            None
        }
    }
}

/// `mapa`: converts a shared memory address to the same offset in another CTA's shared memory.
fn map(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some((places, window)) = located(cx, i) else { return Flow::Fault };
    let ranks = *cx.warp.regs.lanes::<u32>(i.slots[B]);
    let size = cx.cluster.layout.ctas;
    if let Some(lane) = cx.active_lanes().find(|&lane| ranks[lane] as usize >= size) {
        let detail = format!("rank {} is outside a cluster of {size} CTAs", ranks[lane]);
        return cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
    }
    let mut mapped = [0u64; LANES];
    for lane in cx.active_lanes() {
        mapped[lane] = cx.cluster.layout.base(ranks[lane] as usize) + places[lane].1 + window;
    }
    match i.slots[WIDE] {
        0 => cx.warp.regs.write(i.slots[D], &mapped.map(|address| address as u32), cx.active),
        _ => cx.warp.regs.write(i.slots[D], &mapped, cx.active),
    }
    Flow::Next
}

/// `getctarank`: the rank of the CTA in whose shared memory an address is.
fn rank_of(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some((places, _)) = located(cx, i) else { return Flow::Fault };
    cx.warp.regs.write(i.slots[D], &places.map(|(rank, _)| rank as u32), cx.active);
    Flow::Next
}

/// `isspacep.shared::cta`: tests whether an address is in the CTA's own shared memory.
fn in_own_window(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let flow = in_window(cx, i);
    if !cx.cluster.has_peers() {
        return flow;
    }
    let own = cx.cluster.rank(cx.warp.index);
    let at = cx.warp.regs.lanes::<u64>(i.slots[A]);
    let of_others = (0..LANES).filter(|&lane| {
        classify(at[lane]).0 == Space::Shared && cx.cluster.layout.locate(at[lane] - SHARED_WINDOW).0 != own
    });
    let others = of_others.fold(0, |mask, lane| mask | 1 << lane);
    let mask = cx.mask(i.slots[D]) & !others;
    cx.set_mask(i.slots[D], mask);
    flow
}

/// Flags in `imm` of a cluster barrier: `.relaxed` and `.aligned`.
const RELAXED: u64 = 1;
const ALIGNED: u64 = 2;

/// Checks that all threads of the warp execute an `.aligned` cluster barrier together; returns false if a check reports
/// a finding.
fn is_aligned(cx: &mut ExecutionContext<'_>, i: &Inst) -> bool {
    i.imm & ALIGNED == 0 || cx.active == cx.warp.live || lanes_missing(cx)
}

/// Reports that lanes of the warp do not execute a cluster barrier with the active ones; returns false.
#[cold]
fn lanes_missing(cx: &mut ExecutionContext<'_>) -> bool {
    let missing = cx.missing().lanes.trailing_zeros();
    let lane = cx.active.trailing_zeros();
    let detail = format!(
        "lane {missing} of the warp does not execute the aligned cluster barrier together with lane {lane}: the \
         warp has diverged"
    );
    cx.fault_of_missing(FindingKind::BarrierDivergence, cx.missing(), missing, detail);
    false
}

fn arrive(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !is_aligned(cx, i) {
        return Flow::Fault;
    }
    let (warp, lanes, waited) = (cx.warp.index, cx.active, cx.warp.waited != 0);
    if let Err(lane) = cx.cluster.cluster_barrier.arrive(warp, lanes, waited) {
        let detail = "the thread arrives at the cluster's barrier again without having waited there";
        return cx.fault(FindingKind::BarrierDivergence, lane, detail);
    }
    races::arrive_in_cluster(cx, i.imm & RELAXED == 0);
    Flow::Next
}

fn wait(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !is_aligned(cx, i) {
        return Flow::Fault;
    }
    let (warp, lanes) = (cx.warp.index, cx.active);
    // Other groups of the warp must run before the warp as a whole waits.
    if cx.warp.independent
        && lanes != cx.warp.live
        && cx.cluster.cluster_barrier.arrived(warp) & lanes != 0
        && !lanes_missing(cx)
    {
        return Flow::Fault;
    }
    match cx.cluster.cluster_barrier.wait(warp, lanes) {
        Ok(true) => {
            cx.warp.waited |= if cx.cluster.cluster_barrier.had_waited { u32::MAX } else { 0 };
            races::acquire_cluster_barrier(cx);
            Flow::Next
        }
        Ok(false) => Flow::Wait,
        Err(lane) => {
            let detail = "the thread waits at the cluster's barrier without having arrived there";
            cx.fault(FindingKind::BarrierDivergence, lane, detail)
        }
    }
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    match op.opcode() {
        "isspacep" => is_space(op),
        "mapa" => {
            let ty = shared_operand_type(op)?;
            op.slots[D] = op.dst(0, ty.width())?;
            op.slots[A] = op.src(1, ty)?;
            op.slots[B] = op.src(2, Ty::U32)?;
            Ok(map)
        }
        "getctarank" => {
            let ty = shared_operand_type(op)?;
            op.slots[D] = op.dst(0, Width::W32)?;
            op.slots[A] = op.src(1, ty)?;
            Ok(rank_of)
        }
        _ => barrier(op),
    }
}

/// Takes the state space and the type of a shared memory address operand.
fn shared_operand_type(op: &mut InstructionCursor<'_, '_>) -> Result<Ty, ParseError> {
    op.slots[GENERIC] = !op.take("shared::cluster") as u32;
    let ty = op.take_ty()?;
    op.slots[WIDE] = (ty == Ty::U64) as u32;
    match ty {
        Ty::U64 => Ok(ty),
        Ty::U32 if op.slots[GENERIC] == 0 => Ok(ty),
        _ => Err(op.unsupported()),
    }
}

fn is_space(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let own = op.has("shared") || op.has("shared::cta");
    let found = op.take_any(&WINDOWS[..5]);
    let Some(window) = found else { return Err(op.unsupported()) };
    op.imm = window.unwrap_or(0);
    op.slots[D] = op.dst(0, Width::Predicate)?;
    op.slots[A] = op.src(1, Ty::U64)?;
    Ok(if own { in_own_window } else { in_window })
}

fn barrier(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    op.take("cluster");
    op.imm = if op.take("aligned") { ALIGNED } else { 0 };
    if op.take("arrive") {
        let relaxed = op.take("relaxed");
        if relaxed == op.take("release") && relaxed {
            return Err(op.unsupported());
        }
        op.imm |= if relaxed { RELAXED } else { 0 };
        return Ok(arrive);
    }
    if op.take("wait") {
        op.take("acquire");
        return Ok(wait);
    }
    Err(op.unsupported())
}
