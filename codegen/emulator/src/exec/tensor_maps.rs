//! Changes of tensor maps by kernels: `tensormap.replace`, `tensormap.cp_fenceproxy`, and fences of the tensormap proxy.
//!
//! A kernel changes a map in global memory through the generic proxy, and uses it through the tensormap proxy. A use must
//! come after a release fence of the CTA that made the change, and after an acquire fence of the CTA that uses the map; the
//! emulator does not check which threads of these CTAs execute the fences, nor whether an earlier use may still run when
//! the map is changed.

use super::fragment::whole_warp;
use super::operand_list::{ADDRESS, listed, push_address};
use super::races;
use super::resolve::resolve_range;
use crate::code::access::{Access, classify};
use crate::code::cursor::InstructionCursor;
use crate::context::tensor_maps::{CtaId, MissingFence};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::lanes_of;
use crate::load::error::ParseError;
use crate::load::types::Ty;
use crate::tensor_map::{
    Interleave, MapField, NoTensorMap, Swizzle, TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorType,
};

/// Positions in the operand list of `tensormap.replace`, after the address: state space, number of the field, dimension,
/// slot of the value or the value, and whether it is a slot.
const SPACE: usize = ADDRESS;
const FIELD: usize = ADDRESS + 1;
const DIMENSION: usize = ADDRESS + 2;
const VALUE: usize = ADDRESS + 3;
const FORM: usize = ADDRESS + 4;

/// Where the value of `tensormap.replace` is.
const IMMEDIATE: u32 = 0;
const SLOT_32: u32 = 1;
const SLOT_64: u32 = 2;

/// Fields by number: modifier, field, and type of the value.
const FIELDS: [(&str, MapField, Ty); 10] = [
    ("global_address", MapField::Address, Ty::B64),
    ("rank", MapField::Rank, Ty::B32),
    ("elemtype", MapField::Element, Ty::B32),
    ("swizzle_mode", MapField::Swizzle, Ty::B32),
    ("fill_mode", MapField::Fill, Ty::B32),
    ("interleave_layout", MapField::Interleave, Ty::B32),
    ("global_dim", MapField::Size, Ty::B32),
    ("global_stride", MapField::Stride, Ty::B64),
    ("box_dim", MapField::BoxSize, Ty::B32),
    ("element_stride", MapField::Step, Ty::B32),
];

/// Element types as `tensormap.replace` numbers them (PTX ISA, "tensormap.replace", table of values). `None` are types that
/// round.
const ELEMENTS: [Option<TensorType>; 13] = [
    Some(TensorType::U8),
    Some(TensorType::U16),
    Some(TensorType::U32),
    Some(TensorType::I32),
    Some(TensorType::U64),
    Some(TensorType::I64),
    Some(TensorType::F16),
    Some(TensorType::F32),
    None,
    Some(TensorType::F64),
    Some(TensorType::Bf16),
    None,
    None,
];

/// Bytes of a tensor map.
const BYTES: u64 = TENSOR_MAP_BYTES as u64;

