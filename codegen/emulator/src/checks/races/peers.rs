//! Accesses of the shared memory of peer CTAs.

use std::collections::BTreeMap;

use super::clock::Time;
use crate::lanes::LANES;

/// Access of a peer CTA's shared memory by a thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct PeerAccess {
    pub(super) time: Time,
    pub(crate) pc: u32,
    pub(crate) address: u64,
}

/// Last access of each lane. The key is the rank of the CTA that owns the shared memory, and the accessing warp.
#[derive(Default)]
pub(super) struct PeerAccesses(pub(super) BTreeMap<(usize, usize), Box<[PeerAccess; LANES]>>);

impl PeerAccesses {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
