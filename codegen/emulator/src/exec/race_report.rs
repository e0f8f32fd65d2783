//! Faults of races: from a detector's conflict to a finding about two accesses.

use crate::checks::races::{Bulk, ClusterRace, Earlier, LateUse, Race, Refusal, UnorderedInit};
use crate::code::access::Access;
use crate::context::cluster::ClusterState;
use crate::context::{ExecutionContext, Fault, Launch};
use crate::finding::{FindingKind, Neighbour, OtherAccess, Space};
use crate::lanes::LANES;

fn name(space: Space) -> &'static str {
    if space == Space::Shared { "shared" } else { "global" }
}

/// The earlier access, in the cluster with index `cluster`. An asynchronous copy is one of the CTA of thread `near`.
fn other(launch: &Launch<'_>, cluster: u64, earlier: Earlier, near: usize) -> OtherAccess {
    let program = launch.program;
    let place = program.place(earlier.pc as usize);
    let (cta, thread) = launch.geometry.thread_at(cluster, earlier.thread.unwrap_or(near));
    OtherAccess {
        writes: earlier.writes,
        source: program.source_line(place),
        inlined_at: program.inlined_at(place),
        ptx_line: place.line,
        ptx_text: program.line_text(place.line),
        cta,
        thread: earlier.thread.map(|_| thread),
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

/// Sets the fault of a lane whose access of a location conflicts with an earlier one.
fn fault(
    m: &mut ExecutionContext<'_>,
    kind: FindingKind,
    (lane, detail): (u32, String),
    (space, address): (Space, u64),
    earlier: Option<Earlier>,
) {
    let earlier = earlier.map(|earlier| other(m.launch, m.cluster.index, earlier, m.warp.index * LANES));
    m.worker.fault = Some(Box::new(Fault {
        address: Some(address),
        space: Some(space),
        nearest: nearest(m.launch, m.cluster, space, address, 4),
        other: earlier,
        ..Fault::new(kind, lane, detail)
    }));
}

/// A race within a cluster.
#[cold]
pub(super) fn race(m: &mut ExecutionContext<'_>, (space, access): (Space, Access), bytes: u64, race: Race) {
    let Race { earlier, address, lane } = race;
    let why = match earlier.thread {
        None => "the thread does not know that copy to be complete",
        Some(_) => "nothing orders the two",
    };
    let detail = format!("{bytes}-byte {} {} memory around {address:#x}: {why}", access.verb(), name(space));
    fault(m, FindingKind::Race, (lane, detail), (space, address), Some(earlier));
}

/// A thread uses an mbarrier that another one initialised.
#[cold]
pub(super) fn unordered_init(m: &mut ExecutionContext<'_>, address: u64, unordered: &UnorderedInit) {
    let place = m.cluster.shared_name(address);
    let detail =
        format!("the mbarrier at shared {place} is used, and nothing orders that with its initialisation");
    let earlier = Earlier { thread: Some(unordered.thread), pc: unordered.pc, writes: true };
    fault(m, FindingKind::Race, (unordered.lane as u32, detail), (Space::Shared, address), Some(earlier));
}

/// A bulk copy that must not be issued.
#[cold]
pub(super) fn refused(m: &mut ExecutionContext<'_>, lane: u32, refusal: Refusal, bulk: Bulk) {
    match refusal {
        Refusal::Race { space, race: found } => {
            let Bulk { source, target, bytes, .. } = bulk;
            let within = (target.1 / 4 * 4..target.1 + bytes).contains(&found.address);
            let writes = space == target.0 && (within || source.is_none_or(|(from, _)| from != space));
            let access = if writes { Access::Store } else { Access::Load };
            race(m, (space, access), bytes, Race { lane, ..found });
        }
        Refusal::Unfenced { space, earlier, address } => {
            let detail = format!(
                "a bulk copy of {} memory that an instruction wrote, at {address:#x}, with no `fence.proxy.async` between them",
                name(space)
            );
            fault(m, FindingKind::ProxyFence, (lane, detail), (space, address), Some(earlier));
        }
        Refusal::UnfencedGate { address } => {
            let place = m.cluster.shared_name(address);
            let detail = format!(
                "a bulk copy signals the mbarrier at shared {place}, and neither `fence.mbarrier_init` nor \
                 `fence.proxy.async` follows its initialisation"
            );
            fault(m, FindingKind::ProxyFence, (lane, detail), (Space::Shared, address), None);
        }
    }
}

/// A use of the shared memory of a peer CTA that may come after its exit.
#[cold]
pub(super) fn late_use(cluster: &ClusterState, late: &LateUse) -> Fault {
    let LateUse { rank, lane, used, .. } = *late;
    let place = cluster.shared_name(used.address);
    let detail = format!(
        "shared memory at {place}, and nothing keeps the CTA of rank {rank} from exiting before: it must wait for \
         its peers, at a `barrier.cluster` after the last use of its shared memory"
    );
    Fault {
        address: Some(used.address),
        space: Some(Space::Shared),
        ..Fault::new(FindingKind::PeerNotRunning, lane as u32, detail).at(used.pc as usize)
    }
}

/// A race between clusters.
#[cold]
pub(super) fn cluster_race(launch: &Launch<'_>, cluster: &ClusterState, race: &ClusterRace) -> Fault {
    let ClusterRace { address, lane, pc, writes, earlier, .. } = *race;
    let verb = if writes { "a write to" } else { "a read of" };
    let detail =
        format!("{verb} global memory around {address:#x}: nothing orders it with that of another CTA");
    Fault {
        address: Some(address),
        space: Some(Space::Global),
        nearest: nearest(launch, cluster, Space::Global, address, 4),
        other: Some(other(launch, race.cluster, earlier, 0)),
        ..Fault::new(FindingKind::Race, lane, detail).at(pc as usize)
    }
}
