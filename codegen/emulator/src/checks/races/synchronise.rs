//! Synchronisation of threads by fences, barriers and mbarriers.

use super::detector::RaceDetector;
use super::fence_op::FenceOp;
use super::sync::{Initialisation, LastUse, MemoryScope};
use crate::lanes::{LANES, lanes_of};

/// Use of an mbarrier whose initialisation did not happen before the use.
pub(crate) struct UnorderedInit {
    /// Lane that uses the mbarrier.
    pub(crate) lane: usize,
    /// Number in the cluster of the thread that initialised the mbarrier; `pc` is the initialising instruction.
    pub(crate) thread: usize,
    pub(crate) pc: u32,
}

/// Use of an mbarrier that did not happen before the mbarrier's invalidation.
pub(crate) struct UnorderedUse {
    /// Number in the cluster of the thread that used the mbarrier; `pc` is its instruction.
    pub(crate) thread: usize,
    pub(crate) pc: u32,
    pub(crate) arrives: bool,
}

impl RaceDetector {
    /// Executes a fence by lanes of a warp.
    pub(crate) fn fence(&mut self, warp: usize, lanes: u32, fence: FenceOp) {
        match fence {
            FenceOp::Memory { scope, sides } => self.sync.fence(warp, lanes, scope, sides),
            FenceOp::GridSc => self.sync.fence_sc(warp, lanes),
            FenceOp::AsyncProxy { spaces } => self.sync.fence_async_proxy(warp, lanes, spaces),
            FenceOp::MbarrierInit => self.sync.fence_mbarrier_inits(warp, lanes),
            FenceOp::Other => {}
        }
    }

    /// Executes `bar.warp.sync` by lanes of a warp.
    pub(crate) fn sync_lanes(&mut self, warp: usize, lanes: u32) {
        self.sync.sync_lanes(warp, lanes);
    }

    /// Records a warp's arrival at a CTA barrier, which is numbered through the CTAs of the cluster.
    pub(crate) fn arrive_at_barrier(&mut self, warp: usize, barrier: usize) {
        self.sync.arrive_at_barrier(warp, barrier);
    }

    /// Completes a CTA barrier, which releases the warps `released`.
    pub(crate) fn complete_barrier(&mut self, barrier: usize, released: impl Iterator<Item = usize>) {
        self.sync.complete_barrier(barrier, released);
    }

    /// Records that a thread (warp and lane) initialises an mbarrier.
    pub(crate) fn init_mbarrier(&mut self, address: u64, thread: (usize, u32), pc: usize) {
        self.sync.init_mbarrier(address, thread, pc as u32);
    }

    /// Invalidates an mbarrier, whose bytes become ordinary memory again. Checks that all uses of the mbarrier happened
    /// before the invalidation by a thread (warp and lane).
    pub(crate) fn invalidate_mbarrier(
        &mut self,
        address: u64,
        (warp, lane): (usize, u32),
    ) -> Result<(), UnorderedUse> {
        let Some(mbarrier) = self.sync.mbarrier(address) else { return Ok(()) };
        mbarrier.is_valid = false;
        let uses = std::mem::take(&mut mbarrier.uses);
        let clocks = self.sync.accessor(warp, 1 << lane, 0, 0);
        for LastUse { warp: by, lanes, time, pc, arrives } in uses {
            let own = if by == warp { 1 << lane } else { 0 };
            let is_ordered = |user: &usize| clocks.all(|clock| clock.covers(by, 1 << user, time));
            if let Some(user) = lanes_of(lanes & !own).find(|user| !is_ordered(user)) {
                return Err(UnorderedUse { thread: by * LANES + user, pc, arrives });
            }
        }
        Ok(())
    }

    /// Checks and records a use of an mbarrier by lanes of a warp. If `releases` is a scope, also records the lanes'
    /// arrival with a release at that scope.
    pub(crate) fn use_mbarrier(
        &mut self,
        (warp, lanes, pc): (usize, u32, usize),
        address: u64,
        releases: Option<MemoryScope>,
    ) -> Result<(), UnorderedInit> {
        let now = self.sync.now(warp);
        let Some(mbarrier) = self.sync.mbarrier(address) else { return Ok(()) };
        let (init, number) = (mbarrier.initialised, mbarrier.number);
        mbarrier.record_use(LastUse { warp, lanes, time: now, pc: pc as u32, arrives: releases.is_some() });
        let Initialisation { warp: by, lane: by_lane, time, pc } = init;
        let own_lane = if by == warp { 1 << by_lane } else { 0 };
        let others = lanes & !own_lane;
        let clocks = self.sync.accessor(warp, others, 0, 0);
        if !clocks.all(|clock| clock.covers(by, 1 << by_lane, time))
            && !self.sync.is_init_visible(warp, &self.sync.mbarriers[number])
        {
            let is_ordered = |lane: usize| {
                clocks.clock(lane as u32).is_some_and(|clock| clock.covers(by, 1 << by_lane, time))
            };
            let lane = lanes_of(others).find(|&lane| !is_ordered(lane)).unwrap_or_default();
            return Err(UnorderedInit { lane, thread: by * LANES + by_lane as usize, pc });
        }
        if let Some(scope) = releases {
            self.sync.arrive_at_mbarrier(warp, lanes, address, scope);
        }
        Ok(())
    }

    /// Records arrivals at an mbarrier that waited for copies; `copies` are those that completed in phases of other
    /// mbarriers: number of the mbarrier and time of the last completion.
    pub(crate) fn arrive_after_copies(&mut self, address: u64, copies: &[(usize, u32)]) {
        self.sync.arrive_after_copies(address, copies);
    }

    /// Sets the current phase of an mbarrier.
    pub(crate) fn set_mbarrier_phase(&mut self, address: u64, phase: u64) {
        self.sync.set_mbarrier_phase(address, phase);
    }

    /// Acquires, at a scope, from the mbarrier at each lane's address, after the lanes have found phases complete.
    pub(crate) fn acquire_mbarriers(
        &mut self,
        warp: usize,
        lanes: u32,
        addresses: &[u64; LANES],
        scope: MemoryScope,
    ) {
        let mut left = lanes;
        while left != 0 {
            let address = addresses[left.trailing_zeros() as usize];
            let equal = |all, (lane, &other): (usize, &u64)| all | ((other == address) as u32) << lane;
            let same = left & addresses.iter().enumerate().fold(0, equal);
            self.sync.acquire_mbarrier(warp, same, address, scope);
            left &= !same;
        }
    }

    /// Records the arrival of lanes at the cluster barrier; `releases` is false for `.relaxed`.
    pub(crate) fn arrive_in_cluster(&mut self, warp: usize, lanes: u32, releases: bool) {
        self.sync.arrive_in_cluster(warp, lanes, releases);
    }

    /// Acquires the clocks released at the cluster barrier, after lanes have waited there.
    pub(crate) fn acquire_cluster_barrier(&mut self, warp: usize, lanes: u32) {
        self.sync.acquire_cluster_barrier(warp, lanes);
    }

    /// Completes a phase of the cluster barrier, which releases the waiting warps and lanes `released`.
    pub(crate) fn complete_cluster_barrier(&mut self, released: &[(usize, u32)]) {
        self.sync.complete_cluster_barrier();
        for &(warp, lanes) in released {
            self.sync.acquire_cluster_barrier(warp, lanes);
        }
    }
}
