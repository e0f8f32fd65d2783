//! `mov`, including packing, unpacking and clock registers; `cvta`; and `isspacep` of state space windows.

use super::lane_loop::{lane_loop, op1, op2, ops};
use crate::code::access::{LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, D, NONE};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::{LANES, Pod};
use crate::load::ast::{Operand, Special};
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

ops! {
    Copy16(a: u16) -> u16 { a }
    Copy32(a: u32) -> u32 { a }
    Copy64(a: u64) -> u64 { a }
    Pack16x2(a: u16, b: u16) -> u32 { a as u32 | (b as u32) << 16 }
    Pack32x2(a: u32, b: u32) -> u64 { a as u64 | (b as u64) << 32 }
    ToGeneric(a: u64; window) -> u64 { a.wrapping_add(window) }
    FromGeneric(a: u64; window) -> u64 { a.wrapping_sub(window) }
}

fn copy_pred(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    cx.set_mask(i.slots[D], cx.mask(i.slots[A]));
    Flow::Next
}

lane_loop! {
    /// `mov.b64 {a, b}, d`: splits a register into parts, lowest first. The slot of a discarded part (`_`) is [`NONE`].
    fn unpack[T: Pod, P: Pod + Part<T>][T, P](cx, i) {
        let a = *cx.warp.regs.lanes::<T>(i.slots[A]);
        for part in 0..P::COUNT {
            let slot = i.slots[2 + part];
            if slot != NONE {
                let mut d = [P::default(); LANES];
                for lane in 0..LANES {
                    d[lane] = P::part(a[lane], part);
                }
                cx.warp.regs.write(slot, &d, cx.active);
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// `mov.b64 d, {a, b, c, e}`: packs four 16-bit registers.
    fn pack16x4[][](cx, i) {
        let mut d = [0u64; LANES];
        for part in 0..4 {
            let source = cx.warp.regs.lanes::<u16>(i.slots[2 + part]);
            for lane in 0..LANES {
                d[lane] |= (source[lane] as u64) << (16 * part);
            }
        }
        cx.warp.regs.write(i.slots[D], &d, cx.active);
        Flow::Next
    }
}

lane_loop! {
    /// `mov.b16 d, {a, b}` and `mov.b32 d, {a, b, c, e}`: packs `N` 8-bit registers into a register of `N` bytes.
    fn pack8[const N: usize][N](cx, i) {
        let mut d = [0u32; LANES];
        for part in 0..N {
            let source = cx.warp.regs.lanes::<u16>(i.slots[2 + part]);
            for lane in 0..LANES {
                d[lane] |= (source[lane] as u8 as u32) << (8 * part);
            }
        }
        if N == 2 {
            cx.warp.regs.write(i.slots[D], &d.map(|value| value as u16), cx.active);
        } else {
            cx.warp.regs.write(i.slots[D], &d, cx.active);
        }
        Flow::Next
    }
}

lane_loop! {
    /// The reverse of [`pack8`].
    fn unpack8[const N: usize][N](cx, i) {
        let whole: [u32; LANES] = match N {
            2 => cx.warp.regs.lanes::<u16>(i.slots[A]).map(u32::from),
            _ => *cx.warp.regs.lanes::<u32>(i.slots[A]),
        };
        for part in 0..N {
            if i.slots[2 + part] != NONE {
                let bytes = whole.map(|value| u16::from((value >> (8 * part)) as u8));
                cx.warp.regs.write(i.slots[2 + part], &bytes, cx.active);
            }
        }
        Flow::Next
    }
}

/// Part of a register of type `T`, for packing and unpacking.
pub(crate) trait Part<T> {
    const COUNT: usize;
    fn part(whole: T, index: usize) -> Self;
}

impl Part<u32> for u16 {
    const COUNT: usize = 2;
    #[inline(always)]
    fn part(whole: u32, index: usize) -> u16 {
        (whole >> (16 * index)) as u16
    }
}

impl Part<u64> for u16 {
    const COUNT: usize = 4;
    #[inline(always)]
    fn part(whole: u64, index: usize) -> u16 {
        (whole >> (16 * index)) as u16
    }
}

impl Part<u64> for u32 {
    const COUNT: usize = 2;
    #[inline(always)]
    fn part(whole: u64, index: usize) -> u32 {
        (whole >> (32 * index)) as u32
    }
}

/// Reads `%clock` or `%clock64` (warp instructions that the worker has executed) or `%globaltimer` (nanoseconds).
fn clock(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let value = if i.imm & 1 != 0 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u64)
    } else {
        cx.worker.clock
    };
    if i.imm & 2 != 0 {
        cx.warp.regs.write(i.slots[D], &[value; LANES], cx.active);
    } else {
        cx.warp.regs.write(i.slots[D], &[value as u32; LANES], cx.active);
    }
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if op.opcode() == "cvta" {
        return cvta(op);
    }
    let ty = op.take_ty()?;
    let (target, source) = (op.operand(0)?, op.operand(1)?);
    match (target, source) {
        (_, Operand::Special(special)) if special.is_volatile() => {
            op.slots[D] = op.dst(0, ty.width())?;
            op.imm = (*special == Special::GlobalTimer) as u64 | ((ty.width() == Width::W64) as u64) << 1;
            if ty.width() < Width::W32 {
                return Err(op.unsupported());
            }
            Ok(clock)
        }
        (Operand::Vector(parts), _) => unpacking(op, ty, parts),
        (_, Operand::Vector(parts)) => packing(op, ty, parts),
        _ => {
            op.unary(ty, ty)?;
            Ok(match ty.width() {
                Width::Predicate => copy_pred,
                Width::W16 => op1::<Copy16>(),
                Width::W32 => op1::<Copy32>(),
                Width::W64 => op1::<Copy64>(),
            })
        }
    }
}

fn part_type(op: &InstructionCursor<'_, '_>, ty: Ty, parts: usize) -> Result<Ty, ParseError> {
    match (ty.width(), parts) {
        (Width::W32, 2) | (Width::W64, 4) => Ok(Ty::B16),
        (Width::W64, 2) => Ok(Ty::B32),
        (Width::W16, 2) | (Width::W32, 4) => Ok(Ty::B8),
        _ => Err(op.unsupported()),
    }
}

fn unpacking(op: &mut InstructionCursor<'_, '_>, ty: Ty, parts: &[Operand]) -> Result<Exec, ParseError> {
    let part = part_type(op, ty, parts.len())?;
    op.slots[A] = op.src(1, ty)?;
    for (index, target) in parts.iter().enumerate() {
        op.slots[2 + index] = match target {
            Operand::Reg(register) => op.write_register(*register, part.width())?,
            Operand::Sink => NONE,
            _ => return Err(op.unsupported()),
        };
    }
    Ok(match (ty.width(), parts.len()) {
        (Width::W16, _) => unpack8::<2>(),
        (Width::W32, 4) => unpack8::<4>(),
        (Width::W32, _) => unpack::<u32, u16>(),
        (_, 2) => unpack::<u64, u32>(),
        _ => unpack::<u64, u16>(),
    })
}

fn packing(op: &mut InstructionCursor<'_, '_>, ty: Ty, parts: &[Operand]) -> Result<Exec, ParseError> {
    let part = part_type(op, ty, parts.len())?;
    op.slots[D] = op.dst(0, ty.width())?;
    let first = if part == Ty::B8 || parts.len() == 4 { 2 } else { A };
    for (index, source) in parts.iter().enumerate() {
        op.slots[first + index] = op.value(source, part)?;
    }
    Ok(match (ty.width(), parts.len()) {
        (Width::W16, _) => pack8::<2>(),
        (Width::W32, 4) => pack8::<4>(),
        (Width::W32, _) => op2::<Pack16x2>(),
        (_, 2) => op2::<Pack32x2>(),
        _ => pack16x4(),
    })
}

/// State spaces with the start address of each in the generic address space; `None` for spaces whose addresses already
/// are generic addresses.
pub(crate) const WINDOWS: [(&str, Option<u64>); 8] = [
    ("shared", Some(SHARED_WINDOW)),
    ("shared::cta", Some(SHARED_WINDOW)),
    ("shared::cluster", Some(SHARED_WINDOW)),
    ("local", Some(LOCAL_WINDOW)),
    ("global", None),
    ("const", None),
    ("param", None),
    ("param::entry", None),
];

/// `isspacep`. `imm` is the start of the state space's window, or 0 to test that an address is in no window.
pub(crate) fn in_window(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let addresses = cx.warp.regs.lanes::<u64>(i.slots[A]);
    let within = |address: u64, window: u64| address.wrapping_sub(window) < WINDOW_BYTES;
    let mut mask = 0;
    for lane in 0..LANES {
        let address = addresses[lane];
        let holds = match i.imm {
            0 => WINDOWS.iter().all(|(_, window)| window.is_none_or(|window| !within(address, window))),
            window => within(address, window),
        };
        mask |= (holds as u32) << lane;
    }
    cx.set_mask(i.slots[D], mask);
    Flow::Next
}

fn cvta(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let to = op.take("to");
    let Some(window) = op.take_any(&WINDOWS) else { return Err(op.unsupported()) };
    let ty = op.take_ty()?;
    if ty != Ty::U64 {
        return Err(op.unsupported());
    }
    op.unary(ty, ty)?;
    op.imm = window.unwrap_or(0);
    Ok(match (window, to) {
        (None, _) => op1::<Copy64>(),
        (_, false) => op1::<ToGeneric>(),
        (_, true) => op1::<FromGeneric>(),
    })
}
