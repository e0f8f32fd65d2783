//! Passes accesses and synchronisation to the race detector, and turns its conflicts into faults.
//!
//! The detector takes threads, spaces and addresses; it does not see the execution context. If races are not checked,
//! there is no detector and every function here returns at once; most callers test that before the call.

use super::addresses::{located, located_first};
use super::matrix_rows::{MATRIX_ROWS, ROW_BYTES, stored_rows};
use super::{race_report as report, read_only};
use crate::asynchronous::{CompletedRead, MBARRIER_BYTES};
use crate::checks::races::{
    Accessor, BulkCopy, CopyRace, EndConflict, FenceOp, GridDetector, LaneAddresses, LocationLock,
    MemoryAccess, MemoryOrder, MemoryScope,
};
use crate::code::access::{Access, FLAG_ACQUIRE, FLAG_CLUSTER, FLAG_CTA, FLAG_ORDERED, FLAG_RELEASE, FLAGS};
use crate::code::operands::ELEMENTS;
use crate::code::value_flow::{Dependence, RegisterSlot};
use crate::context::cluster::ClusterState;
use crate::context::fault::Fault;
use crate::context::warp::Warp;
use crate::context::{ExecutionContext, Inst, Launch, Resolved};
use crate::finding::{FindingKind, Space};
use crate::geometry::BARRIERS;
use crate::lanes::{LANES, lanes_of};

/// Memory order of an access, according to the instruction's flags; `None` for a weak access.
fn memory_order(flags: u32, access: Access) -> Option<MemoryOrder> {
    let is_strong = access == Access::Atomic || flags & FLAG_ORDERED != 0;
    is_strong.then_some(MemoryOrder {
        acquires: flags & FLAG_ACQUIRE != 0 && access != Access::Store,
        releases: flags & FLAG_RELEASE != 0 && access != Access::Load,
        scope: scope_of(flags),
    })
}

/// Memory scope according to the flags of an instruction.
pub(crate) fn scope_of(flags: u32) -> MemoryScope {
    match flags & (FLAG_CTA | FLAG_CLUSTER) {
        0 => MemoryScope::Grid,
        FLAG_CLUSTER => MemoryScope::Cluster,
        _ => MemoryScope::Cta,
    }
}

/// The given lanes of the current warp at its current instruction, as an accessor for the detector.
fn accessor(cx: &ExecutionContext<'_>, lanes: u32) -> Accessor {
    Accessor::new(cx.warp.index, lanes, cx.warp.pc)
}

/// Checks and records a resolved access of the active lanes; returns false if it races.
#[inline(never)]
pub(crate) fn access(
    cx: &mut ExecutionContext<'_>,
    i: &Inst,
    access: Access,
    bytes: u64,
    resolved: &Resolved,
) -> bool {
    let lane_addresses;
    let at = match resolved {
        Resolved::Run(_) => located_first(cx, i).map(|(space, start)| (space, LaneAddresses::Run(start))),
        Resolved::Same(_) => located_first(cx, i).map(|(space, start)| (space, LaneAddresses::Same(start))),
        Resolved::Lanes(_) | Resolved::Fault => {
            lane_addresses = located(cx, i);
            lane_addresses.as_ref().map(|(space, addresses)| (*space, LaneAddresses::Each(addresses)))
        }
    };
    let accessor = accessor(cx, cx.active);
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    races.begin_access();
    let Some((space, addresses)) = at else { return true };
    let order = memory_order(i.slots[FLAGS], access);
    let what = MemoryAccess { space, access, addresses, bytes };
    let Some(race) = races.access(accessor, order, &what) else {
        return cx.cluster.read_only.is_none() || read_only::access(cx, i.slots[FLAGS], &what);
    };
    // Without an earlier write, the bytes may be uninitialised.
    if !race.earlier.writes || access != Access::Store {
        report::race(cx, (space, access), bytes, race);
        return false;
    }
    // Lanes that change memory are checked as a store, those that leave it as it is as a read.
    let is_redundant = |lane: &usize| is_redundant((&*cx.warp, cx.launch), i, resolved, *lane);
    let redundant = lanes_of(cx.active).filter(is_redundant).fold(0, |lanes, lane| lanes | 1 << lane);
    let [others, redundant] =
        [cx.active & !redundant, redundant].map(|lanes| Accessor::new(cx.warp.index, lanes, cx.warp.pc));
    let addresses = what.addresses.to_array(bytes);
    let each = MemoryAccess { addresses: LaneAddresses::Each(&addresses), ..what };
    let of_others = (others.lanes != 0).then(|| races.access(others, order, &each)).flatten();
    let is_excused = redundant.lanes != 0 && races.check_and_record_redundant(redundant, order, &each);
    match of_others {
        None if is_excused => return true,
        of_others => report::race(cx, (space, access), bytes, of_others.unwrap_or(race)),
    }
    false
}

