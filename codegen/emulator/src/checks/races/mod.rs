//! Race detector.
//!
//! Two accesses race if they have a byte in common, at least one access is a write, neither access happened before the
//! other, and the accesses are not morally strong. Vector clocks ([`clock`]) track happens-before through everything
//! that orders memory in the ISA ([`sync`]): program order, barriers, `bar.warp.sync`, mbarriers, waits for copies,
//! fences with strong accesses, acquires and releases. Every access is compared with, and recorded in, the shadow
//! memory of its cluster ([`shadow`]); when a cluster ends, its accesses are compared with those of the clusters that
//! ended before ([`grid`]). A launch without clusters has clusters of one CTA.
//!
//! Accesses ordered by a barrier do not race, and unordered accesses race even if one ran long before the other: the
//! result does not depend on the order in which the emulator runs warps. The exception is a redundant store, which
//! writes the bytes that memory already holds: it does not race with earlier weak stores of its cluster, and is recorded
//! as a read. Which of several stores is redundant can depend on the order of the warps.

mod clock;
mod cluster_end;
mod copies;
mod copy_checks;
mod copy_targets;
mod detector;
mod fence_op;
mod grid;
mod lane_map;
mod line_access;
mod observed;
mod pages;
mod peer_checks;
mod peers;
mod race;
mod ranges;
mod shadow;
mod stamp;
mod strong;
mod sync;
mod synchronise;
#[cfg(test)]
mod tests;
mod unit;
mod wgmma_checks;

pub(crate) use cluster_end::EndConflict;
pub(crate) use copies::BulkCopy;
pub(crate) use copy_checks::{BulkCopyConflict, CopyRace};
pub(crate) use detector::{Accessor, LaneAddresses, MemoryAccess, RaceDetector};
pub(crate) use fence_op::FenceOp;
pub(crate) use grid::GridDetector;
pub(crate) use pages::PageMap;
pub(crate) use peer_checks::LatePeerAccess;
pub(crate) use race::{ClusterRace, EarlierAccess, Race};
pub(crate) use strong::LocationLock;
pub(crate) use sync::{FenceSides, MemoryOrder, MemoryScope};
pub(crate) use synchronise::{UnorderedInit, UnorderedUse};
