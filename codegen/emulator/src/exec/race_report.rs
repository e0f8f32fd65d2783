//! Converts conflicts that the race detector found into faults.

use crate::checks::races::{
    BulkCopy, BulkCopyConflict, ClusterRace, EarlierAccess, LatePeerAccess, Race, UnorderedInit, UnorderedUse,
};
use crate::code::access::Access;
use crate::context::cluster::ClusterState;
use crate::context::fault::Fault;
use crate::context::{ExecutionContext, Launch};
use crate::finding::{FindingKind, Neighbour, OtherAccess, Space};
use crate::lanes::LANES;

fn name(space: Space) -> &'static str {
    if space == Space::Shared { "shared" } else { "global" }
}

/// Describes the earlier access of a conflict, by the cluster with number `cluster` in the grid. An asynchronous copy,
/// which has no thread, is attributed to the CTA of thread `near`.
fn other(launch: &Launch<'_>, cluster: u64, earlier: EarlierAccess, near: usize) -> OtherAccess {
    other_access(launch, cluster, (earlier.pc as usize, earlier.writes), (earlier.thread, near))
}

/// Describes the access of the instruction `pc` by `earlier`, a thread of the cluster, or by an asynchronous copy.
pub(crate) fn other_access(
    launch: &Launch<'_>,
    cluster: u64,
    (pc, writes): (usize, bool),
    (earlier, near): (Option<usize>, usize),
) -> OtherAccess {
    let program = launch.program;
    let place = program.place(pc);
    let (cta, thread) = launch.geometry.thread_at(cluster, earlier.unwrap_or(near));
    OtherAccess {
        writes,
        source: program.source_line(place),
        inlined_at: program.inlined_at(place),
        ptx_line: place.line,
        ptx_text: program.line_text(place.line),
        cta,
        thread: earlier.map(|_| thread),
    }
}

fn nearest(
    launch: &Launch<'_>,
    cluster: &ClusterState,
    space: Space,
    address: u64,
    bytes: u64,
) -> Option<Neighbour> {
    match space {
        Space::Shared => cluster.nearest_shared(address, bytes),
        _ => launch.table.nearest(address, bytes),
    }
}

/// Sets the fault of a lane whose access at `address` conflicts with an earlier access.
fn fault(
    cx: &mut ExecutionContext<'_>,
    kind: FindingKind,
    (lane, detail): (u32, String),
    (space, address): (Space, u64),
    earlier: Option<EarlierAccess>,
) {
    let earlier = earlier.map(|earlier| other(cx.launch, cx.cluster.index, earlier, cx.warp.index * LANES));
    cx.worker.fault = Some(Box::new(Fault {
        address: Some(address),
        space: Some(space),
        nearest: nearest(cx.launch, cx.cluster, space, address, 4),
        other: earlier,
        ..Fault::new(kind, lane, detail)
    }));
}

