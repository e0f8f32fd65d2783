//! Release and acquire by strong accesses at their addresses.

use std::sync::MutexGuard;

use super::clock::VectorClock;
use super::detector::{ALL_RANKS, Accessor, RaceDetector};
use super::grid::{GridDetector, Locations};
use super::observed::ObservedWrites;
use super::stamp::Stamp;
use super::sync::{MemoryOrder, MemoryScope};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

/// Lock that makes a strong access of a warp to global memory atomic, from [`RaceDetector::release_at`] to
/// [`RaceDetector::acquire_at`].
pub(crate) type LocationLock<'a> = Option<MutexGuard<'a, Locations>>;

/// State space, and address of each lane.
pub(crate) type Located<'a> = (Space, &'a [u64; LANES]);

impl RaceDetector {
    /// Prepares a strong access: if the access writes, releases the lanes' clocks at the lanes' addresses.
    pub(crate) fn release_at<'a>(
        &mut self,
        grid: &'a GridDetector,
        accessor: Accessor,
        order: MemoryOrder,
        access: Access,
        (space, addresses): Located<'_>,
    ) -> LocationLock<'a> {
        let mut lock = (space == Space::Global).then(|| grid.locations());
        if access == Access::Load {
            return lock;
        }
        let (cluster, warp) = (self.sync.cluster, accessor.warp);
        for lane in lanes_of(accessor.lanes) {
            let address = addresses[lane];
            if let Some(locations) = &mut lock
                && order.scope == MemoryScope::Grid
            {
                let thread = (cluster, (warp * LANES + lane) as u32);
                locations.write(address, thread, self.sync.now(warp));
                if let Some(fenced) = self.sync.fenced_by(warp, lane as u32) {
                    locations.fence(address, &fenced);
                }
            }
            if let Some(locations) = &mut lock
                && access == Access::Store
            {
                locations.end_sequences(address);
            }
            let [to_cta, to_cluster, to_grid] = self.sync.released_by(warp, lane as u32, order);
            if let (Some(locations), Some(released)) = (&mut lock, to_grid) {
                locations.release(address, &released.by_cluster(cluster));
            }
            self.release_in_cluster(warp, (space, address), access, [to_cta, to_cluster]);
        }
        lock
    }

    /// Completes a strong access: if the access reads, acquires the clocks released at the lanes' addresses.
    pub(crate) fn acquire_at(
        &mut self,
        accessor: Accessor,
        order: MemoryOrder,
        access: Access,
        (space, addresses): Located<'_>,
        lock: LocationLock<'_>,
    ) {
        if access == Access::Store {
            return;
        }
        let warp = accessor.warp;
        for lane in lanes_of(accessor.lanes) {
            let (address, thread) = (addresses[lane], (warp, lane as u32));
            let scopes = [(self.sync.rank(warp), MemoryScope::Cta), (ALL_RANKS, MemoryScope::Cluster)];
            for (ranks, scope) in scopes {
                if scope <= order.scope
                    && let Some(released) = self.released.get(&(space, address, ranks)).cloned()
                {
                    self.sync.observe_release(thread, order.acquires, scope, &released);
                }
            }
            let Some(locations) = lock.as_ref().filter(|_| order.scope == MemoryScope::Grid) else {
                continue;
            };
            let Some(location) = locations.at(address) else { continue };
            if !location.released.is_empty() {
                let released = self.sync.clock_of_clusters(&location.released);
                self.sync.observe_release(thread, order.acquires, MemoryScope::Grid, &released);
            }
            if !location.fenced.is_empty() {
                self.sync.observe_fences(warp, lane as u32, &location.fenced);
            }
            let by = Stamp { time: self.sync.now(warp), origin: (warp * LANES + lane) as u32, pc: 0 };
            self.observe_writes(ObservedWrites { address, by, writes: location.writes.clone() });
        }
    }

    /// Releases the clocks of a strong write to the writer's CTA and cluster.
    fn release_in_cluster(
        &mut self,
        warp: usize,
        (space, address): (Space, u64),
        access: Access,
        [to_cta, to_cluster]: [Option<VectorClock>; 2],
    ) {
        let has_peers = self.sync.has_peers();
        // A store ends the earlier release sequences at its address.
        if access == Access::Store {
            self.released.remove(&(space, address, self.sync.rank(warp)));
            if has_peers {
                self.released.retain(|&(other, at, _), _| (other, at) != (space, address));
            }
        }
        if let Some(clock) = to_cta {
            self.released.entry((space, address, self.sync.rank(warp))).or_default().join(&clock);
        }
        if let Some(clock) = to_cluster.filter(|_| has_peers) {
            self.released.entry((space, address, ALL_RANKS)).or_default().join(&clock);
        }
    }

    /// Records the writes that a thread has observed at an address, unless they equal the thread's last observation at
    /// that address.
    fn observe_writes(&mut self, observed: ObservedWrites) {
        let is_same_read =
            |old: &&ObservedWrites| old.address == observed.address && old.by.origin == observed.by.origin;
        let last = self.observed.iter().rev().find(is_same_read);
        if last.is_none_or(|last| last.writes != observed.writes) {
            self.observed.push(observed);
        }
    }
}
