//! The warps of a cluster taking turns: those of one CTA, in most launches.

use crate::checks::programmatic::Order;
use crate::checks::races::{self, Races};
use crate::context::asynchronous::Awaited;
use crate::context::cta::{BARRIERS, CtaState, Reduction};
use crate::context::warp::Warp;
use crate::exec::lanes::LANES;
use crate::exec::resolve::FLAGS;
use crate::exec::{Fault, Flow, Inst, Launch, Machine, NONE, Worker};
use crate::finding::{FindingKind, Space};
use crate::launch::{Stats, uniform_value};
use crate::load::layout::Uniform;
use crate::load::types::Width;
use crate::profile::observe;

/// Warp instructions after which another warp gets its turn, and after which another CTA does.
const WARP_TURN: u64 = 1 << 16;
const CTA_TURN: u64 = 1 << 20;

/// A warp that does no more than this between two failed waits for an mbarrier, and loads nothing from
/// global memory, is in a loop of nothing else. If all warps are and fail this often, the CTA hangs.
const WAIT_LOOP: u64 = 16;
const WAITS_IN_VAIN: u32 = 64;
/// A finding about them names this many.
const LISTED_WAITS: usize = 6;

/// A cluster's CTAs with their warps.
pub(crate) struct Cta {
    pub(crate) state: CtaState,
    pub(crate) warps: Vec<Warp>,
    executed: u64,
    /// Rounds in a row in which all warps waited for mbarriers in vain, and the state of those then.
    vain: (u32, u64),
}

/// How a CTA's turn ended.
pub(crate) enum Slice {
    Finished,
    Paused,
    /// In that warp; `worker.fault` says what.
    Fault(usize),
}

impl Cta {
    pub(crate) fn new(launch: &Launch<'_>) -> Cta {
        let code = &launch.kernel.code;
        let (size, warps) = (launch.cluster_size(), launch.warps());
        let shared = launch.kernel.static_shared_bytes() + launch.dynamic_shared as u64;
        let (start, image) = code.layout.image();
        let warp = |index| {
            let mut warp = Warp::new(index, code.layout.bytes(), code.tracked, launch.kernel.local);
            warp.regs.load_image(start, image);
            warp
        };
        let mut state = CtaState::new(size, warps, shared);
        state.races = launch.races.as_ref().map(|_| Box::new(Races::new(state.shared.bytes)));
        Cta { state, warps: (0..size * warps).map(warp).collect(), executed: 0, vain: (0, 0) }
    }

