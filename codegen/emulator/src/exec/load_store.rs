//! `ld`, `st`, fences, prefetches and cache policies.

use std::sync::atomic::{Ordering, fence};

use super::lane_loop::{NOP, lane_loop, op1, ops};
use super::races;
use super::resolve::resolve;
use super::tensor_maps;
use crate::checks::races::{FenceOp, FenceSides, MemoryScope};
use crate::code::access::{
    Access, FLAG_ACQUIRE, FLAG_CLUSTER, FLAG_CTA, FLAG_NARROW, FLAG_NON_COHERENT, FLAG_ORDERED, FLAG_RELEASE,
    FLAGS, StateSpace,
};
use crate::code::cursor::{AddressWidth, InstructionCursor, quantity};
use crate::code::operands::{A, D, ELEMENTS, NONE};
use crate::context::{Exec, ExecutionContext, Flow, Inst, Resolved};
use crate::finding::Space;
use crate::lanes::{LANES, Pod};
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Element in memory: a load extends it to a register of type `R`, a store truncates the register to it.
pub(crate) trait Element<R>: Pod + PartialEq {
    fn extend(self) -> R;
    fn truncate(register: R) -> Self;
    /// The bits of a register that holds an element.
    fn bits(register: R) -> u64;
}

macro_rules! elements {
    ($($register:ident: $($element:ident)*;)*) => { $( $(
        impl Element<$register> for $element {
            #[inline(always)]
            fn extend(self) -> $register { self as $register }
            #[inline(always)]
            fn truncate(register: $register) -> $element { register as $element }
            #[inline(always)]
            fn bits(register: $register) -> u64 { register as u64 }
        }
    )* )* };
}
elements! {
    u16: u8 i8 u16;
    u32: u8 i8 u16 i16 u32;
    u64: u8 i8 u16 i16 u32 i32 u64;
}

