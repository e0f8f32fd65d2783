//! `cp.async`: copies by lanes, groups of copies, and waits for groups. [`bulk`] has `cp.async.bulk`, [`tensor`] copies of
//! boxes of tensors.

use super::addresses::shared_addresses;
use super::bulk;
use super::load_store::{address_operand, take_space};
use super::mbarrier::{MbarrierUse, misuse, no_mbarrier, reach_mbarriers};
use super::operand_list::{ADDRESS, listed, push_address, take_cache};
use super::races;
use super::resolve::resolve_range;
use super::tensor;
use crate::asynchronous::{AsyncCopy, Content, DeferredArrival, Signal};
use crate::code::access::{Access, StateSpace};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::NONE;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// A `cp.async` by adjacent lanes whose ranges are contiguous: each lane writes `bytes` bytes, the first `copied` from
/// the source and the rest zero.
struct ContiguousCopy {
    lanes: u32,
    source: u64,
    target: u64,
    bytes: u32,
    copied: u32,
}

/// Operands of a `cp.async`: each lane writes `bytes` bytes to its target, the first `counts` from its source and the
/// rest zero.
pub(crate) struct LaneCopies {
    pub(crate) targets: [u64; LANES],
    pub(crate) sources: [u64; LANES],
    pub(crate) counts: [u32; LANES],
    pub(crate) bytes: u32,
}

/// Reads the operand list of a `cp.async`: target, source, bytes per lane, slot of the number of bytes to read, and
/// slot of the predicate under which nothing is read.
pub(crate) fn lane_copies(cx: &ExecutionContext<'_>, i: &Inst) -> LaneCopies {
    let list = cx.launch.program.list(i.imm);
    let (targets, sources) = (listed(cx, list), listed(cx, &list[ADDRESS..]));
    let [bytes, partial, ignored] = [list[2 * ADDRESS], list[2 * ADDRESS + 1], list[2 * ADDRESS + 2]];
    let mut counts = if partial == NONE { [bytes; LANES] } else { *cx.warp.regs.lanes::<u32>(partial) };
    let ignored = if ignored == NONE { 0 } else { cx.mask(ignored) };
    for lane in lanes_of(cx.active & ignored) {
        counts[lane] = 0;
    }
    LaneCopies { targets, sources, counts, bytes }
}

fn copy(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let LaneCopies { targets, sources, counts, bytes } = lane_copies(cx, i);
    if let Some(lane) = cx.active_lanes().find(|&lane| counts[lane] > bytes) {
        let detail = format!("a copy of {bytes} bytes with a source size of {}", counts[lane]);
        return cx.fault(FindingKind::OutOfBounds, lane as u32, detail);
    }
    let committed = cx.cluster.asynchronous.groups(cx.warp.index, false).committed;
    let follows = |lane: usize| {
        let before = lane - 1;
        targets[lane] == targets[before].wrapping_add(bytes as u64)
            && sources[lane] == sources[before].wrapping_add(bytes as u64)
            && counts[lane] == bytes
            && committed[lane] == committed[before]
    };
    let mut left = cx.active;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let mut next = first + 1;
        while counts[first] == bytes && next < LANES && left >> next & 1 != 0 && follows(next) {
            next += 1;
        }
        let copy_of = |lanes: std::ops::Range<usize>| ContiguousCopy {
            lanes: lanes.clone().fold(0, |mask, lane| mask | 1 << lane),
            source: sources[lanes.start],
            target: targets[lanes.start],
            bytes,
            copied: counts[lanes.start],
        };
        // If the check of the contiguous copy fails, each lane is checked by itself to find the lane at fault.
        let together = next > first + 1 && issue(cx, copy_of(first..next));
        if !together && !(first..next).all(|lane| issue(cx, copy_of(lane..lane + 1))) {
            return Flow::Fault;
        }
        left &= !copy_of(first..next).lanes;
    }
    Flow::Next
}

