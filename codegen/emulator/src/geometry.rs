//! Geometry of a launch: grid, blocks, clusters, and how the shared memories of a cluster's CTAs follow one another.

use crate::lanes::LANES;

/// The most CTAs of a cluster; more than 8 are not possible on every device that has clusters.
pub(crate) const MAX_CLUSTER: u64 = 16;

/// Named barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// Dimensions of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// CTAs along each axis.
    pub(crate) grid: [u32; 3],
    /// Threads of a CTA along each axis.
    pub(crate) block: [u32; 3],
    /// CTAs of a cluster along each axis: 1 each in a launch without clusters.
    pub(crate) cluster: [u32; 3],
    /// Whether the launch or the kernel asks for clusters.
    pub(crate) explicit_cluster: bool,
}

impl Geometry {
    /// CTAs of a cluster.
    pub(crate) fn cluster_size(&self) -> usize {
        self.cluster.iter().product::<u32>() as usize
    }

    /// Warps of a CTA.
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

/// Coordinates of position `index` in a box, x fastest; z is not bounded.
fn unfold(index: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (x as u64, y as u64);
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// Layout of the shared memories of a cluster's CTAs: one range of addresses, a CTA's part after the other's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedLayout {
    /// CTAs.
    pub(crate) ctas: usize,
    /// Bytes of each CTA's shared memory.
    pub(crate) bytes: u64,
    /// Bytes from the start of a CTA's shared memory to the start of the next CTA's.
    pitch: u64,
}

/// Alignment of each CTA's shared memory in a cluster, and the least gap between two CTAs': an access past the end of a
/// CTA's shared memory is not mistaken for an access of the next CTA's.
const SHARED_GAP: u64 = 1024;

impl SharedLayout {
    pub(crate) fn new(ctas: usize, bytes: u64) -> SharedLayout {
        let pitch = if ctas == 1 { bytes.max(1) } else { bytes.next_multiple_of(SHARED_GAP) + SHARED_GAP };
        SharedLayout { ctas, bytes, pitch }
    }

    /// Bytes of the whole range.
    pub(crate) fn total_bytes(&self) -> u64 {
        if self.ctas == 1 { self.bytes } else { self.pitch * self.ctas as u64 }
    }

    /// Where the shared memory of a CTA starts.
    pub(crate) fn base(&self, rank: usize) -> u64 {
        if self.ctas == 1 { 0 } else { rank as u64 * self.pitch }
    }

    /// The rank of the CTA in whose part of the range an address is, and the offset there. The offset may be beyond
    /// the CTA's shared memory.
    pub(crate) fn locate(&self, address: u64) -> (usize, u64) {
        if self.ctas == 1 { (0, address) } else { ((address / self.pitch) as usize, address % self.pitch) }
    }

    /// Whether one CTA's shared memory contains all of a range.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let (rank, offset) = self.locate(address);
        rank < self.ctas && offset <= self.bytes && bytes <= self.bytes - offset
    }
}