/// Whether a lane's store, which has not been executed yet, writes the bytes that memory already holds.
#[cold]
fn is_redundant((warp, launch): (&Warp, &Launch<'_>), i: &Inst, resolved: &Resolved, lane: usize) -> bool {
    let flow = &launch.program.value_flow[warp.pc];
    let elements = match flow.dependence {
        Dependence::Store(elements) => elements,
        Dependence::MatrixStore(count) => {
            let row = stored_rows(&warp.regs, &launch.insts[warp.pc], count)[lane];
            let pointer = match resolved {
                Resolved::Run(start) => start.wrapping_add(lane * ROW_BYTES as usize),
                Resolved::Lanes(pointers) => pointers[lane],
                Resolved::Same(_) | Resolved::Fault => return false,
            };
            // SAFETY: `resolve` checked 16 bytes at the pointer of each lane that gives the address of a row.
            return unsafe { pointer.cast::<[u16; MATRIX_ROWS]>().read_unaligned() } == row;
        }
        _ => return false,
    };
    let (count, bytes) = (elements.count as usize, elements.bytes as usize);
    let pointer = match resolved {
        Resolved::Run(start) => start.wrapping_add(lane * count * bytes),
        Resolved::Lanes(pointers) => pointers[lane],
        Resolved::Same(_) | Resolved::Fault => return false,
    };
    let is_data = |slot: u32| ELEMENTS[..count].iter().any(|&element| i.slots[element] == slot);
    let data = flow.reads.iter().filter(|read| is_data(read.slot));
    let width = data.map(|read| read.width).max().unwrap_or(elements.width());
    (0..count).all(|element| {
        let slot = i.slots[ELEMENTS[element]];
        let value = RegisterSlot { slot, width }.values(&warp.regs)[lane].to_le_bytes();
        (0..bytes).all(|byte| {
            // SAFETY: `resolve` checked all bytes of the access at the pointer of each active lane.
            let old = unsafe { pointer.wrapping_add(element * bytes + byte).read() };
            old == value[byte]
        })
    })
}

/// Prepares a strong access of the active lanes: a write releases at their addresses.
#[inline(never)]
pub(crate) fn release_at<'a>(cx: &mut ExecutionContext<'a>, i: &Inst, access: Access) -> LocationLock<'a> {
    let grid = cx.launch.races.as_ref()?;
    let (space, addresses) = located(cx, i)?;
    let accessor = accessor(cx, cx.active);
    let races = cx.cluster.races.as_deref_mut()?;
    let order = memory_order(i.slots[FLAGS], access).unwrap_or_default();
    races.release_at(grid, accessor, order, access, (space, &addresses))
}

/// Completes a strong access of the active lanes: a read acquires what was released at their addresses.
#[inline(never)]
pub(crate) fn acquire_at(cx: &mut ExecutionContext<'_>, i: &Inst, access: Access, lock: LocationLock<'_>) {
    let Some((space, addresses)) = located(cx, i) else { return };
    let accessor = accessor(cx, cx.active);
    let Some(races) = cx.cluster.races.as_deref_mut() else { return };
    let order = memory_order(i.slots[FLAGS], access).unwrap_or_default();
    races.acquire_at(accessor, order, access, (space, &addresses), lock);
}

