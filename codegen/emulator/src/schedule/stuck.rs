//! Faults of clusters that deadlock, reach the instruction limit, or end without waiting for asynchronous operations or
//! for earlier launches.

use super::{InFlight, RunningCluster};
use crate::asynchronous::Awaited;
use crate::context::Worker;
use crate::context::fault::Fault;
use crate::context::registers::RegisterRequest;
use crate::context::warp::Warp;
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;

/// Maximum number of waiting warps listed in a finding.
const LISTED_WAITS: usize = 6;

/// Every `explain_…` function sets the worker's fault and returns the index of the warp at fault.
impl RunningCluster {
    /// Reports a deadlock at a barrier: names a warp that waits at the barrier, and a warp that does not arrive; or a deadlock
    /// among the lanes of a warp.
    pub(super) fn explain_hang(&self, worker: &mut Worker) -> usize {
        if let Some((index, fault)) = self.lanes_hang() {
            worker.fault = Some(Box::new(fault));
            return index;
        }
        let waiting = self.warps.iter().position(|warp| warp.waiting && warp.live != 0).unwrap_or(0);
        let (kind, detail) = if self.state.cluster_barrier.has_waiting(waiting) {
            self.cluster_barrier_hang(waiting)
        } else if self.state.waits_at(waiting).is_some() {
            self.barrier_hang(waiting)
        } else {
            (FindingKind::Deadlock, "no warp of the CTA can proceed".to_string())
        };
        let warp = &self.warps[waiting];
        let fault = Fault::new(kind, warp.mask.trailing_zeros(), detail).at(warp.pc.saturating_sub(1));
        worker.fault = Some(Box::new(fault));
        waiting
    }

    /// A warp whose lanes wait for each other at different instructions, and the fault.
    fn lanes_hang(&self) -> Option<(usize, Fault)> {
        let mut warps = self.warps.iter().filter(|warp| !warp.waiting);
        if let Some((index, fault)) = self.member_wait() {
            return Some((index, *fault));
        }
        let (warp, (wait, missing)) = warps.find_map(|warp| Some((warp, warp.lane_wait()?)))?;
        let detail = format!(
            "lane {} of the warp waits here for lane {missing}, and no lane of the warp can proceed",
            wait.lane
        );
        Some((warp.index, Fault::new(FindingKind::Deadlock, wait.lane, detail).at(wait.pc)))
    }

    /// A warp in which lanes wait for members of an instruction, and the fault.
    fn member_wait(&self) -> Option<(usize, Box<Fault>)> {
        let mut warps = self.warps.iter().filter(|warp| !warp.waiting);
        warps.find_map(|warp| Some((warp.index, warp.fault_of_wait_for(warp.live)?)))
    }

    /// Finding kind and detail for a warp that waits forever at a named barrier of its CTA.
    fn barrier_hang(&self, waiting: usize) -> (FindingKind, String) {
        let (warps, state) = (self.state.warps, &self.state);
        let Some(wait) = state.waits_at(waiting) else { return (FindingKind::Deadlock, String::new()) };
        let elsewhere = |warp: &&Warp| {
            warp.live == 0
                || state.cluster_barrier.has_waiting(warp.index)
                || state.waits_at(warp.index).is_some_and(|other| other.id != wait.id)
        };
        let first = state.rank(waiting) * warps;
        let other = self.warps[first..first + warps].iter().find(elsewhere);
        let because = other.map_or(String::new(), |other| {
            let first = other.index % warps * LANES;
            let last = first + LANES - 1;
            if state.cluster_barrier.has_waiting(other.index) {
                return format!("; threads {first} to {last} wait at the cluster's barrier instead");
            }
            match state.waits_at(other.index) {
                Some(at) => format!("; threads {first} to {last} wait at barrier {} instead", at.id),
                None => format!("; threads {first} to {last} have exited without reaching it"),
            }
        });
        let kind = if other.is_some() { FindingKind::BarrierDivergence } else { FindingKind::Deadlock };
        let detail = format!(
            "{} waits at barrier {} for {} threads, of which {} have arrived{because}",
            state.warp_name(waiting),
            wait.id,
            wait.threads,
            wait.arrived,
        );
        (kind, detail)
    }

