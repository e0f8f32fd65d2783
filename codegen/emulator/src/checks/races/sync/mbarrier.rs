//! Synchronisation by mbarriers.

use std::sync::Arc;

use super::objects::{Initialisation, MbarrierSync};
use super::scope::MemoryScope;
use super::state::SyncState;
use crate::checks::races::clock::{Time, VectorClock};

impl SyncState {
    /// The valid mbarrier at an address.
    pub(in crate::checks::races) fn mbarrier(&mut self, address: u64) -> Option<&mut MbarrierSync> {
        self.mbarriers.iter_mut().find(|mbarrier| mbarrier.is_valid && mbarrier.address == address)
    }

    /// Records that a thread (warp and lane) initialises an mbarrier.
    pub(in crate::checks::races) fn init_mbarrier(
        &mut self,
        address: u64,
        (warp, lane): (usize, u32),
        pc: u32,
    ) {
        let initialised = Initialisation { warp, lane, time: self.now(warp), pc };
        let known = self.mbarriers.iter().position(|mbarrier| mbarrier.address == address);
        let number = known.unwrap_or(self.mbarriers.len());
        let mbarrier = MbarrierSync::new(address, number, initialised);
        match self.mbarriers.get_mut(number) {
            Some(old) => *old = mbarrier,
            None => self.mbarriers.push(mbarrier),
        }
    }

    /// Makes mbarriers visible to the async proxy: those that `lanes` have initialised, or whose initialisation
    /// happened before.
    pub(in crate::checks::races) fn fence_mbarrier_inits(&mut self, warp: usize, lanes: u32) {
        let clocks = &self.warps[warp];
        for mbarrier in &mut self.mbarriers {
            let Initialisation { warp: by, lane, time, .. } = mbarrier.initialised;
            mbarrier.is_init_fenced |= by == warp && lanes >> lane & 1 != 0
                || clocks.groups_of(lanes).any(|group| group.clock.own.covers(by, 1 << lane, time));
        }
    }

    /// Records the arrival of lanes at an mbarrier, with a release at a scope. At an mbarrier of another CTA, CTA scope
    /// releases nothing.
    pub(in crate::checks::races) fn arrive_at_mbarrier(
        &mut self,
        warp: usize,
        lanes: u32,
        address: u64,
        scope: MemoryScope,
    ) {
        let warps_per_cta = self.warps_per_cta;
        let is_it = |mbarrier: &&mut MbarrierSync| mbarrier.is_valid && mbarrier.address == address;
        let Some(mbarrier) = self.mbarriers.iter_mut().find(is_it) else { return };
        let clocks = match mbarrier.initialised.warp / warps_per_cta == warp / warps_per_cta {
            true => &mut mbarrier.clocks,
            false if scope >= MemoryScope::Cluster => &mut mbarrier.peer_clocks,
            false => return,
        };
        self.warps[warp].join_into(warp, lanes, &mut clocks.arriving);
        self.advance(warp);
    }

    /// Records arrivals at an mbarrier that waited for copies. `copies` are the copies that completed in phases of other
    /// mbarriers: number of the mbarrier and time of the last completion.
    pub(in crate::checks::races) fn arrive_after_copies(&mut self, address: u64, copies: &[(usize, Time)]) {
        if copies.is_empty() {
            return;
        }
        if let Some(mbarrier) = self.mbarrier(address) {
            let clock = Arc::make_mut(&mut mbarrier.clocks.arriving.own);
            copies.iter().for_each(|&(number, time)| clock.raise_phase(number, time));
        }
    }

    /// Sets the current phase of an mbarrier to `phase`, and completes the earlier phases.
    pub(in crate::checks::races) fn set_mbarrier_phase(&mut self, address: u64, phase: u64) {
        let has_completed = |mbarrier: &MbarrierSync| {
            mbarrier.is_valid && mbarrier.address == address && mbarrier.phase != phase
        };
        let Some(number) = self.mbarriers.iter().position(has_completed) else { return };
        let time = self.tick();
        let mbarrier = &mut self.mbarriers[number];
        mbarrier.phase = phase;
        mbarrier.clocks.complete();
        Arc::make_mut(&mut mbarrier.clocks.completed.own).raise_phase(mbarrier.number, time);
        mbarrier.peer_clocks.complete();
    }

    /// Acquires, at a scope, the clocks of completed phases of an mbarrier, after lanes have found a phase complete.
    pub(in crate::checks::races) fn acquire_mbarrier(
        &mut self,
        warp: usize,
        lanes: u32,
        address: u64,
        scope: MemoryScope,
    ) {
        let acquires_peers = self.has_peers() && scope >= MemoryScope::Cluster;
        if let Some(mbarrier) = self.mbarrier(address) {
            let completed = mbarrier.clocks.completed.clone();
            let by_peers = acquires_peers.then(|| mbarrier.peer_clocks.completed.clone());
            self.acquire(warp, lanes, &completed);
            if let Some(by_peers) = by_peers {
                self.acquire(warp, lanes, &by_peers);
            }
        }
    }

    /// Acquires the completion of a phase at a time, of the mbarrier with this number.
    pub(in crate::checks::races) fn acquire_phase(
        &mut self,
        warp: usize,
        lanes: u32,
        mbarrier: usize,
        time: Time,
    ) {
        let mut completed = VectorClock::default();
        Arc::make_mut(&mut completed.own).raise_phase(mbarrier, time);
        self.acquire(warp, lanes, &completed);
    }
}
