//! Races found by the race detector.

use super::shadow::Conflict;
use super::stamp::Stamp;

/// The earlier of two accesses that race.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierAccess {
    /// The thread's number in the cluster; `None` for an asynchronous copy.
    pub(crate) thread: Option<usize>,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
}

impl EarlierAccess {
    pub(super) fn new(stamp: Stamp, writes: bool) -> EarlierAccess {
        let thread = (!stamp.is_copy()).then_some(stamp.number());
        EarlierAccess { thread, pc: stamp.pc, writes }
    }
}

/// Race of a lane's access with an earlier access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    pub(crate) earlier: EarlierAccess,
    /// Address of the 4-byte granule that both accesses have in common.
    pub(crate) address: u64,
    pub(crate) lane: u32,
}

impl Race {
    pub(super) fn new(conflict: Conflict) -> Race {
        let Conflict { stamp, writes, address, lane } = conflict;
        Race { earlier: EarlierAccess::new(stamp, writes), address, lane }
    }
}

/// Race of an access of the cluster that is ending with an access of a cluster that ended before.
pub(crate) struct ClusterRace {
    /// Address of the 4-byte granule that both accesses have in common.
    pub(crate) address: u64,
    pub(crate) warp: usize,
    pub(crate) lane: u32,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
    pub(crate) earlier: EarlierAccess,
    /// Position in the grid of the cluster that made the earlier access.
    pub(crate) earlier_cluster: u64,
}
