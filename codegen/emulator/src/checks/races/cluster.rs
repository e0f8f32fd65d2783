//! The end of a cluster: uses of a CTA's shared memory that may come after its exit, and races with other clusters.
//!
//! A CTA's shared memory is gone when its threads have exited. That none of its peers' accesses comes later is known
//! if some thread of the CTA knows of the access before it exits: most often from the cluster's barrier.

use super::detector::{Earlier, Races};
use super::grid::{Clash, Grid};
use super::peers::Use;
use crate::lanes::lanes_of;

/// A use of the shared memory of a peer CTA that may come after its exit.
pub(crate) struct LateUse {
    /// Rank of the CTA whose shared memory it is.
    pub(crate) rank: usize,
    pub(crate) warp: usize,
    pub(crate) lane: usize,
    pub(crate) used: Use,
}

/// A race with a cluster that has ended.
pub(crate) struct ClusterRace {
    pub(crate) address: u64,
    pub(crate) warp: usize,
    pub(crate) lane: u32,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
    pub(crate) earlier: Earlier,
    /// The index in the grid of the other cluster.
    pub(crate) cluster: u64,
}

/// A finding at the end of a cluster.
pub(crate) enum EndConflict {
    LateUse(LateUse),
    Race(ClusterRace),
}

impl Races {
    /// A lane uses the shared memory of a peer CTA, now or (`later`) some time; false if nothing tells that the CTA has
    /// started.
    pub(crate) fn reaches(
        &mut self,
        (warp, lane, pc): (usize, usize, usize),
        rank: usize,
        (address, later): (u64, bool),
    ) -> bool {
        if !self.sync.has_heard((warp, lane as u32), rank, self.base) {
            return false;
        }
        if !later {
            let lanes = self.uses.0.entry((rank, warp)).or_default();
            lanes[lane] = Use { time: self.sync.now(warp), pc: pc as u32, address };
        }
        true
    }

    /// Ends the cluster, and compares it with those that have ended before.
    pub(crate) fn finish(&mut self, grid: &Grid) -> Result<(), EndConflict> {
        if let Some(late) = self.late_use() {
            return Err(EndConflict::LateUse(late));
        }
        match grid.finish(self) {
            None => Ok(()),
            Some(Clash { address, mine: (mark, writes), theirs, cta }) => {
                Err(EndConflict::Race(ClusterRace {
                    address,
                    warp: mark.warp(),
                    lane: mark.lane(),
                    pc: mark.pc,
                    writes,
                    earlier: Earlier::new(theirs.0, theirs.1),
                    cluster: cta,
                }))
            }
        }
    }

    /// A use of a CTA's shared memory that nothing puts before that CTA's exit.
    fn late_use(&self) -> Option<LateUse> {
        self.uses.0.iter().find_map(|(&(rank, warp), uses)| {
            let late = |&lane: &usize| {
                let time = uses[lane].time;
                time > self.base && !self.sync.is_known_in(rank, (warp, lane as u32), time)
            };
            let lane = lanes_of(u32::MAX).find(late)?;
            Some(LateUse { rank, warp, lane, used: uses[lane] })
        })
    }
}
