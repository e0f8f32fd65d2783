//! Informs the race detector of what instructions do, and turns its conflicts into faults.
//!
//! The detector takes threads, spaces and addresses; it does not see the execution context. Without a detector every
//! function here returns at once, and most callers test for one first.

use super::addresses::{located, located_first};
use super::race_report as report;
use crate::checks::races::{Bulk, CopyRace, EndConflict, Grid, Ordering, Places, Scope, Touch, Turn, Who};
use crate::code::access::{Access, FLAG_ACQUIRE, FLAG_CLUSTER, FLAG_CTA, FLAG_ORDERED, FLAG_RELEASE, FLAGS};
use crate::context::cluster::ClusterState;
use crate::context::{ExecutionContext, Fault, Inst, Launch, Resolved};
use crate::finding::FindingKind;
use crate::geometry::BARRIERS;
use crate::lanes::{LANES, lanes_of};

/// The memory order of an access, by its instruction's flags; `None` for a weak one.
fn ordering_of(flags: u32, access: Access) -> Option<Ordering> {
    let strong = access == Access::Atomic || flags & FLAG_ORDERED != 0;
    strong.then_some(Ordering {
        acquires: flags & FLAG_ACQUIRE != 0 && access != Access::Store,
        releases: flags & FLAG_RELEASE != 0 && access != Access::Load,
        scope: scope_of(flags),
    })
}

/// The scope in an instruction's flags.
pub(crate) fn scope_of(flags: u32) -> Scope {
    match flags & (FLAG_CTA | FLAG_CLUSTER) {
        0 => Scope::Wide,
        FLAG_CLUSTER => Scope::Cluster,
        _ => Scope::Cta,
    }
}

/// Lanes of the warp at its current instruction.
fn who(m: &ExecutionContext<'_>, lanes: u32) -> Who {
    Who::new(m.warp.index, lanes, m.warp.pc)
}

/// Checks and records an access of the active lanes, which has been resolved; false if it races.
#[inline(never)]
pub(crate) fn access(
    m: &mut ExecutionContext<'_>,
    i: &Inst,
    access: Access,
    bytes: u64,
    resolved: &Resolved,
) -> bool {
    let addresses;
    let at = match resolved {
        Resolved::Run(_) => located_first(m, i).map(|(space, start)| (space, Places::Run(start))),
        Resolved::Same(_) => located_first(m, i).map(|(space, start)| (space, Places::Same(start))),
        Resolved::Lanes(_) | Resolved::Fault => {
            addresses = located(m, i);
            addresses.as_ref().map(|(space, addresses)| (*space, Places::Each(addresses)))
        }
    };
    let who = who(m, m.active);
    let Some(races) = m.cluster.races.as_deref_mut() else { return true };
    races.begin_access();
    let Some((space, places)) = at else { return true };
    let how = ordering_of(i.slots[FLAGS], access);
    let Some(race) = races.access(who, how, &Touch { space, access, places, bytes }) else { return true };
    report::race(m, (space, access), bytes, race);
    false
}

/// Before a strong write: gives what its lanes release to the location.
#[inline(never)]
pub(crate) fn publish<'a>(m: &mut ExecutionContext<'a>, i: &Inst, access: Access) -> Turn<'a> {
    let grid = m.launch.races.as_ref()?;
    let (space, addresses) = located(m, i)?;
    let who = who(m, m.active);
    let races = m.cluster.races.as_deref_mut()?;
    let how = ordering_of(i.slots[FLAGS], access).unwrap_or_default();
    races.publish(grid, who, how, access, (space, &addresses))
}

/// After a strong read: its lanes learn what was released at the location.
#[inline(never)]
pub(crate) fn observe(m: &mut ExecutionContext<'_>, i: &Inst, access: Access, turn: Turn<'_>) {
    let Some((space, addresses)) = located(m, i) else { return };
    let who = who(m, m.active);
    let Some(races) = m.cluster.races.as_deref_mut() else { return };
    let how = ordering_of(i.slots[FLAGS], access).unwrap_or_default();
    races.observe(who, how, access, (space, &addresses), turn);
}

/// A fence by the active lanes; `code` is its [`FenceKind`](crate::checks::races::FenceKind).
pub(crate) fn fence(m: &mut ExecutionContext<'_>, code: u64) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.fence(m.warp.index, m.active, code);
    }
}

/// The active lanes have met at `bar.warp.sync`.
pub(crate) fn meet(m: &mut ExecutionContext<'_>) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.meet(m.warp.index, m.active);
    }
}

/// The warp has arrived at barrier `id` of its CTA, which has released the warps in `released` from `from` on.
pub(crate) fn arrive(m: &mut ExecutionContext<'_>, id: usize, from: usize) {
    let warp = m.warp.index;
    let complete = m.cluster.is_idle(warp, id);
    let barrier = m.cluster.rank(warp) * BARRIERS + id;
    let Some(races) = m.cluster.races.as_deref_mut() else { return };
    races.arrive(warp, barrier);
    if complete {
        races.leave(barrier, m.cluster.released[from..].iter().map(|release| release.warp));
    }
}

/// A lane has initialised an mbarrier.
pub(crate) fn init_gate(m: &mut ExecutionContext<'_>, lane: usize, address: u64) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.init_gate(address, (m.warp.index, lane as u32), m.warp.pc);
    }
}