    /// Finding kind and detail for a warp that waits forever at the cluster's barrier.
    fn cluster_barrier_hang(&self, waiting: usize) -> (FindingKind, String) {
        let (state, barrier) = (&self.state, &self.state.cluster_barrier);
        let missing = |warp: &&Warp| warp.live & !barrier.arrived(warp.index) != 0;
        let threads: u32 = self.warps.iter().map(|warp| warp.live.count_ones()).sum();
        let arrived: u32 =
            self.warps.iter().map(|warp| (warp.live & barrier.arrived(warp.index)).count_ones()).sum();
        let because = self.warps.iter().find(missing).map_or(String::new(), |other| {
            let name = state.warp_name(other.index);
            match state.waits_at(other.index) {
                Some(at) => format!("; {name} waits at barrier {} instead", at.id),
                None => format!("; {name} is not among them"),
            }
        });
        let detail = format!(
            "{} waits at the cluster's barrier for {threads} threads, of which {arrived} have arrived{because}",
            state.warp_name(waiting)
        );
        (FindingKind::BarrierDivergence, detail)
    }

    /// Reports a deadlock at mbarriers: every warp waits, some for an mbarrier phase that no operation in flight will
    /// complete.
    pub(super) fn explain_stall(&mut self, worker: &mut Worker) -> usize {
        if let Some((index, fault)) = self.member_wait() {
            worker.fault = Some(fault);
            return index;
        }
        let mut waits: Vec<String> = Vec::new();
        let (mut first, mut waiting_for_warps) = (None, None);
        for warp in self.warps.iter().filter(|warp| warp.live != 0) {
            let index = warp.index;
            let name = self.state.warp_name(index);
            if warp.waiting {
                if let Some(at) = self.state.waits_at(index) {
                    waits.push(format!(
                        "{name} waits at barrier {}, where {} of {} threads are",
                        at.id, at.arrived, at.threads
                    ));
                } else if self.state.cluster_barrier.has_waiting(index) {
                    waits.push(format!("{name} waits at the cluster's barrier"));
                }
                continue;
            }
            if let Some(wait) = self.wgmma_wait(index).or_else(|| self.register_wait(index)) {
                waits.push(wait);
                waiting_for_warps.get_or_insert(index);
                continue;
            }
            if let Some((wait, missing)) = warp.lane_wait() {
                waits.push(format!("lane {} of {name} waits for its lane {missing}", wait.lane));
            }
            let Some(stalled) = warp.stalled else { continue };
            let place = self.state.shared_name(stalled.address);
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
        let Some((index, stalled)) = first else {
            let Some(index) = waiting_for_warps else { return self.explain_hang(worker) };
            worker.fault = Some(Box::new(Fault::new(FindingKind::Deadlock, 0, waits.join("; "))));
            return index;
        };
        let more = waits.len().saturating_sub(LISTED_WAITS);
        waits.truncate(LISTED_WAITS);
        if more > 0 {
            waits.push(format!("{more} more warps wait"));
        }
        worker.fault = Some(Box::new(Fault {
            address: Some(stalled.address),
            space: Some(Space::Shared),
            ..Fault::new(FindingKind::Deadlock, stalled.lane, waits.join("; ")).at(stalled.pc)
        }));
        index
    }

    /// What a warp that waits for a `wgmma` of its warpgroup waits for.
    fn wgmma_wait(&self, warp: usize) -> Option<String> {
        let wgmma = &self.state.asynchronous.wgmma;
        let count = wgmma.awaited_count(warp)?;
        let (other, issued) = wgmma.lagging_warp(warp, count)?;
        let [name, other] = [warp, other].map(|warp| self.state.warp_name(warp));
        Some(format!(
            "{name} waits for {count} `wgmma` of its warpgroup, of which {other} has issued {issued}"
        ))
    }

    /// What a warp that waits for registers waits for.
    fn register_wait(&self, warp: usize) -> Option<String> {
        let (request, has, free) = self.state.registers.waits_for(warp)?;
        Some(format!(
            "{} waits at {request} for {} more registers per thread, and {free} are free: the other warps of the CTA keep \
             theirs",
            self.state.warp_name(warp),
            request.count - has
        ))
    }

    /// Reports a CTA that has ended although `other` has not executed a `setmaxnreg` that `warp`, of the same warpgroup, has.
    pub(super) fn explain_registers(
        &self,
        warp: usize,
        other: usize,
        request: RegisterRequest,
        worker: &mut Worker,
    ) -> usize {
        let [name, missing] = [warp, other].map(|warp| self.state.warp_name(warp));
        let detail = format!(
            "{name} executed {request}, and {missing} of the same warpgroup did not: all four warps must execute it"
        );
        let fault = Fault::new(FindingKind::Registers, 0, detail).at(self.warps[other].exited_at);
        worker.fault = Some(Box::new(fault));
        other
    }

    /// Reports a CTA that has ended while an asynchronous copy, or an mbarrier arrival deferred until copies complete,
    /// is in flight.
    pub(super) fn explain_in_flight(&self, (warp, lane, pc): InFlight, worker: &mut Worker) -> usize {
        let detail = "the CTA ends while this operation is in flight: nothing has waited for it";
        worker.fault = Some(Box::new(Fault::new(FindingKind::AsyncCopy, lane, detail).at(pc)));
        warp
    }

    /// Reports a CTA that has ended without `griddepcontrol.wait`.
    pub(super) fn explain_no_wait(&self, worker: &mut Worker) -> usize {
        let detail = "the CTA ends without `griddepcontrol.wait`: launches after this one cannot know that those \
                      before it are complete";
        let fault = Fault::new(FindingKind::ProgrammaticDependency, 0, detail).at(self.warps[0].exited_at);
        worker.fault = Some(Box::new(fault));
        0
    }

    /// A warp that runs, and the fault of a launch that has reached the instruction limit.
    pub(super) fn explain_loop(&self, limit: u64) -> (usize, Fault) {
        self.running(
            FindingKind::Deadlock,
            format!(
                "still running when the launch's running CTAs have executed {limit} warp instructions, the limit: \
                 the loop seems to be endless; if it is not, raise the limit of instructions"
            ),
        )
    }

    /// A warp that waits, and the fault of a launch that has reached the instruction limit while all its CTAs wait.
    pub(super) fn explain_wait(&self, ctas: u64, limit: u64) -> (usize, Fault) {
        let all = match ctas {
            1 => "the launch's only running CTA waits in a loop that polls or sleeps".to_string(),
            _ => format!("the launch's {ctas} running CTAs all wait in loops that poll or sleep"),
        };
        self.waiting(
            FindingKind::Deadlock,
            format!("{all}, and nothing has ended the wait within {limit} warp instructions, the limit"),
        )
    }

    /// A warp that waits, and the fault of a launch whose CTAs all wait while `unstarted` others cannot start.
    pub(super) fn explain_residency(&self, waiting: u64, unstarted: u64) -> (usize, Fault) {
        self.waiting(
            FindingKind::Residency,
            format!(
                "{waiting} CTAs wait, as many as the device holds at once, and the other {unstarted} of the launch's \
                 {} CTAs cannot start before one of them ends: launch at most {waiting} CTAs, or let no CTA wait for \
                 one that may not have started",
                waiting + unstarted
            ),
        )
    }

    /// A warp that polls or sleeps, with a fault at the instruction at which its last turn ended.
    fn waiting(&self, kind: FindingKind, detail: String) -> (usize, Fault) {
        let (mut index, fault) = self.running(kind, detail);
        let polls = |warp: &Warp| warp.live != 0 && !warp.waiting && warp.lane_wait().is_none();
        index = self.warps.iter().position(polls).unwrap_or(index);
        let (pc, lane) = self.warps[index].yielded_at;
        (index, Fault { lane, ..fault }.at(pc))
    }

    /// A warp that has not exited and is not at a barrier, with a fault there.
    fn running(&self, kind: FindingKind, detail: String) -> (usize, Fault) {
        let index = self.warps.iter().position(|warp| warp.live != 0 && !warp.waiting).unwrap_or(0);
        (index, Fault::new(kind, self.warps[index].mask.trailing_zeros(), detail))
    }
}
