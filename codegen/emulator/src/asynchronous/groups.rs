//! Copies that threads wait for by group, and mbarrier arrivals deferred until copies complete.

use super::copy::{AsyncCopy, Signal};
use super::reservations::Reserved;
use crate::lanes::LANES;

/// `cp.async.mbarrier.arrive`: arrivals at an mbarrier, one for each lane, that take place when the lanes' earlier
/// copies are complete.
pub(crate) struct DeferredArrival {
    pub(crate) warp: usize,
    pub(crate) lanes: u32,
    pub(crate) pc: usize,
    pub(crate) mbarrier: u64,
    /// The arrivals wait for the lanes' copies before this position in the warp's sequence.
    pub(crate) sequence: u64,
    /// Whether a wait for the mbarrier has failed; the next wait completes the arrivals.
    pub(crate) is_due: bool,
    /// The copies that the arrivals wait for and that completed with an arrival at another mbarrier: the number of that
    /// mbarrier in the race detector, and the time of the last completion.
    pub(crate) completed_elsewhere: Vec<(usize, u32)>,
}

impl DeferredArrival {
    /// Whether an arrival waits for a `cp.async` copy, or for a part of the copy.
    pub(crate) fn waits_for(&self, copy: &AsyncCopy) -> bool {
        self.warp == copy.warp && self.lanes & copy.lanes != 0 && copy.sequence < self.sequence
    }

    /// Records that a copy has completed at `time` with an arrival at the mbarrier with this number.
    pub(crate) fn complete_elsewhere(&mut self, mbarrier: usize, time: u32) {
        match self.completed_elsewhere.iter_mut().find(|(number, _)| *number == mbarrier) {
            Some((_, last)) => *last = time.max(*last),
            None => self.completed_elsewhere.push((mbarrier, time)),
        }
    }
}

/// Copies of one warp that its threads wait for by group.
#[derive(Default)]
pub(crate) struct GroupedCopies {
    /// Copies in flight.
    pub(crate) in_flight: Vec<AsyncCopy>,
    /// Number of copies issued so far.
    pub(crate) issued: u64,
    /// Number of groups that each lane has committed; also the number of the lane's open group, counted from 0.
    pub(crate) committed: [u32; LANES],
}

impl GroupedCopies {
    /// Adds a copy to the open group of the copy's lanes; all these lanes must have the same group number.
    pub(crate) fn issue(&mut self, copy: AsyncCopy) {
        let signal = Signal::Group(self.committed[copy.lanes.trailing_zeros() as usize]);
        self.in_flight.push(AsyncCopy { sequence: self.issued, signal, ..copy });
        self.issued += 1;
    }

    /// Completes the parts of each copy that belong to the lanes of the mask returned by `done`.
    pub(super) fn complete(&mut self, shared: &mut Reserved<'_>, done: impl Fn(&AsyncCopy) -> u32) {
        let mut partly_done = Vec::new();
        self.in_flight.retain(|copy| {
            let done = done(copy) & copy.lanes;
            if done == copy.lanes {
                shared.complete(copy);
            } else if done != 0 {
                partly_done.push((copy.clone(), done));
            }
            done == 0
        });
        for (copy, done) in partly_done {
            for part in copy.split() {
                match part.lanes & done {
                    0 => self.in_flight.push(part),
                    _ => shared.complete(&part),
                }
            }
        }
    }
}
