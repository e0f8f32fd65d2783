//! Ending and ended clusters, with the clocks of other clusters that their threads had.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::record::GranuleRecord;
use crate::checks::races::observed::{ObservedWrites, has_observed_remote};
use crate::checks::races::shadow::Shadow;
use crate::checks::races::stamp::{LaneStamp, STRONG_IN_CLUSTER, STRONG_IN_GRID};
use crate::checks::races::sync::{ClockChange, clocks_at};
use crate::lanes::lanes_of;

/// Clocks of other clusters, and observed writes, of the threads of a cluster that has ended.
#[derive(Default)]
pub(super) struct EndedCluster {
    pub(super) history: Vec<ClockChange>,
    pub(super) observed: Vec<ObservedWrites>,
}

impl EndedCluster {
    pub(super) fn is_empty(&self) -> bool {
        self.history.is_empty() && self.observed.is_empty()
    }

    /// Whether `earlier`, an access of another cluster, happened before `later`, an access of this cluster, or is a
    /// write that `later`'s thread had observed.
    fn is_ordered(&self, address: u64, earlier: &GranuleRecord, later: &GranuleRecord) -> bool {
        let write = (earlier.cluster(), earlier.by.stamp);
        self.knows(earlier, later) || has_observed_remote(&self.observed, address, write, later.by)
    }

    /// Whether the clocks of all lanes of `later` cover `earlier`.
    fn knows(&self, earlier: &GranuleRecord, later: &GranuleRecord) -> bool {
        let LaneStamp { stamp, lanes } = earlier.by;
        let by = later.by;
        lanes_of(by.lanes).all(|lane| {
            let clocks = clocks_at(&self.history, by.stamp.warp(), lane as u32, by.stamp.time);
            let clock = clocks.and_then(|clocks| clocks.get(&earlier.cluster()));
            clock.is_some_and(|clock| clock.covers(stamp.warp(), lanes, stamp.time))
        })
    }
}

/// A cluster that is ending, to be compared with the clusters that have ended.
pub(super) struct EndingCluster<'a> {
    pub(super) cluster: u64,
    pub(super) global: &'a Arc<Shadow>,
    /// Whether shards keep a reference to `global`; otherwise they copy the records that they need.
    pub(super) keeps_shadow: bool,
    /// Whether the cluster neither released clocks to other clusters nor acquired clocks from them. An access that
    /// races with an access of an isolated cluster races with the same access of every other isolated cluster.
    pub(super) is_isolated: bool,
    pub(super) ended_cluster: &'a EndedCluster,
    pub(super) ended: &'a RwLock<HashMap<u64, Arc<EndedCluster>>>,
}

impl EndingCluster<'_> {
    /// Whether an access of this cluster and an access of another cluster do not race. Each access has a flag: whether
    /// the access writes.
    pub(super) fn is_ordered(
        &self,
        address: u64,
        own: (&GranuleRecord, bool),
        other: (&GranuleRecord, bool),
    ) -> bool {
        let ((own, own_writes), (other, other_writes)) = (own, other);
        const STRONG: u32 = STRONG_IN_CLUSTER | STRONG_IN_GRID;
        let both = own.by.stamp.origin & other.by.stamp.origin;
        if both & STRONG == STRONG || !own_writes && !other_writes {
            return true;
        }
        if self.ended_cluster.is_ordered(address, other, own) {
            return true;
        }
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        ended.get(&other.cluster()).is_some_and(|ended_cluster| ended_cluster.is_ordered(address, own, other))
    }
}
