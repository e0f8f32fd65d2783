//! Which thread accessed memory, when, and at which instruction.

use super::clock::Time;

/// Bytes of a granule: the unit of the addresses in findings, and of the comparison between clusters.
pub(super) const GRANULE: u64 = 4;

// Bits of `Stamp::origin`. The bits below `COPY` are the thread's number in its cluster, or the mbarrier's.

/// An asynchronous copy that signals an mbarrier made the access.
pub(super) const COPY: u32 = 1 << 14;
/// The access is strong (`.relaxed`, `.volatile` or stronger) at a scope that has all threads of the cluster.
pub(super) const STRONG_IN_CLUSTER: u32 = 1 << 15;
/// The access is strong at a scope wider than the cluster.
pub(super) const STRONG_IN_GRID: u32 = 1 << 16;
/// The access is strong at least for its own CTA; set only in clusters of several CTAs.
pub(super) const STRONG_IN_CTA: u32 = 1 << 17;
/// Position of the rank of the CTA that [`STRONG_IN_CTA`] refers to.
pub(super) const RANK_SHIFT: u32 = 28;
/// Distinguishes strong accesses, of whatever scope, from weak ones.
pub(super) const STRONG: u32 = STRONG_IN_CLUSTER | STRONG_IN_CTA;
const NUMBER: u32 = COPY - 1;

/// A thread of the grid: its cluster's position in the grid, and its number in the cluster.
pub(super) type GridThread = (u64, u32);

/// Time, origin and instruction of an access.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Stamp {
    pub(super) time: Time,
    /// Thread or mbarrier, and strength of the access.
    pub(super) origin: u32,
    pub(super) pc: u32,
}

impl Stamp {
    pub(super) fn warp(self) -> usize {
        (self.origin & NUMBER) as usize / 32
    }

    pub(super) fn lane(self) -> u32 {
        self.origin & 31
    }

    /// The thread's number in its cluster; of a copy, the mbarrier's.
    pub(super) fn number(self) -> usize {
        (self.origin & NUMBER) as usize
    }

    pub(super) fn is_copy(self) -> bool {
        self.origin & COPY != 0
    }

    /// Whether both accesses have the same warp (or copy), strength and time.
    pub(super) fn is_simultaneous(self, other: Stamp) -> bool {
        (self.time, self.origin) == (other.time, other.origin)
    }
}

/// Whether two accesses, by their [`Stamp::origin`], are morally strong: both are strong, at scopes that have both
/// threads. Such accesses never race.
#[inline(always)]
pub(super) fn are_morally_strong(a: u32, b: u32) -> bool {
    let both = a & b;
    both & STRONG != 0 && (both & STRONG_IN_CLUSTER != 0 || (a ^ b) >> RANK_SHIFT == 0)
}

/// Access of some lanes of a warp at one time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LaneStamp {
    pub(super) stamp: Stamp,
    pub(super) lanes: u32,
}
