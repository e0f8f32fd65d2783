//! Scheduling of the clusters of a grid ([`grid`]), and of the warps of a cluster.

pub(crate) mod grid;
mod interpret;
mod stuck;
mod uniforms;
mod unwritten;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::checks::programmatic::LaunchOrder;
use crate::checks::races::RaceDetector;
use crate::checks::read_only::ReadOnlyAccesses;
use crate::context::barrier::Reduction;
use crate::context::cluster::ClusterState;
use crate::context::warp::Warp;
use crate::context::{Flow, Launch, Worker};
use crate::exec::{races, read_only};
use crate::geometry::SharedLayout;
use crate::lanes::LANES;
use interpret::run_warp;

/// Warp instructions after which another cluster gets its turn.
const CLUSTER_TURN: u64 = 1 << 20;

/// Number of instructions that a turn is charged at least. A turn of a single warp that polls takes about the time of
/// so many instructions.
const MIN_CHARGE: u64 = 64;

/// Maximum number of instructions of a wait loop: a warp that executes at most this many between two failed waits for
/// an mbarrier, and loads nothing from global memory, is in a wait loop.
const WAIT_LOOP: u64 = 16;
/// Instructions after which a turn is long: the cluster does not count as waiting any more.
const LONG_TURN: u64 = 1 << 16;
/// Number of consecutive turns at whose ends all CTAs of the launch waited, before the lanes of diverged warps are scheduled
/// independently.
const IDLE_TURNS: u32 = 32;
/// Number of rounds after which a cluster hangs, if all warps are in wait loops and no mbarrier changes.
const FAILED_ROUNDS: u32 = 64;

/// A running cluster: shared state and warps.
pub(crate) struct RunningCluster {
    pub(crate) state: ClusterState,
    pub(crate) warps: Vec<Warp>,
    /// Instructions charged for the turns so far.
    charged: u64,
    /// Whether all warps waited in the last turn: they polled, slept, or were at barriers.
    waits: bool,
    /// Rounds in a row in which all warps failed to wait for mbarriers.
    failed_rounds: u32,
    /// Hash of the states of all mbarriers in the last failed round.
    digest: u64,
    /// Number of consecutive turns at whose ends all CTAs of the launch waited.
    idle_turns: u32,
}

/// A copy in flight: issuing warp, lane and instruction.
type InFlight = (usize, u32, usize);

/// How a cluster's turn ended.
pub(crate) enum TurnEnd {
    Finished,
    /// The turn is over. `charge` is the number of instructions to charge, `waits` whether all warps waited.
    Paused {
        charge: u64,
        waits: bool,
    },
    /// Fault in the warp of this index; `worker.fault` describes the fault.
    Fault(usize),
}

impl RunningCluster {
    pub(crate) fn new(launch: &Launch<'_>) -> RunningCluster {
        let program = launch.program;
        let (ctas, warps) = (launch.geometry.cluster_size(), launch.geometry.warps());
        let shared = program.shared_bytes(launch.dynamic_shared);
        let (start, image) = program.layout.image();
        let warp = |index| {
            let mut warp =
                Warp::new(index, program.layout.bytes(), program.tracked, (program.local, program.stack));
            warp.regs.load_image(start, image);
            warp
        };
        let variables = program.shared_variables(launch.dynamic_shared);
        let mut state = ClusterState::new(SharedLayout::new(ctas, shared), warps, variables);
        state.races = launch
            .races
            .as_ref()
            .map(|_| Box::new(RaceDetector::new(state.shared.bytes, launch.checks.proxy_fences)));
        state.read_only = launch.read_only.as_ref().map(|_| ReadOnlyAccesses::default());
        let warps = (0..ctas * warps).map(warp).collect();
        RunningCluster { state, warps, charged: 0, waits: false, failed_rounds: 0, digest: 0, idle_turns: 0 }
    }

