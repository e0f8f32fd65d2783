//! `mbarrier`: initialisation, arrivals, transactions and waits.
//!
//! A wait for a phase that is not complete fails at once, even for `try_wait`, which may suspend the thread on a
//! device. Other warps run, and then the program's polling loop waits again.

use super::addresses::shared_addresses;
use super::load_store::{address_operand, take_hints, take_space};
use super::races;
use super::resolve::resolve_range;
use super::shared_access::{SharedAccess, check_shared_access};
use crate::asynchronous::{Awaited, MAX_COUNT, MBARRIER_BYTES, Mbarrier};
use crate::checks::races::MemoryScope;
use crate::code::access::{Access, FLAG_ACQUIRE, FLAG_CTA, FLAG_ORDERED, FLAG_RELEASE, FLAGS, StateSpace};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, D, NONE};
use crate::context::warp::Stalled;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::{LANES, lanes_of};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Slot of the options of an mbarrier operation.
const OPTIONS: usize = 5;
const EXPECTS: u32 = 1;
const DROPS: u32 = 2;
const NO_COMPLETE: u32 = 4;
const PARITY: u32 = 8;
const COMPLETES: u32 = 16;

fn init(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = shared_addresses(cx, i);
    let counts = *cx.warp.regs.lanes::<u32>(i.slots[B]);
    for lane in cx.active_lanes() {
        let (address, count) = (addresses[lane], counts[lane]);
        // Lanes that initialise an mbarrier together, with the same count, write the same.
        let repeats = |other: usize| addresses[other] == address && counts[other] == count;
        if cx.active_lanes().take_while(|&other| other < lane).any(repeats) {
            continue;
        }
        if cx.cluster.asynchronous.mbarrier(address).is_some() {
            return misuse(
                cx,
                lane,
                address,
                "`mbarrier.init` of an mbarrier that is already initialised".to_string(),
            );
        }
        let bytes = (address, MBARRIER_BYTES);
        if resolve_range(cx, lane, (Space::Shared, Access::Store), bytes, MBARRIER_BYTES).is_none() {
            return Flow::Fault;
        }
        if !(1..=MAX_COUNT).contains(&count) {
            let detail = format!("an arrival count of {count}, which is not between 1 and {MAX_COUNT}");
            return misuse(cx, lane, address, detail);
        }
        let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
        under_way.init(address, count);
        shared.reserve(address, MBARRIER_BYTES, true);
        if cx.cluster.races.is_some() && !races::init_mbarrier(cx, lane, address) {
            return Flow::Fault;
        }
    }
    Flow::Next
}

fn invalidate(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = shared_addresses(cx, i);
    if !reach_mbarriers(cx, i, &addresses, MbarrierUse::Wait) {
        return Flow::Fault;
    }
    for lane in cx.active_lanes() {
        let address = addresses[lane];
        if find(cx, address).is_none() {
            return no_mbarrier(cx, lane, address);
        }
        if cx.cluster.asynchronous.signals(address) {
            let detail = "`mbarrier.inval` while copies in flight signal the mbarrier".to_string();
            return misuse(cx, lane, address, detail);
        }
        let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
        under_way.mbarriers.retain(|mbarrier| mbarrier.address != address);
        shared.release(address, MBARRIER_BYTES, false);
        if cx.cluster.races.is_some() && !races::invalidate_mbarrier(cx, lane, address) {
            return Flow::Fault;
        }
    }
    Flow::Next
}

fn find<'m>(cx: &'m mut ExecutionContext<'_>, address: u64) -> Option<&'m mut Mbarrier> {
    cx.cluster.asynchronous.mbarrier(address)
}

#[cold]
pub(crate) fn misuse(cx: &mut ExecutionContext<'_>, lane: usize, address: u64, detail: String) -> Flow {
    let place = cx.cluster.shared_name(address);
    cx.fault(FindingKind::Mbarrier, lane as u32, format!("{detail}; the mbarrier is at shared {place}"));
    if let Some(fault) = &mut cx.worker.fault {
        (fault.address, fault.space) = (Some(address), Some(Space::Shared));
    }
    Flow::Fault
}

