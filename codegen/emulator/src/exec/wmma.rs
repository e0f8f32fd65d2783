//! `wmma`: matrix products of fragments whose layout PTX leaves unspecified.
//!
//! The emulator stores the elements of a fragment row by row: in the lanes of the first register, then in the lanes of
//! the next. Registers beyond the last element are zero. Sums are computed as in [`super::mma`].

use super::addresses::addresses;
use super::fragment::{registers_of, whole_warp};
use super::load_store::{address_operand, take_space};
use super::resolve::{resolve_cluster_range, resolve_range};
use super::rounding::{Bf16, F16, Format, canonical};
use super::shared_access::SharedAccess;
use super::tensor_sum::{ALL_BITS, Addition, CUT, SINGLE_BITS, add};
use crate::code::access::{Access, FLAGS, StateSpace, classify};
use crate::code::cursor::InstructionCursor;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::Space;
use crate::lanes::LANES;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Shapes of `wmma` as `[m, n, k]`.
const SHAPES: [(&str, [usize; 3]); 5] = [
    ("m16n16k16", [16, 16, 16]),
    ("m8n32k16", [8, 32, 16]),
    ("m32n8k16", [32, 8, 16]),
    ("m16n16k8", [16, 16, 8]),
    ("m8n8k4", [8, 8, 4]),
];

/// Size, element type and register count of one matrix (`a`, `b`, `c` or `d`) of a product.
#[derive(Clone, Copy)]
struct Fragment {
    rows: usize,
    columns: usize,
    ty: Ty,
    registers: usize,
}

impl Fragment {
    /// Matrix `which` (`a`, `b`, `c` or `d`) of a shape; `None` if PTX has no such matrix with elements of type `ty`.
    fn new(which: char, shape: [usize; 3], ty: Ty) -> Option<Fragment> {
        let [m, n, k] = shape;
        let (rows, columns) = match which {
            'a' => (m, k),
            'b' => (k, n),
            _ => (m, n),
        };
        let factor = matches!(which, 'a' | 'b');
        let fits = match (ty, factor) {
            (Ty::F16 | Ty::Bf16 | Ty::U8 | Ty::S8, true) => k == 16,
            (Ty::Tf32, true) => shape == [16, 16, 8],
            (Ty::F16, false) => k == 16,
            (Ty::F32, false) => k >= 8,
            (Ty::S32, false) => k == 16,
            (Ty::F64, _) => k == 4,
            _ => false,
        };
        let per_lane = rows * columns * ty.bytes() as usize / LANES;
        let registers = match ty {
            // PTX gives every `.f16` matrix `a` or `b` eight registers; small matrices do not use all of them.
            Ty::F16 if factor => 8,
            Ty::F64 => per_lane / 8,
            _ => per_lane.div_ceil(4),
        };
        fits.then_some(Fragment { rows, columns, ty, registers })
    }

    fn width(self) -> Width {
        if self.ty == Ty::F64 { Width::W64 } else { Width::W32 }
    }

    /// Register, lane and bit position where the fragment stores an element.
    fn place(self, row: usize, column: usize) -> (usize, usize, u32) {
        let bytes = self.ty.bytes() as usize;
        let each = (self.width().bits() as usize / 8) / bytes;
        let element = row * self.columns + column;
        (element / (each * LANES), element / each % LANES, (element % each * bytes * 8) as u32)
    }

    fn get(self, cx: &ExecutionContext<'_>, slots: &[u32], row: usize, column: usize) -> f64 {
        let (register, lane, shift) = self.place(row, column);
        if self.ty == Ty::F64 {
            return cx.warp.regs.lanes::<f64>(slots[register])[lane];
        }
        let word = cx.warp.regs.lanes::<u32>(slots[register])[lane] >> shift;
        match self.ty {
            Ty::F16 => F16::to_f32(word as u16) as f64,
            Ty::Bf16 => Bf16::to_f32(word as u16) as f64,
            Ty::Tf32 => f32::from_bits(word & !0x1fff) as f64,
            Ty::U8 => (word & 0xff) as f64,
            Ty::S8 => word as i8 as f64,
            Ty::S32 => word as i32 as f64,
            _ => f32::from_bits(word) as f64,
        }
    }

