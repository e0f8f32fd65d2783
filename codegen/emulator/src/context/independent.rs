//! Independent thread scheduling: groups of lanes of a diverged warp take turns.
//!
//! Lanes that reach the reconvergence point of a branch normally wait there for the other lanes. If the other lanes spin
//! until a waiting lane executes code after that point (each lane takes a lock in a loop, and releases it after the
//! loop), the warp deadlocks. When the whole launch waits, the scheduler calls [`Warp::schedule_independently`]. From
//! then on no two groups share a reconvergence point: groups run in turn, and join only at instructions that their lanes
//! must execute together. Within a group, branches diverge and reconverge as before.
//!
//! Lanes may also wait at an instruction with a member mask for lanes that are at the reconvergence point of a branch, and
//! that execute a later instruction of the same kind. So a warp is scheduled independently before such a wait becomes a
//! finding. It is a finding if a lane exits while others wait for it, or if the warp deadlocks
//! ([`Warp::fault_of_wait_for`]).

use super::fault::{Fault, Missing};
use super::warp::{Group, LaneWait, MemberWait, NEVER, Waited, Warp};

impl Warp {
    /// Called by the current lanes at an instruction with a member mask, if [`Warp::wait_for_lanes`] cannot help in a warp that
    /// is not scheduled independently. Schedules the groups independently and lets the current lanes wait.
    pub(crate) fn wait_as_group(&mut self, missing: Missing) -> Waited {
        if missing.lanes & self.mask != 0 || !self.schedule_independently() {
            return Waited::No;
        }
        self.turn_over = false;
        self.waits_for_members = true;
        self.wait_for_lanes(missing)
    }

    /// Records that the lanes of `lanes` wait at an instruction with a member mask. `fault` is the finding if the lanes of
    /// `missing` never execute the instruction.
    pub(crate) fn record_member_wait(&mut self, lanes: u32, missing: u32, fault: Box<Fault>) {
        if !self.waits_for_members {
            return;
        }
        let wait = MemberWait { lanes, missing, fault };
        match self.member_waits.iter_mut().find(|known| known.lanes & lanes != 0) {
            Some(known) => *known = wait,
            None => self.member_waits.push(wait),
        }
    }

    /// Removes the recorded waits of lanes that no longer wait for members.
    pub(super) fn forget_member_waits(&mut self, lanes: u32) {
        self.member_waits.retain(|wait| wait.lanes & lanes == 0);
    }

    /// The finding of a wait for members among `lanes`, which exit or cannot run any more; `None` if no lane waits for them.
    pub(crate) fn fault_of_wait_for(&self, lanes: u32) -> Option<Box<Fault>> {
        self.member_waits.iter().find(|wait| wait.missing & lanes != 0).map(|wait| wait.fault.clone())
    }

    /// Schedules the warp's groups independently from now on, if the warp has diverged. Returns whether this call
    /// switched the warp to independent scheduling.
    pub(crate) fn schedule_independently(&mut self) -> bool {
        if self.independent {
            return false;
        }
        self.separate();
        self.independent = !self.groups.is_empty();
        self.turn_over = self.independent;
        self.independent
    }

    /// Empties the divergence stack: the waiting lanes of each entry become a group. The current lanes no longer have a
    /// reconvergence point.
    fn separate(&mut self) {
        let mut above = self.mask;
        while let Some(entry) = self.stack.pop() {
            let mask = entry.mask & self.live & !above;
            if mask != 0 {
                self.groups.push_back(Group { mask, pc: entry.pc, waits: entry.waits });
            }
            above |= entry.mask;
        }
        self.reconvergence = NEVER;
    }

    /// Ends the turn of the current group. The next one gets its turn when the warp runs again.
    pub(crate) fn end_turn(&mut self) {
        self.turn_over = self.independent;
    }

    /// Starts the turn of the next group, if that of the current one is over.
    pub(crate) fn start_turn(&mut self) {
        if std::mem::take(&mut self.turn_over) {
            self.separate();
            self.next_group(false);
        }
    }

    /// Called by the current lanes at an instruction that the lanes of `missing` must execute with them. Groups that wait at
    /// this instruction join the current group; if there is none, another group gets its turn. In a warp that is not scheduled
    /// independently, the other side of a branch may join. Does nothing if lanes of the current group are missing.
    pub(crate) fn wait_for_lanes(&mut self, missing: Missing) -> Waited {
        if missing.lanes & self.mask != 0 {
            return Waited::No;
        }
        if !self.independent {
            return self.wait_for_other_side(missing);
        }
        self.separate();
        let before = self.mask;
        let (pc, mask) = (self.pc, &mut self.mask);
        self.groups.retain(|group| {
            let joins = group.pc == pc && group.mask & missing.joinable != 0;
            *mask |= if joins { group.mask } else { 0 };
            !joins
        });
        self.lane_wait = None;
        if self.mask != before {
            self.forget_member_waits(self.mask);
            return Waited::Joined;
        }
        self.lane_wait = Some(LaneWait { pc, lane: before.trailing_zeros(), missing: missing.lanes });
        self.next_group(true);
        Waited::NextGroup
    }

    /// The last wait of a group for other lanes, with the first lane that it waits for; `None` if these have come or exited.
    pub(crate) fn lane_wait(&self) -> Option<(LaneWait, u32)> {
        let wait = self.lane_wait?;
        let missing = wait.missing & self.live;
        (missing != 0).then(|| (wait, missing.trailing_zeros()))
    }

    /// Switches to the group that has waited longest, if there is one. `waits` says whether the current lanes wait for others.
    fn next_group(&mut self, waits: bool) {
        let current = Group { mask: self.mask, pc: self.pc, waits };
        if self.take_group() {
            self.groups.push_back(current);
        }
    }

    /// Replaces the current lanes by the group that has waited longest; returns false if there is none.
    pub(super) fn take_group(&mut self) -> bool {
        let Some(group) = self.groups.pop_front() else { return false };
        (self.mask, self.pc, self.reconvergence) = (group.mask, group.pc, NEVER);
        true
    }
}
