//! Who accessed, when, and at which instruction.

use super::clock::Time;

/// The unit in which findings name places, and in which CTAs are compared.
pub(super) const GRANULE: u64 = 4;
/// In [`Mark::who`], above the thread's number in its cluster (or the mbarrier's, with [`ENGINE`]).
pub(super) const ENGINE: u32 = 1 << 14;
/// The access is strong, `.relaxed`, `.volatile` or more, for all threads of the cluster.
pub(super) const STRONG: u32 = 1 << 15;
/// … and its scope is wider than the cluster.
pub(super) const WIDE: u32 = 1 << 16;
/// In a cluster of several CTAs: the access is strong at least for its own, whose rank stands above [`RANK`].
pub(super) const LOCAL: u32 = 1 << 17;
pub(super) const RANK: u32 = 28;
/// What tells strong accesses, of whatever scope, from weak ones.
pub(super) const STRENGTH: u32 = STRONG | LOCAL;
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

/// Whether two accesses, by [`Mark::who`], are strong at scopes that have both threads: they may come together.
#[inline(always)]
pub(super) fn are_strong_together(a: u32, b: u32) -> bool {
    let both = a & b;
    both & STRENGTH != 0 && (both & STRONG != 0 || (a ^ b) >> RANK == 0)
}

/// An access by lanes of one warp at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Readers {
    pub(super) mark: Mark,
    pub(super) lanes: u32,
}