#[cold]
pub(crate) fn no_mbarrier(cx: &mut ExecutionContext<'_>, lane: usize, address: u64) -> Flow {
    misuse(cx, lane, address, "no mbarrier has been initialised here".to_string())
}

/// Whether an mbarrier operation is `.relaxed`, which orders no memory accesses.
fn is_relaxed(i: &Inst) -> bool {
    i.slots[FLAGS] & (FLAG_ORDERED | FLAG_ACQUIRE | FLAG_RELEASE) == FLAG_ORDERED
}

/// Scope at which an arrival has release semantics; `None` for a relaxed arrival.
fn releases(i: &Inst) -> Option<MemoryScope> {
    (!is_relaxed(i)).then(|| races::scope_of(i.slots[FLAGS]))
}

/// Kind of use of an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MbarrierUse {
    Arrive,
    Transact,
    /// A wait, an invalidation or another use that only threads of the mbarrier's own CTA may make.
    Wait,
}

/// Checks that the mbarrier of each active lane is in a running CTA, and in the thread's own CTA for waits and for
/// `.shared::cta`; returns false if a check reports a finding.
pub(super) fn reach_mbarriers(
    cx: &mut ExecutionContext<'_>,
    i: &Inst,
    addresses: &[u64; LANES],
    does: MbarrierUse,
) -> bool {
    if !cx.cluster.has_peers() {
        return true;
    }
    // A relaxed operation releases nothing; only the phase of the mbarrier shows that it has taken place.
    let later = does == MbarrierUse::Transact || is_relaxed(i);
    let own = does == MbarrierUse::Wait || StateSpace::of(i.slots[FLAGS]) == StateSpace::Shared;
    cx.active_lanes().all(|lane| {
        let (address, bytes) = (addresses[lane], MBARRIER_BYTES);
        check_shared_access(
            cx,
            SharedAccess {
                lane,
                address,
                bytes,
                access: Access::Atomic,
                own_cta_only: own,
                asynchronous: later,
            },
        )
    })
}

/// Whether all active lanes arrive at the same mbarrier and only the last arrival can complete the phase.
fn arrives_together(
    cx: &mut ExecutionContext<'_>,
    addresses: &[u64; LANES],
    operands: &[u32; LANES],
    options: u32,
) -> bool {
    let lanes = cx.active;
    let address = addresses[lanes.trailing_zeros() as usize % LANES];
    let count = |lane: usize| if options & EXPECTS == 0 { operands[lane] as u64 } else { 1 };
    let all = lanes_of(lanes).map(count).sum::<u64>();
    let one_place = lanes_of(lanes).all(|lane| addresses[lane] == address);
    one_place && find(cx, address).is_some_and(|mbarrier| all <= mbarrier.pending as u64)
}

/// `arrive` and `arrive_drop`. Operand B is the arrival count, or for `.expect_tx` the bytes to expect with one
/// arrival.
fn arrive(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = shared_addresses(cx, i);
    let operands = *cx.warp.regs.lanes::<u32>(i.slots[B]);
    let mut states = [0u64; 32];
    let options = i.slots[OPTIONS];
    if !reach_mbarriers(cx, i, &addresses, MbarrierUse::Arrive) {
        return Flow::Fault;
    }
    let together = cx.cluster.races.is_some() && arrives_together(cx, &addresses, &operands, options);
    if together
        && !races::use_mbarrier(cx, cx.active, addresses[cx.active.trailing_zeros() as usize], releases(i))
    {
        return Flow::Fault;
    }
    for lane in cx.active_lanes() {
        let address = addresses[lane];
        let waited = cx.warp.waited >> lane & 1 != 0;
        if cx.cluster.races.is_some()
            && !together
            && !races::use_mbarrier(cx, 1 << lane, address, releases(i))
        {
            return Flow::Fault;
        }
        let Some(mbarrier) = find(cx, address) else { return no_mbarrier(cx, lane, address) };
        mbarrier.waited |= waited;
        states[lane] = mbarrier.state();
        let (count, expected) = match options & EXPECTS {
            0 => (operands[lane], 0),
            _ => (1, operands[lane] as i64),
        };
        if options & NO_COMPLETE != 0 && mbarrier.would_complete(count) {
            let detail = "an arrival with `.noComplete` would complete the phase".to_string();
            return misuse(cx, lane, address, detail);
        }
        let before = mbarrier.phase;
        let outcome =
            mbarrier.add_transactions(expected).and_then(|()| mbarrier.arrive(count, options & DROPS != 0));
        let phase = mbarrier.phase;
        if phase != before && cx.cluster.races.is_some() {
            races::set_mbarrier_phase(cx, address, phase);
        }
        if let Err(detail) = outcome {
            return misuse(cx, lane, address, detail);
        }
    }
    if i.slots[D] != NONE {
        cx.warp.regs.write(i.slots[D], &states, cx.active);
    }
    Flow::Next
}

