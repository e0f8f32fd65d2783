//! Checks at the end of a cluster: accesses of a CTA's shared memory that may come after its exit, and races with other
//! clusters.
//!
//! A CTA's shared memory ceases to exist when its threads have exited. A peer's access comes before that if it happened
//! before something that a thread of the CTA did, usually a wait at the cluster barrier.

use super::detector::RaceDetector;
use super::grid::{ClusterRace, GridDetector};
use super::peers::PeerAccess;
use crate::lanes::lanes_of;

/// Access of the shared memory of a peer CTA that may come after its exit.
pub(crate) struct LatePeerAccess {
    /// Rank of the CTA that has the memory.
    pub(crate) rank: usize,
    pub(crate) warp: usize,
    pub(crate) lane: usize,
    pub(crate) access: PeerAccess,
}

/// Conflict found at the end of a cluster.
pub(crate) enum EndConflict {
    LatePeerAccess(LatePeerAccess),
    Race(ClusterRace),
}

impl RaceDetector {
    /// Ends the cluster, and compares it with those that ended before.
    pub(crate) fn finish(&mut self, grid: &GridDetector) -> Result<(), EndConflict> {
        if let Some(late) = self.find_late_peer_access() {
            return Err(EndConflict::LatePeerAccess(late));
        }
        grid.finish(self).map_or(Ok(()), |race| Err(EndConflict::Race(race)))
    }

    fn find_late_peer_access(&self) -> Option<LatePeerAccess> {
        self.peer_accesses.0.iter().find_map(|(&(rank, warp), accesses)| {
            let is_late = |&lane: &usize| {
                let time = accesses[lane].time;
                time > self.start && !self.sync.is_known_in(rank, (warp, lane as u32), time)
            };
            let lane = lanes_of(u32::MAX).find(is_late)?;
            Some(LatePeerAccess { rank, warp, lane, access: accesses[lane] })
        })
    }
}
