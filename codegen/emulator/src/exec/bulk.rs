//! `cp.async.bulk`: copies of byte ranges between global memory and the shared memory of the CTAs of a cluster.

use super::mbarrier::{misuse, no_mbarrier};
use super::operand_list::{ADDRESS, listed, push_address, take_cache};
use super::races;
use super::reduction;
use super::resolve::{resolve_cluster_range, resolve_range};
use super::shared_access::SharedAccess;
use std::sync::Arc;

use crate::asynchronous::{AsyncCopy, Content, Reduction, Signal, Tile};
use crate::checks::races::BulkCopy;
use crate::code::access::Access;
use crate::code::cursor::InstructionCursor;
use crate::code::operands::NONE;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Alignment in bytes of the addresses of a bulk copy, and granularity of its size.
pub(super) const BULK_ALIGNMENT: u64 = 16;
/// Operands of a `cp.async.bulk`: each lane copies one range of bytes.
pub(crate) struct BulkCopies {
    pub(crate) targets: [u64; LANES],
    pub(crate) sources: [u64; LANES],
    pub(crate) sizes: [u32; LANES],
    pub(crate) into_shared: bool,
    /// Whether the source is in shared memory.
    pub(crate) from_shared: bool,
    mbarriers: Option<[u64; LANES]>,
    /// For `.multicast::cluster`: destination CTAs of each lane's copy, as a bit mask of ranks.
    pub(crate) masks: Option<[u16; LANES]>,
}

/// Flag of a bulk copy with an mbarrier: the source is in shared memory.
const FROM_SHARED: u32 = 1;
/// Flag of a bulk copy: `.multicast::cluster`.
const MULTICAST: u32 = 2;
/// Flag of a bulk copy: the destination must be in the executing CTA's own shared memory.
const OWN_TARGET: u32 = 4;
/// Position of the lowest bit of the reduction's number in a bulk copy's flags.
const REDUCTION_SHIFT: u32 = 8;
/// Positions in the operand list of a bulk copy: its flags, and the mbarrier that it signals.
const BULK_FLAGS: usize = 2 * ADDRESS + 1;
const BULK_MBARRIER: usize = BULK_FLAGS + 2;

/// Reads the operand list of a bulk copy: target, source, slot of the byte count, flags, slot of the mask of ranks, and
/// for a copy into shared memory the mbarrier.
pub(crate) fn bulk_copies(cx: &ExecutionContext<'_>, i: &Inst) -> BulkCopies {
    let list = cx.launch.program.list(i.imm);
    let (targets, sources) = (listed(cx, list), listed(cx, &list[ADDRESS..]));
    let sizes = *cx.warp.regs.lanes::<u32>(list[2 * ADDRESS]);
    let mbarriers = list.get(BULK_MBARRIER..).filter(|rest| !rest.is_empty()).map(|rest| listed(cx, rest));
    let flags = list[BULK_FLAGS];
    let mask = || *cx.warp.regs.lanes::<u16>(list[BULK_FLAGS + 1]);
    BulkCopies {
        targets,
        sources,
        sizes,
        into_shared: mbarriers.is_some(),
        from_shared: mbarriers.is_none() || flags & FROM_SHARED != 0,
        mbarriers,
        masks: (flags & MULTICAST != 0).then(mask),
    }
}

fn bulk_copy(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let copies = bulk_copies(cx, i);
    let flags = cx.launch.program.list(i.imm)[BULK_FLAGS];
    let (own, reduction) = (flags & OWN_TARGET != 0, reduction::numbered(flags >> REDUCTION_SHIFT));
    for lane in cx.active_lanes() {
        let size = copies.sizes[lane] as u64;
        if !size.is_multiple_of(BULK_ALIGNMENT) {
            let detail = format!("a bulk copy of {size} bytes, which is not a multiple of 16");
            return cx.fault(FindingKind::Misaligned, lane as u32, detail);
        }
        let space = if copies.from_shared { Space::Shared } else { Space::Global };
        let from = (copies.sources[lane], size);
        let Some(source) = resolve_range(cx, lane, (space, Access::Load), from, BULK_ALIGNMENT) else {
            return Flow::Fault;
        };
        let target = copies.targets[lane];
        let mbarrier = copies.mbarriers.map(|mbarriers| mbarriers[lane]);
        let from = (space, from.0);
        let alignment = BULK_ALIGNMENT;
        let part =
            BulkPart { lane, from, source, size, target, alignment, mbarrier, own, tile: None, reduction };
        if !issue(cx, part, copies.masks.map(|masks| masks[lane])) {
            return Flow::Fault;
        }
    }
    Flow::Next
}

