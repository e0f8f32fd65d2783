//! Races between clusters.
//!
//! When a cluster ends, its accesses of global memory are compared with those of the clusters that ended before. Most
//! clusters synchronise with no other; of these, two that made the same access are enough to find every race with it.
//! All accesses are kept of clusters that released something to others or acquired something from them, with what they
//! knew of others and since when. Reads by asynchronous copies are not compared: copies bring whole tiles, and a kernel
//! may use none of the bytes that another cluster is writing.
//!
//! Pages are distributed over shards with a lock each, so that clusters that end at the same time seldom wait for one
//! another.

mod locations;
mod shard;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::detector::{EarlierAccess, RaceDetector};
use super::observed::{self, ObservedWrites};
use super::shadow::{GranuleAccess, Shadow};
use super::stamp::{LaneStamp, STRONG_IN_CLUSTER, STRONG_IN_GRID};
use super::sync::{ClockChange, clocks_at};
use crate::lanes::lanes_of;
pub(super) use locations::GridThread;
pub(crate) use locations::Locations;
use shard::{GranuleRecord, Shard};

const SHARDS: usize = 64;

/// Race detection state that all clusters of a launch share.
pub(crate) struct GridDetector {
    locations: Mutex<Locations>,
    shards: [Mutex<Shard>; SHARDS],
    /// Clusters that have ended, by position in the grid, but for those that know nothing of others.
    ended: RwLock<HashMap<u64, Arc<EndedCluster>>>,
}

impl Default for GridDetector {
    fn default() -> GridDetector {
        GridDetector {
            locations: Mutex::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            ended: RwLock::default(),
        }
    }
}

/// What the threads of a cluster that has ended knew of other clusters.
#[derive(Default)]
struct EndedCluster {
    history: Vec<ClockChange>,
    observed: Vec<ObservedWrites>,
}

impl EndedCluster {
    fn is_empty(&self) -> bool {
        self.history.is_empty() && self.observed.is_empty()
    }

    /// Whether `earlier`, of another cluster, happened before `later`, of this one.
    fn is_ordered(&self, address: u64, earlier: &GranuleRecord, later: &GranuleRecord) -> bool {
        let write = (earlier.cluster(), earlier.by.stamp);
        self.knows(earlier, later) || observed::has_observed_remote(&self.observed, address, write, later.by)
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

/// A cluster that is ending, to be compared with others.
struct EndingCluster<'a> {
    cluster: u64,
    global: &'a Shadow,
    /// Accesses that later ones replaced in `global`, ordered by line index.
    replaced: &'a [(usize, GranuleAccess)],
    /// Whether the cluster neither released anything to others nor acquired anything from them. What races with an
    /// access of such a cluster races with the same access of every other such cluster.
    is_isolated: bool,
    knowledge: &'a EndedCluster,
    ended: &'a RwLock<HashMap<u64, Arc<EndedCluster>>>,
}

/// Race of an access of the cluster that is ending with an access of a cluster that ended before.
pub(crate) struct ClusterRace {
    /// Address of the granule.
    pub(crate) address: u64,
    pub(crate) warp: usize,
    pub(crate) lane: u32,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
    pub(crate) earlier: EarlierAccess,
    /// Position in the grid of the cluster that made the earlier access.
    pub(crate) earlier_cluster: u64,
}

impl GridDetector {
    pub(super) fn locations(&self) -> MutexGuard<'_, Locations> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares a cluster that is ending with those that ended before.
    pub(super) fn finish(&self, detector: &mut RaceDetector) -> Option<ClusterRace> {
        let cluster = detector.sync.cluster;
        let history = std::mem::take(&mut detector.sync.history);
        let observed = std::mem::take(&mut detector.observed);
        let knowledge = Arc::new(EndedCluster { history, observed });
        // Inserted before the cluster's accesses, which others are then compared with.
        if !knowledge.is_empty() {
            let mut ended = self.ended.write().unwrap_or_else(PoisonError::into_inner);
            ended.insert(cluster, Arc::clone(&knowledge));
        }
        let mut pages = std::mem::take(&mut detector.accessed_pages);
        pages.sort_unstable();
        let mut replaced = std::mem::take(&mut detector.global.replaced);
        replaced.sort_by_key(|&(index, GranuleAccess { granule, .. })| (index, granule));
        let ending = EndingCluster {
            cluster,
            global: &detector.global,
            replaced: &replaced,
            is_isolated: !detector.sync.has_released_to_grid && knowledge.is_empty(),
            knowledge: &knowledge,
            ended: &self.ended,
        };
        pages.into_iter().find_map(|page| {
            let first = detector.pages.get(&page)?.first;
            let shard = &self.shards[page as usize % SHARDS];
            shard.lock().unwrap_or_else(PoisonError::into_inner).merge(page, first, &ending)
        })
    }
}

impl EndingCluster<'_> {
    /// Accesses that later ones replaced in a line.
    fn replaced_in(&self, index: usize) -> impl Iterator<Item = GranuleAccess> {
        let from = self.replaced.partition_point(|&(other, _)| other < index);
        self.replaced[from..].iter().take_while(move |(other, _)| *other == index).map(|&(_, access)| access)
    }

    /// Whether an access of this cluster and one of another, each with whether it writes, do not race.
    fn is_ordered(&self, address: u64, own: (&GranuleRecord, bool), other: (&GranuleRecord, bool)) -> bool {
        let ((own, own_writes), (other, other_writes)) = (own, other);
        const STRONG: u32 = STRONG_IN_CLUSTER | STRONG_IN_GRID;
        let both = own.by.stamp.origin & other.by.stamp.origin;
        if both & STRONG == STRONG || !own_writes && !other_writes {
            return true;
        }
        if self.knowledge.is_ordered(address, other, own) {
            return true;
        }
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        ended.get(&other.cluster()).is_some_and(|knowledge| knowledge.is_ordered(address, own, other))
    }
}
