//! Asynchronous operations of a cluster: mbarriers, and copies that complete some time after they were issued.
//!
//! A device may complete a copy at any time. The emulator completes a copy as late as the ISA allows: when a thread
//! waits for the copy. Until then the copy's bytes of shared memory are reserved, so that a missing wait is found
//! however fast a device would have been.

mod copy;
mod groups;
mod mbarrier;
mod reservations;
#[cfg(test)]
mod tests;
mod tile;
mod wgmma;

use crate::lanes::{LANES, lanes_of};
pub(crate) use copy::{AsyncCopy, Content, Reduction, Signal, StoredValue};
pub(crate) use groups::{DeferredArrival, GroupedCopies};
pub(crate) use mbarrier::{Awaited, MAX_COUNT, MBARRIER_BYTES, Mbarrier};
pub(crate) use reservations::{Reservations, Reserved, ReservedBy};
pub(crate) use tile::{Tile, TilePart};
pub(crate) use wgmma::{
    CHUNK, CommonOperands, CompletedRead, Operation, WARPS_PER_WARPGROUP, WgmmaOperations, first_in_warpgroup,
};

/// mbarriers of a cluster, and the cluster's asynchronous operations in flight.
#[derive(Default)]
pub(crate) struct AsyncOperations {
    pub(crate) mbarriers: Vec<Mbarrier>,
    /// Index in `mbarriers` of the mbarrier found last.
    last_found: usize,
    /// Copies in flight that signal an mbarrier.
    pub(crate) signalling: Vec<AsyncCopy>,
    /// `cp.async` copies of each warp.
    cp_async: Vec<GroupedCopies>,
    /// `cp.async.bulk` copies in bulk groups, of each warp.
    bulk: Vec<GroupedCopies>,
    pub(crate) arrivals: Vec<DeferredArrival>,
    /// Deferred arrivals that have taken place and that the race detector has not seen yet.
    pub(crate) arrived: Vec<DeferredArrival>,
    pub(crate) wgmma: WgmmaOperations,
}

impl AsyncOperations {
    pub(crate) fn reset(&mut self, warps_per_cta: usize) {
        self.mbarriers.clear();
        self.signalling.clear();
        self.cp_async.clear();
        self.bulk.clear();
        self.arrivals.clear();
        self.arrived.clear();
        self.wgmma.reset(warps_per_cta);
    }

    /// The mbarrier at an address.
    pub(crate) fn mbarrier(&mut self, address: u64) -> Option<&mut Mbarrier> {
        let is_it = |mbarrier: &Mbarrier| mbarrier.address == address;
        // Consecutive look-ups are mostly of the same mbarrier.
        if !self.mbarriers.get(self.last_found).is_some_and(is_it) {
            self.last_found = self.mbarriers.iter().position(is_it)?;
        }
        self.mbarriers.get_mut(self.last_found)
    }

    /// Initialises an mbarrier; a phase completes after `count` arrivals.
    pub(crate) fn init(&mut self, address: u64, count: u32) {
        self.mbarriers.push(Mbarrier::new(address, count));
    }

    /// What forbids an access of a range, if anything does: an mbarrier, or an operation in flight. An operation that reads the range
    /// forbids writes alone.
    pub(crate) fn reserved_by(&self, (address, bytes): (u64, u64), writes: bool) -> Option<ReservedBy> {
        let overlaps = |m: &&Mbarrier| m.address < address + bytes && address < m.address + MBARRIER_BYTES;
        if self.mbarriers.iter().any(|mbarrier| overlaps(&mbarrier)) {
            return Some(ReservedBy::Mbarrier);
        }
        let meets = |&(start, size): &(u64, u64)| start < address + bytes && address < start + size;
        let reads = |(_, part): &(usize, &wgmma::Operation)| part.reads.iter().any(meets);
        if writes && let Some((_, part)) = self.wgmma.in_flight().find(reads) {
            return Some(ReservedBy::Wgmma(part.pc));
        }
        let forbids =
            |copy: &&AsyncCopy| copy.overlaps(address, bytes) && (writes || copy.writes(address, bytes));
        let copy = self.copies().find(forbids)?;
        Some(match copy.writes(address, bytes) {
            true => ReservedBy::CopyTarget(copy.pc),
            false => ReservedBy::CopySource(copy.pc),
        })
    }

    /// All copies in flight.
    fn copies(&self) -> impl Iterator<Item = &AsyncCopy> {
        let grouped = self.cp_async.iter().chain(&self.bulk).flat_map(|warp| &warp.in_flight);
        self.signalling.iter().chain(grouped)
    }

    /// Warp, lane and instruction of an operation in flight, if there is one.
    pub(crate) fn in_flight(&self) -> Option<(usize, u32, usize)> {
        let copy = self.copies().map(|copy| (copy.warp, copy.lanes.trailing_zeros(), copy.pc)).next();
        let arrival = || self.arrivals.first().map(|a| (a.warp, a.lanes.trailing_zeros(), a.pc));
        let wgmma = || self.wgmma.in_flight().map(|(warp, part)| (warp, 0, part.pc)).next();
        copy.or_else(arrival).or_else(wgmma)
    }

    /// Completes the bulk stores to global memory that are in flight.
    pub(crate) fn complete_stores(&mut self, shared: &mut Reserved<'_>) {
        for warp in &mut self.bulk {
            warp.complete(shared, |copy| if copy.into_shared { 0 } else { copy.lanes });
        }
    }

