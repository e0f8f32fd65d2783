//! Execution of a grid: worker threads start clusters, resume them, and stop the launch at a finding or at a limit.
//!
//! A device holds a limited number of clusters at once, and starts another when one ends. So does [`Grid`], which also
//! bounds its memory. A worker gives its resident clusters turns and starts others only when a round of turns shows that
//! the resident ones wait, so CTAs that wait for each other become resident together, and independent CTAs run one after
//! the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::{RunningCluster, TurnEnd};
use crate::context::fault::Fault;
use crate::context::{Counters, Launch, Worker};
use crate::lanes::LANES;
use crate::options::Options;
use crate::outcome::Finding;
use crate::profile::{Counts, Tally};

/// Result of a grid.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) counters: Counters,
    /// Number of clusters that were started.
    pub(crate) started: u64,
    /// Lowest index of a cluster with a finding, and the finding.
    pub(crate) finding: Option<(u64, Box<Finding>)>,
    /// Counts per instruction, if the launch is profiled.
    pub(crate) tally: Option<Tally>,
}

/// State of a grid that its workers share.
pub(crate) struct Grid<'a> {
    launch: &'a Launch<'a>,
    clusters: u64,
    /// Largest number of resident clusters: those that have started and not ended.
    capacity: u64,
    instruction_limit: u64,
    /// Index of the next cluster to start.
    next: AtomicU64,
    resident: AtomicU64,
    /// Number of resident clusters whose warps all waited in the last turn and that have not begun a long turn since.
    waiting: AtomicU64,
    /// Instructions charged to the resident clusters.
    charged: AtomicU64,
    /// Lowest index of a cluster with a finding; clusters from this index on need not run.
    end: AtomicU64,
    outcome: Mutex<Outcome>,
}

