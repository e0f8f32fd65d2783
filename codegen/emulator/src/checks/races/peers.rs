//! Accesses of the shared memory of peer CTAs.

use std::collections::BTreeMap;

use super::clock::Time;
use super::detector::RaceDetector;
use crate::lanes::LANES;

/// Access of a peer CTA's shared memory by a thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct PeerAccess {
    pub(super) time: Time,
    pub(crate) pc: u32,
    pub(crate) address: u64,
}

/// Last access of each lane, by the rank of the CTA that has the memory and the warp that accesses it.
#[derive(Default)]
pub(super) struct PeerAccesses(pub(super) BTreeMap<(usize, usize), Box<[PeerAccess; LANES]>>);

impl PeerAccesses {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl RaceDetector {
    /// A lane accesses the shared memory of the peer CTA of a rank, at once or (`deferred`) when a copy completes.
    /// Returns false if the CTA's start did not happen before.
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
}