/// Checks and issues a contiguous copy; returns false if a check reports a finding.
fn issue(cx: &mut ExecutionContext<'_>, copy: ContiguousCopy) -> bool {
    let ContiguousCopy { lanes, source, target, bytes, copied } = copy;
    let (lane, count) = (lanes.trailing_zeros() as usize, lanes.count_ones());
    let alignment = bytes as u64;
    let (bytes, copied) = (bytes * count, copied * count);
    let from = match copied {
        0 => Some(std::ptr::null_mut()),
        _ => resolve_range(cx, lane, (Space::Global, Access::Load), (source, copied as u64), alignment),
    };
    let Some(from) = from else { return false };
    let to = resolve_range(cx, lane, (Space::Shared, Access::Store), (target, bytes as u64), alignment);
    let Some(to) = to else { return false };
    let each = (bytes / count) as u64;
    if cx.cluster.races.is_some()
        && !races::issue_cp_async(cx, lanes, (target, source), each, (copied / count) as u64)
    {
        return false;
    }
    let (warp, pc) = (cx.warp.index, cx.warp.pc);
    cx.worker.counters.global_bytes_loaded += copied as u64;
    let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
    shared.reserve(target, bytes as u64, true);
    under_way.groups(warp, false).issue(AsyncCopy {
        warp,
        lanes,
        pc,
        sequence: 0,
        signal: Signal::Group(0),
        source: if copied == 0 { to } else { from },
        target: to,
        shared: target,
        bytes,
        copied,
        into_shared: true,
        from_shared: None,
        content: Content::Bytes,
        reduction: None,
        is_due: false,
    });
    true
}

/// Flag in `imm` of a commit or a wait: acts on groups of bulk copies.
const BULK: u64 = 1;
/// Flag in `imm` of a wait: `wait_all`, which commits the open group first.
const ALL: u64 = 2;
/// Flag in `imm` of a wait for bulk copies: waits only until the copies have read their sources.
const READ: u64 = 4;
/// Bit offset in a wait's `imm` of the number of groups that may stay in flight.
const ALLOWED: u32 = 8;

fn commit(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let groups = cx.cluster.asynchronous.groups(cx.warp.index, i.imm & BULK != 0);
    for lane in lanes_of(cx.active) {
        groups.committed[lane] += 1;
    }
    Flow::Next
}

fn wait_group(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if i.imm & ALL != 0 {
        commit(cx, i);
    }
    let allowed = (i.imm >> ALLOWED).min(u32::MAX as u64) as u32;
    let (warp, bulk) = (cx.warp.index, i.imm & BULK != 0);
    let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
    let mut limits = under_way.groups(warp, bulk).committed.map(|groups| groups.saturating_sub(allowed));
    for lane in lanes_of(!cx.active) {
        limits[lane] = 0;
    }
    under_way.wait_groups(&mut shared, (warp, bulk), &limits);
    if cx.cluster.races.is_some() {
        match i.imm & READ {
            0 => races::complete_groups(cx, bulk, &limits),
            _ => races::complete_reads(cx, &limits),
        }
    }
    Flow::Next
}

