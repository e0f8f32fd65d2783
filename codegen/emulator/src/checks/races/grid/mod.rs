//! Races between clusters.
//!
//! When a cluster ends, its accesses of global memory are compared with those of the clusters that ended before. Most
//! clusters are isolated: they synchronise with no other cluster. If many isolated clusters make the same access,
//! records of two of them are enough to find every race. All accesses are kept of clusters that released clocks to
//! other clusters or acquired clocks from them, with the history of the threads' clocks. Reads by asynchronous copies
//! are not compared: copies read whole tiles, and a kernel need not use those bytes of a tile that another cluster is
//! writing.
//!
//! Pages are distributed over shards, each with its own lock, so clusters that end at the same time seldom wait for one
//! another.

mod ending;
mod locations;
mod record;
mod shard;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::detector::RaceDetector;
use super::race::ClusterRace;
use ending::{EndedCluster, EndingCluster};
pub(crate) use locations::Locations;
use shard::Shard;

const SHARDS: usize = 64;

/// Race detection state that all clusters of a launch share.
pub(crate) struct GridDetector {
    locations: Mutex<Locations>,
    shards: [Mutex<Shard>; SHARDS],
    /// Ended clusters whose threads had clocks or observed writes of other clusters, by position in the grid.
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

impl GridDetector {
    pub(super) fn locations(&self) -> MutexGuard<'_, Locations> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the accesses of a cluster that is ending with those of the clusters that ended before; returns the
    /// first race.
    pub(super) fn finish(&self, detector: &mut RaceDetector) -> Option<ClusterRace> {
        let cluster = detector.sync.cluster;
        let history = std::mem::take(&mut detector.sync.history);
        let observed = std::mem::take(&mut detector.observed);
        let ended_cluster = Arc::new(EndedCluster { history, observed });
        // Inserted before the cluster's accesses: another cluster that is compared with these accesses needs the
        // clocks.
        if !ended_cluster.is_empty() {
            let mut ended = self.ended.write().unwrap_or_else(PoisonError::into_inner);
            ended.insert(cluster, Arc::clone(&ended_cluster));
        }
        let mut pages = std::mem::take(&mut detector.accessed_pages);
        pages.sort_unstable();
        let (global, first_blocks) = detector.take_global();
        let global = Arc::new(global);
        let ending = EndingCluster {
            cluster,
            global: &global,
            keeps_shadow: self.are_mostly_new(&pages, first_blocks.len()),
            is_isolated: !detector.sync.has_released_to_grid && ended_cluster.is_empty(),
            ended_cluster: &ended_cluster,
            ended: &self.ended,
        };
        let race = pages.into_iter().find_map(|page| {
            let first = first_blocks.get(&page)?.first;
            self.shard(page).merge(page, first, &ending)
        });
        match Arc::try_unwrap(global) {
            Ok(global) => detector.return_global(global, first_blocks),
            // The next cluster probably needs as many.
            Err(global) => detector.global.reserve_as(&global),
        }
        race
    }

    fn shard(&self, page: u64) -> MutexGuard<'_, Shard> {
        self.shards[page as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more than half of the `count` pages in a cluster's shadow memory are new to the grid; `pages` are those that the
    /// cluster has accessed.
    fn are_mostly_new(&self, pages: &[u64], count: usize) -> bool {
        let new = pages.iter().filter(|&&page| !self.shard(page).has(page)).count();
        new * 2 > count
    }
}
