//! Positions in the ring.

use crate::dsl::value::{Val, val};
use crate::{Carry, device};

/// Position of a producer or consumer in the ring.
#[derive(Clone, Copy, Debug, Carry)]
pub(super) struct RingPosition {
    /// Index of the stage, from 0.
    pub(super) slot: Val<u32>,
    /// Parity of the phase to wait for; it changes with each round through the ring.
    pub(super) parity: Val<u32>,
}

/// The position one stage further.
#[device]
pub(super) fn next_position(at: RingPosition, stages: u32) -> RingPosition {
    let mut next = at;
    next.slot += 1;
    if next.slot == stages {
        next.slot = val(0);
        next.parity ^= 1;
    }
    next
}

/// The position `count` stages further; `count` is at most `stages`.
#[device]
pub(super) fn position_after(at: RingPosition, count: Val<u32>, stages: u32) -> RingPosition {
    let mut next = at;
    next.slot += count;
    if next.slot >= stages {
        next.slot -= stages;
        next.parity ^= 1;
    }
    next
}