    /// Warp, lane and instruction of a copy in flight into shared memory for which `is_there` accepts the target
    /// address, or the source address if the source is in shared memory as well.
    pub(crate) fn in_flight_at(&self, is_there: impl Fn(u64) -> bool) -> Option<(usize, u32, usize)> {
        let copy = self.copies().find(|copy| {
            copy.into_shared && is_there(copy.shared) || copy.from_shared.is_some_and(&is_there)
        });
        copy.map(|copy| (copy.warp, copy.lanes.trailing_zeros(), copy.pc))
    }

    /// Hash of the states of all mbarriers. An unchanged hash means that no mbarrier made progress.
    pub(crate) fn mbarrier_hash(&self) -> u64 {
        self.mbarriers.iter().fold(0, |hash, mbarrier| {
            let state = mbarrier.state() ^ (mbarrier.transactions as u64).rotate_left(40);
            (hash ^ state).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        })
    }

    /// Whether a copy or a deferred arrival in flight will signal the mbarrier.
    pub(crate) fn signals(&self, mbarrier: u64) -> bool {
        self.signalling.iter().any(|copy| copy.signal == Signal::Mbarrier(mbarrier))
            || self.arrivals.iter().any(|arrival| arrival.mbarrier == mbarrier)
    }

    /// Marks as due the copies and deferred arrivals that will signal an mbarrier, after a wait for the mbarrier has
    /// failed.
    pub(crate) fn make_due(&mut self, mbarrier: u64) {
        for copy in self.signalling.iter_mut().filter(|copy| copy.signal == Signal::Mbarrier(mbarrier)) {
            copy.is_due = true;
        }
        for arrival in self.arrivals.iter_mut().filter(|arrival| arrival.mbarrier == mbarrier) {
            arrival.is_due = true;
        }
    }

    /// Completes the due copies and deferred arrivals that signal an mbarrier, until a phase completes. Copies that the phase did
    /// not wait for stay in flight until another wait for the mbarrier fails.
    pub(crate) fn complete_due(&mut self, shared: &mut Reserved<'_>, address: u64) -> Result<(), String> {
        let is_any_due = self.signalling.iter().any(|copy| copy.is_due)
            || self.arrivals.iter().any(|arrival| arrival.is_due);
        if !is_any_due {
            return Ok(());
        }
        let is_due = |copy: &AsyncCopy| copy.is_due && copy.signal == Signal::Mbarrier(address);
        let mut released = Vec::new();
        while let Some(index) = self.signalling.iter().position(is_due) {
            let copy = self.signalling.remove(index);
            released.extend(copy.shared_source());
            shared.complete(&copy);
            let Some(mbarrier) = self.mbarrier(address) else { continue };
            let phase = mbarrier.phase;
            mbarrier.add_transactions(-(copy.bytes as i64))?;
            if mbarrier.phase != phase {
                self.signalling.iter_mut().filter(|copy| is_due(copy)).for_each(|copy| copy.is_due = false);
            }
        }
        self.reserve_read(shared, &released);
        let is_due = |arrival: &mut DeferredArrival| arrival.is_due && arrival.mbarrier == address;
        let due: Vec<DeferredArrival> = self.arrivals.extract_if(.., is_due).collect();
        for arrival in due {
            let earlier = |copy: &AsyncCopy| if copy.sequence < arrival.sequence { arrival.lanes } else { 0 };
            self.groups(arrival.warp, false).complete(shared, earlier);
            for _ in lanes_of(arrival.lanes) {
                if let Some(mbarrier) = self.mbarrier(address) {
                    mbarrier.arrive(1, false)?;
                }
            }
            if shared.completed.is_some() {
                self.arrived.push(arrival);
            }
        }
        Ok(())
    }

    /// Grouped copies of a warp: `cp.async.bulk` copies if `bulk`, else `cp.async` copies.
    pub(crate) fn groups(&mut self, warp: usize, bulk: bool) -> &mut GroupedCopies {
        let warps = if bulk { &mut self.bulk } else { &mut self.cp_async };
        if warps.len() <= warp {
            warps.resize_with(warp + 1, GroupedCopies::default);
        }
        &mut warps[warp]
    }

    /// Completes, for each lane of a warp, the copies in groups numbered below the lane's limit.
    pub(crate) fn wait_groups(
        &mut self,
        shared: &mut Reserved<'_>,
        (warp, bulk): (usize, bool),
        limits: &[u32; LANES],
    ) {
        let lanes_below =
            |group: u32| (0..LANES).fold(0, |lanes, lane| lanes | ((group < limits[lane]) as u32) << lane);
        let done = |copy: &AsyncCopy| match copy.signal {
            Signal::Group(group) => lanes_below(group),
            Signal::Mbarrier(_) => 0,
        };
        let groups = self.groups(warp, bulk);
        let completed = groups.in_flight.iter().filter(|copy| done(copy) & copy.lanes != 0);
        let released: Vec<_> = completed.filter_map(AsyncCopy::shared_source).collect();
        groups.complete(shared, done);
        self.reserve_read(shared, &released);
    }

    /// Restores the reservations of released ranges that operations in flight still read: several operations may read
    /// the same bytes.
    pub(crate) fn reserve_read(&self, shared: &mut Reserved<'_>, released: &[(u64, u64)]) {
        if released.is_empty() {
            return;
        }
        let copies = self.signalling.iter().chain(self.bulk.iter().flat_map(|warp| &warp.in_flight));
        for (start, bytes) in copies.filter_map(AsyncCopy::shared_source) {
            if released.iter().any(|&(other, size)| start < other + size && other < start + bytes) {
                shared.reserve(start, bytes, false);
            }
        }
        for chunk in released.iter().flat_map(|&range| self.wgmma.read_chunks(range)) {
            shared.reserve(chunk, CHUNK, false);
        }
    }
}
