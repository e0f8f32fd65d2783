//! Checks at the end of a cluster.

use super::detector::RaceDetector;
use super::grid::GridDetector;
use super::peer_checks::LatePeerAccess;
use super::race::ClusterRace;

/// Conflict found at the end of a cluster.
pub(crate) enum EndConflict {
    LatePeerAccess(LatePeerAccess),
    Race(ClusterRace),
}

impl RaceDetector {
    /// Ends the cluster: compares its accesses with those of the clusters that ended before.
    pub(crate) fn finish(&mut self, grid: &GridDetector) -> Result<(), EndConflict> {
        self.record_unawaited_writes();
        if let Some(late) = self.find_late_peer_access() {
            return Err(EndConflict::LatePeerAccess(late));
        }
        grid.finish(self).map_or(Ok(()), |race| Err(EndConflict::Race(race)))
    }
}
