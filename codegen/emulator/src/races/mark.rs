//! Who accessed, when, and at which instruction.

use super::clock::Time;

/// The unit in which findings name places, and in which CTAs are compared.
pub(super) const GRANULE: u64 = 4;
/// In [`Mark::who`], above the thread's number in its CTA (or the mbarrier's, with [`ENGINE`]).
pub(super) const ENGINE: u32 = 1 << 10;
/// The access is strong: `.relaxed`, `.volatile` or more.
pub(super) const STRONG: u32 = 1 << 11;
/// … and its scope is wider than the CTA.
pub(super) const WIDE: u32 = 1 << 12;
/// The thread's number, or the mbarrier's.
const NUMBER: u32 = ENGINE - 1;

/// An access.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) time: Time,
    pub(super) who: u32,
    pub(super) pc: u32,
}

impl Mark {
    pub(super) fn warp(self) -> usize {
        (self.who & NUMBER) as usize / 32
    }

    pub(super) fn lane(self) -> u32 {
        self.who & 31
    }

    pub(super) fn number(self) -> usize {
        (self.who & NUMBER) as usize
    }

    pub(super) fn is_engine(self) -> bool {
        self.who & ENGINE != 0
    }

    /// Whether both are by one warp, of one strength and scope, at one moment.
    pub(super) fn is_one_with(self, other: Mark) -> bool {
        (self.time, self.who) == (other.time, other.who)
    }
}

/// An access by lanes of one warp at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Readers {
    pub(super) mark: Mark,
    pub(super) lanes: u32,
}