lane_loop! {
    /// Loads `V` elements per lane.
    fn load[E: Element<R>, R: Pod, const V: usize][E, R, V](cx, i) {
        let mut values = [[R::default(); LANES]; V];
        match resolve(cx, i, (V * size_of::<E>()) as u64, Access::Load) {
            Resolved::Run(start) => {
                // SAFETY: `resolve` checked all `32 · V` elements from `start`.
                let lanes: [[E; V]; LANES] = unsafe { start.cast::<[[E; V]; LANES]>().read_unaligned() };
                for lane in 0..LANES {
                    for element in 0..V {
                        values[element][lane] = lanes[lane][element].extend();
                    }
                }
            }
            Resolved::Same(start) => {
                // SAFETY: `resolve` checked the `V` elements from `start`.
                let elements: [E; V] = unsafe { start.cast::<[E; V]>().read_unaligned() };
                values = elements.map(|element| [element.extend(); LANES]);
            }
            Resolved::Lanes(pointers) => {
                for lane in 0..LANES {
                    if cx.active >> lane & 1 != 0 {
                        // SAFETY: `resolve` checked `V` elements at the pointer of each active lane.
                        let elements: [E; V] = unsafe { pointers[lane].cast::<[E; V]>().read_unaligned() };
                        for element in 0..V {
                            values[element][lane] = elements[element].extend();
                        }
                    }
                }
            }
            Resolved::Fault => return Flow::Fault,
        }
        for element in 0..V {
            let slot = i.slots[ELEMENTS[element]];
            if slot != NONE {
                cx.warp.regs.write(slot, &values[element], cx.active);
            }
        }
        cx.worker.counters.count_load(&i.slots, cx.active, V * size_of::<E>());
        if i.slots[FLAGS] & FLAG_ORDERED != 0 {
            fence(Ordering::SeqCst);
            if cx.cluster.races.is_some() {
                let turn = races::release_at(cx, i, Access::Load);
                races::acquire_at(cx, i, Access::Load, turn);
            }
            let first = values[0][cx.active.trailing_zeros() as usize % LANES];
            if cx.warp.polls(E::bits(first)) {
                return Flow::Yield;
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// Stores `V` elements per lane. If several lanes store to the same address, the highest lane wins.
    fn store[E: Element<R>, R: Pod, const V: usize][E, R, V](cx, i) {
        if i.slots[FLAGS] & FLAG_ORDERED != 0 {
            fence(Ordering::SeqCst);
        }
        let resolved = resolve(cx, i, (V * size_of::<E>()) as u64, Access::Store);
        let _turn = match i.slots[FLAGS] & FLAG_ORDERED != 0 && cx.cluster.races.is_some() {
            true => races::release_at(cx, i, Access::Store),
            false => None,
        };
        let mut lanes = [[E::default(); V]; LANES];
        for element in 0..V {
            let values = cx.warp.regs.lanes::<R>(i.slots[ELEMENTS[element]]);
            for lane in 0..LANES {
                lanes[lane][element] = E::truncate(values[lane]);
            }
        }
        match resolved {
            Resolved::Run(start) | Resolved::Same(start) => {
                // SAFETY: `resolve` checked all `32 · V` elements from `start`, and returns `Same` for loads only.
                unsafe { start.cast::<[[E; V]; LANES]>().write_unaligned(lanes) };
            }
            Resolved::Lanes(pointers) => {
                if cx.cluster.races.is_some() && !races::stores_agree(cx, &pointers, &lanes) {
                    return Flow::Fault;
                }
                for lane in 0..LANES {
                    if cx.active >> lane & 1 != 0 {
                        // SAFETY: `resolve` checked `V` elements at the pointer of each active lane.
                        unsafe { pointers[lane].cast::<[E; V]>().write_unaligned(lanes[lane]) };
                    }
                }
            }
            Resolved::Fault => return Flow::Fault,
        }
        cx.worker.counters.count_store(&i.slots, cx.active, V * size_of::<E>());
        Flow::Next
    }
}

ops! { Policy(a: u64) -> u64 { a } }

fn fence_all(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    fence(Ordering::SeqCst);
    if cx.cluster.races.is_some() {
        races::fence(cx, i.imm);
    }
    Flow::Next
}

/// Cache operators of loads and stores; they have no effect, because the emulator has no caches.
const CACHE: [&str; 7] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt"];
/// Modifiers of strong accesses, with the flags of the memory order.
const ORDER: [(&str, u32); 6] = [
    ("volatile", 0),
    ("relaxed", 0),
    ("acquire", FLAG_ACQUIRE),
    ("release", FLAG_RELEASE),
    ("acq_rel", FLAG_ACQUIRE | FLAG_RELEASE),
    ("mmio", 0),
];
/// Scopes of a strong access, with their flags.
const SCOPES: [(&str, u32); 4] = [("cta", FLAG_CTA), ("cluster", FLAG_CLUSTER), ("gpu", 0), ("sys", 0)];

/// Takes the state space from the modifiers.
pub(crate) fn take_space(op: &mut InstructionCursor<'_, '_>) -> StateSpace {
    let spaces = [
        ("global", StateSpace::Global),
        ("const", StateSpace::Global),
        ("shared", StateSpace::Shared),
        ("shared::cta", StateSpace::Shared),
        ("shared::cluster", StateSpace::SharedCluster),
        ("param", StateSpace::Param),
        ("param::entry", StateSpace::Param),
        ("param::func", StateSpace::Param),
        ("local", StateSpace::Local),
    ];
    op.take_any(&spaces).unwrap_or(StateSpace::Generic)
}

/// Takes ordering, scope and cache modifiers; returns their flags, and whether a cache policy operand follows.
pub(crate) fn take_hints(op: &mut InstructionCursor<'_, '_>) -> (u32, bool) {
    let mut flags = 0;
    op.take("weak");
    for (order, flag) in ORDER {
        flags |= if op.take(order) { FLAG_ORDERED | flag } else { 0 };
    }
    for (scope, flag) in SCOPES {
        flags |= if op.take(scope) { flag } else { 0 };
    }
    for cache in CACHE {
        op.take(cache);
    }
    flags |= if op.take("nc") { FLAG_NON_COHERENT } else { 0 };
    let policy = op.take("L2::cache_hint");
    let hint = |name: &str| {
        let known = name.starts_with("L1::evict_")
            || name.starts_with("L2::evict_")
            || matches!(name, "L1::no_allocate" | "L2::64B" | "L2::128B" | "L2::256B");
        known.then_some(())
    };
    while op.take_map(hint).is_some() {}
    (flags, policy)
}

/// Decodes the address operand `index` of a memory access: fills slot A, `imm` and the flags.
pub(crate) fn address_operand(
    op: &mut InstructionCursor<'_, '_>,
    index: usize,
    space: StateSpace,
    flags: u32,
) -> Result<(), ParseError> {
    let (slot, width) = op.address(index)?;
    op.slots[A] = slot;
    op.slots[FLAGS] = flags | space as u32;
    if width == AddressWidth::W32 {
        if matches!(space, StateSpace::Global | StateSpace::Generic) {
            return Err(op.error(format!("`{}` needs a 64-bit address", op.text())));
        }
        op.slots[FLAGS] |= FLAG_NARROW;
    }
    Ok(())
}

/// Modifiers of fences that [`decode_fence`] looks up without taking them.
const FENCE_MODIFIERS: [&str; 12] = [
    "sc",
    "acq_rel",
    "acquire",
    "release",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "alias",
    "global",
    "shared::cta",
    "shared::cluster",
];

/// Takes the modifiers of a fence.
fn decode_fence(op: &mut InstructionCursor<'_, '_>) -> FenceOp {
    let sides = match (op.has("acquire"), op.has("release")) {
        (true, false) => FenceSides::ACQUIRE,
        (false, true) => FenceSides::RELEASE,
        _ => FenceSides::BOTH,
    };
    let memory = |scope| FenceOp::Memory { scope, sides };
    let fence = match (op.take("proxy"), op.take("mbarrier_init")) {
        (true, _) if op.take("async") || op.take("async.global") => {
            let shared = op.has("shared::cta") || op.has("shared::cluster");
            let global = op.has("global");
            let spaces: &[Space] = match (shared, global) {
                (true, false) => &[Space::Shared],
                (false, true) => &[Space::Global],
                _ => &[Space::Shared, Space::Global],
            };
            FenceOp::AsyncProxy { spaces }
        }
        (true, _) => FenceOp::Other,
        (_, true) => FenceOp::MbarrierInit,
        _ if ["gpu", "gl", "sys"].into_iter().any(|scope| op.take(scope)) => {
            // `membar` is `fence.sc` (PTX ISA, "membar/fence").
            let is_sc = op.opcode() == "membar" || op.take("sc");
            if is_sc { FenceOp::GridSc } else { memory(MemoryScope::Grid) }
        }
        _ if op.has("cluster") => memory(MemoryScope::Cluster),
        _ => memory(MemoryScope::Cta),
    };
    for modifier in FENCE_MODIFIERS {
        op.take(modifier);
    }
    fence
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    match op.opcode() {
        "ld" | "ldu" => load_or_store(op, Access::Load),
        "st" => load_or_store(op, Access::Store),
        "fence" | "membar" => {
            if op.take("tensormap::generic") {
                op.take("proxy");
                return tensor_maps::decode_fence(op);
            }
            op.imm = decode_fence(op).number();
            Ok(fence_all)
        }
        "createpolicy" => {
            let known = |name: &str| {
                let policy =
                    matches!(name, "fractional" | "range" | "global") || name.starts_with("L2::evict_");
                policy.then_some(())
            };
            while op.take_map(known).is_some() {}
            op.take("b64");
            op.slots[D] = op.dst(0, Width::W64)?;
            for index in 1..op.operand_count() {
                op.operand(index)?;
            }
            op.slots[A] = op.constant(Width::W64, 0);
            Ok(op1::<Policy>())
        }
        _ => {
            take_space(op);
            let level = |name: &str| {
                let known = matches!(name, "L1" | "L2" | "tensormap") || name.starts_with("L2::evict_");
                known.then_some(())
            };
            while op.take_map(level).is_some() {}
            op.address(0)?;
            Ok(NOP)
        }
    }
}

fn load_or_store(op: &mut InstructionCursor<'_, '_>, access: Access) -> Result<Exec, ParseError> {
    let space = take_space(op);
    let (flags, policy) = take_hints(op);
    let count = op.take_any(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
    let ty = op.take_ty()?;
    if matches!(ty, Ty::Pred | Ty::Tf32) || count as u32 * ty.bytes() > 16 {
        return Err(op.unsupported());
    }
    let (data, address) = if access == Access::Load { (0, 1) } else { (1, 0) };
    // Parameters and results of inlined calls are stored in local memory.
    let space =
        if space == StateSpace::Param && op.names_local(address)? { StateSpace::Local } else { space };
    let direct = if space == StateSpace::Param { op.param_address(address)? } else { None };
    match direct {
        Some(offset) if access == Access::Load => param_operand(op, offset, count as u32 * ty.bytes())?,
        _ => address_operand(op, address, space, flags)?,
    }
    if space == StateSpace::Param && access == Access::Store {
        return Err(op.error("kernel parameters are read-only"));
    }
    if policy {
        op.src(2, Ty::B64)?;
    }
    let single;
    let elements = match op.operand(data)? {
        Operand::Vector(elements) => elements.as_slice(),
        other => {
            single = [other.clone()];
            &single
        }
    };
    if elements.len() != count {
        return Err(op.error(format!("`{}` takes {}", op.text(), quantity(count, "element"))));
    }
    let mut register = ty.width();
    for element in elements {
        if let Operand::Reg(id) = element {
            register = register.max(op.register_ty(*id).width());
        }
    }
    for (index, element) in elements.iter().enumerate() {
        let slot = match (element, access) {
            (Operand::Reg(id), Access::Load) => op.write_register(*id, register)?,
            (Operand::Sink, Access::Load) => NONE,
            (Operand::Reg(id), _) if op.register_ty(*id).width() == register => op.read_register(*id),
            (_, Access::Load) => return Err(op.unsupported()),
            // A constant is stored like a register of the other elements.
            (constant, _) if register > ty.width() => op.value(constant, bits_of(register))?,
            (constant, _) => op.value(constant, ty)?,
        };
        op.slots[ELEMENTS[index]] = slot;
    }
    if register > ty.width() && ty.is_float() {
        return Err(op.error(format!("`{}` needs a register of the type's width", op.text())));
    }
    let found =
        if access == Access::Load { load_exec(ty, register, count) } else { store_exec(ty, register, count) };
    found.ok_or_else(|| op.unsupported())
}

/// The type of a register of plain bits.
fn bits_of(width: Width) -> Ty {
    match width {
        Width::Predicate => Ty::Pred,
        Width::W16 => Ty::B16,
        Width::W32 => Ty::B32,
        Width::W64 => Ty::B64,
    }
}

/// Fills `imm` and the flags for a load of the kernel parameter at `offset`, and checks its bounds.
fn param_operand(op: &mut InstructionCursor<'_, '_>, offset: u64, bytes: u32) -> Result<(), ParseError> {
    if !offset.is_multiple_of(bytes as u64) || offset + bytes as u64 > op.param_bytes() {
        return Err(op.error("the parameter access is misaligned or outside the parameters"));
    }
    op.operand(1)?;
    op.imm = offset;
    op.slots[FLAGS] = StateSpace::ParamDirect as u32;
    Ok(())
}

macro_rules! by_count {
    ($function:ident, $element:ty, $register:ty, $count:expr) => {
        match $count {
            1 => Some($function::<$element, $register, 1>()),
            2 => Some($function::<$element, $register, 2>()),
            _ => Some($function::<$element, $register, 4>()),
        }
    };
}

fn load_exec(ty: Ty, register: Width, count: usize) -> Option<Exec> {
    match (register, ty.bytes(), ty.is_signed()) {
        (Width::W16, 1, false) => by_count!(load, u8, u16, count),
        (Width::W16, 1, true) => by_count!(load, i8, u16, count),
        (Width::W16, 2, _) => by_count!(load, u16, u16, count),
        (Width::W32, 1, false) => by_count!(load, u8, u32, count),
        (Width::W32, 1, true) => by_count!(load, i8, u32, count),
        (Width::W32, 2, false) => by_count!(load, u16, u32, count),
        (Width::W32, 2, true) => by_count!(load, i16, u32, count),
        (Width::W32, 4, _) => by_count!(load, u32, u32, count),
        (Width::W64, 1, false) => by_count!(load, u8, u64, count),
        (Width::W64, 1, true) => by_count!(load, i8, u64, count),
        (Width::W64, 2, false) => by_count!(load, u16, u64, count),
        (Width::W64, 2, true) => by_count!(load, i16, u64, count),
        (Width::W64, 4, false) => by_count!(load, u32, u64, count),
        (Width::W64, 4, true) => by_count!(load, i32, u64, count),
        (Width::W64, 8, _) => by_count!(load, u64, u64, count),
        _ => None,
    }
}

fn store_exec(ty: Ty, register: Width, count: usize) -> Option<Exec> {
    match (register, ty.bytes()) {
        (Width::W16, 1) => by_count!(store, u8, u16, count),
        (Width::W16, 2) => by_count!(store, u16, u16, count),
        (Width::W32, 1) => by_count!(store, u8, u32, count),
        (Width::W32, 2) => by_count!(store, u16, u32, count),
        (Width::W32, 4) => by_count!(store, u32, u32, count),
        (Width::W64, 1) => by_count!(store, u8, u64, count),
        (Width::W64, 2) => by_count!(store, u16, u64, count),
        (Width::W64, 4) => by_count!(store, u32, u64, count),
        (Width::W64, 8) => by_count!(store, u64, u64, count),
        _ => None,
    }
}
