//! Passes accesses of global memory to the check of memory that `ld.global.nc` reads, and reports its conflicts.

use super::race_report::other_access;
use crate::checks::races::{BulkCopy, MemoryAccess};
use crate::checks::read_only::{AccessedBy, ReadOnlyConflict};
use crate::code::access::{Access, FLAG_NON_COHERENT};
use crate::context::cluster::ClusterState;
use crate::context::fault::Fault;
use crate::context::{ExecutionContext, Launch};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};

/// Checks and records an access by an instruction with these flags; returns false if a check reports a finding.
#[cold]
pub(super) fn access(cx: &mut ExecutionContext<'_>, flags: u32, what: &MemoryAccess<'_>) -> bool {
    let writes = matches!(what.access, Access::Store | Access::Atomic);
    let is_non_coherent = what.access == Access::Load && flags & FLAG_NON_COHERENT != 0;
    if what.space != Space::Global || !writes && !is_non_coherent {
        return true;
    }
    let addresses = what.addresses.to_array(what.bytes);
    lanes_of(cx.active).all(|lane| record(cx, lane, (addresses[lane], what.bytes), writes))
}

/// Checks and records the write of a bulk copy to global memory; returns false if a check reports a finding.
#[cold]
pub(super) fn issue_bulk(cx: &mut ExecutionContext<'_>, lane: usize, copy: &BulkCopy) -> bool {
    if copy.target.0 != Space::Global {
        return true;
    }
    copy.target_ranges().iter().all(|&range| record(cx, lane, range, true))
}

/// Checks and records an access of a range by a lane.
fn record(cx: &mut ExecutionContext<'_>, lane: usize, range: (u64, u64), writes: bool) -> bool {
    let thread = (cx.warp.index * LANES + lane) as u32;
    let by = AccessedBy { cluster: cx.cluster.index, thread, pc: cx.warp.pc as u32 };
    let Some(accesses) = &mut cx.cluster.read_only else { return true };
    let Some(conflict) = accesses.record(range, writes, by) else { return true };
    cx.worker.fault = Some(Box::new(fault(cx.launch, conflict)));
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