fn replace(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let list = cx.launch.program.list(i.imm);
    let (addresses, (name, field, _)) = (listed(cx, list), FIELDS[list[FIELD] as usize]);
    for lane in lanes_of(cx.active) {
        let value = match list[FORM] {
            IMMEDIATE => u64::from(list[VALUE]),
            SLOT_32 => u64::from(cx.warp.regs.lanes::<u32>(list[VALUE])[lane]),
            _ => cx.warp.regs.lanes::<u64>(list[VALUE])[lane],
        };
        let (space, at) = match SPACES[list[SPACE] as usize] {
            Some(space) => (space, addresses[lane]),
            None => classify(addresses[lane]),
        };
        let range = (at, BYTES);
        let Some(map) = resolve_range(cx, lane, (space, Access::Load), range, TENSOR_MAP_ALIGNMENT) else {
            return Flow::Fault;
        };
        if resolve_range(cx, lane, (space, Access::Store), range, TENSOR_MAP_ALIGNMENT).is_none()
            || !races::access_range(cx, lane, (space, Access::Store), range)
        {
            return Flow::Fault;
        }
        let mut bytes = [0; TENSOR_MAP_BYTES];
        // SAFETY: the range has been checked.
        unsafe { map.cast_const().copy_to_nonoverlapping(bytes.as_mut_ptr(), TENSOR_MAP_BYTES) };
        if let Err(error) = field.replace(&mut bytes, list[DIMENSION] as usize, value) {
            let detail = match error {
                NoTensorMap::OtherBytes => {
                    format!("the {BYTES} bytes at {at:#x} are neither a tensor map nor zeros")
                }
                NoTensorMap::Invalid(what) => format!("`{name}` of the tensor map at {at:#x}: {what}"),
            };
            return cx.fault(FindingKind::TensorMap, lane as u32, detail);
        }
        // SAFETY: as above.
        unsafe { map.copy_from_nonoverlapping(bytes.as_ptr(), TENSOR_MAP_BYTES) };
        if space == Space::Global {
            cx.launch.changed_maps.change(at, cta(cx), false);
        }
    }
    Flow::Next
}

/// State spaces of `tensormap.replace` by number; `None` is a generic address.
const SPACES: [Option<Space>; 3] = [None, Some(Space::Global), Some(Space::Shared)];

/// `tensormap.cp_fenceproxy`: copies a map from shared to global memory, and releases it.
fn copy_and_release(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    let list = cx.launch.program.list(i.imm);
    let lane = cx.active.trailing_zeros() as usize;
    let (to, from) = (listed(cx, list)[lane], listed(cx, &list[ADDRESS..])[lane]);
    let (read, write) = ((Space::Shared, Access::Load), (Space::Global, Access::Store));
    let ranges = ((from, BYTES), (to, BYTES));
    let Some(source) = resolve_range(cx, lane, read, ranges.0, TENSOR_MAP_ALIGNMENT) else {
        return Flow::Fault;
    };
    let Some(target) = resolve_range(cx, lane, write, ranges.1, TENSOR_MAP_ALIGNMENT) else {
        return Flow::Fault;
    };
    if !races::access_range(cx, lane, read, ranges.0) || !races::access_range(cx, lane, write, ranges.1) {
        return Flow::Fault;
    }
    // SAFETY: both ranges have been checked, and are in different memories.
    unsafe { target.copy_from_nonoverlapping(source, TENSOR_MAP_BYTES) };
    cx.launch.changed_maps.change(to, cta(cx), true);
    Flow::Next
}

/// `fence.proxy.tensormap::generic.release`.
fn release(cx: &mut ExecutionContext<'_>, _: &Inst) -> Flow {
    cx.launch.changed_maps.release(cta(cx));
    Flow::Next
}

/// `fence.proxy.tensormap::generic.acquire`.
fn acquire(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = listed(cx, cx.launch.program.list(i.imm));
    let rank = cx.cluster.rank(cx.warp.index);
    for lane in lanes_of(cx.active) {
        let (_, at) = classify(addresses[lane]);
        cx.cluster.acquired_maps.acquire(&cx.launch.changed_maps, rank, at);
    }
    Flow::Next
}

/// The current CTA.
fn cta(cx: &ExecutionContext<'_>) -> CtaId {
    (cx.cluster.index, cx.cluster.rank(cx.warp.index))
}

/// The fence that is missing between the launch's last change of the map at an address in global memory and a use of the map;
/// `None` if races are not checked.
pub(super) fn unordered_change(cx: &ExecutionContext<'_>, at: u64) -> Option<String> {
    cx.cluster.races.as_ref()?;
    let rank = cx.cluster.rank(cx.warp.index);
    let missing = cx.cluster.acquired_maps.missing_fence(&cx.launch.changed_maps, rank, at)?;
    let fence = match missing {
        MissingFence::Release => {
            "the CTA that changed it has executed no `fence.proxy.tensormap::generic.release` since"
        }
        MissingFence::Acquire => {
            "this CTA has executed no `fence.proxy.tensormap::generic.acquire` for it since"
        }
    };
    Some(format!("the tensor map at {at:#x} was changed by `tensormap`, and {fence}"))
}