    pub(crate) fn start(&mut self, launch: &Launch<'_>, index: u64) {
        self.state.reset(index);
        self.state.at.iter_mut().enumerate().for_each(|(rank, at)| *at = launch.cta_at(index, rank));
        (self.executed, self.vain) = (0, (0, 0));
        let threads = launch.block.iter().product::<u32>();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let (rank, first) = (self.state.rank(index), (index % self.state.warps * LANES) as u32);
            let lanes = (threads - first).min(LANES as u32);
            warp.reset(u32::MAX >> (LANES as u32 - lanes));
            warp.waited = launch.order.map_or(u32::MAX, Order::waited_at_start);
            for (uniform, width, slot) in launch.kernel.code.layout.uniforms() {
                let known = match uniform {
                    Uniform::Special(special) => special.is_lane_constant(),
                    Uniform::SharedAddress(_) => rank == 0,
                    Uniform::ModuleAddress(_) => false,
                };
                if known {
                    continue;
                }
                let value =
                    |lane: usize| uniform_value(launch, &self.state, uniform, (rank, first + lane as u32));
                let values: [u64; LANES] = std::array::from_fn(value);
                match width {
                    Width::W64 => *warp.regs.lanes_mut(slot) = values,
                    Width::W32 => *warp.regs.lanes_mut(slot) = values.map(|value| value as u32),
                    Width::W16 => *warp.regs.lanes_mut(slot) = values.map(|value| value as u16),
                    Width::Predicate => warp.regs.set_mask(slot, if values[0] != 0 { u32::MAX } else { 0 }),
                }
            }
        }
    }

    /// Runs until the CTAs end, one faults, or they have had their turn.
    pub(crate) fn run(&mut self, launch: &Launch<'_>, worker: &mut Worker) -> Slice {
        let mut turn = 0;
        loop {
            let (mut ran, mut yielded, mut idle, mut vain) = (false, false, true, true);
            for index in 0..self.warps.len() {
                if self.warps[index].live == 0 || self.warps[index].waiting {
                    continue;
                }
                ran = true;
                let (before, loaded) = (worker.clock, worker.stats.global_bytes_loaded);
                let flow = run_warp(&mut self.warps[index], &mut self.state, worker, launch);
                let executed = worker.clock - before;
                turn += executed;
                yielded |= flow == Flow::Yield;
                idle &= matches!(flow, Flow::Yield | Flow::Stall);
                let polled = worker.stats.global_bytes_loaded != loaded;
                vain &= flow == Flow::Stall && executed <= WAIT_LOOP && !polled;
                match flow {
                    Flow::Fault => return Slice::Fault(index),
                    Flow::Wait => self.warps[index].waiting = true,
                    Flow::Done if self.state.cluster.has_peers() => {
                        if let Some(copy) = self.exit(index) {
                            return Slice::Fault(self.explain_in_flight(copy, worker));
                        }
                    }
                    _ => {}
                }
                self.release();
                self.release_cluster();
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                if let Some(copy) = self.state.asynchronous.in_flight() {
                    return Slice::Fault(self.explain_in_flight(copy, worker));
                }
                if let Some((warp, fault)) = races::finish(launch, &mut self.state) {
                    worker.fault = Some(fault);
                    return Slice::Fault(warp);
                }
                return match launch.order {
                    Some(order) if !self.end_in(order) => Slice::Fault(self.explain_no_wait(worker)),
                    _ => Slice::Finished,
                };
            }
            if !ran {
                return Slice::Fault(self.explain_hang(worker));
            }
            if self.hangs(vain) {
                return Slice::Fault(self.explain_stall(launch, worker));
            }
            if turn > CTA_TURN || idle && yielded {
                self.executed += turn;
                if self.executed / self.warps.len() as u64 > launch.instruction_limit {
                    return Slice::Fault(self.explain_limit(launch, worker));
                }
                return Slice::Paused;
            }
        }
    }

    /// Counts rounds in which every warp that could run waited for an mbarrier in vain; returns whether
    /// it is clear that more of them would not help.
    fn hangs(&mut self, vain: bool) -> bool {
        if !vain {
            self.vain.0 = 0;
            return false;
        }
        let state = self.state.asynchronous.digest();
        self.vain = if self.vain.1 == state { (self.vain.0 + 1, state) } else { (0, state) };
        self.vain.0 > WAITS_IN_VAIN
    }

    fn release(&mut self) {
        for release in self.state.released.drain(..) {
            let warp = &mut self.warps[release.warp];
            warp.waiting = false;
            warp.waited |= if release.waited { u32::MAX } else { 0 };
            match release.result {
                Some((Reduction::Popc, slot, value)) => warp.regs.write(slot, &[value; LANES], warp.mask),
                Some((_, slot, value)) => {
                    let old = warp.regs.mask(slot) & !warp.mask;
                    warp.regs.set_mask(slot, if value != 0 { old | warp.mask } else { old });
                }
                None => {}
            }
        }
    }

    /// Lets the cluster's barrier complete, if all threads that are left have arrived.
    fn release_cluster(&mut self) {
        let barrier = &mut self.state.cluster.barrier;
        if !barrier.pending || !barrier.is_complete(self.warps.iter().map(|warp| warp.live)) {
            return;
        }
        let released = barrier.complete();
        let waited = if barrier.had_waited { u32::MAX } else { 0 };
        races::complete_cluster(&mut self.state, &released);
        for (warp, _) in released {
            self.warps[warp].waiting = false;
            self.warps[warp].waited |= waited;
        }
    }

    /// A warp of a CTA with peers has ended; returns a copy that is still under way to its CTA, if it was the last.
    fn exit(&mut self, warp: usize) -> Option<(usize, u32, usize)> {
        let (rank, warps) = (self.state.rank(warp), self.state.warps);
        if self.warps[rank * warps..][..warps].iter().any(|warp| warp.live != 0) {
            return None;
        }
        self.state.cluster.exited |= 1 << rank;
        let cluster = &self.state.cluster;
        self.state.asynchronous.in_flight_into(|address| cluster.locate(address).0 == rank)
    }

    /// No warp can go on: names one that waits and one that keeps it waiting.
    fn explain_hang(&self, worker: &mut Worker) -> usize {
        let waiting = self.warps.iter().position(|warp| warp.waiting && warp.live != 0).unwrap_or(0);
        let at = |warp: &Warp| warp.pc.saturating_sub(1);
        let (kind, detail) = match self.state.waits_at(waiting) {
            _ if self.state.cluster.barrier.has_waiting(waiting) => self.explain_cluster_hang(waiting),
            None => (FindingKind::Deadlock, "no warp of the CTA can proceed".to_string()),
            Some(at) => self.explain_barrier(waiting, at),
        };
        let warp = &self.warps[waiting];
        worker.fault = Some(Box::new(Fault {
            kind,
            lane: warp.mask.trailing_zeros(),
            detail,
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: Some(at(warp)),
        }));
        waiting
    }

    /// A warp waits at a barrier of its CTA for good.
    fn explain_barrier(
        &self,
        waiting: usize,
        (id, threads, arrived): (usize, u32, usize),
    ) -> (FindingKind, String) {
        let (warps, state) = (self.state.warps, &self.state);
        let elsewhere = |warp: &&Warp| {
            warp.live == 0
                || state.cluster.barrier.has_waiting(warp.index)
                || state.waits_at(warp.index).is_some_and(|(other, ..)| other != id)
        };
        let first = state.rank(waiting) * warps;
        let other = self.warps[first..first + warps].iter().find(elsewhere);
        let because = other.map_or(String::new(), |other| {
            let first = other.index % warps * LANES;
            let last = first + LANES - 1;
            match state.waits_at(other.index) {
                _ if state.cluster.barrier.has_waiting(other.index) => {
                    format!("; threads {first} to {last} wait at the cluster's barrier instead")
                }
                Some((id, ..)) => {
                    format!("; threads {first} to {last} wait at barrier {} instead", id % BARRIERS)
                }
                None => format!("; threads {first} to {last} have exited without reaching it"),
            }
        });
        let kind = if other.is_some() { FindingKind::BarrierDivergence } else { FindingKind::Deadlock };
        let detail = format!(
            "{} waits at barrier {} for {threads} threads, of which {arrived} have arrived{because}",
            state.warp_name(waiting),
            id % BARRIERS,
        );
        (kind, detail)
    }

    /// A warp waits at the cluster's barrier for good.
    fn explain_cluster_hang(&self, waiting: usize) -> (FindingKind, String) {
        let (state, barrier) = (&self.state, &self.state.cluster.barrier);
        let missing = |warp: &&Warp| warp.live & !barrier.arrived(warp.index) != 0;
        let threads: u32 = self.warps.iter().map(|warp| warp.live.count_ones()).sum();
        let arrived: u32 =
            self.warps.iter().map(|warp| (warp.live & barrier.arrived(warp.index)).count_ones()).sum();
        let because = self.warps.iter().find(missing).map_or(String::new(), |other| {
            let name = state.warp_name(other.index);
            match state.waits_at(other.index) {
                Some((id, ..)) => format!("; {name} waits at barrier {} instead", id % BARRIERS),
                None => format!("; {name} is not among them"),
            }
        });
        let detail = format!(
            "{} waits at the cluster's barrier for {threads} threads, of which {arrived} have arrived{because}",
            state.warp_name(waiting)
        );
        (FindingKind::BarrierDivergence, detail)
    }

    /// Every warp waits, some of them for mbarriers that nothing in flight will complete.
    fn explain_stall(&mut self, launch: &Launch<'_>, worker: &mut Worker) -> usize {
        let mut waits: Vec<String> = Vec::new();
        let mut first = None;
        for warp in self.warps.iter().filter(|warp| warp.live != 0) {
            let index = warp.index;
            let name = self.state.warp_name(index);
            if warp.waiting {
                if let Some((id, threads, arrived)) = self.state.waits_at(index) {
                    let id = id % BARRIERS;
                    waits.push(format!(
                        "{name} waits at barrier {id}, where {arrived} of {threads} threads are"
                    ));
                } else if self.state.cluster.barrier.has_waiting(index) {
                    waits.push(format!("{name} waits at the cluster's barrier"));
                }
                continue;
            }
            let Some(stalled) = warp.stalled else { continue };
            let place = self.state.shared_name(launch, stalled.address);
            let Some(mbarrier) = self.state.asynchronous.mbarrier(stalled.address) else { continue };
            let wanted = match stalled.awaited {
                Awaited::Parity(parity) => format!("the phase of parity {parity}"),
                Awaited::State(state) => format!("phase {}", state >> 20),
            };
            let (phase, pending, bytes) = (mbarrier.phase, mbarrier.pending, mbarrier.transactions);
            waits.push(format!(
                "{name} waits for {wanted} of the mbarrier at shared {place}, which is in phase {phase} with {pending} arrivals and {bytes} bytes pending"
            ));
            first.get_or_insert((index, stalled));
        }
        let Some((index, stalled)) = first else { return self.explain_hang(worker) };
        // Warps in step say the same.
        let more = waits.len().saturating_sub(LISTED_WAITS);
        waits.truncate(LISTED_WAITS);
        if more > 0 {
            waits.push(format!("{more} more warps wait"));
        }
        worker.fault = Some(Box::new(Fault {
            kind: FindingKind::Deadlock,
            lane: stalled.lane,
            detail: waits.join("; "),
            address: Some(stalled.address),
            space: Some(Space::Shared),
            nearest: None,
            other: None,
            pc: Some(stalled.pc),
        }));
        index
    }

    /// The CTA has ended before a copy, or an arrival after copies, was waited for.
    fn explain_in_flight(&self, (warp, lane, pc): (usize, u32, usize), worker: &mut Worker) -> usize {
        worker.fault = Some(Box::new(Fault {
            kind: FindingKind::AsyncCopy,
            lane,
            detail: "the CTA ends before anything has waited for this".to_string(),
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: Some(pc),
        }));
        warp
    }

    /// Ends a CTA of a launch in programmatic order; returns whether it may.
    fn end_in(&self, order: &Order) -> bool {
        let CtaState { waited, triggered, .. } = self.state;
        if !triggered {
            order.let_successor_start(waited);
        }
        waited || !order.must_wait()
    }

    fn explain_no_wait(&self, worker: &mut Worker) -> usize {
        worker.fault = Some(Box::new(Fault {
            kind: FindingKind::ProgrammaticDependency,
            lane: 0,
            detail:
                "the CTA ends without `griddepcontrol.wait`: launches after this one cannot know that those \
                     before it are complete"
                    .to_string(),
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: Some(self.warps[0].exited_at),
        }));
        0
    }

    fn explain_limit(&self, launch: &Launch<'_>, worker: &mut Worker) -> usize {
        let index = self.warps.iter().position(|warp| warp.live != 0 && !warp.waiting).unwrap_or(0);
        let limit = launch.instruction_limit;
        worker.fault = Some(Box::new(Fault {
            kind: FindingKind::Deadlock,
            lane: self.warps[index].mask.trailing_zeros(),
            detail: format!("still running after {limit} instructions a warp: it seems to wait forever"),
            address: None,
            space: None,
            nearest: None,
            other: None,
            pc: None,
        }));
        index
    }
}

