//! Strong writes that threads have observed.
//!
//! A strong read observes the strong writes to its address, even if reader and writers do not synchronise. Later
//! accesses by the reading thread do not race with these writes.

use std::collections::HashMap;

use super::clock::Time;
use super::stamp::{GRANULE, GridThread, LaneStamp, Stamp};
use super::sync::SyncState;

/// The strong writes at an address that a thread has observed.
pub(super) struct ObservedWrites {
    pub(super) address: u64,
    /// Thread that observed the writes, and time of the thread's read.
    pub(super) by: Stamp,
    /// Time of the last observed write of each writing thread.
    pub(super) writes: HashMap<GridThread, Time>,
}

impl ObservedWrites {
    fn has_granule_of(&self, address: u64) -> bool {
        self.address / GRANULE == address / GRANULE
    }

    fn includes(&self, cluster: u64, write: Stamp) -> bool {
        self.writes.get(&(cluster, write.number() as u32)).is_some_and(|&time| time >= write.time)
    }
}

/// Whether a thread has observed a write of its own cluster, by a read of its own or by another thread's read that
/// happened before.
pub(super) fn has_observed(
    observed: &[ObservedWrites],
    sync: &SyncState,
    (address, write): (u64, Stamp),
    (warp, lane): (usize, u32),
) -> bool {
    let clock = &sync.clock(warp, lane).own;
    observed.iter().filter(|observed| observed.has_granule_of(address)).any(|observed| {
        let by = observed.by;
        let is_own = (by.warp(), by.lane()) == (warp, lane);
        observed.includes(sync.cluster, write) && (is_own || clock.covers(by.warp(), 1 << by.lane(), by.time))
    })
}

/// Whether the thread that made the access `later` had observed a write of another cluster.
pub(super) fn has_observed_remote(
    observed: &[ObservedWrites],
    address: u64,
    (cluster, write): (u64, Stamp),
    later: LaneStamp,
) -> bool {
    observed.iter().any(|observed| {
        let by = observed.by;
        observed.has_granule_of(address)
            && by.warp() == later.stamp.warp()
            && later.lanes == 1 << by.lane()
            && by.time <= later.stamp.time
            && observed.includes(cluster, write)
    })
}
