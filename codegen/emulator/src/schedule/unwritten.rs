//! The cause of a read of unwritten shared memory: a race with a write that has not been executed yet, or a missing
//! write.

use super::RunningCluster;
use super::interpret::run_warp;
use crate::context::fault::Fault;
use crate::context::{Flow, Launch, Worker};
use crate::exec::race_report::other_access;
use crate::finding::{FindingKind, OtherAccess, Space};
use crate::lanes::LANES;

/// Maximum number of turns in which each other warp may reach the write. Bounded, since a warp may spin until the warp
/// at fault continues.
const TURNS: usize = 4;

/// Bytes of the largest load of a lane.
const MAX_BYTES: u64 = 16;

impl RunningCluster {
    /// Turns the fault of a warp that read shared memory before it was written into a race, if another warp writes the
    /// bytes without waiting for the warp at fault. To find such a write, lets the other warps run until they wait, end
    /// or fault. Returns the warp at fault.
    #[cold]
    pub(super) fn explain_unwritten(
        &mut self,
        index: usize,
        launch: &Launch<'_>,
        worker: &mut Worker,
    ) -> usize {
        let Some(unwritten) = worker.fault.take() else { return index };
        let is_early = unwritten.kind == FindingKind::Uninitialised && unwritten.space == Some(Space::Shared);
        let mut race = None;
        if is_early && launch.races.is_some() {
            let profile = worker.profile.take();
            let faults = self.run_others(index, launch, worker);
            race = match unwritten.pc {
                Some(read) => self.conflict_with(&unwritten, read, &faults, launch),
                None => self.repeat(index, launch, worker),
            };
            worker.profile = profile;
        }
        if let Some(race) = &mut race {
            race.detail = format!(
                "{}; another thread writes the bytes, and nothing orders the two accesses: a barrier is missing",
                unwritten.detail
            );
        }
        worker.fault = race.or(Some(unwritten));
        index
    }

    /// The race of the read at `read`, an instruction before the warp's current one, if one of the faults is a write
    /// that conflicts with the read.
    fn conflict_with(
        &self,
        unwritten: &Fault,
        read: usize,
        faults: &[(usize, Box<Fault>)],
        launch: &Launch<'_>,
    ) -> Option<Box<Fault>> {
        let line = launch.program.place(read).line;
        let is_the_read = |other: &OtherAccess| !other.writes && other.ptx_line == line;
        let conflicts = |fault: &Fault| {
            let near = fault.address.zip(unwritten.address).is_some_and(|(a, b)| a.abs_diff(b) < MAX_BYTES);
            near && fault.other.as_ref().is_some_and(is_the_read)
        };
        let (warp, write) = faults.iter().find(|(_, fault)| conflicts(fault))?;
        let (pc, thread) = (write.pc.unwrap_or(self.warps[*warp].pc), warp * LANES + write.lane as usize);
        let other = other_access(launch, self.state.index, (pc, true), (Some(thread), thread));
        Some(Box::new(Fault { kind: FindingKind::Race, other: Some(other), ..unwritten.clone() }))
    }

    /// Repeats the read at the warp's current instruction, so that the race detector compares it with the writes of other
    /// warps.
    fn repeat(&mut self, index: usize, launch: &Launch<'_>, worker: &mut Worker) -> Option<Box<Fault>> {
        let pc = self.warps[index].pc;
        run_warp(&mut self.warps[index], &mut self.state, worker, launch);
        let repeated = worker.fault.take().filter(|fault| fault.kind == FindingKind::Race);
        // The warp ends with this fault, even if it ran on after the repeated read.
        let same = std::mem::replace(&mut self.warps[index].pc, pc) == pc;
        repeated.filter(|_| same)
    }

    /// Lets all warps but one run until they wait, end or fault, or have had their turns. Returns their faults, each with the
    /// warp.
    fn run_others(
        &mut self,
        except: usize,
        launch: &Launch<'_>,
        worker: &mut Worker,
    ) -> Vec<(usize, Box<Fault>)> {
        let mut faults = Vec::new();
        for _ in 0..TURNS {
            for index in (0..self.warps.len()).filter(|&index| index != except) {
                if self.warps[index].live == 0 || self.warps[index].waiting {
                    continue;
                }
                match run_warp(&mut self.warps[index], &mut self.state, worker, launch) {
                    Flow::Wait => self.warps[index].waiting = true,
                    Flow::Fault => {
                        faults.extend(worker.fault.take().map(|fault| (index, fault)));
                        self.warps[index].waiting = true;
                    }
                    _ => {}
                }
                self.release();
                self.release_cluster();
            }
        }
        faults
    }
}