/// What orders accesses of different CTAs, if the thread of an earlier access is in another CTA of the cluster; else nothing.
fn of_peers(cx: &ExecutionContext<'_>, earlier: Option<usize>) -> &'static str {
    let rank = |warp: usize| cx.cluster.rank(warp);
    match earlier.is_some_and(|thread| rank(thread / LANES) != rank(cx.warp.index)) {
        true => {
            " by a thread of another CTA of the cluster: operations on mbarriers order their accesses only with `.cluster`, since \
             the default is the scope of a CTA"
        }
        false => "",
    }
}

/// Reports a race between threads of one cluster.
#[cold]
pub(super) fn race(cx: &mut ExecutionContext<'_>, (space, access): (Space, Access), bytes: u64, race: Race) {
    let Race { earlier, address, lane } = race;
    let why = match earlier.thread {
        None if space == Space::Global && earlier.writes => {
            "this thread has not waited for the earlier asynchronous copy; `cp.async.bulk.wait_group.read` waits only until the copy \
             has read its source"
        }
        None => "this thread has not waited for the earlier asynchronous copy",
        Some(_) => "no happens-before relation to the earlier access",
    };
    let detail = format!(
        "{bytes}-byte {} {} memory around {address:#x}: {why}{}",
        access.verb(),
        name(space),
        of_peers(cx, earlier.thread)
    );
    fault(cx, FindingKind::Race, (lane, detail), (space, address), Some(earlier));
}

/// Reports a use of an mbarrier that is not ordered after the mbarrier's initialisation.
#[cold]
pub(super) fn unordered_init(cx: &mut ExecutionContext<'_>, address: u64, unordered: &UnorderedInit) {
    let place = cx.cluster.shared_name(address);
    let detail = format!(
        "use of the mbarrier at shared {place}, which is not ordered after its initialisation by another thread: \
         synchronise the two threads in between"
    );
    let earlier = EarlierAccess { thread: Some(unordered.thread), pc: unordered.pc, writes: true };
    fault(cx, FindingKind::Race, (unordered.lane as u32, detail), (Space::Shared, address), Some(earlier));
}

/// Reports an invalidation of an mbarrier that is not ordered after a use of the mbarrier.
#[cold]
pub(super) fn unordered_use(
    cx: &mut ExecutionContext<'_>,
    (lane, address): (u32, u64),
    unordered: &UnorderedUse,
) {
    let place = cx.cluster.shared_name(address);
    let detail = format!(
        "`mbarrier.inval` of the mbarrier at shared {place}, which is not ordered after a use by another thread: \
         synchronise the two threads in between"
    );
    let earlier =
        EarlierAccess { thread: Some(unordered.thread), pc: unordered.pc, writes: unordered.arrives };
    fault(cx, FindingKind::Race, (lane, detail), (Space::Shared, address), Some(earlier));
}

/// Reports the conflict of a bulk copy that `lane` issues.
#[cold]
pub(super) fn bulk_copy(
    cx: &mut ExecutionContext<'_>,
    lane: u32,
    conflict: BulkCopyConflict,
    copy: &BulkCopy,
) {
    match conflict {
        BulkCopyConflict::Race { space, race: found } => {
            let BulkCopy { source, target, bytes, .. } = *copy;
            let within = (target.1 / 4 * 4..target.1 + bytes).contains(&found.address);
            let writes = space == target.0 && (within || source.is_none_or(|(from, _)| from != space));
            let access = if writes { Access::Store } else { Access::Load };
            race(cx, (space, access), bytes, Race { lane, ..found });
        }
        BulkCopyConflict::MissingProxyFence { space, earlier, address } => {
            let detail = format!(
                "bulk copy of {} memory at {address:#x}, which an ordinary store wrote: execute `fence.proxy.async` after the \
                 store and before the copy",
                name(space)
            );
            fault(cx, FindingKind::ProxyFence, (lane, detail), (space, address), Some(earlier));
        }
        BulkCopyConflict::UnfencedMbarrier { address } => {
            let place = cx.cluster.shared_name(address);
            let detail = format!(
                "bulk copy that signals the mbarrier at shared {place}: execute `fence.mbarrier_init` or \
                 `fence.proxy.async` after the mbarrier's initialisation"
            );
            fault(cx, FindingKind::ProxyFence, (lane, detail), (Space::Shared, address), None);
        }
    }
}

/// Reports the conflict of a `wgmma` that reads shared memory.
#[cold]
pub(super) fn wgmma(cx: &mut ExecutionContext<'_>, conflict: BulkCopyConflict) {
    match conflict {
        BulkCopyConflict::Race { space, race: found } => race(cx, (space, Access::Load), 16, found),
        BulkCopyConflict::MissingProxyFence { space, earlier, address } => {
            let detail = format!(
                "`wgmma` reads shared memory at {address:#x}, which an ordinary store wrote: execute `fence.proxy.async` \
                 after the store and before the `wgmma`"
            );
            fault(cx, FindingKind::ProxyFence, (0, detail), (space, address), Some(earlier));
        }
        // Only copies signal mbarriers.
        BulkCopyConflict::UnfencedMbarrier { .. } => {}
    }
}

/// Fault of an access to a peer CTA's shared memory that may happen after the peer has exited.
#[cold]
pub(super) fn late_peer_access(cluster: &ClusterState, late: &LatePeerAccess) -> Fault {
    let LatePeerAccess { rank, lane, access, .. } = *late;
    let place = cluster.shared_name(access.address);
    let detail = format!(
        "access of shared memory at {place}: the CTA of rank {rank} may already have exited. It must wait for its \
         peers at a `barrier.cluster` after the last access of its shared memory; mbarriers order CTAs only with the scope \
         `.cluster`, not with the default `.cta`"
    );
    Fault {
        address: Some(access.address),
        space: Some(Space::Shared),
        ..Fault::new(FindingKind::PeerNotRunning, lane as u32, detail).at(access.pc as usize)
    }
}

/// Fault of a race between two clusters.
#[cold]
pub(super) fn cluster_race(launch: &Launch<'_>, cluster: &ClusterState, race: &ClusterRace) -> Fault {
    let ClusterRace { address, lane, pc, writes, earlier, .. } = *race;
    let verb = if writes { "write to" } else { "read of" };
    let detail = format!(
        "{verb} global memory around {address:#x}: no happens-before relation to the access of another CTA"
    );
    Fault {
        address: Some(address),
        space: Some(Space::Global),
        nearest: nearest(launch, cluster, Space::Global, address, 4),
        other: Some(other(launch, race.earlier_cluster, earlier, 0)),
        ..Fault::new(FindingKind::Race, lane, detail).at(pc as usize)
    }
}