    /// Resets state and warps for the cluster with index `index` in the grid.
    pub(crate) fn start(&mut self, launch: &Launch<'_>, index: u64) {
        let geometry = &launch.geometry;
        self.state.reset(index);
        if let Some(count) = launch.program.entry_registers {
            self.state.registers.reset(geometry.cluster_size(), self.state.warps, count);
        }
        if launch.checks.memory {
            self.state.reserve_guards();
        }
        if let Some(offset) = launch.program.reserved_shared(launch.dynamic_shared) {
            self.state.clear_reserved(offset);
        }
        self.state.at.iter_mut().enumerate().for_each(|(rank, at)| *at = geometry.cta_at(index, rank));
        (self.charged, self.waits) = (0, false);
        (self.failed_rounds, self.digest, self.idle_turns) = (0, 0, 0);
        let threads = geometry.block.iter().product::<u32>();
        for warp in &mut self.warps {
            let first = (warp.index % self.state.warps * LANES) as u32;
            let lanes = (threads - first).min(LANES as u32);
            warp.reset(u32::MAX >> (LANES as u32 - lanes));
            warp.waited = launch.order.map_or(u32::MAX, LaunchOrder::waited_at_start);
            uniforms::fill(launch, &self.state, warp);
        }
    }

    /// Runs the cluster until it ends, faults, or has had its turn.
    ///
    /// `waiting` is the number of clusters that waited in their last turns and are not in a long turn.
    pub(crate) fn run(&mut self, launch: &Launch<'_>, worker: &mut Worker, waiting: &AtomicU64) -> TurnEnd {
        let mut turn = 0;
        loop {
            let (mut ran, mut yielded, mut idle, mut failed) = (false, false, true, true);
            for index in 0..self.warps.len() {
                if self.warps[index].live == 0 || self.warps[index].waiting {
                    continue;
                }
                ran = true;
                let (before, loaded) = (worker.clock, worker.counters.global_bytes_loaded);
                let flow = run_warp(&mut self.warps[index], &mut self.state, worker, launch);
                let executed = worker.clock - before;
                turn += executed;
                yielded |= flow == Flow::Yield;
                idle &= matches!(flow, Flow::Yield | Flow::Stall | Flow::Retry);
                let polled = worker.counters.global_bytes_loaded != loaded;
                let stalled = matches!(flow, Flow::Stall | Flow::Retry);
                failed &= stalled && executed <= WAIT_LOOP && !polled;
                match flow {
                    Flow::Fault => {
                        return TurnEnd::Fault(self.explain_unwritten(index, launch, worker));
                    }
                    Flow::Wait => self.warps[index].waiting = true,
                    Flow::Done if self.state.has_peers() => {
                        if let Some(copy) = self.exit(index) {
                            return TurnEnd::Fault(self.explain_in_flight(copy, worker));
                        }
                    }
                    _ => {}
                }
                self.release();
                self.release_cluster();
            }
            if self.warps.iter().all(|warp| warp.live == 0) {
                return self.finish(launch, worker);
            }
            if !self.release_without_exited() && !ran {
                return TurnEnd::Fault(self.explain_hang(worker));
            }
            // After a short turn the cluster may only have polled once more: it still counts as waiting.
            if turn > LONG_TURN && std::mem::take(&mut self.waits) {
                waiting.fetch_sub(1, Relaxed);
            }
            if self.hangs(failed) && !self.schedule_lanes_independently() {
                return TurnEnd::Fault(self.explain_stall(worker));
            }
            let waits = idle && yielded;
            if turn > CLUSTER_TURN || waits {
                return TurnEnd::Paused { charge: turn.max(MIN_CHARGE), waits };
            }
        }
    }

    /// Checks a cluster whose threads have all exited.
    fn finish(&mut self, launch: &Launch<'_>, worker: &mut Worker) -> TurnEnd {
        if !launch.checks.unawaited_stores {
            let (under_way, mut shared) = self.state.asynchronous_and_shared(launch.checks.memory);
            under_way.complete_stores(&mut shared);
        }
        if let Some(copy) = self.state.asynchronous.in_flight() {
            return TurnEnd::Fault(self.explain_in_flight(copy, worker));
        }
        if let Some((warp, other, request)) = self.state.registers.incomplete() {
            return TurnEnd::Fault(self.explain_registers(warp, other, request, worker));
        }
        if let Some(grid) = &launch.races
            && let Err((warp, fault)) = races::finish(launch, &mut self.state, grid)
        {
            worker.fault = Some(fault);
            return TurnEnd::Fault(warp);
        }
        if let Some((warp, fault)) = read_only::finish(launch, &self.state) {
            worker.fault = Some(fault);
            return TurnEnd::Fault(warp);
        }
        match launch.order {
            Some(order) if !self.end_in(order) => TurnEnd::Fault(self.explain_no_wait(worker)),
            _ => TurnEnd::Finished,
        }
    }