/// Records a fence by the active lanes; `number` is that of a [`FenceOp`].
pub(crate) fn fence(cx: &mut ExecutionContext<'_>, number: u64) {
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.fence(cx.warp.index, cx.active, FenceOp::of_number(number));
    }
}

/// Records a `bar.warp.sync` by the active lanes.
pub(crate) fn sync_lanes(cx: &mut ExecutionContext<'_>) {
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.sync_lanes(cx.warp.index, cx.active);
    }
}

/// Records the arrival of the current warp at barrier `id` of its CTA. If the arrival completes the barrier, also
/// records the release of the warps in the list `released` from index `from`.
pub(crate) fn arrive_at_barrier(cx: &mut ExecutionContext<'_>, id: usize, from: usize) {
    let warp = cx.warp.index;
    let complete = cx.cluster.is_idle(warp, id);
    let barrier = cx.cluster.rank(warp) * BARRIERS + id;
    let Some(races) = cx.cluster.races.as_deref_mut() else { return };
    races.arrive_at_barrier(warp, barrier);
    if complete {
        races.complete_barrier(barrier, cx.cluster.released[from..].iter().map(|release| release.warp));
    }
}

/// Records that `lane` has initialised the mbarrier at `address`, which is a write of its bytes. Returns false if the
/// write races.
pub(crate) fn init_mbarrier(cx: &mut ExecutionContext<'_>, lane: usize, address: u64) -> bool {
    if !write_mbarrier(cx, lane, address) {
        return false;
    }
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.init_mbarrier(address, (cx.warp.index, lane as u32), cx.warp.pc);
    }
    true
}

/// Records that `lane` has invalidated an mbarrier: a write of its bytes, which are ordinary memory again. Returns false if
/// a use of the mbarrier did not happen before, or the write races.
pub(crate) fn invalidate_mbarrier(cx: &mut ExecutionContext<'_>, lane: usize, address: u64) -> bool {
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    match races.invalidate_mbarrier(address, (cx.warp.index, lane as u32)) {
        Ok(()) => write_mbarrier(cx, lane, address),
        Err(unordered) => {
            report::unordered_use(cx, (lane as u32, address), &unordered);
            false
        }
    }
}

/// Checks and records a write of an mbarrier's bytes by a lane; returns false if it races.
fn write_mbarrier(cx: &mut ExecutionContext<'_>, lane: usize, address: u64) -> bool {
    access_range(cx, lane, (Space::Shared, Access::Store), (address, MBARRIER_BYTES))
}

/// Checks and records a weak access of a range by a lane; returns false if it races.
pub(crate) fn access_range(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    (space, access): (Space, Access),
    (address, bytes): (u64, u64),
) -> bool {
    let accessor = accessor(cx, 1 << lane);
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    let what = MemoryAccess { space, access, addresses: LaneAddresses::Same(address), bytes };
    let Some(race) = races.access(accessor, None, &what) else { return true };
    report::race(cx, (space, access), bytes, race);
    false
}

/// Records a use of an mbarrier by lanes; `releases` is the release scope if the use is an arrival that releases.
/// Returns false if the mbarrier's initialisation did not happen before.
pub(crate) fn use_mbarrier(
    cx: &mut ExecutionContext<'_>,
    lanes: u32,
    address: u64,
    releases: Option<MemoryScope>,
) -> bool {
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    match races.use_mbarrier((cx.warp.index, lanes, cx.warp.pc), address, releases) {
        Ok(()) => true,
        Err(unordered) => {
            report::unordered_init(cx, address, &unordered);
            false
        }
    }
}

