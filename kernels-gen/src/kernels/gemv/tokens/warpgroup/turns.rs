//! The turns in which warpgroups add to the totals.

use bespoke_codegen::prelude::*;

use super::QUAD;
use crate::kernels::gemv::shape::GemvShape;

/// The turns of the warpgroups.
#[derive(Clone, Copy, Carry)]
pub(in crate::kernels::gemv::tokens) struct Turns {
    /// Index of this warpgroup.
    warpgroup: Val<u32>,
    /// Parity of the phase that the warpgroup's next turn waits for.
    parity: Val<u32>,
    /// Number of stages before the warpgroup's next one.
    pub until_own: Val<u32>,
}

/// Places the mbarriers of the turns, if there are turns: one for each warpgroup, whose phase completes when the warpgroup before
/// it passes the turn on.
#[device]
pub(in crate::kernels::gemv::tokens) fn turn_barriers(s: &GemvShape) -> Option<MbarrierArray> {
    s.has_turns().then(|| mbarrier_array(s.schedule.groups))
}

/// Initialises the mbarriers of the turns: every thread of a warpgroup passes the turn on. One thread calls it, and a CTA barrier
/// must follow.
#[device]
pub(in crate::kernels::gemv::tokens) fn init_turns(barriers: MbarrierArray, s: &GemvShape) {
    for warpgroup in 0..s.schedule.groups {
        barriers.at(warpgroup).init(QUAD * WARP);
    }
}

impl Turns {
    /// The turns at the start. The first one is the first warpgroup's, which waits for the phase before the first.
    #[device]
    pub fn new() -> Turns {
        let warpgroup = warp_index() / QUAD;
        let parity = select(warpgroup == 0, 1u32, 0u32);
        Turns { warpgroup, parity, until_own: warpgroup }
    }

    /// Waits for the turn of this warpgroup at its mbarrier.
    #[device]
    pub fn wait(&mut self, barriers: MbarrierArray) {
        barriers.at(self.warpgroup).wait(self.parity, Wait::Try);
        self.parity ^= 1;
    }

    /// Passes the turn to the next warpgroup.
    #[device]
    pub fn pass(&self, barriers: MbarrierArray, s: &GemvShape) {
        let next = select(self.warpgroup == s.schedule.groups - 1, 0u32, self.warpgroup + 1);
        barriers.at(next).arrive();
    }
}
