//! `st.async` and `red.async`: asynchronous stores and reductions to the shared memory of a CTA in the cluster, which
//! signal an mbarrier of that CTA.

use super::atomic::{Add, And, Dec, Inc, MaxS32, MaxU, MinS32, MinU, Or, Update, Xor};
use super::bulk::signals_there;
use super::mbarrier::misuse;
use super::operand_list::{ADDRESS, listed, push_address};
use super::races;
use super::resolve::resolve_cluster_range;
use super::shared_access::SharedAccess;
use crate::asynchronous::{AsyncCopy, Content, Signal, StoredValue};
use crate::checks::races::BulkCopy;
use crate::code::access::Access;
use crate::code::cursor::{InstructionCursor, quantity};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::Space;
use crate::lanes::LANES;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Positions in the operand list of an asynchronous store, after its two addresses: bytes of an element, number of the
/// operation, slots of the elements.
const ELEMENT: usize = 2 * ADDRESS;
const OPERATION: usize = ELEMENT + 1;
const VALUES: usize = OPERATION + 1;

type Combine = fn(u64, u64, u64) -> u64;

/// Operations of `red.async`, each with its types.
const OPERATIONS: [(&str, &[Ty], Combine); 11] = [
    ("inc", &[Ty::U32], Inc::update),
    ("dec", &[Ty::U32], Dec::update),
    ("min", &[Ty::U32], MinU::update),
    ("max", &[Ty::U32], MaxU::update),
    ("min", &[Ty::S32], MinS32::update),
    ("max", &[Ty::S32], MaxS32::update),
    ("and", &[Ty::B32], And::update),
    ("or", &[Ty::B32], Or::update),
    ("xor", &[Ty::B32], Xor::update),
    ("add", &[Ty::U32, Ty::S32], add32),
    ("add", &[Ty::U64], Add::update),
];

fn add32(old: u64, value: u64, _: u64) -> u64 {
    (old as u32).wrapping_add(value as u32) as u64
}

/// Value that a lane stores, in little-endian order, and the number of its bytes.
fn value_of(cx: &ExecutionContext<'_>, list: &[u32], lane: usize) -> ([u8; 16], usize) {
    let (mut value, mut bytes) = ([0; 16], 0);
    for &slot in &list[VALUES..] {
        let element = match list[ELEMENT] {
            4 => cx.warp.regs.lanes::<u32>(slot)[lane] as u64,
            _ => cx.warp.regs.lanes::<u64>(slot)[lane],
        };
        let end = bytes + list[ELEMENT] as usize;
        value[bytes..end].copy_from_slice(&element.to_le_bytes()[..end - bytes]);
        bytes = end;
    }
    (value, bytes)
}

fn store(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.imm);
    let (targets, mbarriers): ([u64; LANES], [u64; LANES]) = (listed(cx, list), listed(cx, &list[ADDRESS..]));
    let update = match list[OPERATION] {
        0 => None,
        number => Some(OPERATIONS[number as usize - 1].2),
    };
    for lane in cx.active_lanes() {
        let (to, mbarrier) = (targets[lane], mbarriers[lane]);
        let (value, bytes) = value_of(cx, list, lane);
        let bytes = bytes as u64;
        let access = if update.is_some() { Access::Atomic } else { Access::Store };
        let shared =
            SharedAccess { lane, address: to, bytes, access, own_cta_only: false, asynchronous: true };
        let Some(target) = resolve_cluster_range(cx, shared, bytes) else { return Flow::Fault };
        if to < mbarrier + 8 && mbarrier < to + bytes {
            let detail = "an asynchronous store onto the mbarrier that it signals".to_string();
            return misuse(cx, lane, mbarrier, detail);
        }
        if !signals_there(cx, lane, (to, mbarrier)) {
            return Flow::Fault;
        }
        if cx.cluster.races.is_some() {
            let is_atomic = update.is_some();
            let bulk = BulkCopy {
                source: None,
                target: (Space::Shared, to),
                bytes,
                mbarrier: Some(mbarrier),
                is_atomic,
                parts: None,
            };
            if !races::use_mbarrier(cx, 1 << lane, mbarrier, None) || !races::issue_bulk(cx, lane, &bulk) {
                return Flow::Fault;
            }
        }
        let (warp, pc) = (cx.warp.index, cx.warp.pc);
        let (under_way, mut shared) = cx.cluster.asynchronous_and_shared(cx.launch.checks.memory);
        // Reductions to the same address may be in flight at the same time.
        if update.is_none() {
            shared.reserve(to, bytes, true);
        }
        under_way.signalling.push(AsyncCopy {
            warp,
            lanes: 1 << lane,
            pc,
            sequence: 0,
            signal: Signal::Mbarrier(mbarrier),
            source: target,
            target,
            shared: to,
            bytes: bytes as u32,
            copied: bytes as u32,
            into_shared: true,
            from_shared: None,
            content: Content::Value(Box::new(StoredValue { value, update })),
            reduction: None,
            is_due: false,
        });
    }
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    op.take("async");
    let reduces = op.opcode() == "red";
    let ordered = match reduces {
        true => op.take("relaxed") && op.take("cluster"),
        false => {
            op.take("weak");
            true
        }
    };
    if !op.take("shared::cluster") || !op.take("mbarrier::complete_tx::bytes") || !ordered {
        return Err(op.unsupported());
    }
    let names = OPERATIONS.map(|(name, ..)| (name, name));
    let operation = if reduces { op.take_any(&names) } else { None };
    let count = if reduces { 1 } else { op.take_any(&[("v2", 2), ("v4", 4)]).unwrap_or(1) };
    let ty = op.take_ty()?;
    let number = match operation {
        Some(operation) => {
            let found =
                OPERATIONS.iter().position(|&(name, types, _)| name == operation && types.contains(&ty));
            found.map(|at| at as u32 + 1)
        }
        None => (!reduces).then_some(0),
    };
    let wide = matches!(ty.width(), Width::W64);
    let (Some(number), true) = (number, matches!(ty.width(), Width::W32 | Width::W64)) else {
        return Err(op.unsupported());
    };
    let bytes = if wide { 8 } else { 4 };
    if count * bytes > 16 {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    push_address(op, 0, &mut list, true)?;
    push_address(op, 2, &mut list, true)?;
    list.extend([bytes as u32, number]);
    match op.operand(1)? {
        Operand::Vector(elements) if elements.len() == count => {
            for element in elements {
                list.push(op.value(element, ty)?);
            }
        }
        Operand::Vector(_) => {
            return Err(op.error(format!("`{}` takes {}", op.text(), quantity(count, "element"))));
        }
        _ => list.push(op.src(1, ty)?),
    }
    op.imm = op.list(list);
    Ok(store)
}