    /// Writes the bits of one element to the fragment's registers.
    fn set(self, cx: &mut ExecutionContext<'_>, slots: &[u32], (row, column): (usize, usize), bits: u64) {
        let (register, lane, shift) = self.place(row, column);
        if self.ty == Ty::F64 {
            cx.warp.regs.lanes_mut::<u64>(slots[register])[lane] = bits;
            return;
        }
        let mask = (u32::MAX >> (32 - 8 * self.ty.bytes())) << shift;
        let word = &mut cx.warp.regs.lanes_mut::<u32>(slots[register])[lane];
        *word = *word & !mask | (bits as u32) << shift & mask;
    }
}

/// Appends a fragment's description and register slots to an operand list.
fn push(list: &mut Vec<u32>, fragment: Fragment, slots: Vec<u32>) {
    let ty = TYPES.iter().position(|&known| known == fragment.ty).unwrap_or_default();
    list.extend([fragment.rows as u32, fragment.columns as u32, ty as u32, slots.len() as u32]);
    list.extend(slots);
}

/// Element types; an operand list stores a type as an index into this list.
const TYPES: [Ty; 8] = [Ty::F16, Ty::Bf16, Ty::Tf32, Ty::U8, Ty::S8, Ty::F32, Ty::S32, Ty::F64];

/// Splits the first fragment off an operand list. Returns its description, its register slots, and the rest of the
/// list.
fn pop(list: &[u32]) -> (Fragment, &[u32], &[u32]) {
    let registers = list[3] as usize;
    let (rows, columns, ty) = (list[0] as usize, list[1] as usize, TYPES[list[2] as usize]);
    let (slots, rest) = list[4..].split_at(registers);
    (Fragment { rows, columns, ty, registers }, slots, rest)
}

// Flags in the first word of the operand list of [`transfer`].
const STORES: u32 = 1;
const BY_COLUMNS: u32 = 2;

/// `wmma.load` and `wmma.store`. Operand list: flags, register slot of the stride, offset (two words), fragment.
fn transfer(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    let list = cx.launch.program.list(i.imm);
    let (options, stride) = (list[0], cx.warp.regs.lanes::<u32>(list[1])[0]);
    let offset = list[2] as u64 | (list[3] as u64) << 32;
    let (fragment, slots, _) = pop(&list[4..]);
    let start = addresses(cx, &Inst { imm: offset, ..*i })[0];
    let state_space = StateSpace::of(i.slots[FLAGS]);
    let (space, start) = match state_space {
        StateSpace::Global => (Space::Global, start),
        StateSpace::Shared => (Space::Shared, start),
        _ => classify(start),
    };
    let (lines, length) = match options & BY_COLUMNS {
        0 => (fragment.rows, fragment.columns),
        _ => (fragment.columns, fragment.rows),
    };
    let element = fragment.ty.bytes() as usize;
    let access = if options & STORES != 0 { Access::Store } else { Access::Load };
    if access == Access::Load {
        for &slot in slots {
            match fragment.width() {
                Width::W64 => cx.warp.regs.lanes_mut::<u64>(slot).fill(0),
                _ => cx.warp.regs.lanes_mut::<u32>(slot).fill(0),
            }
        }
    }
    for line in 0..lines {
        let at = start.wrapping_add(line as u64 * stride as u64 * element as u64);
        let bytes = (length * element) as u64;
        let (lane, alignment) = (line % LANES, element as u64);
        let found = match space {
            Space::Shared => {
                let own_cta_only = state_space == StateSpace::Shared;
                resolve_cluster_range(
                    cx,
                    SharedAccess { lane, address: at, bytes, access, own_cta_only, asynchronous: false },
                    alignment,
                )
            }
            _ => resolve_range(cx, lane, (space, access), (at, bytes), alignment),
        };
        let Some(pointer) = found else { return Flow::Fault };
        for position in 0..length {
            let place = if options & BY_COLUMNS != 0 { (position, line) } else { (line, position) };
            let memory = pointer.wrapping_add(position * element);
            let mut bits = [0u8; 8];
            if access == Access::Load {
                // SAFETY: `resolve_range` or `resolve_cluster_range` checked the whole row or column of the matrix.
                unsafe { memory.copy_to_nonoverlapping(bits.as_mut_ptr(), element) };
                fragment.set(cx, slots, place, u64::from_le_bytes(bits));
            } else {
                let (register, lane, shift) = fragment.place(place.0, place.1);
                let word = match fragment.width() {
                    Width::W64 => cx.warp.regs.lanes::<u64>(slots[register])[lane],
                    _ => (cx.warp.regs.lanes::<u32>(slots[register])[lane] >> shift) as u64,
                };
                bits = word.to_le_bytes();
                // SAFETY: `resolve_range` or `resolve_cluster_range` checked the whole row or column of the matrix.
                unsafe { memory.copy_from_nonoverlapping(bits.as_ptr(), element) };
            }
        }
    }
    Flow::Next
}

