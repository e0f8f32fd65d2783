//! Barriers: the named barriers of a CTA, and the barrier of a cluster.

use crate::lanes::LANES;

/// `bar.red`'s operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Popc,
    And,
    Or,
}

impl Reduction {
    pub(crate) const NAMES: [(&'static str, Reduction); 3] =
        [("popc", Reduction::Popc), ("and", Reduction::And), ("or", Reduction::Or)];

    /// Never 0.
    pub(crate) fn code(self) -> u64 {
        self as u64 + 1
    }

    pub(crate) fn from_code(code: u64) -> Option<Reduction> {
        Reduction::NAMES.iter().map(|&(_, reduction)| reduction).find(|reduction| reduction.code() == code)
    }
}

/// A warp at a barrier.
pub(crate) struct Arrival {
    pub(crate) warp: usize,
    pub(crate) waits: bool,
    /// Whether a lane of it has waited for the launches before this one.
    pub(crate) waited: bool,
    /// How many warps the barrier is for.
    pub(crate) warps: u32,
    /// Threads whose predicate holds, and whose does not.
    pub(crate) trues: u32,
    pub(crate) falses: u32,
    /// Where the result of a reduction goes.
    pub(crate) result: Option<(Reduction, u32)>,
}

/// State of a named barrier (`bar`, `barrier`).
#[derive(Default)]
pub(crate) struct Barrier {
    /// How many warps it is for, from the first arrival on.
    warps: u32,
    waited: bool,
    arrived: Vec<usize>,
    /// The warps that wait, and where the result of a reduction goes.
    waiting: Vec<(usize, Option<(Reduction, u32)>)>,
    trues: u32,
    falses: u32,
}

/// A warp that a completed barrier lets go, and what its reduction's destination gets.
pub(crate) struct Release {
    pub(crate) warp: usize,
    /// Whether one of those that arrived has waited for the launches before this one.
    pub(crate) waited: bool,
    pub(crate) result: Option<(Reduction, u32, u32)>,
}

impl Barrier {
    /// A warp arrives. When it is the last, the barrier completes: all warps that wait go to `released`. An error is
    /// the warp that arrived first, for another number of threads.
    pub(crate) fn arrive(
        &mut self,
        arrival: Arrival,
        released: &mut Vec<Release>,
    ) -> Result<(), FirstArrival> {
        if self.arrived.is_empty() {
            self.warps = arrival.warps;
        } else if self.warps != arrival.warps {
            return Err(FirstArrival { warp: self.arrived[0], threads: self.warps * LANES as u32 });
        }
        self.arrived.push(arrival.warp);
        self.waited |= arrival.waited;
        self.trues += arrival.trues;
        self.falses += arrival.falses;
        if arrival.waits {
            self.waiting.push((arrival.warp, arrival.result));
        }
        if self.arrived.len() < self.warps as usize {
            return Ok(());
        }
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
        Ok(())
    }

    /// Whether no warp has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Whether a warp waits here.
    pub(crate) fn has_waiting(&self, warp: usize) -> bool {
        self.waiting.iter().any(|&(waiting, _)| waiting == warp)
    }

    /// The threads that the barrier is for, and how many have arrived.
    pub(crate) fn threads(&self) -> (u32, usize) {
        (self.warps * LANES as u32, self.arrived.len() * LANES)
    }
}

/// The first arrival at a barrier, for so many threads.
pub(crate) struct FirstArrival {
    pub(crate) warp: usize,
    pub(crate) threads: u32,
}

/// `barrier.cluster`: phases that complete when all threads of the cluster have arrived or exited.
pub(crate) struct ClusterBarrier {
    /// By warp: lanes that have arrived in the current phase; that have arrived and not waited since; that wait.
    arrived: Vec<u32>,
    owing: Vec<u32>,
    waiting: Vec<u32>,
    /// Whether anyone has arrived.
    pub(crate) pending: bool,
    /// Whether one of those that arrive, or did in the phase before, has waited for earlier launches.
    waited: bool,
    pub(crate) had_waited: bool,
}

impl ClusterBarrier {
    pub(crate) fn new(warps: usize) -> ClusterBarrier {
        let none = vec![0; warps];
        ClusterBarrier {
            arrived: none.clone(),
            owing: none.clone(),
            waiting: none,
            pending: false,
            waited: false,
            had_waited: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        for lanes in [&mut self.arrived, &mut self.owing, &mut self.waiting] {
            lanes.fill(0);
        }
        (self.pending, self.waited, self.had_waited) = (false, false, false);
    }

    /// Lanes arrive; an error names one that has to wait first.
    pub(crate) fn arrive(&mut self, warp: usize, lanes: u32, waited: bool) -> Result<(), u32> {
        let again = self.owing[warp] & lanes;
        if again != 0 {
            return Err(again.trailing_zeros());
        }
        self.owing[warp] |= lanes;
        self.arrived[warp] |= lanes;
        self.pending = true;
        self.waited |= waited;
        Ok(())
    }

    /// Lanes wait; returns whether the phase in which they arrived is complete. An error names one that has not
    /// arrived.
    pub(crate) fn wait(&mut self, warp: usize, lanes: u32) -> Result<bool, u32> {
        let early = lanes & !self.owing[warp];
        if early != 0 {
            return Err(early.trailing_zeros());
        }
        let complete = self.arrived[warp] & lanes == 0;
        match complete {
            true => self.owing[warp] &= !lanes,
            false => self.waiting[warp] |= lanes,
        }
        Ok(complete)
    }

    /// Whether all threads have arrived, by the lanes that each warp has left.
    pub(crate) fn is_complete(&self, mut live: impl Iterator<Item = u32>) -> bool {
        let mut arrived = self.arrived.iter();
        live.all(|lanes| arrived.next().is_some_and(|arrived| lanes & !arrived == 0))
    }

    /// Begins the next phase; returns the warps that may go on, with their lanes.
    pub(crate) fn complete(&mut self) -> Vec<(usize, u32)> {
        self.arrived.fill(0);
        self.pending = false;
        self.had_waited = std::mem::take(&mut self.waited);
        let mut released = Vec::new();
        for (warp, waiting) in self.waiting.iter_mut().enumerate().filter(|(_, waiting)| **waiting != 0) {
            let lanes = std::mem::take(waiting);
            self.owing[warp] &= !lanes;
            released.push((warp, lanes));
        }
        released
    }

    /// Whether a warp waits.
    pub(crate) fn has_waiting(&self, warp: usize) -> bool {
        self.waiting[warp] != 0
    }

    /// Lanes of a warp that have arrived in the current phase.
    pub(crate) fn arrived(&self, warp: usize) -> u32 {
        self.arrived[warp]
    }
}