/// `expect_tx` and `complete_tx`: add expected bytes and subtract completed bytes.
fn transact(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = shared_addresses(cx, i);
    let operands = *cx.warp.regs.lanes::<u32>(i.slots[B]);
    if !reach_mbarriers(cx, i, &addresses, MbarrierUse::Transact) {
        return Flow::Fault;
    }
    for lane in cx.active_lanes() {
        let (address, bytes) = (addresses[lane], operands[lane] as i64);
        let Some(mbarrier) = find(cx, address) else { return no_mbarrier(cx, lane, address) };
        let bytes = if i.slots[OPTIONS] & COMPLETES != 0 { -bytes } else { bytes };
        if let Err(detail) = mbarrier.add_transactions(bytes) {
            return misuse(cx, lane, address, detail);
        }
        let phase = mbarrier.phase;
        if cx.cluster.races.is_some() {
            races::set_mbarrier_phase(cx, address, phase);
        }
    }
    Flow::Next
}

/// `test_wait` and `try_wait`.
fn wait(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = shared_addresses(cx, i);
    let operands: [u64; LANES] = match i.slots[OPTIONS] & PARITY {
        0 => *cx.warp.regs.lanes::<u64>(i.slots[B]),
        _ => cx.warp.regs.lanes::<u32>(i.slots[B]).map(u64::from),
    };
    if !reach_mbarriers(cx, i, &addresses, MbarrierUse::Wait) {
        return Flow::Fault;
    }
    let mut complete = 0;
    let mut left = cx.active;
    while left != 0 {
        // Lanes with equal operands get the same result; usually these are all lanes.
        let lane = left.trailing_zeros() as usize;
        let (address, operand) = (addresses[lane], operands[lane]);
        let mut lanes = 0;
        for lane in 0..LANES {
            lanes |= ((addresses[lane] == address && operands[lane] == operand) as u32) << lane;
        }
        lanes &= left;
        left &= !lanes;
        let awaited = match i.slots[OPTIONS] & PARITY {
            0 => Awaited::State(operand),
            // The ISA names 0 and 1; an H200 looks at the lowest bit, and Triton passes 0 and −1.
            _ => Awaited::Parity(operand as u32 & 1),
        };
        let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
        let completed = under_way.complete_due(&mut shared, address);
        if cx.cluster.races.is_some() && !races::test_mbarrier(cx, lanes, address) {
            return Flow::Fault;
        }
        let Some(mbarrier) = cx.cluster.asynchronous.mbarrier(address) else {
            return no_mbarrier(cx, lane, address);
        };
        match completed.and_then(|()| mbarrier.is_complete(awaited)) {
            Ok(true) => {
                complete |= lanes;
                cx.warp.waited |= if mbarrier.waited { lanes } else { 0 };
            }
            Ok(false) => {
                let lane = u32::BITS - 1 - lanes.leading_zeros();
                cx.warp.stalled = Some(Stalled { address, awaited, lane, pc: cx.warp.pc });
            }
            Err(detail) => return misuse(cx, lane, address, detail),
        }
    }
    cx.set_mask(i.slots[D], complete);
    if cx.cluster.races.is_some() && !is_relaxed(i) {
        races::acquire_mbarriers(cx, complete, &addresses, races::scope_of(i.slots[FLAGS]));
    }
    if complete == cx.active {
        cx.warp.stalled = None;
        return Flow::Next;
    }
    // Runs after all tests, so that lanes that wait in one instruction fail together.
    let mut last = None;
    for lane in lanes_of(cx.active & !complete) {
        if last != Some(addresses[lane]) {
            cx.cluster.asynchronous.make_due(addresses[lane]);
            last = Some(addresses[lane]);
        }
    }
    Flow::Stall
}