/// Checks and issues a copy to its target, or for a multicast to the CTAs whose ranks are in the mask; returns false if a
/// check reports a finding.
pub(super) fn issue(cx: &mut ExecutionContext<'_>, part: BulkPart, mask: Option<u16>) -> bool {
    let Some(mask) = mask else { return issue_part(cx, part) };
    let (mask, ctas) = (mask as u64, cx.cluster.layout.ctas);
    if mask >> ctas != 0 {
        let detail = format!("multicast mask {mask:#x} names ranks outside a cluster of {ctas} CTAs");
        cx.fault(FindingKind::OutOfBounds, part.lane as u32, detail);
        return false;
    }
    (0..ctas).filter(|&rank| mask >> rank & 1 != 0).all(|rank| {
        let cluster = &cx.cluster.layout;
        let there = |address: u64| cluster.base(rank) + cluster.locate(address).1;
        let (target, mbarrier) = (there(part.target), part.mbarrier.map(there));
        issue_part(cx, BulkPart { target, mbarrier, ..part.clone() })
    })
}

/// Bulk copy of one lane to one destination. The source range has already been checked.
#[derive(Clone)]
pub(super) struct BulkPart {
    pub(super) lane: usize,
    pub(super) from: (Space, u64),
    pub(super) source: *mut u8,
    pub(super) size: u64,
    pub(super) target: u64,
    /// Alignment of a target in shared memory.
    pub(super) alignment: u64,
    pub(super) mbarrier: Option<u64>,
    /// Whether the target must be in the executing CTA's own shared memory.
    pub(super) own: bool,
    /// The box, if the copy is of a box of a tensor.
    pub(super) tile: Option<TensorBox>,
    /// For `cp.reduce`: how the target's elements are combined with the source's.
    pub(super) reduction: Option<Reduction>,
}

/// A box of a tensor whose parts in global memory have been checked.
#[derive(Clone)]
pub(super) struct TensorBox {
    pub(super) tile: Arc<Tile>,
    /// Address and size of the parts in global memory.
    pub(super) ranges: Arc<[(u64, u64)]>,
}

/// Checks and issues a bulk copy to one target; returns false if a check reports a finding.
fn issue_part(cx: &mut ExecutionContext<'_>, part: BulkPart) -> bool {
    let BulkPart { lane, from, source, size, target: to, alignment, mbarrier, own, tile, reduction } = part;
    let into_shared = mbarrier.is_some();
    let space = if into_shared { Space::Shared } else { Space::Global };
    let access = if reduction.is_some() { Access::Atomic } else { Access::Store };
    let target = match space {
        Space::Shared => {
            let shared = SharedAccess {
                lane,
                address: to,
                bytes: size,
                access,
                own_cta_only: own,
                asynchronous: true,
            };
            resolve_cluster_range(cx, shared, alignment)
        }
        _ if tile.is_some() => Some(std::ptr::null_mut()),
        _ => resolve_range(cx, lane, (space, access), (to, size), BULK_ALIGNMENT),
    };
    let Some(target) = target else { return false };
    if let Some(mbarrier) = mbarrier
        && !signals_there(cx, lane, (to, mbarrier))
    {
        return false;
    }
    if cx.cluster.races.is_some() {
        let ordered = mbarrier.is_none_or(|mbarrier| races::use_mbarrier(cx, 1 << lane, mbarrier, None));
        let parts = tile.as_ref().map(|tile| tile.ranges.clone());
        let target = (space, to);
        let is_atomic = reduction.is_some();
        let bulk = BulkCopy { source: Some(from), target, bytes: size, mbarrier, is_atomic, parts };
        if !ordered || !races::issue_bulk(cx, lane, &bulk) {
            return false;
        }
    }
    let (warp, pc) = (cx.warp.index, cx.warp.pc);
    let from_shared = from.0 == Space::Shared;
    let moved = tile.as_ref().map_or(size, |tile| tile.ranges.iter().map(|(_, bytes)| bytes).sum());
    if !from_shared {
        cx.worker.counters.global_bytes_loaded += moved;
    }
    if !into_shared {
        cx.worker.counters.global_bytes_stored += moved;
    }
    let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
    let within = if into_shared { to } else { from.1 };
    shared.reserve(within, size, into_shared);
    let second = (from_shared && into_shared).then_some(from.1);
    if let Some(from) = second {
        shared.reserve(from, size, false);
    }
    let copy = AsyncCopy {
        warp,
        lanes: 1 << lane,
        pc,
        sequence: 0,
        signal: mbarrier.map_or(Signal::Group(0), Signal::Mbarrier),
        source,
        target,
        shared: within,
        bytes: size as u32,
        copied: size as u32,
        into_shared,
        from_shared: second,
        content: tile.map_or(Content::Bytes, |tile| Content::Tile(tile.tile)),
        reduction,
        is_due: false,
    };
    match into_shared {
        true => under_way.signalling.push(copy),
        false => under_way.groups(warp, true).issue(copy),
    }
    true
}

