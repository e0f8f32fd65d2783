//! State that the warps of a cluster share: shared memory, barriers and asynchronous operations.
//!
//! A worker runs one cluster at a time; a launch without clusters has clusters of one CTA. Warps are numbered through
//! all CTAs of the cluster.

use std::collections::HashMap;

use super::barrier::{Arrival, Barrier, ClusterBarrier, Release};
use super::fault::Fault;
use super::registers::RegisterPools;
use super::tensor_maps::AcquiredMaps;
use crate::asynchronous::{AsyncCopy, AsyncOperations, Reservations, Reserved};
use crate::checks::races::RaceDetector;
use crate::checks::read_only::ReadOnlyAccesses;
use crate::code::program::RESERVED_SHARED;
use crate::finding::Neighbour;
use crate::geometry::{BARRIERS, SharedLayout};
use crate::lanes::LANES;
use crate::memory::{InitMap, PlacedVariable, ZeroedBytes};

/// Shared memory of a cluster's CTAs.
pub(crate) struct SharedMemory {
    pub(crate) bytes: u64,
    data: ZeroedBytes,
    pub(crate) map: InitMap,
    /// Bytes of mbarriers and of copies in flight, which ordinary accesses must not use.
    pub(crate) reservations: Reservations,
}

impl SharedMemory {
    #[inline(always)]
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        self.data.pointer().wrapping_add(address as usize)
    }
}

/// A named barrier at which a warp waits.
pub(crate) struct BarrierWait {
    /// Number of the barrier in the warp's CTA.
    pub(crate) id: usize,
    pub(crate) threads: u32,
    pub(crate) arrived: usize,
}

/// State of a cluster, without its warps.
pub(crate) struct ClusterState {
    /// The cluster's index in the grid.
    pub(crate) index: u64,
    /// `%ctaid` of each CTA.
    pub(crate) at: Vec<[u32; 3]>,
    /// Number of warps per CTA.
    pub(crate) warps: usize,
    pub(crate) layout: SharedLayout,
    /// Mask, one bit per CTA rank, of the CTAs whose threads have all exited.
    pub(crate) exited: u32,
    pub(crate) shared: SharedMemory,
    pub(crate) acquired_maps: AcquiredMaps,
    /// For each address of shared memory at which an uninitialised byte was stored, the read that the byte comes from.
    pub(crate) stored_uninitialised: HashMap<u64, Fault>,
    variables: Vec<PlacedVariable>,
    barriers: Vec<Barrier>,
    pub(crate) cluster_barrier: ClusterBarrier,
    pub(crate) asynchronous: AsyncOperations,
    pub(crate) registers: RegisterPools,
    pub(crate) released: Vec<Release>,
    /// The race detector, if races are checked.
    pub(crate) races: Option<Box<RaceDetector>>,
    /// Reads with `.nc` and writes, if races are checked and the kernel loads with `.nc`.
    pub(crate) read_only: Option<ReadOnlyAccesses>,
    /// Copies that have completed since the race detector was last informed.
    pub(crate) completed: Vec<AsyncCopy>,
    /// Whether a thread of the cluster has executed `griddepcontrol.wait`.
    pub(crate) waited: bool,
    /// Whether a thread of the cluster has executed `griddepcontrol.launch_dependents`.
    pub(crate) triggered: bool,
}

impl ClusterState {
    /// State of `layout.ctas` CTAs of `warps` warps each.
    pub(crate) fn new(layout: SharedLayout, warps: usize, variables: Vec<PlacedVariable>) -> ClusterState {
        let bytes = layout.total_bytes();
        ClusterState {
            index: 0,
            at: vec![[0; 3]; layout.ctas],
            warps,
            layout,
            exited: 0,
            shared: SharedMemory {
                bytes,
                data: ZeroedBytes::new(bytes as usize),
                map: InitMap::private(bytes),
                reservations: Reservations::default(),
            },
            variables,
            barriers: (0..layout.ctas * BARRIERS).map(|_| Barrier::default()).collect(),
            cluster_barrier: ClusterBarrier::new(layout.ctas * warps),
            acquired_maps: AcquiredMaps::default(),
            stored_uninitialised: HashMap::new(),
            asynchronous: AsyncOperations::default(),
            registers: RegisterPools::default(),
            released: Vec::new(),
            races: None,
            read_only: None,
            completed: Vec::new(),
            waited: false,
            triggered: false,
        }
    }

    /// Resets the state for the cluster with index `index` in the grid.
    pub(crate) fn reset(&mut self, index: u64) {
        self.index = index;
        self.exited = 0;
        self.cluster_barrier.reset();
        self.shared.map.clear();
        self.shared.reservations.clear();
        self.acquired_maps.clear();
        self.stored_uninitialised.clear();
        self.asynchronous.reset(self.warps);
        self.barriers.iter_mut().for_each(|barrier| *barrier = Barrier::default());
        self.released.clear();
        self.completed.clear();
        if let Some(races) = &mut self.races {
            races.start(index, [self.layout.ctas, self.warps], self.shared.bytes);
        }
        if let Some(accesses) = &mut self.read_only {
            accesses.clear();
        }
        (self.waited, self.triggered) = (false, false);
    }