/// Records a test of an mbarrier by lanes, after the completed copies that signal it. Returns false if the mbarrier's
/// initialisation did not happen before.
pub(crate) fn test_mbarrier(cx: &mut ExecutionContext<'_>, lanes: u32, address: u64) -> bool {
    if !cx.cluster.completed.is_empty() {
        complete_copies(cx, Some(address));
    }
    for arrival in std::mem::take(&mut cx.cluster.asynchronous.arrived) {
        if let Some(races) = cx.cluster.races.as_deref_mut() {
            races.arrive_after_copies(address, &arrival.completed_elsewhere);
        }
    }
    if let Some(phase) = cx.cluster.asynchronous.mbarrier(address).map(|mbarrier| mbarrier.phase) {
        set_mbarrier_phase(cx, address, phase);
    }
    use_mbarrier(cx, lanes, address, None)
}

/// Records the current phase of the mbarrier at `address`.
pub(crate) fn set_mbarrier_phase(cx: &mut ExecutionContext<'_>, address: u64, phase: u64) {
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.set_mbarrier_phase(address, phase);
    }
}

/// Records that lanes have found the awaited phases of the mbarriers at `addresses` complete, with acquire semantics at
/// `scope`.
pub(crate) fn acquire_mbarriers(
    cx: &mut ExecutionContext<'_>,
    lanes: u32,
    addresses: &[u64; LANES],
    scope: MemoryScope,
) {
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.acquire_mbarriers(cx.warp.index, lanes, addresses, scope);
    }
}

/// Records an access by a lane to shared memory of the peer CTA with rank `rank`. `what` is the address, and whether
/// the access happens only when a copy completes. Returns false if the peer's start did not happen before.
pub(crate) fn access_peer(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    rank: usize,
    what: (u64, bool),
) -> bool {
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    races.access_peer((cx.warp.index, lane, cx.warp.pc), rank, what)
}

/// Records the arrival of the active lanes at the cluster barrier; `releases` is false for a relaxed arrival.
pub(crate) fn arrive_in_cluster(cx: &mut ExecutionContext<'_>, releases: bool) {
    let lanes = cluster_barrier_lanes(cx);
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.arrive_in_cluster(cx.warp.index, lanes, releases);
    }
}

/// Records that the active lanes have passed a wait at the cluster barrier.
pub(crate) fn acquire_cluster_barrier(cx: &mut ExecutionContext<'_>) {
    let lanes = cluster_barrier_lanes(cx);
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.acquire_cluster_barrier(cx.warp.index, lanes);
    }
}

/// Mask of the active lanes; all 32 bits if every lane that the launch started is active.
fn cluster_barrier_lanes(cx: &ExecutionContext<'_>) -> u32 {
    if cx.active == cx.warp.launched { u32::MAX } else { cx.active }
}

/// Checks a bulk copy that `lane` issues; returns false if a check reports a finding.
pub(crate) fn issue_bulk(cx: &mut ExecutionContext<'_>, lane: usize, copy: &BulkCopy) -> bool {
    let accessor = accessor(cx, 1 << lane);
    let group = cx.cluster.asynchronous.groups(cx.warp.index, true).committed[lane];
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    match races.issue_bulk(accessor, group, copy) {
        Ok(()) => cx.cluster.read_only.is_none() || read_only::issue_bulk(cx, lane, copy),
        Err(conflict) => {
            report::bulk_copy(cx, lane as u32, conflict, copy);
            false
        }
    }
}

/// Checks a `cp.async` whose lanes each write `bytes` consecutive bytes of shared memory and read the first `copied`
/// bytes from global memory. `addresses` are the first lane's target and source. Returns false if a check reports a
/// finding.
pub(crate) fn issue_cp_async(
    cx: &mut ExecutionContext<'_>,
    lanes: u32,
    addresses: (u64, u64),
    bytes: u64,
    copied: u64,
) -> bool {
    let accessor = accessor(cx, lanes);
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    match races.issue_cp_async(accessor, addresses, bytes, copied) {
        Ok(()) => true,
        Err(CopyRace { space, access, race }) => {
            report::race(cx, (space, access), bytes, race);
            false
        }
    }
}

