//! Access stamps: time, thread (or mbarrier of a copy), strength and instruction of an access.

use super::clock::Time;

/// Bytes of a granule, the unit of memory for the addresses in findings and for the comparison between clusters.
pub(super) const GRANULE: u64 = 4;

// Bits of `Stamp::origin`. The bits below `COPY` are the thread's number in its cluster, or the number of a copy's
// mbarrier.

/// Bit of [`Stamp::origin`]: an asynchronous copy that signals an mbarrier made the access.
pub(super) const COPY: u32 = 1 << 14;
/// Bit of [`Stamp::origin`]: the access is strong (`.relaxed`, `.volatile` or stronger) at a scope that includes all
/// threads of the cluster.
pub(super) const STRONG_IN_CLUSTER: u32 = 1 << 15;
/// Bit of [`Stamp::origin`]: the access is strong at a scope wider than the cluster.
pub(super) const STRONG_IN_GRID: u32 = 1 << 16;
/// Bit of [`Stamp::origin`]: the access is strong at least at `.cta` scope; set only in clusters of several CTAs.
pub(super) const STRONG_IN_CTA: u32 = 1 << 17;
/// Bit of [`Stamp::origin`]: a bulk copy that its thread has waited for made the access, in the async proxy.
pub(super) const IN_ASYNC_PROXY: u32 = 1 << 18;
/// Lowest bit in [`Stamp::origin`] of the rank of the accessing thread's CTA, set with [`STRONG_IN_CTA`].
pub(super) const RANK_SHIFT: u32 = 28;
/// Bits of [`Stamp::origin`] of which a strong access has at least one and a weak access none.
pub(super) const STRONG: u32 = STRONG_IN_CLUSTER | STRONG_IN_CTA;
const NUMBER: u32 = COPY - 1;

/// A thread of the grid: its cluster's position in the grid, and its number in the cluster.
pub(super) type GridThread = (u64, u32);

/// Time, origin and instruction of an access.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Stamp {
    pub(super) time: Time,
    /// Thread number, or mbarrier number of a copy, and strength bits of the access.
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

    /// Number in its cluster of the accessing thread, or of the mbarrier of a copy.
    pub(super) fn number(self) -> usize {
        (self.origin & NUMBER) as usize
    }

    pub(super) fn is_copy(self) -> bool {
        self.origin & COPY != 0
    }

    /// Whether a thread made the access, and the access is weak.
    pub(super) fn is_weak(self) -> bool {
        self.origin & (COPY | IN_ASYNC_PROXY | STRONG | STRONG_IN_GRID) == 0
    }

    /// Whether a copy made the access in the async proxy.
    pub(super) fn is_in_async_proxy(self) -> bool {
        self.origin & (COPY | IN_ASYNC_PROXY) != 0
    }

    /// Whether both accesses have the same origin (warp or mbarrier, strength) and time.
    pub(super) fn is_simultaneous(self, other: Stamp) -> bool {
        (self.time, self.origin) == (other.time, other.origin)
    }
}

/// Whether two accesses, by their [`Stamp::origin`], are morally strong: both are strong, at scopes that include both
/// threads. Such accesses never race.
#[inline(always)]
pub(super) fn are_morally_strong(a: u32, b: u32) -> bool {
    let both = a & b;
    both & STRONG != 0 && (both & STRONG_IN_CLUSTER != 0 || (a ^ b) >> RANK_SHIFT == 0)
}

/// Stamp of an access, and the lanes of the warp that made the access.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LaneStamp {
    pub(super) stamp: Stamp,
    pub(super) lanes: u32,
}