    /// Forbids accesses between the shared variables of each CTA.
    pub(crate) fn reserve_guards(&mut self) {
        let guards: Vec<(u64, u64)> = self
            .variables
            .windows(2)
            .map(|two| (two[0].offset + two[0].bytes, two[1].offset))
            // A reservation covers whole words.
            .map(|(end, start)| (end.next_multiple_of(4), start / 4 * 4))
            .filter(|(end, start)| end < start)
            .collect();
        for rank in 0..self.layout.ctas {
            let base = self.layout.base(rank);
            let reserved = &mut self.asynchronous_and_shared(true).1;
            guards.iter().for_each(|&(start, end)| reserved.reserve(base + start, end - start, false));
        }
    }

    /// Fills the memory that is reserved for the system, at an offset in each CTA's shared memory, with zeros.
    pub(crate) fn clear_reserved(&mut self, offset: u64) {
        for rank in 0..self.layout.ctas {
            let at = self.layout.base(rank) + offset;
            // SAFETY: the reserved memory is inside the CTA's shared memory, which only this thread accesses.
            unsafe { self.shared.pointer(at).write_bytes(0, RESERVED_SHARED as usize) };
            self.shared.map.mark(at, RESERVED_SHARED);
        }
    }

    /// Whether some bytes of an access are in none of the shared variables.
    pub(crate) fn is_between_variables(&self, address: u64, bytes: u64) -> bool {
        let (rank, offset) = self.layout.locate(address);
        let contains = |variable: &PlacedVariable| {
            offset >= variable.offset && offset + bytes <= variable.offset + variable.bytes
        };
        rank < self.layout.ctas && !self.variables.is_empty() && !self.variables.iter().any(contains)
    }

    /// Whether the cluster has more than one CTA.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.layout.ctas > 1
    }

    /// The asynchronous operations, and the shared memory that they reserve.
    pub(crate) fn asynchronous_and_shared(&mut self, checks: bool) -> (&mut AsyncOperations, Reserved<'_>) {
        let SharedMemory { bytes, map, reservations, .. } = &mut self.shared;
        let completed = self.races.is_some().then_some(&mut self.completed);
        (&mut self.asynchronous, Reserved { bytes: *bytes, map, reservations, checks, completed })
    }

    /// The rank in the cluster of a warp's CTA.
    #[inline(always)]
    pub(crate) fn rank(&self, warp: usize) -> usize {
        if self.has_peers() { warp / self.warps } else { 0 }
    }

    /// Name of a warp in findings: the warp's number in its CTA, and the CTA's rank if the cluster has several CTAs.
    pub(crate) fn warp_name(&self, warp: usize) -> String {
        match self.has_peers() {
            true => format!("warp {} of the CTA of rank {}", warp % self.warps, self.rank(warp)),
            false => format!("warp {warp}"),
        }
    }

    /// Records a warp's arrival at barrier `id` of its CTA. The last arrival adds all waiting warps to `released`.
    pub(crate) fn arrive(&mut self, id: usize, arrival: Arrival) -> Result<(), String> {
        let threads = arrival.warps * LANES as u32;
        let barrier = self.rank(arrival.warp) * BARRIERS + id;
        self.barriers[barrier].arrive(arrival, &mut self.released).map_err(|first| {
            format!(
                "barrier {id} is for {threads} threads here and for {} where warp {} arrived",
                first.threads,
                first.warp % self.warps
            )
        })
    }

    /// Completes the barriers of a CTA that wait only for warps that have exited, and adds the waiting warps to `released`.
    /// `live` warps of the CTA have not exited.
    pub(crate) fn complete_without_exited(&mut self, rank: usize, live: usize) {
        for index in rank * BARRIERS..(rank + 1) * BARRIERS {
            if self.barriers[index].waits_for_exited(live) {
                let first = self.released.len();
                self.barriers[index].complete(&mut self.released);
                if let Some(races) = &mut self.races {
                    races.complete_barrier(index, self.released[first..].iter().map(|release| release.warp));
                }
            }
        }
    }

    /// Whether no warp has arrived at barrier `id` of a warp's CTA.
    pub(crate) fn is_idle(&self, warp: usize, id: usize) -> bool {
        self.barriers[self.rank(warp) * BARRIERS + id].is_idle()
    }

    /// The named barrier at which a warp waits.
    pub(crate) fn waits_at(&self, warp: usize) -> Option<BarrierWait> {
        let (index, barrier) =
            self.barriers.iter().enumerate().find(|(_, barrier)| barrier.has_waiting(warp))?;
        let (threads, arrived) = barrier.threads();
        Some(BarrierWait { id: index % BARRIERS, threads, arrived })
    }

    /// Name of a shared memory address in findings: the address, and the variable that contains the address.
    pub(crate) fn shared_name(&self, address: u64) -> String {
        let (rank, offset) = self.layout.locate(address);
        let whose = if self.has_peers() { format!(" of the CTA of rank {rank}") } else { String::new() };
        let contains = |variable: &&PlacedVariable| offset.wrapping_sub(variable.offset) < variable.bytes;
        match self.variables.iter().find(contains) {
            Some(PlacedVariable { name, offset: start, .. }) => match offset - start {
                0 => format!("{address:#x} (`{name}`{whose})"),
                inside => format!("{address:#x} (`{name}` + {inside}{whose})"),
            },
            None => format!("{address:#x}"),
        }
    }

    /// The shared variable closest to an access.
    pub(crate) fn nearest_shared(&self, address: u64, bytes: u64) -> Option<Neighbour> {
        let start = self.layout.base(self.layout.locate(address).0);
        let neighbour = |variable: &PlacedVariable| {
            Neighbour::new(&variable.name, (start + variable.offset, variable.bytes), (address, bytes))
        };
        self.variables.iter().map(neighbour).min_by_key(|neighbour| neighbour.outside.unsigned_abs())
    }
}
