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

/// Slots of two options: the address has 64 bits; the address is generic.
const WIDE: usize = 5;
const GENERIC: usize = 6;

/// The lanes' addresses as offsets in the cluster's shared memory, and the window's start if they are generic.
fn shared_operands(m: &ExecutionContext<'_>, i: &Inst) -> ([u64; LANES], u64) {
    let window = if i.slots[GENERIC] != 0 { SHARED_WINDOW } else { 0 };
    let at = match i.slots[WIDE] {
        0 => m.warp.regs.lanes::<u32>(i.slots[A]).map(u64::from),
        _ => *m.warp.regs.lanes::<u64>(i.slots[A]),
    };
    (at.map(|address| address.wrapping_sub(window)), window)
}

/// The CTA's rank and the offset of each lane's address, and the window's start; a finding if an active lane's is in no
/// CTA's shared memory.
fn located(m: &mut ExecutionContext<'_>, i: &Inst) -> Option<([(usize, u64); LANES], u64)> {
    let (at, window) = shared_operands(m, i);
    let places = at.map(|address| m.cluster.layout.locate(address));
    let size = m.cluster.layout.ctas;
    let outside = |&lane: &usize| places[lane].0 >= size || at[lane] >= WINDOW_BYTES;
    match m.active_lanes().find(outside) {
        None => Some((places, window)),
        Some(lane) => {
            let detail = format!("{:#x} is not an address of shared memory", at[lane].wrapping_add(window));
            m.fault(FindingKind::OutOfBounds, lane as u32, detail);
            None
        }
    }
}

/// `mapa`: the same offset in another CTA's shared memory.
fn map(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some((places, window)) = located(m, i) else { return Flow::Fault };
    let ranks = *m.warp.regs.lanes::<u32>(i.slots[B]);
    let size = m.cluster.layout.ctas;
    if let Some(lane) = m.active_lanes().find(|&lane| ranks[lane] as usize >= size) {
        let detail = format!("rank {} is outside a cluster of {size} CTAs", ranks[lane]);
        return m.fault(FindingKind::OutOfBounds, lane as u32, detail);
    }
    let mut mapped = [0u64; LANES];
    for lane in m.active_lanes() {
        mapped[lane] = m.cluster.layout.base(ranks[lane] as usize) + places[lane].1 + window;
    }
    match i.slots[WIDE] {
        0 => m.warp.regs.write(i.slots[D], &mapped.map(|address| address as u32), m.active),
        _ => m.warp.regs.write(i.slots[D], &mapped, m.active),
    }
    Flow::Next
}

/// `getctarank`: the rank of the CTA in whose shared memory an address is.
fn rank_of(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some((places, _)) = located(m, i) else { return Flow::Fault };
    m.warp.regs.write(i.slots[D], &places.map(|(rank, _)| rank as u32), m.active);
    Flow::Next
}

/// `isspacep.shared::cta`.
fn in_own_window(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let flow = in_window(m, i);
    if !m.cluster.has_peers() {
        return flow;
    }
    let own = m.cluster.rank(m.warp.index);
    let at = m.warp.regs.lanes::<u64>(i.slots[A]);
    let of_others = (0..LANES).filter(|&lane| {
        classify(at[lane]).0 == Space::Shared && m.cluster.layout.locate(at[lane] - SHARED_WINDOW).0 != own
    });
    let others = of_others.fold(0, |mask, lane| mask | 1 << lane);
    let mask = m.mask(i.slots[D]) & !others;
    m.set_mask(i.slots[D], mask);
    flow
}

/// Bits of `imm` of a cluster barrier.
const RELAXED: u64 = 1;
const ALIGNED: u64 = 2;

/// Checks that all threads of the warp execute an `.aligned` form together.
fn is_aligned(m: &mut ExecutionContext<'_>, i: &Inst) -> bool {
    if i.imm & ALIGNED == 0 || m.active == m.warp.live {
        return true;
    }
    let missing = (m.warp.live & !m.active).trailing_zeros();
    let lane = m.active.trailing_zeros();
    let detail = format!(
        "lane {missing} of the warp does not execute the aligned cluster barrier together with lane {lane}: the \
         warp has diverged"
    );
    m.fault(FindingKind::BarrierDivergence, missing, detail);
    false
}

fn arrive(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !is_aligned(m, i) {
        return Flow::Fault;
    }
    let (warp, lanes, waited) = (m.warp.index, m.active, m.warp.waited != 0);
    if let Err(lane) = m.cluster.cluster_barrier.arrive(warp, lanes, waited) {
        let detail = "the thread arrives at the cluster's barrier again without having waited there";
        return m.fault(FindingKind::BarrierDivergence, lane, detail);
    }
    races::arrive_in_cluster(m, i.imm & RELAXED == 0);
    Flow::Next
}

fn wait(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !is_aligned(m, i) {
        return Flow::Fault;
    }
    let (warp, lanes) = (m.warp.index, m.active);
    match m.cluster.cluster_barrier.wait(warp, lanes) {
        Ok(true) => {
            m.warp.waited |= if m.cluster.cluster_barrier.had_waited { u32::MAX } else { 0 };
            races::acquire_cluster_barrier(m);
            Flow::Next
        }
        Ok(false) => Flow::Wait,
        Err(lane) => {
            let detail = "the thread waits at the cluster's barrier without having arrived there";
            m.fault(FindingKind::BarrierDivergence, lane, detail)
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

/// Takes the space and the type of an address operand.
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
