//! Checks of accesses to the shared memory of a cluster's CTAs.

use super::addresses::addresses;
use super::races;
use crate::code::access::{Access, FLAGS, StateSpace, classify};
use crate::context::{ExecutionContext, Inst};
use crate::finding::{FindingKind, Space};

/// Access by one lane to a range of a cluster's shared memory.
#[derive(Clone, Copy)]
pub(crate) struct SharedAccess {
    pub(crate) lane: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Whether the instruction can access only the shared memory of the executing CTA.
    pub(crate) own_cta_only: bool,
    /// Whether the access happens some time after the instruction; its completion is signalled by other means, such as
    /// the phase of an mbarrier.
    pub(crate) asynchronous: bool,
}

/// Checks the active lanes' accesses to shared memory in a cluster of several CTAs. Each access must be inside the
/// shared memory of one CTA, which must be running and for `.shared::cta` must be the thread's own. Returns false if a
/// check reports a finding.
#[inline(never)]
pub(crate) fn check_shared_accesses(
    cx: &mut ExecutionContext<'_>,
    i: &Inst,
    bytes: u64,
    access: Access,
) -> bool {
    let space = StateSpace::of(i.slots[FLAGS]);
    let generic = space == StateSpace::Generic;
    let own = space == StateSpace::Shared;
    if access == Access::Prefetch || !generic && !own && space != StateSpace::SharedCluster {
        return true;
    }
    let at = addresses(cx, i);
    cx.active_lanes().all(|lane| {
        let (space, address) = if generic { classify(at[lane]) } else { (Space::Shared, at[lane]) };
        space != Space::Shared
            || check_shared_access(
                cx,
                SharedAccess { lane, address, bytes, access, own_cta_only: own, asynchronous: false },
            )
    })
}

/// Checks one access to shared memory, as [`check_shared_accesses`].
pub(crate) fn check_shared_access(cx: &mut ExecutionContext<'_>, what: SharedAccess) -> bool {
    let cluster = &cx.cluster.layout;
    let own = cx.cluster.rank(cx.warp.index);
    let (rank, _) = cluster.locate(what.address);
    let inside = cluster.contains(what.address, what.bytes);
    if inside && rank == own {
        return true;
    }
    if !inside || what.own_cta_only {
        refuse(cx, what, inside.then_some(rank));
        return false;
    }
    is_running(cx, what, rank)
}

/// Checks that the peer CTA with rank `rank` has started and has not exited, and records the access for the check at
/// the peer's exit.
fn is_running(cx: &mut ExecutionContext<'_>, what: SharedAccess, rank: usize) -> bool {
    let SharedAccess { lane, address, asynchronous: later, .. } = what;
    if cx.cluster.exited >> rank & 1 != 0 {
        let detail = format!(
            "the shared memory of the CTA of rank {rank}, whose threads have all exited: a CTA must not exit \
             before its peers are done with it"
        );
        return not_running(cx, lane, address, detail);
    }
    if races::access_peer(cx, lane, rank, (address, later)) {
        return true;
    }
    let detail = format!(
        "the shared memory of the CTA of rank {rank}, and nothing guarantees that this CTA has started: no \
         `barrier.cluster.wait` comes before"
    );
    not_running(cx, lane, address, detail)
}

#[cold]
fn not_running(cx: &mut ExecutionContext<'_>, lane: usize, address: u64, detail: String) -> bool {
    cx.fault(FindingKind::PeerNotRunning, lane as u32, format!("{detail}; the address is {address:#x}"));
    locate_fault(cx, address, 1);
    false
}

/// Adds a range of shared memory to the worker's fault.
fn locate_fault(cx: &mut ExecutionContext<'_>, address: u64, bytes: u64) {
    let nearest = cx.cluster.nearest_shared(address, bytes);
    if let Some(fault) = &mut cx.worker.fault {
        (fault.address, fault.space, fault.nearest) = (Some(address), Some(Space::Shared), nearest);
    }
}

/// Sets the fault of an access that is outside all shared memory (`rank` is `None`), or in the shared memory of the CTA
/// with rank `rank` although the instruction can access only the thread's own CTA.
#[cold]
fn refuse(cx: &mut ExecutionContext<'_>, what: SharedAccess, rank: Option<usize>) {
    let SharedAccess { lane, address, bytes, access, .. } = what;
    let mut detail = format!("{bytes}-byte {} shared memory at {address:#x}", access.verb());
    if let Some(rank) = rank {
        detail +=
            &format!(", which is the CTA's of rank {rank}: `.shared::cta` reaches only the thread's own");
    }
    cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
    locate_fault(cx, address, bytes);
}
