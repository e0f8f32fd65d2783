//! The cause of a read of shared memory that nobody has written: a race with a write that has not happened yet, or no
//! write at all.

use super::RunningCluster;
use super::interpret::run_warp;
use crate::context::{Flow, Launch, Worker};
use crate::finding::{FindingKind, Space};

/// Turns that each of the other warps has at most to reach the write. A warp may spin until the warp at fault goes on.
const TURNS: usize = 4;

impl RunningCluster {
    /// Makes the fault of a warp that read shared memory before it was written a race, if another warp writes the bytes
    /// without waiting for the warp at fault: lets the other warps run until they wait, end or fault, and repeats the read,
    /// which the race detector then compares with the write. Returns the warp at fault.
    #[cold]
    pub(super) fn explain_unwritten(
        &mut self,
        index: usize,
        launch: &Launch<'_>,
        worker: &mut Worker,
    ) -> usize {
        let Some(unwritten) = worker.fault.take() else { return index };
        let is_early = unwritten.kind == FindingKind::Uninitialised && unwritten.space == Some(Space::Shared);
        if is_early && launch.races.is_some() {
            let (pc, profile) = (self.warps[index].pc, worker.profile.take());
            self.run_others(index, launch, worker);
            run_warp(&mut self.warps[index], &mut self.state, worker, launch);
            worker.profile = profile;
            let repeated = worker.fault.take().filter(|fault| fault.kind == FindingKind::Race);
            // The warp ends with this fault, wherever the repeated read has led it.
            let same = std::mem::replace(&mut self.warps[index].pc, pc) == pc;
            if let Some(mut race) = repeated.filter(|_| same) {
                race.detail = format!(
                    "{} before this read; another thread writes them, and nothing orders the two accesses: a barrier is \
                     missing",
                    unwritten.detail
                );
                worker.fault = Some(race);
                return index;
            }
        }
        worker.fault = Some(unwritten);
        index
    }

    /// Lets all warps but one run until they wait, end or fault, or have had their turns.
    fn run_others(&mut self, except: usize, launch: &Launch<'_>, worker: &mut Worker) {
        for _ in 0..TURNS {
            for index in (0..self.warps.len()).filter(|&index| index != except) {
                if self.warps[index].live == 0 || self.warps[index].waiting {
                    continue;
                }
                match run_warp(&mut self.warps[index], &mut self.state, worker, launch) {
                    Flow::Wait => self.warps[index].waiting = true,
                    // Its fault is not the first one.
                    Flow::Fault => {
                        worker.fault = None;
                        self.warps[index].waiting = true;
                    }
                    _ => {}
                }
                self.release();
                self.release_cluster();
            }
        }
    }
}
