//! What the warps of one cluster share: shared memory and barriers. Most clusters are of one CTA.

use crate::checks::races::Races;
use crate::context::asynchronous::{Asynchronous, Copy, Reservations, Reserved};
use crate::context::cluster::Cluster;
use crate::exec::Launch;
use crate::finding::Neighbour;
use crate::memory::{InitMap, Zeroed};

/// `bar.red`'s operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduction {
    Popc,
    And,
    Or,
}

impl Reduction {
    pub(crate) const NAMES: [(&'static str, Reduction); 3] =
        [("popc", Reduction::Popc), ("and", Reduction::And), ("or", Reduction::Or)];

    /// Never 0.
    pub(crate) fn code(self) -> u64 {
        self as u64 + 1
    }

    pub(crate) fn from_code(code: u64) -> Option<Reduction> {
        Reduction::NAMES.iter().map(|&(_, reduction)| reduction).find(|reduction| reduction.code() == code)
    }
}

/// A warp at a barrier.
pub(crate) struct Arrival {
    pub(crate) warp: usize,
    pub(crate) waits: bool,
    /// Whether a lane of it has waited for the launches before this one.
    pub(crate) waited: bool,
    /// How many warps the barrier is for.
    pub(crate) warps: u32,
    /// Threads whose predicate holds, and whose does not.
    pub(crate) trues: u32,
    pub(crate) falses: u32,
    /// Where the result of a reduction goes.
    pub(crate) result: Option<(Reduction, u32)>,
}

#[derive(Default)]
struct Barrier {
    warps: u32,
    waited: bool,
    arrived: Vec<usize>,
    waiting: Vec<(usize, Option<(Reduction, u32)>)>,
    trues: u32,
    falses: u32,
}

/// A warp that a completed barrier lets go, and what its reduction's destination gets.
pub(crate) struct Release {
    pub(crate) warp: usize,
    /// Whether one of those that arrived has waited for the launches before this one.
    pub(crate) waited: bool,
    pub(crate) result: Option<(Reduction, u32, u32)>,
}

/// The shared memory of a cluster's CTAs.
pub(crate) struct Shared {
    pub(crate) bytes: u64,
    data: Zeroed,
    pub(crate) map: InitMap,
    /// What mbarriers and copies in flight occupy.
    pub(crate) reservations: Reservations,
}

impl Shared {
    #[inline(always)]
    pub(crate) fn pointer(&self, address: u64) -> *mut u8 {
        self.data.pointer().wrapping_add(address as usize)
    }
}

/// Barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// The CTAs of one cluster, their warps apart. Warps are numbered through all of them.
pub(crate) struct CtaState {
    /// The cluster's position in the grid's order, and `%ctaid` of its CTAs.
    pub(crate) index: u64,
    pub(crate) at: Vec<[u32; 3]>,
    /// Warps of a CTA.
    pub(crate) warps: usize,
    pub(crate) cluster: Cluster,
    pub(crate) shared: Shared,
    barriers: Vec<Barrier>,
    pub(crate) asynchronous: Asynchronous,
    pub(crate) released: Vec<Release>,
    /// Who accessed what, if races are looked for, and the copies completed since that was told.
    pub(crate) races: Option<Box<Races>>,
    pub(crate) finished: Vec<Copy>,
    /// Whether a thread has waited for the launches before this one, and whether one has let the next
    /// start.
    pub(crate) waited: bool,
    pub(crate) triggered: bool,
}

impl CtaState {
    /// `size` CTAs of so many warps and bytes of shared memory each.
    pub(crate) fn new(size: usize, warps: usize, bytes: u64) -> CtaState {
        let cluster = Cluster::new(size, warps, bytes);
        let all = cluster.all_bytes();
        CtaState {
            index: 0,
            at: vec![[0; 3]; size],
            warps,
            cluster,
            shared: Shared {
                bytes: all,
                data: Zeroed::new(all as usize),
                map: InitMap::private(all),
                reservations: Reservations::default(),
            },
            barriers: (0..size * BARRIERS).map(|_| Barrier::default()).collect(),
            asynchronous: Asynchronous::default(),
            released: Vec::new(),
            races: None,
            finished: Vec::new(),
            waited: false,
            triggered: false,
        }
    }

    pub(crate) fn reset(&mut self, index: u64) {
        self.index = index;
        self.cluster.reset();
        self.shared.map.clear();
        self.shared.reservations.clear();
        self.asynchronous.reset();
        self.barriers.iter_mut().for_each(|barrier| *barrier = Barrier::default());
        self.released.clear();
        self.finished.clear();
        if let Some(races) = &mut self.races {
            races.start(index, [self.cluster.size, self.warps], self.shared.bytes);
        }
        (self.waited, self.triggered) = (false, false);
    }

    /// What is under way, and the shared memory that it concerns.
    pub(crate) fn under_way(&mut self, checks: bool) -> (&mut Asynchronous, Reserved<'_>) {
        let Shared { bytes, map, reservations, .. } = &mut self.shared;
        let finished = self.races.is_some().then_some(&mut self.finished);
        (&mut self.asynchronous, Reserved { bytes: *bytes, map, reservations, checks, finished })
    }

    /// The rank in the cluster of a warp's CTA.
    #[inline(always)]
    pub(crate) fn rank(&self, warp: usize) -> usize {
        if self.cluster.has_peers() { warp / self.warps } else { 0 }
    }

    /// A warp by its number in its CTA, and by that if there are others.
    pub(crate) fn warp_name(&self, warp: usize) -> String {
        match self.cluster.has_peers() {
            true => format!("warp {} of the CTA of rank {}", warp % self.warps, self.rank(warp)),
            false => format!("warp {warp}"),
        }
    }

    /// A warp arrives. When it is the last, all that wait are put on `released`.
    pub(crate) fn arrive(&mut self, id: usize, arrival: Arrival) -> Result<(), String> {
        let barrier = &mut self.barriers[id];
        if barrier.arrived.is_empty() {
            barrier.warps = arrival.warps;
        } else if barrier.warps != arrival.warps {
            return Err(format!(
                "barrier {} is for {} threads here and for {} where warp {} arrived",
                id % BARRIERS,
                arrival.warps * 32,
                barrier.warps * 32,
                barrier.arrived[0] % self.warps
            ));
        }
        barrier.arrived.push(arrival.warp);
        barrier.waited |= arrival.waited;
        barrier.trues += arrival.trues;
        barrier.falses += arrival.falses;
        if arrival.waits {
            barrier.waiting.push((arrival.warp, arrival.result));
        }
        if barrier.arrived.len() < barrier.warps as usize {
            return Ok(());
        }
        let done = std::mem::take(barrier);
        self.released.extend(done.waiting.into_iter().map(|(warp, result)| Release {
            warp,
            waited: done.waited,
            result: result.map(|(reduction, slot)| {
                let value = match reduction {
                    Reduction::Popc => done.trues,
                    Reduction::And => (done.falses == 0) as u32,
                    Reduction::Or => (done.trues != 0) as u32,
                };
                (reduction, slot, value)
            }),
        }));
        Ok(())
    }

    /// Whether no thread is at a barrier.
    pub(crate) fn is_idle(&self, id: usize) -> bool {
        self.barriers[id].arrived.is_empty()
    }

    /// The barrier that a warp waits at, the threads it is for, and how many have arrived.
    pub(crate) fn waits_at(&self, warp: usize) -> Option<(usize, u32, usize)> {
        self.barriers.iter().enumerate().find_map(|(id, barrier)| {
            let waits = barrier.waiting.iter().any(|&(waiting, _)| waiting == warp);
            waits.then_some((id, barrier.warps * 32, barrier.arrived.len() * 32))
        })
    }

    /// An address of shared memory with the variable that it lies in.
    pub(crate) fn shared_name(&self, launch: &Launch<'_>, address: u64) -> String {
        let variables = launch.kernel.shared_variables(launch.dynamic_shared);
        let (rank, offset) = self.cluster.locate(address);
        let whose =
            if self.cluster.has_peers() { format!(" of the CTA of rank {rank}") } else { String::new() };
        match variables.iter().find(|(_, base, size)| offset.wrapping_sub(*base) < *size) {
            Some((name, base, _)) if *base == offset => format!("{address:#x} (`{name}`{whose})"),
            Some((name, base, _)) => format!("{address:#x} (`{name}` + {}{whose})", offset - base),
            None => format!("{address:#x}"),
        }
    }

    /// The shared variable closest to an access.
    pub(crate) fn nearest_shared(&self, launch: &Launch<'_>, address: u64, bytes: u64) -> Option<Neighbour> {
        let variables = launch.kernel.shared_variables(launch.dynamic_shared);
        let start = self.cluster.base(self.cluster.locate(address).0);
        variables
            .into_iter()
            .map(|(name, offset, size)| (name, start + offset, size))
            .map(|(name, base, size)| Neighbour {
                name,
                base,
                bytes: size,
                outside: if address < base {
                    -((base - address) as i64)
                } else {
                    address.wrapping_add(bytes).saturating_sub(base + size) as i64
                },
                access: bytes,
                freed: false,
            })
            .min_by_key(|neighbour| neighbour.outside.unsigned_abs())
    }
}
