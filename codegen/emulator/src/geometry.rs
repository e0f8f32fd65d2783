//! Geometry of a launch: grid, blocks, clusters, and the layout of a cluster's shared memory.

use crate::lanes::LANES;

/// Maximum CTAs per cluster. Not every device with clusters supports more than 8.
pub(crate) const MAX_CLUSTER: u64 = 16;

/// Named barriers per CTA.
pub(crate) const BARRIERS: usize = 16;

/// Dimensions of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// CTAs along each axis.
    pub(crate) grid: [u32; 3],
    /// Threads per CTA along each axis.
    pub(crate) block: [u32; 3],
    /// CTAs per cluster along each axis; all 1 in a launch without clusters.
    pub(crate) cluster: [u32; 3],
    /// Whether the launch or the kernel asks for clusters.
    pub(crate) explicit_cluster: bool,
}

impl Geometry {
    /// Number of CTAs per cluster.
    pub(crate) fn cluster_size(&self) -> usize {
        self.cluster.iter().product::<u32>() as usize
    }

    /// Number of warps per CTA.
    pub(crate) fn warps(&self) -> usize {
        (self.block.iter().product::<u32>() as usize).div_ceil(LANES)
    }

    /// Clusters along each axis.
    pub(crate) fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis])
    }

    /// `%clusterid` of the cluster with index `index` in the grid, x fastest.
    pub(crate) fn cluster_at(&self, index: u64) -> [u32; 3] {
        unfold(index, self.clusters())
    }

    /// `%cluster_ctaid` of the CTA of rank `rank`.
    pub(crate) fn cta_in_cluster(&self, rank: usize) -> [u32; 3] {
        unfold(rank as u64, self.cluster)
    }

    /// `%ctaid` of the CTA of rank `rank` in the cluster with index `index`.
    pub(crate) fn cta_at(&self, index: u64, rank: usize) -> [u32; 3] {
        let (cluster, inside) = (self.cluster_at(index), self.cta_in_cluster(rank));
        std::array::from_fn(|axis| cluster[axis] * self.cluster[axis] + inside[axis])
    }

    /// `%ctaid` and `%tid` of the thread numbered `thread` in the cluster with index `index`.
    pub(crate) fn thread_at(&self, index: u64, thread: usize) -> ([u32; 3], [u32; 3]) {
        let threads = self.warps() * LANES;
        (self.cta_at(index, thread / threads), unfold((thread % threads) as u64, self.block))
    }
}

/// Coordinates of the linear index `index` in a box of size x × y, unbounded along z; x varies fastest.
fn unfold(index: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (x as u64, y as u64);
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// Layout of a cluster's shared memory: one range of addresses that contains each CTA's shared memory in the order of
/// ranks, with gaps between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedLayout {
    /// Number of CTAs.
    pub(crate) ctas: usize,
    /// Bytes of shared memory per CTA.
    pub(crate) bytes: u64,
    /// Bytes from the start of a CTA's shared memory to the start of the next CTA's.
    pitch: u64,
}

/// Alignment in bytes of each CTA's shared memory in a cluster, and minimum gap between the memories of two CTAs. The
/// gap keeps an access past the end of one CTA's shared memory out of the next CTA's.
const SHARED_GAP: u64 = 1024;

impl SharedLayout {
    pub(crate) fn new(ctas: usize, bytes: u64) -> SharedLayout {
        let pitch = if ctas == 1 { bytes.max(1) } else { bytes.next_multiple_of(SHARED_GAP) + SHARED_GAP };
        SharedLayout { ctas, bytes, pitch }
    }

    /// Size in bytes of the cluster's range of shared memory addresses.
    pub(crate) fn total_bytes(&self) -> u64 {
        if self.ctas == 1 { self.bytes } else { self.pitch * self.ctas as u64 }
    }

    /// First address of a CTA's shared memory in the cluster's range.
    pub(crate) fn base(&self, rank: usize) -> u64 {
        if self.ctas == 1 { 0 } else { rank as u64 * self.pitch }
    }

    /// Rank of the CTA that an address belongs to, and the offset of the address from the start of the CTA's shared
    /// memory. The offset may be past the end.
    pub(crate) fn locate(&self, address: u64) -> (usize, u64) {
        if self.ctas == 1 { (0, address) } else { ((address / self.pitch) as usize, address % self.pitch) }
    }

    /// Whether a range is inside one CTA's shared memory.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let (rank, offset) = self.locate(address);
        rank < self.ctas && offset <= self.bytes && bytes <= self.bytes - offset
    }
}
