//! Barriers: the named barriers of a CTA, and the barrier of a cluster.

use crate::lanes::LANES;

/// Operation of `bar.red`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Popc,
    And,
    Or,
}

impl Reduction {
    pub(crate) const NAMES: [(&'static str, Reduction); 3] =
        [("popc", Reduction::Popc), ("and", Reduction::And), ("or", Reduction::Or)];

    /// Non-zero code of the reduction in an instruction's immediate.
    pub(crate) fn code(self) -> u64 {
        self as u64 + 1
    }

    pub(crate) fn from_code(code: u64) -> Option<Reduction> {
        Reduction::NAMES.iter().map(|&(_, reduction)| reduction).find(|reduction| reduction.code() == code)
    }
}

/// Arrival of a warp at a named barrier.
pub(crate) struct Arrival {
    pub(crate) warp: usize,
    /// Whether the warp waits, or only arrives.
    pub(crate) waits: bool,
    /// Whether a lane of the warp counts as having executed `griddepcontrol.wait`.
    pub(crate) waited: bool,
    /// Number of warps that the barrier expects.
    pub(crate) warps: u32,
    /// Whether the barrier is for all threads of the CTA, without a number.
    pub(crate) all: bool,
    /// Number of threads whose `bar.red` predicate is true.
    pub(crate) trues: u32,
    /// Number of threads whose `bar.red` predicate is false.
    pub(crate) falses: u32,
    /// Reduction of `bar.red`, and register slot of the result.
    pub(crate) result: Option<(Reduction, u32)>,
}

/// State of a named barrier (`bar`, `barrier`).
#[derive(Default)]
pub(crate) struct Barrier {
    /// Number of warps that the barrier expects, set by the first arrival.
    warps: u32,
    /// Whether all arrivals are for all threads of the CTA, so that the barrier does not wait for warps that have exited.
    all: bool,
    waited: bool,
    arrived: Vec<usize>,
    /// Waiting warps, each with its reduction and the register slot of the result.
    waiting: Vec<(usize, Option<(Reduction, u32)>)>,
    trues: u32,
    falses: u32,
}

/// Release of a warp by a completed barrier.
pub(crate) struct Release {
    pub(crate) warp: usize,
    /// Whether a thread that arrived counts as having executed `griddepcontrol.wait`.
    pub(crate) waited: bool,
    /// Reduction, register slot of the result, and result.
    pub(crate) result: Option<(Reduction, u32, u32)>,
}

impl Barrier {
    /// Counts an arrival. The last arrival completes the barrier and adds all waiting warps to `released`. The error is
    /// the first arrival, if it expects another number of threads.
    pub(crate) fn arrive(
        &mut self,
        arrival: Arrival,
        released: &mut Vec<Release>,
    ) -> Result<(), FirstArrival> {
        if self.arrived.is_empty() {
            (self.warps, self.all) = (arrival.warps, true);
        } else if self.warps != arrival.warps {
            return Err(FirstArrival { warp: self.arrived[0], threads: self.warps * LANES as u32 });
        }
        self.all &= arrival.all;
        self.arrived.push(arrival.warp);
        self.waited |= arrival.waited;
        self.trues += arrival.trues;
        self.falses += arrival.falses;
        if arrival.waits {
            self.waiting.push((arrival.warp, arrival.result));
        }
        if self.arrived.len() == self.warps as usize {
            self.complete(released);
        }
        Ok(())
    }

    /// Whether the warps that the barrier waits for have exited, where `live` warps of the CTA have not.
    pub(crate) fn waits_for_exited(&self, live: usize) -> bool {
        self.all && !self.is_idle() && self.arrived.len() == live
    }

    /// Completes the barrier, and adds all waiting warps to `released`.
    pub(crate) fn complete(&mut self, released: &mut Vec<Release>) {
        let done = std::mem::take(self);
        released.extend(done.waiting.into_iter().map(|(warp, result)| Release {
            warp,
            waited: done.waited,
            result: result.map(|(reduction, slot)| {
                let value = match reduction {
                    Reduction::Popc => done.trues,
                    Reduction::And => (done.falses == 0) as u32,
                    Reduction::Or => (done.trues != 0) as u32,
                };
                (reduction, slot, value)
            }),
        }));
    }

    /// Whether no warp has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Whether a warp waits at the barrier.
    pub(crate) fn has_waiting(&self, warp: usize) -> bool {
        self.waiting.iter().any(|&(waiting, _)| waiting == warp)
    }

    /// Number of threads that the barrier expects, and number of threads that have arrived.
    pub(crate) fn threads(&self) -> (u32, usize) {
        (self.warps * LANES as u32, self.arrived.len() * LANES)
    }
}

/// The first arrival at a barrier, which sets the number of threads that the barrier expects.
pub(crate) struct FirstArrival {
    pub(crate) warp: usize,
    pub(crate) threads: u32,
}

/// State of `barrier.cluster`. A phase completes when all threads of the cluster have arrived or exited.
pub(crate) struct ClusterBarrier {
    /// Lanes of each warp that have arrived in the current phase.
    arrived: Vec<u32>,
    /// Lanes of each warp that have arrived and not waited since.
    unwaited: Vec<u32>,
    /// Lanes of each warp that wait.
    waiting: Vec<u32>,
    /// Whether any thread has arrived in the current phase.
    pub(crate) pending: bool,
    /// Whether a thread that arrived in the current phase counts as having executed `griddepcontrol.wait`.
    waited: bool,
    /// Whether a thread that arrived in the previous phase counts as having executed `griddepcontrol.wait`.
    pub(crate) had_waited: bool,
}

impl ClusterBarrier {
    pub(crate) fn new(warps: usize) -> ClusterBarrier {
        let none = vec![0; warps];
        ClusterBarrier {
            arrived: none.clone(),
            unwaited: none.clone(),
            waiting: none,
            pending: false,
            waited: false,
            had_waited: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        for lanes in [&mut self.arrived, &mut self.unwaited, &mut self.waiting] {
            lanes.fill(0);
        }
        (self.pending, self.waited, self.had_waited) = (false, false, false);
    }

    /// Records the arrival of lanes of a warp. The error is a lane that has arrived before and not waited since.
    pub(crate) fn arrive(&mut self, warp: usize, lanes: u32, waited: bool) -> Result<(), u32> {
        let again = self.unwaited[warp] & lanes;
        if again != 0 {
            return Err(again.trailing_zeros());
        }
        self.unwaited[warp] |= lanes;
        self.arrived[warp] |= lanes;
        self.pending = true;
        self.waited |= waited;
        Ok(())
    }

    /// Records the wait of lanes of a warp; returns whether the phase in which the lanes arrived is complete. The error
    /// is a lane that has not arrived.
    pub(crate) fn wait(&mut self, warp: usize, lanes: u32) -> Result<bool, u32> {
        let early = lanes & !self.unwaited[warp];
        if early != 0 {
            return Err(early.trailing_zeros());
        }
        let complete = self.arrived[warp] & lanes == 0;
        match complete {
            true => self.unwaited[warp] &= !lanes,
            false => self.waiting[warp] |= lanes,
        }
        Ok(complete)
    }

    /// Whether all threads have arrived; `live` gives the lanes of each warp that have not exited.
    pub(crate) fn is_complete(&self, mut live: impl Iterator<Item = u32>) -> bool {
        let mut arrived = self.arrived.iter();
        live.all(|lanes| arrived.next().is_some_and(|arrived| lanes & !arrived == 0))
    }

    /// Completes the current phase; returns the waiting warps, each with its waiting lanes.
    pub(crate) fn complete(&mut self) -> Vec<(usize, u32)> {
        self.arrived.fill(0);
        self.pending = false;
        self.had_waited = std::mem::take(&mut self.waited);
        let mut released = Vec::new();
        for (warp, waiting) in self.waiting.iter_mut().enumerate().filter(|(_, waiting)| **waiting != 0) {
            let lanes = std::mem::take(waiting);
            self.unwaited[warp] &= !lanes;
            released.push((warp, lanes));
        }
        released
    }

    /// Whether any lane of a warp waits at the cluster barrier.
    pub(crate) fn has_waiting(&self, warp: usize) -> bool {
        self.waiting[warp] != 0
    }

    /// Lanes of a warp that have arrived in the current phase.
    pub(crate) fn arrived(&self, warp: usize) -> u32 {
        self.arrived[warp]
    }
}
