//! Clusters: addresses in other CTAs' shared memory, who may reach what there, and `barrier.cluster`.

use super::moves::{WINDOWS, in_window};
use super::races;
use super::resolve::addresses;
use crate::code::access::{Access, FLAGS, SHARED_WINDOW, SPACE_BITS, StateSpace, WINDOW_BYTES, classify};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// A range of shared memory that a lane is about to use.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) lane: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Whether the instruction reaches only the CTA's own.
    pub(crate) own: bool,
    /// Whether the access comes some time after the instruction, and something else tells the CTA of it, or is known
    /// to be over when somebody finds a phase complete.
    pub(crate) later: bool,
}

/// Checks the active lanes' accesses of shared memory in a cluster of several CTAs: that each stays in one CTA's, in
/// the thread's own where the instruction says so, and that this CTA is running. False if there is a finding.
#[inline(never)]
pub(crate) fn reach_lanes(m: &mut ExecutionContext<'_>, i: &Inst, bytes: u64, access: Access) -> bool {
    let space = i.slots[FLAGS] & SPACE_BITS;
    let generic = space == StateSpace::Generic as u32;
    let own = space == StateSpace::Shared as u32;
    if access == Access::Prefetch || !generic && !own && space != StateSpace::SharedCluster as u32 {
        return true;
    }
    let at = addresses(m, i);
    m.active_lanes().all(|lane| {
        let (space, address) = if generic { classify(at[lane]) } else { (Space::Shared, at[lane]) };
        space != Space::Shared || reach(m, Reach { lane, address, bytes, access, own, later: false })
    })
}

/// [`reach_lanes`] of one range.
pub(crate) fn reach(m: &mut ExecutionContext<'_>, what: Reach) -> bool {
    let cluster = &m.cluster.layout;
    let own = m.cluster.rank(m.warp.index);
    let (rank, _) = cluster.locate(what.address);
    let inside = cluster.contains(what.address, what.bytes);
    if inside && rank == own {
        return true;
    }
    if !inside || what.own {
        beyond(m, what, inside.then_some(rank));
        return false;
    }
    is_running(m, what, rank)
}

/// Whether the shared memory of a peer CTA can be used: the CTA has started, and not exited. Remembers that it was
/// used.
fn is_running(m: &mut ExecutionContext<'_>, what: Reach, rank: usize) -> bool {
    let Reach { lane, address, later, .. } = what;
    if m.cluster.exited >> rank & 1 != 0 {
        let detail = format!(
            "the shared memory of the CTA of rank {rank}, whose threads have all exited: a CTA must not exit \
             before its peers are done with it"
        );
        return not_running(m, lane, address, detail);
    }
    if races::reaches(m, lane, rank, (address, later)) {
        return true;
    }
    let detail = format!(
        "the shared memory of the CTA of rank {rank}, and nothing tells that this CTA has started: no \
         `barrier.cluster.wait` comes before"
    );
    not_running(m, lane, address, detail)
}

#[cold]
fn not_running(m: &mut ExecutionContext<'_>, lane: usize, address: u64, detail: String) -> bool {
    m.fault(FindingKind::PeerNotRunning, lane as u32, format!("{detail}; the address is {address:#x}"));
    place(m, address, 1);
    false
}

/// Gives the fault its place in shared memory.
fn place(m: &mut ExecutionContext<'_>, address: u64, bytes: u64) {
    let nearest = m.cluster.nearest_shared(address, bytes);
    if let Some(fault) = &mut m.worker.fault {
        (fault.address, fault.space, fault.nearest) = (Some(address), Some(Space::Shared), nearest);
    }
}

/// An access that reaches no CTA's shared memory, or not the thread's own.
#[cold]
fn beyond(m: &mut ExecutionContext<'_>, what: Reach, rank: Option<usize>) {
    let Reach { lane, address, bytes, access, .. } = what;
    let mut detail = format!("{bytes}-byte {} shared memory at {address:#x}", access.verb());
    if let Some(rank) = rank {
        detail +=
            &format!(", which is the CTA's of rank {rank}: `.shared::cta` reaches only the thread's own");
    }
    m.fault(FindingKind::OutOfBounds, lane as u32, detail);
    place(m, address, bytes);
}

/// Slot of the address's width, and whether it is generic.
const WIDE: usize = 5;
const GENERIC: usize = 6;

/// The lanes' operands that are addresses of shared memory: as offsets in the cluster's, with the window's start.
fn shared_operands(m: &ExecutionContext<'_>, i: &Inst) -> ([u64; LANES], u64) {
    let window = if i.slots[GENERIC] != 0 { SHARED_WINDOW } else { 0 };
    let at = match i.slots[WIDE] {
        0 => m.warp.regs.lanes::<u32>(i.slots[A]).map(u64::from),
        _ => *m.warp.regs.lanes::<u64>(i.slots[A]),
    };
    (at.map(|address| address.wrapping_sub(window)), window)
}

/// The active lanes' addresses, each with its CTA's rank and the offset there; a finding if one is of no CTA.
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

/// `mapa`: the same place in another CTA's shared memory.
fn map(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let Some((places, window)) = located(m, i) else { return Flow::Fault };
    let ranks = *m.warp.regs.lanes::<u32>(i.slots[B]);
    let size = m.cluster.layout.ctas;
    if let Some(lane) = m.active_lanes().find(|&lane| ranks[lane] as usize >= size) {
        let detail = format!("rank {} in a cluster of {size} CTAs", ranks[lane]);
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

/// `getctarank`: whose shared memory an address is in.
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

/// All of a warp's threads must be there for the aligned forms.
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
            races::pass_cluster(m);
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
