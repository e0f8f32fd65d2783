//! Independent thread scheduling: groups of lanes of a diverged warp take turns.
//!
//! Lanes that reach the reconvergence point of a branch normally wait there for the other lanes. If the other lanes spin
//! until a waiting lane executes code after that point (each lane takes a lock in a loop, and releases it after the
//! loop), the warp deadlocks. When the whole launch waits, the scheduler calls [`Warp::schedule_independently`]. From
//! then on no two groups share a reconvergence point: groups run in turn, and join only at instructions that their lanes
//! must execute together. Within a group, branches diverge and reconverge as before.

use super::fault::Missing;
use super::warp::{Group, LaneWait, NEVER, Waited, Warp};

impl Warp {
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
                self.groups.push_back(Group { mask, pc: entry.pc });
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
            self.next_group();
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
            return Waited::Joined;
        }
        self.lane_wait = Some(LaneWait { pc, lane: before.trailing_zeros(), missing: missing.lanes });
        self.next_group();
        Waited::NextGroup
    }

    /// The last wait of a group for other lanes, with the first lane that it waits for; `None` if these have come or exited.
    pub(crate) fn lane_wait(&self) -> Option<(LaneWait, u32)> {
        let wait = self.lane_wait?;
        let missing = wait.missing & self.live;
        (missing != 0).then(|| (wait, missing.trailing_zeros()))
    }

    /// Switches to the group that has waited longest, if there is one.
    fn next_group(&mut self) {
        let current = Group { mask: self.mask, pc: self.pc };
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
