//! One CTA's warps taking turns.

use crate::cta::{CtaState, Reduction};
use crate::exec::lanes::LANES;
use crate::exec::resolve::FLAGS;
use crate::exec::{Fault, Flow, Inst, Launch, Machine, NONE, Worker};
use crate::finding::FindingKind;
use crate::launch::{Stats, uniform_value};
use crate::layout::Uniform;
use crate::types::Width;
use crate::warp::Warp;

/// Warp instructions after which another warp gets its turn, and after which another CTA does.
const WARP_TURN: u64 = 1 << 16;
const CTA_TURN: u64 = 1 << 20;

/// A CTA with its warps.
pub(crate) struct Cta {
    pub(crate) state: CtaState,
    pub(crate) warps: Vec<Warp>,
    executed: u64,
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
        let threads = launch.block.iter().product::<u32>() as usize;
        let warps = threads.div_ceil(LANES);
        let shared = launch.kernel.static_shared_bytes() + launch.dynamic_shared as u64;
        let (start, image) = code.layout.image();
        let warp = |index| {
            let mut warp = Warp::new(index, code.layout.bytes(), code.tracked);
            warp.regs.load_image(start, image);
            warp
        };
        Cta { state: CtaState::new(warps, shared), warps: (0..warps).map(warp).collect(), executed: 0 }
    }

    pub(crate) fn start(&mut self, launch: &Launch<'_>, index: u64) {
        let [x, y, _] = launch.grid.map(u64::from);
        self.state.reset(index, [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]);
        self.executed = 0;
        let threads = launch.block.iter().product::<u32>();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let first = (index * LANES) as u32;
            let lanes = (threads - first).min(LANES as u32);
            warp.reset(u32::MAX >> (LANES as u32 - lanes));
            for (uniform, width, slot) in launch.kernel.code.layout.uniforms() {
                if matches!(uniform, Uniform::Special(special) if special.is_lane_constant()) {
                    continue;
                }
                let value = |lane: usize| uniform_value(launch, &self.state, uniform, first + lane as u32);
                let values: [u64; LANES] = std::array::from_fn(value);
                match width {
                    Width::W64 => *warp.regs.lanes_mut(slot) = values,
                    Width::W32 => *warp.regs.lanes_mut(slot) = values.map(|value| value as u32),
                    Width::W16 | Width::Predicate => {
                        *warp.regs.lanes_mut(slot) = values.map(|value| value as u16);
                    }
                }
            }
        }
    }

    /// Runs until the CTA ends, faults, or has had its turn.
    pub(crate) fn run(&mut self, launch: &Launch<'_>, worker: &mut Worker) -> Slice {
        let mut turn = 0;
        loop {
            let (mut ran, mut idle) = (false, true);
            for index in 0..self.warps.len() {
                if self.warps[index].live == 0 || self.warps[index].waiting {
                    continue;
                }
                ran = true;
                let before = worker.clock;
                let flow = run_warp(&mut self.warps[index], &mut self.state, worker, launch);
                turn += worker.clock - before;
                idle &= flow == Flow::Yield;
                match flow {
                    Flow::Fault => return Slice::Fault(index),
                    Flow::Wait => self.warps[index].waiting = true,
                    _ => {}
                }
                self.release();
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                return Slice::Finished;
            }
            if !ran {
                return Slice::Fault(self.explain_hang(worker));
            }
            if turn > CTA_TURN || idle {
                self.executed += turn;
                if self.executed / self.warps.len() as u64 > launch.instruction_limit {
                    return Slice::Fault(self.explain_limit(launch, worker));
                }
                return Slice::Paused;
            }
        }
    }

    fn release(&mut self) {
        for release in self.state.released.drain(..) {
            let warp = &mut self.warps[release.warp];
            warp.waiting = false;
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

    /// No warp can go on: names one that waits and one that keeps it waiting.
    fn explain_hang(&self, worker: &mut Worker) -> usize {
        let waiting = self.warps.iter().position(|warp| warp.waiting && warp.live != 0).unwrap_or(0);
        let at = |warp: &Warp| warp.pc.saturating_sub(1);
        let mut kind = FindingKind::Deadlock;
        let detail = match self.state.waits_at(waiting) {
            None => "no warp of the CTA can proceed".to_string(),
            Some((id, threads, arrived)) => {
                let other = self.warps.iter().find(|warp| {
                    warp.live == 0 || self.state.waits_at(warp.index).is_some_and(|(other, ..)| other != id)
                });
                let because = other.map_or(String::new(), |other| {
                    kind = FindingKind::BarrierDivergence;
                    let first = other.index * LANES;
                    let last = first + LANES - 1;
                    match self.state.waits_at(other.index) {
                        Some((id, ..)) => format!("; threads {first} to {last} wait at barrier {id} instead"),
                        None => format!("; threads {first} to {last} have exited without reaching it"),
                    }
                });
                format!(
                    "warp {waiting} waits at barrier {id} for {threads} threads, of which {arrived} have \
                     arrived{because}"
                )
            }
        };
        let warp = &self.warps[waiting];
        worker.fault = Some(Box::new(Fault {
            kind,
            lane: warp.mask.trailing_zeros(),
            detail,
            address: None,
            space: None,
            nearest: None,
            pc: Some(at(warp)),
        }));
        waiting
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
            pc: None,
        }));
        index
    }
}

/// Runs one warp until it waits, ends, faults, yields or has had its turn.
fn run_warp(warp: &mut Warp, cta: &mut CtaState, worker: &mut Worker, launch: &Launch<'_>) -> Flow {
    let code = &launch.kernel.code;
    let mut m = Machine { warp, active: 0, cta, worker, launch };
    let mut lanes = 0u64;
    let start = m.worker.clock;
    let flow = loop {
        if m.warp.pc == m.warp.reconvergence {
            m.warp.pop();
            continue;
        }
        let inst = &code.insts[m.warp.pc];
        let mask = m.warp.mask;
        m.active = if inst.guard == NONE { mask } else { mask & m.mask(inst.guard) };
        if m.worker.clock - start == WARP_TURN {
            break Flow::Next;
        }
        m.worker.clock += 1;
        if inst.audit != 0 && !audit(&mut m, inst, mask) {
            break Flow::Fault;
        }
        if m.active == 0 {
            m.warp.pc += 1;
            continue;
        }
        lanes += m.active.count_ones() as u64;
        // SAFETY: the decoder laid out the slots for this kernel's register file, which `warp` has, and
        // chose functions that the CPU can run.
        match unsafe { (inst.run)(&mut m, inst) } {
            Flow::Next => m.warp.pc += 1,
            Flow::Jump => {}
            flow @ (Flow::Yield | Flow::Wait) => {
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