/// Runs one warp until it waits, ends, faults, yields or has had its turn.
fn run_warp(warp: &mut Warp, cta: &mut CtaState, worker: &mut Worker, launch: &Launch<'_>) -> Flow {
    let code = &launch.kernel.code;
    let insts = if launch.watched.is_empty() { &code.insts } else { &launch.watched };
    let mut m = Machine { warp, active: 0, cta, worker, launch };
    let mut lanes = 0u64;
    let start = m.worker.clock;
    // A profile looks at every instruction.
    let profiled = m.worker.profile.is_some();
    let flow = loop {
        if m.warp.pc == m.warp.reconvergence {
            m.warp.pop();
            continue;
        }
        if m.worker.clock - start >= WARP_TURN {
            break Flow::Next;
        }
        let rest = &insts[m.warp.pc..];
        let flow = match rest[0].straight {
            straight if straight > 0 && !profiled => {
                run_straight(&mut m, &rest[..straight as usize], &mut lanes)
            }
            _ => step(&mut m, &rest[0], &mut lanes),
        };
        match flow {
            Flow::Next => m.warp.pc += 1,
            Flow::Jump => {}
            flow @ (Flow::Yield | Flow::Stall | Flow::Wait) => {
                m.warp.pc += 1;
                break flow;
            }
            flow @ (Flow::Done | Flow::Fault) => break flow,
        }
    };
    m.worker.stats.warp_instructions += m.worker.clock - start;
    m.worker.stats.lane_instructions += lanes;
    flow
}

