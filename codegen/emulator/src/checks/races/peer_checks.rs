//! Checks of accesses of the shared memory of peer CTAs.
//!
//! A CTA's shared memory exists from the CTA's start to the exit of its last thread. An access by a peer CTA's thread
//! is early enough if it happened before an operation of a thread of the CTA, usually a wait at the cluster barrier.

use super::detector::RaceDetector;
use super::peers::PeerAccess;
use crate::lanes::lanes_of;

/// Access of the shared memory of a peer CTA that may come after that CTA's exit.
pub(crate) struct LatePeerAccess {
    /// Rank of the CTA that owns the shared memory.
    pub(crate) rank: usize,
    pub(crate) warp: usize,
    pub(crate) lane: usize,
    pub(crate) access: PeerAccess,
}

impl RaceDetector {
    /// Checks and records a lane's access of the shared memory of the peer CTA of rank `rank`, made at once or, if
    /// `deferred`, when a copy completes. Returns false if the CTA's start did not happen before.
    pub(crate) fn access_peer(
        &mut self,
        (warp, lane, pc): (usize, usize, usize),
        rank: usize,
        (address, deferred): (u64, bool),
    ) -> bool {
        if !self.sync.knows_started((warp, lane as u32), rank, self.start) {
            return false;
        }
        if !deferred {
            let lanes = self.peer_accesses.0.entry((rank, warp)).or_default();
            lanes[lane] = PeerAccess { time: self.sync.now(warp), pc: pc as u32, address };
        }
        true
    }

    /// Finds an access of a CTA's shared memory that may come after the CTA's exit.
    pub(super) fn find_late_peer_access(&self) -> Option<LatePeerAccess> {
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