/// An mbarrier is ordinary memory again.
pub(crate) fn close_gate(m: &mut ExecutionContext<'_>, address: u64) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.close_gate(address);
    }
}

/// Lanes are about to use an mbarrier, perhaps to arrive there, releasing at a scope; false if nothing orders that
/// with its initialisation.
pub(crate) fn use_gate(
    m: &mut ExecutionContext<'_>,
    lanes: u32,
    address: u64,
    releases: Option<Scope>,
) -> bool {
    let Some(races) = m.cluster.races.as_deref_mut() else { return true };
    match races.use_gate(m.warp.index, lanes, address, releases) {
        Ok(()) => true,
        Err(unordered) => {
            report::unordered_init(m, address, &unordered);
            false
        }
    }
}

/// Lanes test an mbarrier, and copies that signal it may have been completed; false as [`use_gate`].
pub(crate) fn waits(m: &mut ExecutionContext<'_>, lanes: u32, address: u64) -> bool {
    if !m.cluster.completed.is_empty() {
        complete(m, Some(address));
    }
    if let Some(phase) = m.cluster.asynchronous.mbarrier(address).map(|mbarrier| mbarrier.phase) {
        settle(m, address, phase);
    }
    use_gate(m, lanes, address, None)
}

/// The mbarrier at an address is in phase `phase`.
pub(crate) fn settle(m: &mut ExecutionContext<'_>, address: u64, phase: u64) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.settle(address, phase);
    }
}

/// Lanes have found a phase complete, acquiring at a scope.
pub(crate) fn pass(m: &mut ExecutionContext<'_>, lanes: u32, addresses: &[u64; LANES], scope: Scope) {
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.pass(m.warp.index, lanes, addresses, scope);
    }
}

/// A lane uses the shared memory of a peer CTA, now or (`later`) some time; false if nothing tells that the CTA has
/// started.
pub(crate) fn reaches(m: &mut ExecutionContext<'_>, lane: usize, rank: usize, what: (u64, bool)) -> bool {
    let Some(races) = m.cluster.races.as_deref_mut() else { return true };
    races.reaches((m.warp.index, lane, m.warp.pc), rank, what)
}

/// The active lanes arrive at the cluster's barrier.
pub(crate) fn arrive_in_cluster(m: &mut ExecutionContext<'_>, releases: bool) {
    let lanes = whole(m);
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.arrive_in_cluster(m.warp.index, lanes, releases);
    }
}

/// The active lanes find the cluster's barrier complete.
pub(crate) fn pass_cluster(m: &mut ExecutionContext<'_>) {
    let lanes = whole(m);
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.pass_cluster(m.warp.index, lanes);
    }
}

/// The active lanes; all 32 if they are all that the launch started.
fn whole(m: &ExecutionContext<'_>) -> u32 {
    if m.active == m.warp.launched { u32::MAX } else { m.active }
}

/// Checks a bulk copy that a lane is about to issue; false if there is a finding.
pub(crate) fn issue_bulk(m: &mut ExecutionContext<'_>, lane: usize, bulk: Bulk) -> bool {
    let who = who(m, 1 << lane);
    let Some(races) = m.cluster.races.as_deref_mut() else { return true };
    match races.issue_bulk(who, bulk) {
        Ok(()) => true,
        Err(refusal) => {
            report::refused(m, lane as u32, refusal, bulk);
            false
        }
    }
}

/// Checks a `cp.async` of `bytes` bytes by each of some lanes, one after the other, of which `copied` are read; false
/// if there is a finding.
pub(crate) fn issue_grouped(
    m: &mut ExecutionContext<'_>,
    lanes: u32,
    at: (u64, u64),
    bytes: u64,
    copied: u64,
) -> bool {
    let who = who(m, lanes);
    let Some(races) = m.cluster.races.as_deref_mut() else { return true };
    match races.issue_grouped(who, at, bytes, copied) {
        Ok(()) => true,
        Err(CopyRace { space, access, race }) => {
            report::race(m, (space, access), bytes, race);
            false
        }
    }
}

/// Records the copies that have been completed: for an mbarrier, or by a thread that waited for its groups.
pub(crate) fn complete(m: &mut ExecutionContext<'_>, gate: Option<u64>) {
    let completed = std::mem::take(&mut m.cluster.completed);
    if let Some(races) = m.cluster.races.as_deref_mut() {
        races.complete(&completed, gate);
    }
}

/// Ends a cluster and compares it with the others. The warp comes with its fault.
pub(crate) fn finish(
    launch: &Launch<'_>,
    cluster: &mut ClusterState,
    grid: &Grid,
) -> Result<(), (usize, Fault)> {
    let Some(races) = cluster.races.as_deref_mut() else { return Ok(()) };
    races.finish(grid).map_err(|conflict| match conflict {
        EndConflict::LateUse(late) => (late.warp, report::late_use(cluster, &late)),
        EndConflict::Race(race) => (race.warp, report::cluster_race(launch, cluster, &race)),
    })
}

/// Checks lanes of one store that write different values to one place; equal values do no harm. False if there is a
/// finding.
pub(crate) fn collision<T: PartialEq>(
    m: &mut ExecutionContext<'_>,
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
    if m.cluster.races.as_ref().is_none_or(|races| races.stores_are_apart()) || ascending() {
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