/// Runs instructions that all lanes of the warp's mask execute, until one does not go on with the next;
/// `warp.pc` is at the last one run.
#[inline(always)]
fn run_straight(m: &mut Machine<'_>, insts: &[Inst], lanes: &mut u64) -> Flow {
    m.active = m.warp.mask;
    let each = m.active.count_ones() as u64;
    let first = m.warp.pc;
    for (index, inst) in insts.iter().enumerate() {
        m.warp.pc = first + index;
        m.worker.clock += 1;
        *lanes += each;
        // SAFETY: the decoder laid out the slots for this kernel's register file, which `warp` has, and
        // chose functions that the CPU can run.
        let flow = unsafe { (inst.run)(m, inst) };
        if flow != Flow::Next {
            return flow;
        }
    }
    Flow::Next
}

/// Runs one instruction in the lanes for which its guard holds.
#[inline(always)]
fn step(m: &mut Machine<'_>, inst: &Inst, lanes: &mut u64) -> Flow {
    let mask = m.warp.mask;
    m.active = if inst.guard == NONE { mask } else { mask & m.mask(inst.guard) };
    m.worker.clock += 1;
    if inst.audit != 0 && !audit(m, inst, mask) {
        return Flow::Fault;
    }
    if m.worker.profile.is_some() {
        observe(m, inst);
    }
    if m.active == 0 {
        return Flow::Next;
    }
    *lanes += m.active.count_ones() as u64;
    // SAFETY: as in `run_straight`.
    unsafe { (inst.run)(m, inst) }
}

