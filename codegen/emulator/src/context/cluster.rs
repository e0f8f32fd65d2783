//! CTAs that run together: where a cluster's CTAs are, where their shared memory lies, and the barrier among them.
//!
//! A cluster is what one worker runs: its warps take turns whichever CTA they are of, and its CTAs' shared memory is
//! one range, a CTA's part after the other's, in which every address is unique. A launch without clusters has clusters
//! of one CTA.

use crate::exec::Launch;
use crate::exec::lanes::LANES;

/// The most CTAs of a cluster, where the launch allows more than what every device has room for.
pub(crate) const MAX_CLUSTER: u64 = 16;

impl Launch<'_> {
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

    /// `%clusterid` of the cluster at a position in the grid's order.
    pub(crate) fn cluster_at(&self, index: u64) -> [u32; 3] {
        unfold(index, self.clusters())
    }

    /// `%cluster_ctaid` of the CTA of a rank.
    pub(crate) fn place_in_cluster(&self, rank: usize) -> [u32; 3] {
        unfold(rank as u64, self.cluster)
    }

    /// `%ctaid` of the CTA of a rank in the cluster at a position.
    pub(crate) fn cta_at(&self, index: u64, rank: usize) -> [u32; 3] {
        let (cluster, place) = (self.cluster_at(index), self.place_in_cluster(rank));
        std::array::from_fn(|axis| cluster[axis] * self.cluster[axis] + place[axis])
    }

    /// `%ctaid` and `%tid` of a thread by its number in the cluster at a position.
    pub(crate) fn thread_at(&self, index: u64, number: usize) -> ([u32; 3], [u32; 3]) {
        let threads = self.warps() * LANES;
        (self.cta_at(index, number / threads), unfold((number % threads) as u64, self.block))
    }
}

/// Coordinates of the position `index` in a box, x first; z is not bounded.
fn unfold(index: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (x as u64, y as u64);
    [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
}

/// What the CTAs of a cluster share besides memory.
pub(crate) struct Cluster {
    /// CTAs.
    pub(crate) size: usize,
    /// Bytes of each CTA's shared memory, and from the start of one's to the next one's.
    pub(crate) bytes: u64,
    pub(crate) pitch: u64,
    /// The CTAs, by rank, of which no thread is left.
    pub(crate) exited: u32,
    pub(crate) barrier: ClusterBarrier,
}

/// Shared memory starts at multiples of this in each CTA, as far as anyone asks for alignment; so much lies between
/// two CTAs' as well, so that what reaches past the end of one's is seen not to be in the next one's.
const APART: u64 = 1024;

impl Cluster {
    pub(crate) fn new(size: usize, warps: usize, bytes: u64) -> Cluster {
        let pitch = if size == 1 { bytes.max(1) } else { bytes.next_multiple_of(APART) + APART };
        Cluster { size, bytes, pitch, exited: 0, barrier: ClusterBarrier::new(size * warps) }
    }

    pub(crate) fn reset(&mut self) {
        self.exited = 0;
        self.barrier.reset();
    }

    /// Bytes of all CTAs' shared memory.
    pub(crate) fn all_bytes(&self) -> u64 {
        if self.size == 1 { self.bytes } else { self.pitch * self.size as u64 }
    }

    /// Whether there is more than one CTA.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.size > 1
    }

    /// Where the shared memory of a CTA starts.
    pub(crate) fn base(&self, rank: usize) -> u64 {
        if self.size == 1 { 0 } else { rank as u64 * self.pitch }
    }

    /// The rank of the CTA whose shared memory has an address (or would have it, if it were longer), and the offset
    /// there.
    pub(crate) fn locate(&self, address: u64) -> (usize, u64) {
        if self.size == 1 { (0, address) } else { ((address / self.pitch) as usize, address % self.pitch) }
    }

    /// Whether a CTA's shared memory has all of a range.
    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        let (rank, offset) = self.locate(address);
        rank < self.size && offset <= self.bytes && bytes <= self.bytes - offset
    }
}

/// `barrier.cluster`: phases that complete when all threads of the cluster have arrived or exited.
pub(crate) struct ClusterBarrier {
    /// By warp: lanes that have arrived in the current phase; that have arrived and not waited since; that wait.
    arrived: Vec<u32>,
    owing: Vec<u32>,
    waiting: Vec<u32>,
    /// Whether anyone has arrived.
    pub(crate) pending: bool,
    /// Whether one of those that arrive, or did in the phase before, has waited for earlier launches.
    waited: bool,
    pub(crate) had_waited: bool,
}

impl ClusterBarrier {
    fn new(warps: usize) -> ClusterBarrier {
        let none = vec![0; warps];
        ClusterBarrier {
            arrived: none.clone(),
            owing: none.clone(),
            waiting: none,
            pending: false,
            waited: false,
            had_waited: false,
        }
    }

    fn reset(&mut self) {
        for lanes in [&mut self.arrived, &mut self.owing, &mut self.waiting] {
            lanes.fill(0);
        }
        (self.pending, self.waited, self.had_waited) = (false, false, false);
    }

    /// Lanes arrive; an error names one that has to wait first.
    pub(crate) fn arrive(&mut self, warp: usize, lanes: u32, waited: bool) -> Result<(), u32> {
        let again = self.owing[warp] & lanes;
        if again != 0 {
            return Err(again.trailing_zeros());
        }
        self.owing[warp] |= lanes;
        self.arrived[warp] |= lanes;
        self.pending = true;
        self.waited |= waited;
        Ok(())
    }

    /// Lanes wait; returns whether the phase in which they arrived is complete. An error names one that has not
    /// arrived.
    pub(crate) fn wait(&mut self, warp: usize, lanes: u32) -> Result<bool, u32> {
        let early = lanes & !self.owing[warp];
        if early != 0 {
            return Err(early.trailing_zeros());
        }
        let complete = self.arrived[warp] & lanes == 0;
        match complete {
            true => self.owing[warp] &= !lanes,
            false => self.waiting[warp] |= lanes,
        }
        Ok(complete)
    }

    /// Whether all threads have arrived, by the lanes that each warp has left.
    pub(crate) fn is_complete(&self, mut live: impl Iterator<Item = u32>) -> bool {
        let mut arrived = self.arrived.iter();
        live.all(|lanes| arrived.next().is_some_and(|arrived| lanes & !arrived == 0))
    }

    /// Begins the next phase; returns the warps that may go on, with their lanes.
    pub(crate) fn complete(&mut self) -> Vec<(usize, u32)> {
        self.arrived.fill(0);
        self.pending = false;
        self.had_waited = std::mem::take(&mut self.waited);
        let mut released = Vec::new();
        for (warp, waiting) in self.waiting.iter_mut().enumerate().filter(|(_, waiting)| **waiting != 0) {
            let lanes = std::mem::take(waiting);
            self.owing[warp] &= !lanes;
            released.push((warp, lanes));
        }
        released
    }

    /// Whether a warp waits.
    pub(crate) fn has_waiting(&self, warp: usize) -> bool {
        self.waiting[warp] != 0
    }

    /// Lanes of a warp that have arrived in the current phase.
    pub(crate) fn arrived(&self, warp: usize) -> u32 {
        self.arrived[warp]
    }
}