fn pending_count(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let counts = cx.warp.regs.lanes::<u64>(i.slots[A]).map(Mbarrier::pending_in);
    cx.warp.regs.write(i.slots[D], &counts, cx.active);
    Flow::Next
}

const OPERATIONS: [&str; 9] = [
    "init",
    "inval",
    "arrive",
    "arrive_drop",
    "expect_tx",
    "complete_tx",
    "test_wait",
    "try_wait",
    "pending_count",
];

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let operation = op.take_map(|name| OPERATIONS.iter().find(|&&known| known == name).copied());
    let Some(operation) = operation else { return Err(op.unsupported()) };
    // `arrive.expect_tx` is an arrival that expects bytes.
    let arrives = op.take("arrive") as u32 | (op.take("arrive_drop") as u32) << 1;
    let operation = match (operation, arrives) {
        ("expect_tx", 1) => "arrive",
        ("expect_tx", 2) => "arrive_drop",
        (name, _) => name,
    };
    let expects = arrives != 0 || operation.starts_with("arrive") && op.take("expect_tx");
    if op.take_ty()? != Ty::B64 {
        return Err(op.unsupported());
    }
    if operation == "pending_count" {
        op.slots[D] = op.dst(0, Width::W32)?;
        op.slots[A] = op.src(1, Ty::B64)?;
        return Ok(pending_count);
    }
    let space = take_space(op);
    let remote = space == StateSpace::SharedCluster;
    let may_be_remote = matches!(operation, "arrive" | "arrive_drop" | "expect_tx" | "complete_tx");
    let fits = match space {
        StateSpace::Shared | StateSpace::Generic => true,
        _ => remote && may_be_remote,
    };
    if !fits {
        return Err(op.unsupported());
    }
    let scoped = ["cluster", "gpu", "sys"].into_iter().any(|scope| op.has(scope));
    let (flags, _) = take_hints(op);
    // The default scope is `.cta`.
    let flags = if scoped { flags } else { flags | FLAG_CTA };
    match operation {
        "init" => {
            op.slots[B] = op.src(1, Ty::U32)?;
            address_operand(op, 0, space, flags)?;
            Ok(init)
        }
        "inval" => {
            address_operand(op, 0, space, flags)?;
            Ok(invalidate)
        }
        "arrive" | "arrive_drop" => {
            let no_complete = op.take("noComplete");
            op.slots[D] = match op.operand(0)? {
                Operand::Sink => NONE,
                _ if remote => return Err(op.error("an arrival in another CTA's memory returns no state")),
                _ => op.dst(0, Width::W64)?,
            };
            op.slots[B] = match op.operand_count() {
                0..=2 if !expects && !no_complete => op.constant(Width::W32, 1),
                _ => op.src(2, Ty::U32)?,
            };
            op.slots[OPTIONS] = if expects { EXPECTS } else { 0 }
                | if no_complete { NO_COMPLETE } else { 0 }
                | if operation == "arrive_drop" { DROPS } else { 0 };
            address_operand(op, 1, space, flags)?;
            Ok(arrive)
        }
        "expect_tx" | "complete_tx" => {
            op.slots[OPTIONS] = if operation == "complete_tx" { COMPLETES } else { 0 };
            op.slots[B] = op.src(1, Ty::U32)?;
            address_operand(op, 0, space, flags)?;
            Ok(transact)
        }
        _ => {
            op.slots[D] = op.dst(0, Width::Predicate)?;
            let parity = op.take("parity");
            op.slots[OPTIONS] = if parity { PARITY } else { 0 };
            op.slots[B] = op.src(2, if parity { Ty::U32 } else { Ty::B64 })?;
            if operation == "try_wait" && op.operand_count() > 3 {
                op.src(3, Ty::U32)?;
            }
            address_operand(op, 1, space, flags)?;
            Ok(wait)
        }
    }
}
