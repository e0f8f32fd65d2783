//! Uses of the shared memory of peer CTAs.

use std::collections::BTreeMap;

use super::clock::Time;
use crate::lanes::LANES;

/// The last use of a peer's shared memory by a thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct Use {
    pub(super) time: Time,
    pub(crate) pc: u32,
    pub(crate) address: u64,
}

/// By rank of the CTA whose shared memory it is, and warp that uses it.
#[derive(Default)]
pub(super) struct Uses(pub(super) BTreeMap<(usize, usize), Box<[Use; LANES]>>);

impl Uses {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
