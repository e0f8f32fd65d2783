//! `griddepcontrol`, and the accesses of global memory that programmatic order checks.

use crate::checks::programmatic::Touch;
use crate::code::access::Access;
use crate::context::{ExecutionContext, Fault, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};

/// Checks and records the accesses of all active lanes, `bytes` each; false if there is a finding.
#[inline(never)]
pub(crate) fn touch_lanes(
    m: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    bytes: u64,
    access: Access,
) -> bool {
    let mut last = None;
    for lane in lanes_of(m.active) {
        let what = touch_of(m, lane, (addresses[lane], bytes), access);
        // Neighbours share a granule.
        let span = (what.granules(), what.waited);
        if last != Some(span) && !check(m, lane, &what) {
            return false;
        }
        last = Some(span);
    }
    true
}

/// Checks and records 32 accesses of `bytes` each, one after the other; false if there is a finding.
#[inline(never)]
pub(crate) fn touch_run(m: &mut ExecutionContext<'_>, start: u64, bytes: u64, access: Access) -> bool {
    if m.warp.waited == u32::MAX {
        return touch(m, 0, (start, LANES as u64 * bytes), access);
    }
    touch_lanes(m, &std::array::from_fn(|lane| start + lane as u64 * bytes), bytes, access)
}

/// Checks and records one access, which lies in one allocation; false if there is a finding.
pub(crate) fn touch(m: &mut ExecutionContext<'_>, lane: usize, range: (u64, u64), access: Access) -> bool {
    let what = touch_of(m, lane, range, access);
    check(m, lane, &what)
}

fn touch_of(m: &ExecutionContext<'_>, lane: usize, (address, bytes): (u64, u64), access: Access) -> Touch {
    Touch {
        address,
        bytes,
        access,
        waited: m.warp.waited >> lane & 1 != 0,
        line: m.launch.program.place(m.warp.pc).line,
        hint: m.worker.hints[m.warp.pc] as usize,
    }
}

fn check(m: &mut ExecutionContext<'_>, lane: usize, what: &Touch) -> bool {
    let Some(order) = m.launch.order else { return true };
    let Err(dependency) = order.touch(what) else { return true };
    m.worker.fault = Some(Box::new(Fault {
        address: Some(what.address),
        space: Some(Space::Global),
        nearest: m.launch.table.nearest(what.address, what.bytes),
        ..Fault::new(FindingKind::ProgrammaticDependency, lane as u32, order.explain(what, dependency))
    }));
    false
}

/// `griddepcontrol.wait`.
pub(crate) fn wait(m: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    m.warp.waited |= m.active;
    m.cluster.waited = true;
    Flow::Next
}

/// `griddepcontrol.launch_dependents`.
pub(crate) fn launch_dependents(m: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    if !m.cluster.triggered
        && let Some(order) = m.launch.order
    {
        m.cluster.triggered = true;
        order.let_successor_start(m.cluster.waited && m.active & !m.warp.waited == 0);
    }
    Flow::Next
}