    /// Counts rounds in which every warp that could run failed to wait for an mbarrier; returns whether the cluster
    /// hangs.
    fn hangs(&mut self, failed: bool) -> bool {
        if !failed {
            self.failed_rounds = 0;
            return false;
        }
        let digest = self.state.asynchronous.mbarrier_hash();
        self.failed_rounds = if self.digest == digest { self.failed_rounds + 1 } else { 0 };
        self.digest = digest;
        self.failed_rounds > FAILED_ROUNDS
    }

    /// Called at the end of a turn. Schedules the lanes of diverged warps independently after more than [`IDLE_TURNS`]
    /// consecutive turns with `launch_waits`: all CTAs of the launch wait. Returns whether that many turns have passed and no lanes are
    /// left to schedule so.
    pub(crate) fn count_turn(&mut self, launch_waits: bool) -> bool {
        self.idle_turns = if launch_waits { self.idle_turns + 1 } else { 0 };
        self.idle_turns > IDLE_TURNS && !self.schedule_lanes_independently()
    }

    /// Schedules the lanes of diverged warps independently; returns whether there are such warps, for which that is new. Turns
    /// and rounds are counted from 0 again.
    fn schedule_lanes_independently(&mut self) -> bool {
        let mut any = false;
        for warp in self.warps.iter_mut().filter(|warp| warp.live != 0 && !warp.waiting) {
            any |= warp.schedule_independently();
        }
        (self.failed_rounds, self.idle_turns) = (0, 0);
        any
    }

    /// Releases the warps whose named barriers are complete.
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

    /// Releases warps that wait at barriers of all threads of their CTA only for warps that have exited (PTX ISA, "exit").
    /// Returns whether there were any.
    fn release_without_exited(&mut self) -> bool {
        for (rank, warps) in self.warps.chunks(self.state.warps).enumerate() {
            let live = warps.iter().filter(|warp| warp.live != 0).count();
            if live < warps.len() {
                self.state.complete_without_exited(rank, live);
            }
        }
        let any = !self.state.released.is_empty();
        self.release();
        any
    }

    /// Completes the cluster's barrier if all threads that have not exited have arrived.
    fn release_cluster(&mut self) {
        let barrier = &mut self.state.cluster_barrier;
        if !barrier.pending || !barrier.is_complete(self.warps.iter().map(|warp| warp.live)) {
            return;
        }
        let released = barrier.complete();
        let waited = if barrier.had_waited { u32::MAX } else { 0 };
        if let Some(races) = &mut self.state.races {
            races.complete_cluster_barrier(&released);
        }
        for (warp, _) in released {
            self.warps[warp].waiting = false;
            self.warps[warp].waited |= waited;
        }
    }

    /// Handles the end of a warp in a cluster of several CTAs. If all warps of the warp's CTA have ended, returns a
    /// copy in flight into the CTA's shared memory.
    fn exit(&mut self, warp: usize) -> Option<InFlight> {
        let (rank, warps) = (self.state.rank(warp), self.state.warps);
        if self.warps[rank * warps..][..warps].iter().any(|warp| warp.live != 0) {
            return None;
        }
        self.state.exited |= 1 << rank;
        let layout = self.state.layout;
        self.state.asynchronous.in_flight_at(|address| layout.locate(address).0 == rank)
    }

    /// Ends the cluster in a launch in programmatic order; returns false if a required `griddepcontrol.wait` is
    /// missing.
    fn end_in(&self, order: &LaunchOrder) -> bool {
        let ClusterState { waited, triggered, .. } = self.state;
        if !triggered {
            order.trigger(waited);
        }
        waited || !order.requires_wait()
    }
}