/// Takes the scope of a fence.
fn take_scope(op: &mut InstructionCursor<'_, '_>) -> bool {
    ["cta", "cluster", "gpu", "sys"].into_iter().any(|scope| op.take(scope))
}

/// Checks that the operand `index` is the size of a tensor map.
fn take_size(op: &mut InstructionCursor<'_, '_>, index: usize) -> Result<(), ParseError> {
    match op.constant_operand(index)? {
        BYTES => Ok(()),
        _ => Err(op.error("the size of the tensor map must be 128")),
    }
}

/// Decodes `fence.proxy.tensormap::generic`, whose proxies have been taken.
pub(super) fn decode_fence(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let acquires = op.take("acquire");
    if !acquires && !op.take("release") || !take_scope(op) {
        return Err(op.unsupported());
    }
    if !acquires {
        return Ok(release);
    }
    let mut list = Vec::new();
    push_address(op, 0, &mut list, false)?;
    take_size(op, 1)?;
    op.imm = op.list(list);
    Ok(acquire)
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if op.take("cp_fenceproxy") {
        return decode_copy(op);
    }
    if !op.take("replace") || !op.take("tile") {
        return Err(op.unsupported());
    }
    let Some(number) = FIELDS.iter().position(|(name, ..)| op.take(name)) else {
        return Err(op.unsupported());
    };
    let (_, field, ty) = FIELDS[number];
    let space = match (op.take("global"), op.take("shared::cta")) {
        (true, true) => return Err(op.unsupported()),
        (true, _) => 1,
        (_, shared) => 2 * shared as u32,
    };
    if !op.take("b1024") || op.take_ty()? != ty {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    push_address(op, 0, &mut list, space == 2)?;
    let (dimension, at) = if field.count() > 1 { (op.constant_operand(1)?, 2) } else { (0, 1) };
    if dimension >= field.count() as u64 {
        return Err(op.error(format!("the dimension must be 0 to {}", field.count() - 1)));
    }
    let (value, form) = match field {
        MapField::Element | MapField::Swizzle | MapField::Fill | MapField::Interleave => {
            (mode(op, field, at)?, IMMEDIATE)
        }
        _ => (op.src(at, ty)?, if ty == Ty::B64 { SLOT_64 } else { SLOT_32 }),
    };
    list.extend([space, number as u32, dimension as u32, value, form]);
    op.imm = op.list(list);
    Ok(replace)
}

/// The constant of `tensormap.replace` for a field with an enumeration, as [`MapField`] numbers it.
fn mode(op: &mut InstructionCursor<'_, '_>, field: MapField, at: usize) -> Result<u32, ParseError> {
    let given = op.constant_operand(at)?;
    let known = match field {
        MapField::Element => ELEMENTS.get(given as usize).copied().flatten().map(|element| element as u32),
        MapField::Swizzle => Swizzle::ALL.get(given as usize).map(|&swizzle| swizzle as u32),
        MapField::Fill => (given < 2).then_some(given as u32),
        _ => Interleave::ALL.get(given as usize).map(|&interleave| interleave as u32),
    };
    known.ok_or_else(|| op.unsupported())
}

fn decode_copy(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let taken = ["global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"]
        .map(|name| op.take(name));
    if taken.contains(&false) || !take_scope(op) {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    push_address(op, 0, &mut list, false)?;
    push_address(op, 1, &mut list, true)?;
    take_size(op, 2)?;
    op.imm = op.list(list);
    Ok(copy_and_release)
}
