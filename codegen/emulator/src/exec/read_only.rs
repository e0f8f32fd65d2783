//! Passes accesses of global memory to the check of memory that `ld.global.nc` reads, and reports its conflicts.

use super::race_report::other_access;
use crate::checks::races::{BulkCopy, MemoryAccess};
use crate::checks::read_only::{AccessedBy, ReadOnlyConflict};
use crate::code::access::{Access, FLAG_NON_COHERENT};
use crate::context::cluster::ClusterState;
use crate::context::fault::Fault;
use crate::context::warp::Warp;
use crate::context::{ExecutionContext, Launch, Worker};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;

/// Checks and records an access by an instruction with these flags; returns false if a check reports a finding.
#[cold]
pub(super) fn access(cx: &mut ExecutionContext<'_>, flags: u32, what: &MemoryAccess<'_>) -> bool {
    let writes = matches!(what.access, Access::Store | Access::Atomic);
    let is_non_coherent = what.access == Access::Load && flags & FLAG_NON_COHERENT != 0;
    if what.space != Space::Global || !writes && !is_non_coherent {
        return true;
    }
    let Some(accesses) = &mut cx.cluster.read_only else { return true };
    let thread = threads_of((cx.cluster.index, cx.warp));
    report(
        cx.launch,
        cx.worker,
        accesses.record_lanes(cx.active, (&what.addresses, what.bytes), writes, thread),
    )
}

/// Checks and records the write of a bulk copy to global memory; returns false if a check reports a finding.
#[cold]
pub(super) fn issue_bulk(cx: &mut ExecutionContext<'_>, lane: usize, copy: &BulkCopy) -> bool {
    if copy.target.0 != Space::Global {
        return true;
    }
    let Some(accesses) = &mut cx.cluster.read_only else { return true };
    let by = threads_of((cx.cluster.index, cx.warp))(lane);
    let ranges = copy.target_ranges();
    let conflict = ranges.iter().find_map(|&range| accesses.record(range, true, |_| by));
    report(cx.launch, cx.worker, conflict)
}

/// The access of a lane by the current instruction of its warp.
fn threads_of((cluster, warp): (u64, &Warp)) -> impl Fn(usize) -> AccessedBy {
    let (first, pc) = (warp.index * LANES, warp.pc as u32);
    move |lane| AccessedBy { cluster, thread: (first + lane) as u32, pc }
}

/// Sets the fault of a conflict; returns false if there is one.
fn report(launch: &Launch<'_>, worker: &mut Worker, conflict: Option<ReadOnlyConflict>) -> bool {
    let Some(conflict) = conflict else { return true };
    worker.fault = Some(Box::new(fault(launch, conflict)));
    false
}

/// Adds the accesses of a cluster that ends to those of the launch. Returns a conflict with a cluster that ended before, as the
/// index of a warp and its fault.
pub(crate) fn finish(launch: &Launch<'_>, cluster: &ClusterState) -> Option<(usize, Box<Fault>)> {
    let conflict = launch.read_only.as_ref()?.merge(cluster.read_only.as_ref()?)?;
    let fault = fault(launch, conflict).at(conflict.later.pc as usize);
    Some((conflict.later.thread as usize / LANES, Box::new(fault)))
}

fn fault(launch: &Launch<'_>, conflict: ReadOnlyConflict) -> Fault {
    let ReadOnlyConflict { address, earlier, later, writes } = conflict;
    let detail = match writes {
        true => format!(
            "write to global memory at {address:#x}, which this launch has read with `ld.global.nc`: such memory must not change \
             while the kernel runs"
        ),
        false => format!(
            "`ld.global.nc` of global memory at {address:#x}, which this launch has written: such memory must not change while \
             the kernel runs, since the load may return old data; use `ld.global`"
        ),
    };
    let other = other_access(
        launch,
        earlier.cluster,
        (earlier.pc as usize, !writes),
        (Some(earlier.thread as usize), 0),
    );
    Fault {
        address: Some(address),
        space: Some(Space::Global),
        nearest: launch.table.nearest(address, 4),
        other: Some(other),
        ..Fault::new(FindingKind::Race, later.thread % LANES as u32, detail)
    }
}
