//! `griddepcontrol`, and the check that accesses of global memory respect programmatic dependent launch.

use crate::checks::programmatic::{Dependency, GlobalAccess, LaunchOrder};
use crate::code::access::Access;
use crate::context::fault::Fault;
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};

/// Checks and records the accesses of the active lanes, `bytes` bytes each; returns false if a check reports a finding.
#[inline(never)]
pub(crate) fn check_lanes(
    cx: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    access: Access,
) -> bool {
    // Source line and allocation hint belong to the instruction, so they are looked up once for all lanes.
    let mut what = access_of(cx, 0, (0, bytes), access);
    let mut last = None;
    for lane in lanes_of(cx.active) {
        what = GlobalAccess { address: addresses[lane], waited: has_waited(cx, lane), ..what };
        // Neighbouring lanes often access the same granule, which is then checked once.
        let span = (what.granules(), what.waited);
        if last != Some(span) && !check(cx, lane, &what) {
            return false;
        }
        last = Some(span);
    }
    true
}

/// Checks and records an access of 32 lanes to consecutive ranges of `bytes` bytes from `start`; returns false if a
/// check reports a finding.
#[inline(never)]
pub(crate) fn check_run(cx: &mut ExecutionContext<'_>, start: u64, bytes: u64, access: Access) -> bool {
    if cx.warp.waited == u32::MAX {
        return check_access(cx, 0, (start, LANES as u64 * bytes), access);
    }
    check_lanes(cx, &std::array::from_fn(|lane| start + lane as u64 * bytes), bytes, access)
}

/// Checks and records one access inside one allocation; returns false if a check reports a finding.
pub(crate) fn check_access(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    range: (u64, u64),
    access: Access,
) -> bool {
    cx.launch.order.is_none() || check(cx, lane, &access_of(cx, lane, range, access))
}

fn access_of(
    cx: &ExecutionContext<'_>,
    lane: usize,
    (address, bytes): (u64, u64),
    access: Access,
) -> GlobalAccess {
    GlobalAccess {
        address,
        bytes,
        access,
        waited: has_waited(cx, lane),
        line: cx.launch.program.place(cx.warp.pc).line,
        hint: cx.worker.hints[cx.warp.pc] as usize,
    }
}

/// Whether the lane knows that the earlier launches are complete.
fn has_waited(cx: &ExecutionContext<'_>, lane: usize) -> bool {
    cx.warp.waited >> lane & 1 != 0
}

fn check(cx: &mut ExecutionContext<'_>, lane: usize, what: &GlobalAccess) -> bool {
    let Some(order) = cx.launch.order else { return true };
    let Err(dependency) = order.check_and_record(what) else { return true };
    refuse(cx, lane, what, (order, dependency));
    false
}

/// Sets the fault of an access that conflicts with an access of an earlier launch.
#[cold]
fn refuse(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    what: &GlobalAccess,
    (order, dependency): (&LaunchOrder, Dependency),
) {
    cx.worker.fault = Some(Box::new(Fault {
        address: Some(what.address),
        space: Some(Space::Global),
        nearest: cx.launch.table.nearest(what.address, what.bytes),
        ..Fault::new(FindingKind::ProgrammaticDependency, lane as u32, order.describe(what, dependency))
    }));
}

/// `griddepcontrol.wait`: waits for the completion of the earlier launches.
pub(crate) fn wait(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    cx.warp.waited |= cx.active;
    cx.cluster.waited = true;
    Flow::Next
}

/// `griddepcontrol.launch_dependents`: signals that the next launch may start.
pub(crate) fn launch_dependents(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    if !cx.cluster.triggered
        && let Some(order) = cx.launch.order
    {
        cx.cluster.triggered = true;
        order.trigger(cx.cluster.waited && cx.active & !cx.warp.waited == 0);
    }
    Flow::Next
}
