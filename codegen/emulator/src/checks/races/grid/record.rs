//! Records of accesses by clusters.

use crate::checks::races::shadow::GranuleAccess;
use crate::checks::races::stamp::{LaneStamp, STRONG_IN_CLUSTER, Stamp};

/// Access of a 4-byte granule of global memory by a cluster.
#[derive(Clone, Copy, Default)]
pub(super) struct GranuleRecord {
    /// The cluster's position in the grid plus one; 0 if there is no record.
    pub(super) cluster_plus_one: u64,
    pub(super) by: LaneStamp,
    /// Bytes of the granule, one bit each.
    pub(super) bytes: u8,
    /// Whether the cluster neither released clocks to other clusters nor acquired clocks from them.
    pub(super) is_isolated: bool,
    /// Whether `Shard::more` has further records of the granule.
    pub(super) has_more: bool,
    /// Whether there are weak records of the whole granule by two isolated clusters. A third such record is redundant:
    /// whichever cluster is compared with the granule, at least one of the two records is of a different cluster.
    pub(super) is_saturated: bool,
}

impl GranuleRecord {
    pub(super) fn new(cluster: u64, is_isolated: bool, access: &GranuleAccess) -> GranuleRecord {
        GranuleRecord {
            cluster_plus_one: cluster + 1,
            by: access.by,
            bytes: access.bytes,
            is_isolated,
            has_more: false,
            is_saturated: false,
        }
    }

    /// The cluster's position in the grid.
    pub(super) fn cluster(&self) -> u64 {
        self.cluster_plus_one - 1
    }

    pub(super) fn is_weak(&self) -> bool {
        self.by.stamp.origin & STRONG_IN_CLUSTER == 0
    }

    /// Stamp of the access, with the lowest accessing lane.
    pub(super) fn stamp(&self) -> Stamp {
        let stamp = self.by.stamp;
        Stamp { origin: stamp.origin | self.by.lanes.trailing_zeros() & 31, ..stamp }
    }
}