/// Checks that the ranges of shared memory that the current warp's part of a `wgmma` reads were written before, and that
/// proxy fences follow the writes; returns false if a check reports a finding.
pub(crate) fn read_by_wgmma(cx: &mut ExecutionContext<'_>, ranges: &[(u64, u64)]) -> bool {
    let accessor = accessor(cx, u32::MAX);
    let Some(races) = cx.cluster.races.as_deref_mut() else { return true };
    match races.read_by_wgmma(accessor, ranges) {
        Ok(()) => true,
        Err(conflict) => {
            report::wgmma(cx, conflict);
            false
        }
    }
}

/// Records that the current warp has waited for the first `count` `wgmma` of its warpgroup; `reads` are the reads of
/// those operations that no other warp has waited for.
pub(crate) fn complete_wgmma(cx: &mut ExecutionContext<'_>, reads: &[CompletedRead], count: u64) {
    let warp = cx.warp.index;
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.complete_wgmma(warp, reads, count);
    }
}

/// Passes to the detector the copies that completed since the last call: those that signalled `mbarrier`, or those
/// whose groups a thread waited for.
pub(crate) fn complete_copies(cx: &mut ExecutionContext<'_>, mbarrier: Option<u64>) {
    let completed = std::mem::take(&mut cx.cluster.completed);
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.complete_copies(&completed, mbarrier, &mut cx.cluster.asynchronous.arrivals);
    }
}

/// Passes to the detector that lanes of the current warp have waited for copies in groups below `limits`: copies that completed
/// since the last call, and for bulk copies the writes of global memory.
pub(crate) fn complete_groups(cx: &mut ExecutionContext<'_>, bulk: bool, limits: &[u32; LANES]) {
    complete_copies(cx, None);
    if bulk && let Some(races) = cx.cluster.races.as_deref_mut() {
        races.complete_writes(cx.warp.index, limits);
    }
}

/// Passes to the detector that lanes of the current warp have waited, with `.read`, for bulk copies in groups below `limits`.
pub(crate) fn complete_reads(cx: &mut ExecutionContext<'_>, limits: &[u32; LANES]) {
    let read = std::mem::take(&mut cx.cluster.completed);
    if let Some(races) = cx.cluster.races.as_deref_mut() {
        races.complete_reads(&read, cx.warp.index, limits);
    }
}

/// Ends a cluster and checks its accesses for conflicts with other clusters. The error is a warp's index and its fault.
pub(crate) fn finish(
    launch: &Launch<'_>,
    cluster: &mut ClusterState,
    grid: &GridDetector,
) -> Result<(), (usize, Box<Fault>)> {
    let Some(races) = cluster.races.as_deref_mut() else { return Ok(()) };
    races.finish(grid).map_err(|conflict| match conflict {
        EndConflict::LatePeerAccess(late) => (late.warp, Box::new(report::late_peer_access(cluster, &late))),
        EndConflict::Race(race) => (race.warp, Box::new(report::cluster_race(launch, cluster, &race))),
    })
}

/// Checks that lanes of a store whose bytes overlap write the same value to the same address; returns false if a check
/// reports a finding.
pub(crate) fn stores_agree<T: PartialEq>(
    cx: &mut ExecutionContext<'_>,
    pointers: &[*mut u8; LANES],
    values: &[T; LANES],
) -> bool {
    if !cx.launch.checks.different_values {
        return true;
    }
    let bytes = size_of::<T>();
    let active = cx.active;
    let mut before: Option<usize> = None;
    let mut ascending = || {
        lanes_of(active).all(|lane| {
            let last = before.replace(pointers[lane] as usize);
            last.is_none_or(|last| last + bytes <= pointers[lane] as usize)
        })
    };
    if cx.cluster.races.as_ref().is_none_or(|races| races.stores_are_disjoint()) || ascending() {
        return true;
    }
    for lane in lanes_of(active) {
        for earlier in lanes_of(active & ((1 << lane) - 1)) {
            let distance = (pointers[lane] as usize).abs_diff(pointers[earlier] as usize);
            if distance < bytes && (distance != 0 || values[lane] != values[earlier]) {
                let detail = format!(
                    "lanes {earlier} and {lane} of this store write different values to the same address"
                );
                cx.fault(FindingKind::Race, lane as u32, detail);
                return false;
            }
        }
    }
    true
}
