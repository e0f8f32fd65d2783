//! Synchronisation of threads: fences, barriers and mbarriers.

use super::detector::Races;
use super::sync::Scope;
use crate::lanes::{LANES, lanes_of};

/// What a fence instruction does for other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum FenceKind {
    /// A fence of the CTA's scope.
    Cta = 0,
    /// A fence of a wider scope.
    Wide = 1,
    /// Between instructions and the engine of bulk copies.
    Engine = 2,
    /// Of what initialised mbarriers.
    MbarrierInit = 3,
    /// Of something that is not modelled.
    Other = 4,
    /// A fence of the cluster's scope.
    Cluster = 5,
}

impl FenceKind {
    fn of(code: u64) -> FenceKind {
        match code {
            0 => FenceKind::Cta,
            1 => FenceKind::Wide,
            2 => FenceKind::Engine,
            3 => FenceKind::MbarrierInit,
            5 => FenceKind::Cluster,
            _ => FenceKind::Other,
        }
    }
}

/// A use of an mbarrier that nothing orders with its initialisation.
pub(crate) struct UnorderedInit {
    /// The lane that uses it.
    pub(crate) lane: usize,
    /// The number in the cluster of the thread that initialised it, and the instruction.
    pub(crate) thread: usize,
    pub(crate) pc: u32,
}

impl Races {
    /// A fence by lanes of a warp; `code` is its [`FenceKind`].
    pub(crate) fn fence(&mut self, warp: usize, lanes: u32, code: u64) {
        match FenceKind::of(code) {
            FenceKind::Cta => self.sync.fence(warp, lanes, Scope::Cta),
            FenceKind::Cluster => self.sync.fence(warp, lanes, Scope::Cluster),
            FenceKind::Wide => self.sync.fence(warp, lanes, Scope::Wide),
            FenceKind::Engine => self.sync.fence_engine(warp, lanes),
            FenceKind::MbarrierInit => self.sync.fence_inits(warp, lanes),
            FenceKind::Other => {}
        }
    }

    /// Lanes of a warp have met at `bar.warp.sync`.
    pub(crate) fn meet(&mut self, warp: usize, lanes: u32) {
        self.sync.meet(warp, lanes);
    }

    /// A warp arrives at barrier `barrier`, counted through the CTAs of the cluster.
    pub(crate) fn arrive(&mut self, warp: usize, barrier: usize) {
        self.sync.arrive(warp, barrier);
    }

    /// A barrier is complete: `released` may continue.
    pub(crate) fn leave(&mut self, barrier: usize, released: impl Iterator<Item = usize>) {
        self.sync.leave(barrier, released);
    }

    /// A lane has initialised an mbarrier.
    pub(crate) fn init_gate(&mut self, address: u64, by: (usize, u32), pc: usize) {
        self.sync.init_gate(address, by, pc as u32);
    }

    /// An mbarrier is ordinary memory again.
    pub(crate) fn close_gate(&mut self, address: u64) {
        if let Some(gate) = self.sync.gate(address) {
            gate.live = false;
        }
    }

    /// Lanes are about to use an mbarrier, perhaps to arrive there, releasing at a scope.
    pub(crate) fn use_gate(
        &mut self,
        warp: usize,
        lanes: u32,
        address: u64,
        releases: Option<Scope>,
    ) -> Result<(), UnorderedInit> {
        let Some(gate) = self.sync.gate(address) else { return Ok(()) };
        let (by, slot) = (gate.by, gate.slot);
        let own = if by.0 == warp { 1 << by.1 } else { 0 };
        let others = lanes & !own;
        let actors = self.sync.actors(warp, others, 0, 0);
        if !actors.all(|clock| clock.knows(by.0, 1 << by.1, by.2))
            && !self.sync.is_announced(warp, &self.sync.gates[slot])
        {
            let knows = |lane: usize| {
                actors.clock(lane as u32).is_some_and(|clock| clock.knows(by.0, 1 << by.1, by.2))
            };
            let lane = lanes_of(others).find(|&lane| !knows(lane)).unwrap_or_default();
            return Err(UnorderedInit { lane, thread: by.0 * LANES + by.1 as usize, pc: by.3 });
        }
        if let Some(scope) = releases {
            self.sync.arrive_at(warp, lanes, address, scope);
        }
        Ok(())
    }

    /// The mbarrier at an address is in phase `phase`.
    pub(crate) fn settle(&mut self, address: u64, phase: u64) {
        self.sync.settle(address, phase);
    }

    /// Lanes have found a phase complete, acquiring at a scope.
    pub(crate) fn pass(&mut self, warp: usize, lanes: u32, addresses: &[u64; LANES], scope: Scope) {
        let mut left = lanes;
        while left != 0 {
            let address = addresses[left.trailing_zeros() as usize];
            let alike = |all, (lane, &other): (usize, &u64)| all | ((other == address) as u32) << lane;
            let same = left & addresses.iter().enumerate().fold(0, alike);
            self.sync.pass(warp, same, address, scope);
            left &= !same;
        }
    }

    /// Lanes arrive at the cluster's barrier.
    pub(crate) fn arrive_in_cluster(&mut self, warp: usize, lanes: u32, releases: bool) {
        self.sync.arrive_in_cluster(warp, lanes, releases);
    }

    /// Lanes find the cluster's barrier complete.
    pub(crate) fn pass_cluster(&mut self, warp: usize, lanes: u32) {
        self.sync.pass_cluster(warp, lanes);
    }

    /// The cluster's barrier is complete; these lanes of warps have waited for it.
    pub(crate) fn complete_cluster(&mut self, released: &[(usize, u32)]) {
        self.sync.complete_cluster();
        for &(warp, lanes) in released {
            self.sync.pass_cluster(warp, lanes);
        }
    }
}