impl<'a> Grid<'a> {
    pub(crate) fn new(launch: &'a Launch<'a>, options: &Options) -> Grid<'a> {
        let ctas = launch.geometry.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        let size = launch.geometry.cluster_size() as u64;
        Grid {
            launch,
            clusters: ctas / size,
            capacity: (options.resident_ctas / size).max(1),
            instruction_limit: options.instruction_limit,
            next: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            end: AtomicU64::new(u64::MAX),
            outcome: Mutex::default(),
        }
    }

    /// Runs all clusters on `threads` worker threads.
    pub(crate) fn run(self, threads: usize) -> Outcome {
        let threads = (threads as u64).min(self.clusters).min(self.capacity);
        match threads {
            0 | 1 => self.work(),
            _ => rayon::scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| self.work()))),
        }
        self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs clusters until none is left for this worker.
    fn work(&self) {
        let mut worker = Worker {
            hints: vec![0; self.launch.insts.len()],
            fault: None,
            admits_uninitialised: false,
            counters: Counters::default(),
            counts_before: Counts::default(),
            profile: self.launch.profile.map(|_| self.tally()),
            clock: 0,
        };
        let mut started = 0;
        let mut round = Round { width: 1, turns: 0, waited: false };
        let mut paused: VecDeque<RunningCluster> = VecDeque::new();
        let mut spare: Option<RunningCluster> = None;
        loop {
            let mut cluster = if (paused.len() as u64) < round.width
                && let Some(index) = self.claim()
            {
                let mut cluster = spare.take().unwrap_or_else(|| RunningCluster::new(self.launch));
                cluster.start(self.launch, index);
                started += 1;
                cluster
            } else if let Some(cluster) = paused.pop_front() {
                cluster
            } else {
                break;
            };
            if cluster.state.index >= self.end.load(Relaxed) {
                self.leave(&cluster);
                continue;
            }
            match cluster.run(self.launch, &mut worker, &self.waiting) {
                TurnEnd::Finished => {
                    self.leave(&cluster);
                    spare = Some(cluster);
                }
                TurnEnd::Paused { charge, waits } => {
                    round.count(waits, self.capacity);
                    self.pause(&mut cluster, charge, waits);
                    let waits_for_long = cluster.count_turn(self.waits());
                    if waits_for_long && self.end.load(Relaxed) < self.clusters {
                        // All remaining clusters poll, probably for a cluster that a finding has stopped.
                        self.end.store(0, Relaxed);
                    }
                    match self.explain_limit(&cluster) {
                        Some((warp, fault)) => {
                            self.stop(&cluster, warp, fault);
                            self.leave(&cluster);
                        }
                        None => paused.push_back(cluster),
                    }
                }
                TurnEnd::Fault(warp) => {
                    if let Some(fault) = worker.fault.take() {
                        self.report(&cluster, warp, *fault);
                    }
                    self.leave(&cluster);
                }
            }
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.counters.add(&worker.counters);
        outcome.started += started;
        if let Some(mine) = worker.profile.take() {
            let tally = outcome.tally.get_or_insert_with(|| self.tally());
            tally.iter_mut().zip(&mine).for_each(|(sum, counts)| sum.add(counts));
        }
    }

    fn tally(&self) -> Tally {
        vec![Counts::default(); self.launch.insts.len()].into_boxed_slice()
    }

    /// Index of a cluster that becomes resident; `None` if all have started, or no more are held at once.
    fn claim(&self) -> Option<u64> {
        let end = self.clusters.min(self.end.load(Relaxed));
        if self.next.load(Relaxed) >= end {
            return None;
        }
        let enter = |resident| (resident < self.capacity).then_some(resident + 1);
        self.resident.fetch_update(Relaxed, Relaxed, enter).ok()?;
        let index = self.next.fetch_add(1, Relaxed);
        if index >= end {
            self.resident.fetch_sub(1, Relaxed);
            return None;
        }
        Some(index)
    }

    /// Records a cluster's turn.
    fn pause(&self, cluster: &mut RunningCluster, charge: u64, waits: bool) {
        cluster.charged += charge;
        self.charged.fetch_add(charge, Relaxed);
        match (std::mem::replace(&mut cluster.waits, waits), waits) {
            (false, true) => _ = self.waiting.fetch_add(1, Relaxed),
            (true, false) => _ = self.waiting.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether all resident clusters waited in their last turn, and no other can start.
    fn waits(&self) -> bool {
        let resident = self.resident.load(Relaxed);
        self.waiting.load(Relaxed) >= resident && (self.unstarted() == 0 || resident >= self.capacity)
    }

    /// Number of clusters that have not started and may: after a finding, those of lower indices.
    fn unstarted(&self) -> u64 {
        self.clusters.min(self.end.load(Relaxed)).saturating_sub(self.next.load(Relaxed))
    }

    /// Ends a cluster's residency.
    fn leave(&self, cluster: &RunningCluster) {
        self.waiting.fetch_sub(u64::from(cluster.waits), Relaxed);
        self.charged.fetch_sub(cluster.charged, Relaxed);
        self.resident.fetch_sub(1, Relaxed);
    }

    /// A warp of this cluster, and a fault that says why the launch does not end, if the resident clusters have
    /// reached the instruction limit and this cluster is a cause.
    fn explain_limit(&self, cluster: &RunningCluster) -> Option<(usize, Fault)> {
        if self.charged.load(Relaxed) <= self.instruction_limit {
            return None;
        }
        if !cluster.waits {
            return Some(cluster.explain_loop(self.instruction_limit));
        }
        let (waiting, resident) = (self.waiting.load(Relaxed), self.resident.load(Relaxed));
        let unstarted = self.unstarted();
        let size = self.launch.geometry.cluster_size() as u64;
        match unstarted {
            // A cluster that does not wait is the cause, or will end.
            _ if waiting < resident => None,
            0 => Some(cluster.explain_wait(waiting * size, self.instruction_limit)),
            // More clusters will start.
            _ if resident < self.capacity => None,
            _ => Some(cluster.explain_residency(waiting * size, unstarted * size)),
        }
    }

    /// Stops the whole launch. A finding of another kind, if there is one, is the launch's finding.
    fn stop(&self, cluster: &RunningCluster, warp: usize, fault: Fault) {
        self.end.store(0, Relaxed);
        let finding = self.finding(cluster, warp, fault);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.finding.get_or_insert((cluster.state.index, finding));
    }

    /// Records a finding, if no cluster of a lower index has one.
    fn report(&self, cluster: &RunningCluster, warp: usize, fault: Fault) {
        let index = cluster.state.index;
        let finding = self.finding(cluster, warp, fault);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.finding.as_ref().is_none_or(|&(known, _)| index < known) {
            outcome.finding = Some((index, finding));
        }
        // After the finding is known: clusters that wait may stop the launch from now on.
        self.end.fetch_min(index, Relaxed);
    }

    fn finding(&self, cluster: &RunningCluster, warp: usize, fault: Fault) -> Box<Finding> {
        let program = self.launch.program;
        let place = program.place(fault.pc.unwrap_or(cluster.warps[warp].pc));
        let (cta, thread) =
            self.launch.geometry.thread_at(cluster.state.index, warp * LANES + fault.lane as usize % LANES);
        Box::new(Finding {
            kind: fault.kind,
            kernel: program.name.clone(),
            detail: fault.detail,
            source: program.source_line(place),
            inlined_at: program.inlined_at(place),
            ptx_line: place.line,
            ptx_text: program.line_text(place.line),
            cta,
            thread,
            address: fault.address,
            space: fault.space,
            nearest: fault.nearest,
            other: fault.other,
            printed: String::new(),
            profile: None,
        })
    }
}

/// Number of clusters that a worker runs in turns, and the turns of the current round.
struct Round {
    /// Number of clusters that take turns. It grows after every round: doubled if a cluster waited, else by one.
    width: u64,
    /// Turns of the round that ended in a pause.
    turns: u64,
    /// Whether a cluster waited in the round.
    waited: bool,
}

impl Round {
    /// Counts a turn that ended in a pause.
    fn count(&mut self, waits: bool, capacity: u64) {
        self.turns += 1;
        self.waited |= waits;
        if self.turns >= self.width {
            let width = if self.waited { self.width * 2 } else { self.width + 1 };
            *self = Round { width: width.min(capacity), turns: 0, waited: false };
        }
    }
}