/// Registers that some path reads before it writes them are tracked lane by lane.
#[cold]
fn audit(m: &mut Machine<'_>, inst: &Inst, mask: u32) -> bool {
    let code = &m.launch.kernel.code;
    let audit = &code.audits[inst.audit as usize - 1];
    if m.launch.checks {
        for &(tracked, register) in &audit.reads {
            let needed = if code.is_guard(inst, register) { mask } else { m.active };
            let unwritten = needed & !m.warp.written[tracked];
            if unwritten != 0 {
                let name = &code.register_names[register as usize];
                let detail = format!("register `{name}` is read but nothing has written it");
                m.fault(FindingKind::Uninitialised, unwritten.trailing_zeros(), detail);
                return false;
            }
        }
    }
    for &tracked in &audit.writes {
        m.warp.written[tracked] |= m.active;
    }
    true
}

impl Stats {
    /// Counts a store by the lanes of `active`; the flags are those of its instruction.
    #[inline(always)]
    pub(crate) fn count_store(&mut self, slots: &[u32; 7], active: u32, bytes: usize) {
        if slots[FLAGS] & 7 == 0 {
            self.global_bytes_stored += active.count_ones() as u64 * bytes as u64;
        }
    }

    /// See [`Stats::count_store`].
    #[inline(always)]
    pub(crate) fn count_load(&mut self, slots: &[u32; 7], active: u32, bytes: usize) {
        if slots[FLAGS] & 7 == 0 {
            self.global_bytes_loaded += active.count_ones() as u64 * bytes as u64;
        }
    }
}