/// Checks that the mbarrier of an asynchronous copy or store is in the same CTA as the target; returns false if a check
/// reports a finding.
pub(crate) fn signals_there(
    cx: &mut ExecutionContext<'_>,
    lane: usize,
    (target, mbarrier): (u64, u64),
) -> bool {
    let [there, here] = [target, mbarrier].map(|address| cx.cluster.layout.locate(address).0);
    if there != here {
        let detail = format!(
            "what goes into the shared memory of the CTA of rank {there} must signal an mbarrier there, not one of \
             the CTA of rank {here}"
        );
        misuse(cx, lane, mbarrier, detail);
        return false;
    }
    if cx.cluster.asynchronous.mbarrier(mbarrier).is_none() {
        no_mbarrier(cx, lane, mbarrier);
        return false;
    }
    true
}

/// `cp.async.bulk.prefetch.L2`: only checks that the range is allocated.
fn bulk_prefetch(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.imm);
    let addresses = listed(cx, list);
    let sizes = *cx.warp.regs.lanes::<u32>(list[ADDRESS]);
    for lane in cx.active_lanes() {
        let size = sizes[lane] as u64;
        if !size.is_multiple_of(BULK_ALIGNMENT) {
            let detail = format!("a bulk prefetch of {size} bytes, which is not a multiple of 16");
            return cx.fault(FindingKind::Misaligned, lane as u32, detail);
        }
        let what = (Space::Global, Access::Prefetch);
        if size > 0 && resolve_range(cx, lane, what, (addresses[lane], size), BULK_ALIGNMENT).is_none() {
            return Flow::Fault;
        }
    }
    Flow::Next
}

pub(super) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let mut list = Vec::new();
    if op.take("prefetch") {
        if !op.take("L2") || !op.take("global") {
            return Err(op.unsupported());
        }
        let policy = take_cache(op);
        push_address(op, 0, &mut list, false)?;
        list.push(op.src(1, Ty::U32)?);
        if policy {
            op.src(2, Ty::B64)?;
        }
        op.imm = op.list(list);
        return Ok(bulk_prefetch);
    }
    let policy = take_cache(op);
    let (cluster, cta) = (op.take("shared::cluster"), op.take("shared::cta"));
    let grouped = op.take("bulk_group");
    let signals = op.take("mbarrier::complete_tx::bytes");
    let multicast = op.take("multicast::cluster");
    let global = op.take("global");
    // A bulk copy from shared memory, to a peer CTA or to global memory, reads the executing CTA's own shared memory.
    let flags = match (global, cluster, cta) {
        (true, true, false) if signals => 0,
        (true, false, true) if signals || grouped => OWN_TARGET,
        (false, true, true) if signals && !multicast => FROM_SHARED,
        _ => return Err(op.unsupported()),
    };
    if grouped == signals || multicast && flags != 0 {
        return Err(op.unsupported());
    }
    push_address(op, 0, &mut list, signals)?;
    push_address(op, 1, &mut list, flags & FROM_SHARED != 0 || grouped)?;
    list.push(op.src(2, Ty::U32)?);
    let mut next = 3 + signals as usize;
    list.push(flags | if multicast { MULTICAST } else { 0 });
    list.push(if multicast { op.src(next, Ty::B16)? } else { NONE });
    next += multicast as usize;
    if signals {
        push_address(op, 3, &mut list, true)?;
    }
    if policy {
        op.src(next, Ty::B64)?;
    }
    op.imm = op.list(list);
    Ok(bulk_copy)
}

/// `cp.reduce.async.bulk` of shared memory into global memory.
pub(super) fn decode_reduction(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let policy = take_cache(op);
    if !op.take("global") || !op.take("shared::cta") || !op.take("bulk_group") {
        return Err(op.unsupported());
    }
    let Some(operation) = reduction::take_operation(op) else { return Err(op.unsupported()) };
    let preserves_subnormals = op.take("noftz");
    let ty = op.take_ty()?;
    let number = reduction::number(operation, ty);
    let Some(number) = number.filter(|_| preserves_subnormals == matches!(ty, Ty::F16 | Ty::Bf16)) else {
        return Err(op.unsupported());
    };
    let mut list = Vec::new();
    push_address(op, 0, &mut list, false)?;
    push_address(op, 1, &mut list, true)?;
    list.extend([op.src(2, Ty::U32)?, OWN_TARGET | number << REDUCTION_SHIFT, NONE]);
    if policy {
        op.src(3, Ty::B64)?;
    }
    op.imm = op.list(list);
    Ok(bulk_copy)
}
