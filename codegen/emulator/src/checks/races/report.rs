//! Findings about two accesses.

use super::cluster::Use;
use super::copies::{Bulk, Refusal};
use super::grid::Clash;
use super::shadow::Conflict;
use crate::context::cta::CtaState;
use crate::exec::lanes::LANES;
use crate::exec::resolve::Access;
use crate::exec::{Fault, Launch, Machine, lanes_of};
use crate::finding::{FindingKind, Neighbour, OtherAccess, Space};

fn verb(access: Access) -> &'static str {
    match access {
        Access::Load | Access::Prefetch => "load from",
        Access::Store => "store to",
        Access::Atomic => "atomic operation on",
    }
}

fn place(space: Space) -> &'static str {
    if space == Space::Shared { "shared" } else { "global" }
}

/// An access by the thread of a number in the cluster at a position in the grid, or by a copy of its CTA.
fn other(
    launch: &Launch<'_>,
    (cluster, thread): (u64, usize),
    copy: bool,
    pc: u32,
    writes: bool,
) -> OtherAccess {
    let kernel = launch.kernel;
    let place = kernel.place(pc as usize);
    let (cta, thread) = launch.thread_at(cluster, thread);
    OtherAccess {
        writes,
        source: kernel.source_line(place),
        inlined_at: kernel.inlined_at(place),
        ptx_line: place.line,
        ptx_text: kernel.line_text(place.line),
        cta,
        thread: (!copy).then_some(thread),
    }
}

fn nearest(launch: &Launch<'_>, cta: &CtaState, space: Space, address: u64, bytes: u64) -> Option<Neighbour> {
    match space {
        Space::Shared => cta.nearest_shared(launch, address, bytes),
        _ => launch.table.nearest(address, bytes),
    }
}

/// Two accesses of one cluster.
#[cold]
pub(super) fn race(
    m: &mut Machine<'_>,
    (space, access): (Space, Access),
    (conflict, address, bytes): (Conflict, u64, u64),
    lane: u32,
) {
    let mark = conflict.mark;
    let why = match mark.is_engine() {
        true => "the thread does not know that copy to be complete",
        false => "nothing orders the two",
    };
    let detail = format!("{bytes}-byte {} {} memory around {address:#x}: {why}", verb(access), place(space));
    // Of a copy the number is its mbarrier's.
    let thread = if mark.is_engine() { m.warp.index * LANES } else { mark.number() };
    fault(m, FindingKind::Race, lane, detail, (space, address));
    finish(m, other(m.launch, (m.cta.index, thread), mark.is_engine(), mark.pc, conflict.writes));
}

fn fault(m: &mut Machine<'_>, kind: FindingKind, lane: u32, detail: String, (space, address): (Space, u64)) {
    m.fault(kind, lane, detail);
    let nearest = nearest(m.launch, m.cta, space, address, 4);
    if let Some(fault) = &mut m.worker.fault {
        (fault.address, fault.space, fault.nearest) = (Some(address), Some(space), nearest);
    }
}

fn finish(m: &mut Machine<'_>, other: OtherAccess) {
    if let Some(fault) = &mut m.worker.fault {
        fault.other = Some(other);
    }
}

/// A thread uses an mbarrier that another one initialised.
#[cold]
pub(super) fn unordered_init(m: &mut Machine<'_>, lane: usize, address: u64, by: (usize, u32, u32, u32)) {
    let place = m.cta.shared_name(m.launch, address);
    let detail =
        format!("the mbarrier at shared {place} is used, and nothing orders that with its initialisation");
    fault(m, FindingKind::Race, lane as u32, detail, (Space::Shared, address));
    let thread = by.0 * LANES + by.1 as usize;
    finish(m, other(m.launch, (m.cta.index, thread), false, by.3, true));
}

