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
            is_init_fenced: false,
            init_visible_after: None,
            clocks: PhaseClocks::default(),
            peer_clocks: PhaseClocks::default(),
        }
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