/// `cp.async.mbarrier.arrive`: an arrival on an mbarrier when the lane's earlier copies are complete.
fn arrive_on(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let counted = i.slots[NO_INCREMENT] == 0;
    let addresses = shared_addresses(cx, i);
    if !reach_mbarriers(cx, i, &addresses, MbarrierUse::Wait) {
        return Flow::Fault;
    }
    let first = cx.active.trailing_zeros() as usize;
    for lane in cx.active_lanes() {
        let (warp, pc, address) = (cx.warp.index, cx.warp.pc, addresses[lane]);
        if cx.cluster.races.is_some() && !races::use_mbarrier(cx, 1 << lane, address, None) {
            return Flow::Fault;
        }
        let sequence = cx.cluster.asynchronous.groups(warp, false).issued;
        let Some(mbarrier) = cx.cluster.asynchronous.mbarrier(address) else {
            return no_mbarrier(cx, lane, address);
        };
        if counted && let Err(detail) = mbarrier.add_pending_arrival() {
            return misuse(cx, lane, address, detail);
        }
        match cx.cluster.asynchronous.arrivals.last_mut() {
            // Lanes that arrive at the same mbarrier in one instruction share one arrival record.
            Some(last) if lane > first && (last.mbarrier, last.pc, last.warp) == (address, pc, warp) => {
                last.lanes |= 1 << lane;
            }
            _ => {
                let arrival = DeferredArrival {
                    warp,
                    lanes: 1 << lane,
                    pc,
                    mbarrier: address,
                    sequence,
                    is_due: false,
                    completed_elsewhere: Vec::new(),
                };
                cx.cluster.asynchronous.arrivals.push(arrival);
            }
        }
    }
    Flow::Next
}

/// Slot of the option `.noinc`: the arrival is one of those that the mbarrier was initialised to expect.
const NO_INCREMENT: usize = 5;

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let reduces = op.take("reduce");
    if !op.take("async") {
        return Err(op.unsupported());
    }
    let bulk = op.take("bulk");
    if reduces {
        return match bulk {
            true if op.take("tensor") => tensor::decode(op, true),
            true => bulk::decode_reduction(op),
            false => Err(op.unsupported()),
        };
    }
    op.imm = if bulk { BULK } else { 0 };
    if op.take("commit_group") {
        return Ok(commit);
    }
    if op.take("wait_group") {
        if bulk && op.take("read") {
            op.imm |= READ;
        }
        op.imm |= op.constant_operand(0)? << ALLOWED;
        return Ok(wait_group);
    }
    if !bulk && op.take("wait_all") {
        op.imm |= ALL;
        return Ok(wait_group);
    }
    match bulk {
        true if op.take("tensor") => tensor::decode(op, false),
        true => bulk::decode(op),
        false if op.take("mbarrier") => decode_arrival(op),
        false => decode_copy(op),
    }
}

fn decode_arrival(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("arrive") || op.take_ty()? != Ty::B64 {
        return Err(op.unsupported());
    }
    op.slots[NO_INCREMENT] = op.take("noinc") as u32;
    let space = take_space(op);
    if !matches!(space, StateSpace::Shared | StateSpace::Generic) {
        return Err(op.unsupported());
    }
    address_operand(op, 0, space, 0)?;
    Ok(arrive_on)
}

fn decode_copy(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let level = op.take_any(&[("ca", false), ("cg", true)]);
    let spaces = (op.take("shared") || op.take("shared::cta")) && op.take("global");
    let policy = take_cache(op);
    let (Some(only_whole), true) = (level, spaces) else { return Err(op.unsupported()) };
    let mut list = Vec::new();
    push_address(op, 0, &mut list, true)?;
    push_address(op, 1, &mut list, false)?;
    let bytes = op.constant_operand(2)?;
    if !matches!((only_whole, bytes), (_, 16) | (false, 4 | 8)) {
        return Err(op.error(format!("`{}` does not copy {bytes} bytes", op.text())));
    }
    let extra = op.operand_count().saturating_sub(3 + policy as usize);
    let (mut partial, mut ignored) = (NONE, NONE);
    if extra > 0 {
        let predicate = match op.operand(3)? {
            Operand::Reg(register) => op.register_ty(*register) == Ty::Pred,
            Operand::Not(_) => true,
            _ => false,
        };
        match predicate {
            true => ignored = op.src(3, Ty::Pred)?,
            false => partial = op.src(3, Ty::U32)?,
        }
    }
    if policy {
        op.src(3 + extra, Ty::B64)?;
    }
    list.extend([bytes as u32, partial, ignored]);
    op.imm = op.list(list);
    Ok(copy)
}
