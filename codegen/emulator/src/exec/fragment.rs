//! Fragments of `mma`: their layout in the registers of a warp.
//!
//! All shapes share one fragment layout. With `e` elements per 32-bit register (4, 2 or 1), lane `l` holds:
//! - in register `r` of `A`: row `l / 4 + 8 · (r mod 2)`, columns `4e · (r / 2) + e · (l mod 4) ..+ e`;
//! - in register `r` of `B`: column `l / 4`, rows `4e · r + e · (l mod 4) ..+ e`;
//! - of the 16 × 8 accumulators: rows `l / 4` and `l / 4 + 8`, columns `2 · (l mod 4)` and `2 · (l mod 4) + 1`.

use super::element::Element;
use super::tensor_sum::{MAX_DEPTH, ROWS};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::D;
use crate::context::ExecutionContext;
use crate::finding::FindingKind;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Columns of `B` and of the accumulators in an `mma`.
pub(super) const COLUMNS: usize = 8;
/// Accumulator registers per lane, for 32-bit accumulators.
pub(super) const ACCUMULATORS: usize = 4;

/// Whether all 32 lanes execute the instruction; reports a fault if not.
#[inline(always)]
pub(super) fn whole_warp(cx: &mut ExecutionContext<'_>) -> bool {
    cx.active == u32::MAX || lanes_missing(cx)
}

#[cold]
fn lanes_missing(cx: &mut ExecutionContext<'_>) -> bool {
    let missing = (!cx.active).trailing_zeros();
    let why = match (cx.warp.launched >> missing & 1 != 0, cx.warp.live >> missing & 1 != 0) {
        (true, true) => "has diverged and does not execute it",
        (true, false) => "has exited",
        (false, _) => "does not exist",
    };
    let detail = format!("all 32 lanes of the warp must execute it together, but lane {missing} {why}");
    cx.fault_of_missing(FindingKind::MemberMask, cx.missing(), cx.active.trailing_zeros(), detail);
    false
}

/// Reads the elements of `A` from its registers, as a list of columns.
#[inline(always)]
pub(super) fn gather_a<E: Element>(cx: &ExecutionContext<'_>, slots: &[u32]) -> [[f32; ROWS]; MAX_DEPTH] {
    let mut a = [[0.0; ROWS]; MAX_DEPTH];
    for (pair, slots) in slots.chunks(2).enumerate() {
        let [upper, lower] = [0, 1].map(|half| cx.warp.regs.lanes::<u32>(slots[half]));
        for t in 0..4 {
            let registers: [u32; ROWS] = std::array::from_fn(|row| match row / 8 {
                0 => upper[4 * row + t],
                _ => lower[4 * (row - 8) + t],
            });
            for element in 0..E::COUNT {
                let column = &mut a[E::COUNT * (4 * pair + t) + element];
                for row in 0..ROWS {
                    column[row] = E::get(registers[row], element);
                }
            }
        }
    }
    a
}

/// Reads the elements of `B` from its registers, as a list of rows.
#[inline(always)]
pub(super) fn gather_b<E: Element>(cx: &ExecutionContext<'_>, slots: &[u32]) -> [[f32; COLUMNS]; MAX_DEPTH] {
    let mut b = [[0.0; COLUMNS]; MAX_DEPTH];
    for (r, &slot) in slots.iter().enumerate() {
        let values = cx.warp.regs.lanes::<u32>(slot);
        for t in 0..4 {
            let registers: [u32; COLUMNS] = std::array::from_fn(|column| values[4 * column + t]);
            for element in 0..E::COUNT {
                let row = &mut b[E::COUNT * (4 * r + t) + element];
                for column in 0..COLUMNS {
                    row[column] = E::get(registers[column], element);
                }
            }
        }
    }
    b
}

/// Row and column of the accumulator with number `index` in a lane.
#[inline(always)]
pub(super) fn accumulator_position(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index >> 1), 2 * (lane % 4) + (index & 1))
}

/// Operands in the register list of operand `index`: the elements of `{a, b}`, or the operand itself if it is no list.
pub(super) fn registers_of<'f>(
    op: &mut InstructionCursor<'_, 'f>,
    index: usize,
) -> Result<&'f [Operand], ParseError> {
    Ok(match op.operand(index)? {
        Operand::Vector(elements) => elements,
        single => std::slice::from_ref(single),
    })
}

/// Register slots of the four operands of `mma`, which must have `counts` registers of type `ty`.
pub(super) fn register_slots(
    op: &mut InstructionCursor<'_, '_>,
    counts: [usize; 4],
    ty: Ty,
) -> Result<Vec<u32>, ParseError> {
    let mut list = Vec::new();
    for (index, count) in counts.into_iter().enumerate() {
        let elements = registers_of(op, index)?;
        if elements.len() != count {
            return Err(op.error(format!(
                "operand {} of `{}` must have {count} registers",
                index + 1,
                op.text()
            )));
        }
        for element in elements {
            let slot = match element {
                element if index == D => op.written_element(element, ty.width())?,
                value => op.value(value, ty)?,
            };
            list.push(slot);
        }
    }
    Ok(list)
}