/// A bulk copy that must not be issued.
#[cold]
pub(super) fn refused(m: &mut Machine<'_>, lane: u32, refusal: Refusal, bulk: Bulk) {
    match refusal {
        Refusal::Race(space, conflict, address) => {
            let Bulk { source, target, bytes, .. } = bulk;
            let within = (target.1 / 4 * 4..target.1 + bytes).contains(&address);
            let writes = space == target.0 && (within || source.is_none_or(|(from, _)| from != space));
            let access = if writes { Access::Store } else { Access::Load };
            race(m, (space, access), (conflict, address, bulk.bytes), lane);
        }
        Refusal::Unfenced(space, mark, address) => {
            let detail = format!(
                "a bulk copy of {} memory that an instruction wrote, at {address:#x}, with no `fence.proxy.async` between them",
                place(space)
            );
            fault(m, FindingKind::ProxyFence, lane, detail, (space, address));
            finish(m, other(m.launch, (m.cta.index, mark.number()), false, mark.pc, true));
        }
        Refusal::UnfencedGate(address) => {
            let place = m.cta.shared_name(m.launch, address);
            let detail = format!(
                "a bulk copy signals the mbarrier at shared {place}, and neither `fence.mbarrier_init` nor \
                 `fence.proxy.async` follows its initialisation"
            );
            fault(m, FindingKind::ProxyFence, lane, detail, (Space::Shared, address));
        }
    }
}

/// A use of the shared memory of a peer CTA that may come after its exit: of the CTA of that rank, by that lane.
#[cold]
pub(super) fn after_exit(
    launch: &Launch<'_>,
    cta: &CtaState,
    (rank, lane): (usize, usize),
    what: Use,
) -> Fault {
    let place = cta.shared_name(launch, what.address);
    Fault {
        kind: FindingKind::PeerNotRunning,
        lane: lane as u32,
        detail: format!(
            "shared memory at {place}, and nothing keeps the CTA of rank {rank} from exiting before: it must wait for \
             its peers, at a `barrier.cluster` after the last use of its shared memory"
        ),
        address: Some(what.address),
        space: Some(Space::Shared),
        nearest: None,
        other: None,
        pc: Some(what.pc as usize),
    }
}

/// Two CTAs of different clusters; returns the warp of the one that has ended.
#[cold]
pub(super) fn clash(launch: &Launch<'_>, cta: &CtaState, clash: &Clash) -> (usize, Fault) {
    let (mark, writes) = clash.mine;
    let verb = if writes { "a write to" } else { "a read of" };
    let detail = format!(
        "{verb} global memory around {:#x}: nothing orders it with that of another CTA",
        clash.address
    );
    let fault = Fault {
        kind: FindingKind::Race,
        lane: mark.lane(),
        detail,
        address: Some(clash.address),
        space: Some(Space::Global),
        nearest: nearest(launch, cta, Space::Global, clash.address, 4),
        other: Some(other(
            launch,
            (clash.cta, clash.theirs.0.number()),
            false,
            clash.theirs.0.pc,
            clash.theirs.1,
        )),
        pc: Some(mark.pc as usize),
    };
    (mark.warp(), fault)
}

/// Lanes of one store that write different values to one place. Those that write the same value do no harm.
pub(crate) fn collision<T: PartialEq>(
    m: &mut Machine<'_>,
    pointers: &[*mut u8; LANES],
    values: &[T; LANES],
) -> bool {
    let bytes = size_of::<T>();
    let active = m.active;
    let mut before: Option<usize> = None;
    let mut ascending = || {
        lanes_of(active).all(|lane| {
            let last = before.replace(pointers[lane] as usize);
            last.is_none_or(|last| last + bytes <= pointers[lane] as usize)
        })
    };
    if super::are_apart(m) || ascending() {
        return true;
    }
    for lane in lanes_of(active) {
        for earlier in lanes_of(active & ((1 << lane) - 1)) {
            let apart = (pointers[lane] as usize).abs_diff(pointers[earlier] as usize);
            if apart < bytes && (apart != 0 || values[lane] != values[earlier]) {
                let detail = format!("lanes {earlier} and {lane} store different values to the same place");
                m.fault(FindingKind::Race, lane as u32, detail);
                return false;
            }
        }
    }
    true
}
