//! Clocks released and acquired through mbarriers and the cluster barrier.

use crate::checks::races::clock::{Time, VectorClock};

/// Initialisation of an mbarrier: thread, time and instruction.
#[derive(Clone, Copy)]
pub(in crate::checks::races) struct Initialisation {
    pub(in crate::checks::races) warp: usize,
    pub(in crate::checks::races) lane: u32,
    pub(in crate::checks::races) time: Time,
    pub(in crate::checks::races) pc: u32,
}

/// Last use of an mbarrier by lanes of a warp: an arrival, a wait, or the issue of a copy that signals it.
#[derive(Clone, Copy)]
pub(in crate::checks::races) struct LastUse {
    pub(in crate::checks::races) warp: usize,
    pub(in crate::checks::races) lanes: u32,
    pub(in crate::checks::races) time: Time,
    pub(in crate::checks::races) pc: u32,
    /// Whether the use is an arrival that releases.
    pub(in crate::checks::races) arrives: bool,
}

/// Clocks that arrivals at an mbarrier release and waits acquire.
#[derive(Default)]
pub(super) struct PhaseClocks {
    /// Joined clocks of the arrivals in the current phase.
    pub(super) arriving: VectorClock,
    /// Joined clocks of all completed phases.
    pub(super) completed: VectorClock,
}

impl PhaseClocks {
    /// Completes the current phase.
    pub(super) fn complete(&mut self) {
        self.completed.join(&self.arriving);
        self.arriving.clear();
    }
}

/// Synchronisation through an mbarrier.
pub(in crate::checks::races) struct MbarrierSync {
    pub(in crate::checks::races) address: u64,
    /// Number of the mbarrier in its cluster: its index in `SyncState::mbarriers`.
    pub(in crate::checks::races) number: usize,
    /// False after `mbarrier.inval`.
    pub(in crate::checks::races) is_valid: bool,
    pub(in crate::checks::races) phase: u64,
    pub(in crate::checks::races) initialised: Initialisation,
    /// Last use by each thread; a thread is in one entry at most.
    pub(in crate::checks::races) uses: Vec<LastUse>,
    /// Whether a fence has made the initialisation visible to the async proxy.
    pub(in crate::checks::races) is_init_fenced: bool,
    /// Phase of the cluster barrier whose completion makes the initialisation visible to the cluster: the initialising
    /// thread executed `fence.mbarrier_init` before a relaxed arrival in that phase.
    pub(super) init_visible_after: Option<u32>,
    pub(super) clocks: PhaseClocks,
    /// Clocks of arrivals from other CTAs, which only waits of cluster scope acquire.
    pub(super) peer_clocks: PhaseClocks,
}

impl MbarrierSync {
    pub(super) fn new(address: u64, number: usize, initialised: Initialisation) -> MbarrierSync {
        MbarrierSync {
            address,
            number,
            is_valid: true,
            phase: 0,
            initialised,
            uses: Vec::new(),
            is_init_fenced: false,
            init_visible_after: None,
            clocks: PhaseClocks::default(),
            peer_clocks: PhaseClocks::default(),
        }
    }

    /// Records a use, which replaces earlier uses by the same lanes.
    pub(in crate::checks::races) fn record_use(&mut self, new: LastUse) {
        let same = |last: &&mut LastUse| (last.warp, last.lanes) == (new.warp, new.lanes);
        if let Some(last) = self.uses.iter_mut().find(same) {
            *last = new;
            return;
        }
        for last in self.uses.iter_mut().filter(|last| last.warp == new.warp) {
            last.lanes &= !new.lanes;
        }
        self.uses.retain(|last| last.lanes != 0);
        self.uses.push(new);
    }
}

/// Clocks that arrivals at the cluster barrier release and waits acquire.
#[derive(Default)]
pub(super) struct ClusterBarrierClocks {
    /// Number of completed phases.
    pub(super) phase: u32,
    /// Joined clocks of the arrivals in the current phase.
    pub(super) arriving: VectorClock,
    /// Joined clocks of the last completed phase.
    pub(super) completed: VectorClock,
}