/// Largest depth of the shapes.
const MAX_DEPTH: usize = 16;

/// Exponent of the smallest normal number of a type whose sums are those of [`super::tensor_sum`].
fn lowest_exponent(ty: Ty) -> Option<i32> {
    match ty {
        Ty::F16 => Some(-14),
        Ty::Bf16 | Ty::Tf32 | Ty::F32 => Some(-126),
        _ => None,
    }
}

/// `wmma.mma`. Operand list: whether to saturate, then the fragments of `d`, `a`, `b` and `c`.
fn multiply(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    let list = cx.launch.program.list(i.imm);
    let (d, d_slots, rest) = pop(&list[1..]);
    let (a, a_slots, rest) = pop(rest);
    let (b, b_slots, rest) = pop(rest);
    let (c, c_slots, _) = pop(rest);
    let saturates = list[0] != 0;
    let mut sums = vec![0.0; d.rows * d.columns];
    for row in 0..d.rows {
        for column in 0..d.columns {
            let accumulator = c.get(cx, c_slots, row, column);
            let factors: [[f64; 2]; MAX_DEPTH] = std::array::from_fn(|k| match k < a.columns {
                true => [a.get(cx, a_slots, row, k), b.get(cx, b_slots, k, column)],
                false => [0.0; 2],
            });
            sums[row * d.columns + column] = match lowest_exponent(a.ty) {
                Some(lowest) => {
                    let kept = if d.ty == Ty::F16 { ALL_BITS } else { SINGLE_BITS };
                    let lowest_accumulator = lowest_exponent(c.ty).unwrap_or_default();
                    let addition = Addition { lowest: [lowest; 2], lowest_accumulator, cut: CUT, kept };
                    // Devices compute a product of tf32 in two steps.
                    let step = if a.ty == Ty::Tf32 { 4 } else { MAX_DEPTH };
                    factors[..a.columns].chunks(step).fold(accumulator, |sum, factors| {
                        add(factors.iter().map(|factors| factors.map(|x| x as f32)), sum, addition)
                    })
                }
                None => factors.iter().fold(accumulator, |sum, [a, b]| sum + a * b),
            };
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        let bits = match d.ty {
            Ty::F16 => F16::from_f64(sum) as u64,
            Ty::S32 if saturates => sum as i32 as u32 as u64,
            Ty::S32 => sum as i64 as u32 as u64,
            Ty::F64 => sum.to_bits(),
            _ => canonical(sum as f32).to_bits() as u64,
        };
        d.set(cx, d_slots, (at / d.columns, at % d.columns), bits);
    }
    Flow::Next
}

/// Register slots of operand `index`, the vector with the registers of a fragment.
fn registers(
    op: &mut InstructionCursor<'_, '_>,
    index: usize,
    of: Fragment,
    written: bool,
) -> Result<Vec<u32>, ParseError> {
    let elements = registers_of(op, index)?;
    if elements.len() != of.registers {
        let count = of.registers;
        return Err(op.error(format!(
            "operand {} of `{}` must have {count} registers",
            index + 1,
            op.text()
        )));
    }
    let ty = if of.ty == Ty::F64 { Ty::F64 } else { Ty::B32 };
    let slot = |element: &Operand| match element {
        Operand::Reg(register) if written => op.write_register(*register, of.width()),
        _ if written => Err(op.unsupported()),
        value => op.value(value, ty),
    };
    elements.iter().map(slot).collect()
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let action = op.take_any(&[("load", 'l'), ("store", 's'), ("mma", 'm')]);
    let Some(shape) = op.take_any(&SHAPES) else { return Err(op.unsupported()) };
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    match action {
        Some('m') => decode_multiply(op, shape),
        Some(action) => decode_transfer(op, shape, action == 's'),
        None => Err(op.unsupported()),
    }
}

fn decode_transfer(
    op: &mut InstructionCursor<'_, '_>,
    shape: [usize; 3],
    stores: bool,
) -> Result<Exec, ParseError> {
    let which = op.take_any(&[("a", 'a'), ("b", 'b'), ("c", 'c'), ("d", 'd')]);
    let by_columns = op.take_any(&[("row", false), ("col", true)]);
    let space = take_space(op);
    let ty = op.take_ty()?;
    let (Some(which), Some(by_columns)) = (which, by_columns) else { return Err(op.unsupported()) };
    let memory = matches!(space, StateSpace::Global | StateSpace::Shared | StateSpace::Generic);
    if stores != (which == 'd') || !memory {
        return Err(op.unsupported());
    }
    let Some(fragment) = Fragment::new(which, shape, ty) else { return Err(op.unsupported()) };
    let (data, address) = if stores { (1, 0) } else { (0, 1) };
    let slots = registers(op, data, fragment, !stores)?;
    address_operand(op, address, space, 0)?;
    let offset = op.imm;
    let stride = match op.operand_count() {
        3 => op.src(2, Ty::U32)?,
        _ => {
            let dense = if by_columns { fragment.rows } else { fragment.columns };
            op.constant(Width::W32, dense as u64)
        }
    };
    let options = if stores { STORES } else { 0 } | if by_columns { BY_COLUMNS } else { 0 };
    let mut list = vec![options, stride, offset as u32, (offset >> 32) as u32];
    push(&mut list, fragment, slots);
    op.imm = op.list(list);
    Ok(transfer)
}

fn decode_multiply(op: &mut InstructionCursor<'_, '_>, shape: [usize; 3]) -> Result<Exec, ParseError> {
    for _ in 0..2 {
        // The layouts of `a` and `b` in memory do not affect their fragments.
        if !op.take("row") && !op.take("col") {
            return Err(op.unsupported());
        }
    }
    op.take("rn");
    let saturates = op.take("satfinite");
    let first = op.take_ty()?;
    let second = op.take_ty()?;
    // A `wmma.mma` of halves names only the types of `d` and `c`.
    let [d, a, b, c] = match op.take_ty() {
        Ok(third) => [first, second, third, op.take_ty()?],
        Err(_) => [first, Ty::F16, Ty::F16, second],
    };
    let meant = match a {
        Ty::U8 | Ty::S8 => matches!(b, Ty::U8 | Ty::S8) && d == Ty::S32 && c == Ty::S32,
        Ty::F16 => b == a && matches!(d, Ty::F16 | Ty::F32) && matches!(c, Ty::F16 | Ty::F32),
        Ty::Bf16 | Ty::Tf32 => b == a && d == Ty::F32 && c == Ty::F32,
        _ => [d, a, b, c] == [Ty::F64; 4],
    };
    if !meant || saturates && d != Ty::S32 {
        return Err(op.unsupported());
    }
    let mut list = vec![saturates as u32];
    for (index, (which, ty)) in [('d', d), ('a', a), ('b', b), ('c', c)].into_iter().enumerate() {
        let Some(fragment) = Fragment::new(which, shape, ty) else { return Err(op.unsupported()) };
        let slots = registers(op, index, fragment, index == 0)?;
        push(&mut list, fragment, slots);
    }
    op.imm = op.list(list);
    Ok(multiply)
}
