//! Findings about two accesses.

use super::copies::{Bulk, Refusal};
use super::grid::Clash;
use super::shadow::Conflict;
use crate::cta::CtaState;
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

fn other(launch: &Launch<'_>, cta: [u32; 3], thread: Option<usize>, pc: u32, writes: bool) -> OtherAccess {
    let kernel = launch.kernel;
    let place = kernel.place(pc as usize);
    let [x, y, _] = launch.block;
    OtherAccess {
        writes,
        source: kernel.source_line(place),
        ptx_line: place.line,
        ptx_text: kernel.line_text(place.line),
        cta,
        thread: thread.map(|thread| {
            let thread = thread as u32;
            [thread % x, thread / x % y, thread / x / y]
        }),
    }
}

fn nearest(launch: &Launch<'_>, cta: &CtaState, space: Space, address: u64, bytes: u64) -> Option<Neighbour> {
    match space {
        Space::Shared => cta.nearest_shared(launch, address, bytes),
        _ => launch.table.nearest(address, bytes),
    }
}

/// Two accesses of one CTA.
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
    let thread = (!mark.is_engine()).then(|| mark.number());
    fault(m, FindingKind::Race, lane, detail, (space, address));
    finish(m, other(m.launch, m.cta.at, thread, mark.pc, conflict.writes));
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
    finish(m, other(m.launch, m.cta.at, Some(by.0 * LANES + by.1 as usize), by.3, true));
}

/// A bulk copy that must not be issued.
#[cold]
pub(super) fn refused(m: &mut Machine<'_>, lane: u32, refusal: Refusal, bulk: Bulk) {
    match refusal {
        Refusal::Race(space, conflict, address) => {
            let into_shared = bulk.gate.is_some();
            let writes = into_shared == (space == Space::Shared);
            let access = if writes { Access::Store } else { Access::Load };
            race(m, (space, access), (conflict, address, bulk.bytes), lane);
        }
        Refusal::Unfenced(space, mark, address) => {
            let detail = format!(
                "a bulk copy of {} memory that an instruction wrote, at {address:#x}, with no `fence.proxy.async` between them",
                place(space)
            );
            fault(m, FindingKind::ProxyFence, lane, detail, (space, address));
            finish(m, other(m.launch, m.cta.at, Some(mark.number()), mark.pc, true));
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

/// Two CTAs; returns the warp of the one that has ended.
#[cold]
pub(super) fn clash(launch: &Launch<'_>, cta: &CtaState, clash: &Clash) -> (usize, Fault) {
    let (mark, writes) = clash.mine;
    let [x, y, _] = launch.grid.map(u64::from);
    let at = [(clash.cta % x) as u32, (clash.cta / x % y) as u32, (clash.cta / x / y) as u32];
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
        other: Some(other(launch, at, Some(clash.theirs.0.number()), clash.theirs.0.pc, clash.theirs.1)),
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
