//! Faults of accesses that are out of bounds, misaligned, uninitialised, or in memory that an asynchronous copy has
//! reserved.

use super::race_report::other_access;
use crate::asynchronous::ReservedBy;
use crate::code::access::{Access, PARAM_WINDOW};
use crate::context::fault::Fault;
use crate::context::{ExecutionContext, Flow};
use crate::finding::{FindingKind, Neighbour, Space};
use crate::lanes::LANES;

/// Access that failed a check.
pub(super) struct RefusedAccess {
    pub(super) lane: usize,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) alignment: u64,
}

/// Sets the fault of an access that failed a check. `kind` is `Misaligned`, or `OutOfBounds` for any other failure;
/// this function then finds the actual kind.
#[cold]
pub(super) fn refuse(
    cx: &mut ExecutionContext<'_>,
    kind: FindingKind,
    refused: RefusedAccess,
    (space, access): (Space, Access),
) -> Flow {
    let RefusedAccess { lane, address, bytes, alignment } = refused;
    let nearest = match space {
        Space::Global => cx.launch.table.nearest(address, bytes),
        Space::Shared => cx.cluster.nearest_shared(address, bytes),
        Space::Param => {
            let block = (PARAM_WINDOW, cx.launch.params.len() as u64);
            Some(Neighbour::new("parameters", block, (address, bytes)))
        }
        // The stack of `alloca` has no variables.
        Space::Local if address >= cx.launch.program.stack => None,
        Space::Local => {
            let variables = cx.launch.program.local_variables.iter();
            let neighbours =
                variables.map(|v| Neighbour::new(&v.name, (v.offset, v.bytes), (address, bytes)));
            neighbours.min_by_key(|neighbour| neighbour.outside.unsigned_abs())
        }
    };
    let inside = match space {
        Space::Global => {
            let found = cx.launch.table.find(address);
            found.is_some_and(|index| cx.launch.table.live[index].contains(address, bytes))
        }
        Space::Shared => {
            let fits = address.checked_add(bytes).is_some_and(|end| end <= cx.cluster.shared.bytes);
            fits && !cx.cluster.is_between_variables(address, bytes)
        }
        Space::Local => {
            let fits = address.checked_add(bytes).is_some_and(|end| end <= cx.warp.local.bytes);
            fits && cx.launch.program.is_in_local_variable(address, bytes)
        }
        Space::Param => access != Access::Load,
    };
    let holder = match space {
        Space::Shared if inside && cx.cluster.shared.reservations.any(address, bytes) => {
            cx.cluster.asynchronous.reserved_by((address, bytes), access != Access::Load)
        }
        _ => None,
    };
    let kind = match (kind, holder) {
        (FindingKind::OutOfBounds, Some(ReservedBy::Mbarrier)) => FindingKind::Mbarrier,
        (FindingKind::OutOfBounds, Some(ReservedBy::Wgmma(_))) => FindingKind::Wgmma,
        (FindingKind::OutOfBounds, Some(_)) => FindingKind::AsyncCopy,
        (FindingKind::OutOfBounds, None) if inside && space != Space::Param => FindingKind::Uninitialised,
        (kind, _) => kind,
    };
    let verb = access.verb();
    let place = match space {
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Param => "parameter",
        Space::Local => "local",
    };
    let line = |pc| cx.launch.program.place(pc).line;
    let why = match (kind, holder) {
        (FindingKind::Misaligned, _) => format!(", which is not a multiple of {alignment}"),
        (_, Some(ReservedBy::Mbarrier)) => ", which holds an mbarrier".to_string(),
        (_, Some(ReservedBy::CopyTarget(pc))) => {
            format!(
                ", which the asynchronous copy at PTX line {} writes; that copy has not been waited for",
                line(pc)
            )
        }
        (_, Some(ReservedBy::CopySource(pc))) => {
            format!(
                ", which the asynchronous copy at PTX line {} reads; that copy has not been waited for",
                line(pc)
            )
        }
        (_, Some(ReservedBy::Wgmma(pc))) => {
            format!(
                ", which the `wgmma` at PTX line {} reads; that `wgmma` has not been waited for",
                line(pc)
            )
        }
        (FindingKind::Uninitialised, None) => ", some bytes of which are uninitialised".to_string(),
        _ => String::new(),
    };
    let detail = format!("{bytes}-byte {verb} {place} memory at {address:#x}{why}");
    let earlier = match holder {
        Some(ReservedBy::CopyTarget(pc)) => Some((pc, true)),
        Some(ReservedBy::CopySource(pc) | ReservedBy::Wgmma(pc)) => Some((pc, false)),
        Some(ReservedBy::Mbarrier) | None => None,
    };
    let near = cx.warp.index * LANES;
    let other =
        earlier.map(|(pc, writes)| other_access(cx.launch, cx.cluster.index, (pc, writes), (None, near)));
    cx.worker.fault = Some(Box::new(Fault {
        address: Some(address),
        space: Some(space),
        nearest,
        other,
        ..Fault::new(kind, lane as u32, detail)
    }));
    Flow::Fault
}
