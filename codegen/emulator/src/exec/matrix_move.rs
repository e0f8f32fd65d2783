//! Moves of 8 × 8 matrices: `ldmatrix` and `stmatrix` between shared memory and registers, `movmatrix` among lanes.

use super::fragment::{registers_of, whole_warp};
use super::half::pack;
use super::lane_loop::lane_loop;
use super::load_store::{address_operand, take_space};
use super::matrix_rows::{MATRIX_ROWS, ROW_BYTES, TRANSPOSED, stored_rows};
use super::races;
use super::resolve::resolve;
use crate::code::access::{Access, StateSpace};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, D, ELEMENTS};
use crate::context::{Exec, ExecutionContext, Flow, Inst, Resolved};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

lane_loop! {
    /// `ldmatrix`: loads `N` matrices of 8 × 8 halves. Lane `8n + r` gives the address of row `r` of matrix `n`; lane
    /// `l` gets elements `2 · (l mod 4)` and `2 · (l mod 4) + 1` of row `l / 4`, or of column `l / 4` if
    /// [`TRANSPOSED`].
    fn load_matrix[const N: usize][N](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let plain = Inst { imm: i.imm & !TRANSPOSED, ..*i };
        cx.active = u32::MAX >> (LANES - N * MATRIX_ROWS);
        let resolved = resolve(cx, &plain, ROW_BYTES, Access::Load);
        cx.active = u32::MAX;
        let pointers: [*mut u8; LANES] = match resolved {
            Resolved::Run(start) => {
                std::array::from_fn(|lane| start.wrapping_add(lane * ROW_BYTES as usize))
            }
            Resolved::Same(start) => [start; LANES],
            Resolved::Lanes(pointers) => pointers,
            Resolved::Fault => return Flow::Fault,
        };
        for matrix in 0..N {
            let mut rows = [[0u16; MATRIX_ROWS]; MATRIX_ROWS];
            for row in 0..MATRIX_ROWS {
                // SAFETY: `resolve` checked 16 bytes at the pointer of each of the first `8 N` lanes.
                rows[row] = unsafe { pointers[matrix * MATRIX_ROWS + row].cast::<[u16; 8]>().read_unaligned() };
            }
            let mut d = [0u32; LANES];
            for lane in 0..LANES {
                let (outer, inner) = (lane / 4, 2 * (lane % 4));
                let (low, high) = if i.imm & TRANSPOSED != 0 {
                    (rows[inner][outer], rows[inner + 1][outer])
                } else {
                    (rows[outer][inner], rows[outer][inner + 1])
                };
                d[lane] = pack(low, high);
            }
            *cx.warp.regs.lanes_mut(i.slots[ELEMENTS[matrix]]) = d;
        }
        Flow::Next
    }
}

lane_loop! {
    /// `stmatrix`: stores `N` matrices of 8 × 8 halves, the reverse of [`load_matrix`].
    fn store_matrix[const N: usize][N](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let rows = stored_rows(&cx.warp.regs, i, N);
        let plain = Inst { imm: i.imm & !TRANSPOSED, ..*i };
        cx.active = u32::MAX >> (LANES - N * MATRIX_ROWS);
        let pointers: [*mut u8; LANES] = match resolve(cx, &plain, ROW_BYTES, Access::Store) {
            Resolved::Run(start) => {
                std::array::from_fn(|lane| start.wrapping_add(lane * ROW_BYTES as usize))
            }
            Resolved::Same(start) => [start; LANES],
            Resolved::Lanes(pointers) => pointers,
            Resolved::Fault => return Flow::Fault,
        };
        if cx.cluster.races.is_some() && !races::stores_agree(cx, &pointers, &rows) {
            return Flow::Fault;
        }
        cx.active = u32::MAX;
        for row in 0..N * MATRIX_ROWS {
            // SAFETY: `resolve` checked 16 bytes at the pointer of each of the first `8 N` lanes.
            unsafe { pointers[row].cast::<[u16; 8]>().write_unaligned(rows[row]) };
        }
        Flow::Next
    }
}

/// `movmatrix`: transposes an 8 × 8 matrix of 16-bit elements, which the lanes of a warp hold in one register each.
fn transpose(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    let values = cx.warp.regs.lanes::<u32>(i.slots[A]);
    let half = |row: usize, column: usize| (values[4 * row + column / 2] >> (16 * (column % 2))) as u16;
    let transposed: [u32; LANES] = std::array::from_fn(|lane| {
        let (column, row) = (lane / 4, 2 * (lane % 4));
        pack(half(row, column), half(row + 1, column))
    });
    *cx.warp.regs.lanes_mut(i.slots[D]) = transposed;
    Flow::Next
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    match op.opcode() {
        "movmatrix" => {
            if !op.take("m8n8") || !op.take("trans") || op.take_ty()? != Ty::B16 {
                return Err(op.unsupported());
            }
            op.unary(Ty::B32, Ty::B32)?;
            Ok(transpose)
        }
        "ldmatrix" => decode_rows(op, Access::Load),
        _ => decode_rows(op, Access::Store),
    }
}

/// Decodes `ldmatrix` (`access` is a load) and `stmatrix` (a store).
fn decode_rows(op: &mut InstructionCursor<'_, '_>, access: Access) -> Result<Exec, ParseError> {
    let shape = op.take("m8n8");
    let count = op.take_any(&[("x1", 1), ("x2", 2), ("x4", 4)]);
    let transposed = op.take("trans");
    let space = take_space(op);
    let half = op.take_ty()? == Ty::B16;
    let (true, Some(count), true) = (shape, count, half) else { return Err(op.unsupported()) };
    if !matches!(space, StateSpace::Shared | StateSpace::Generic) {
        return Err(op.unsupported());
    }
    let loads = access == Access::Load;
    let registers = registers_of(op, !loads as usize)?;
    if registers.len() != count {
        return Err(op.error(format!("the vector of `{}` must have {count} registers", op.text())));
    }
    for (index, register) in registers.iter().enumerate() {
        op.slots[ELEMENTS[index]] = match register {
            element if loads => op.written_element(element, Width::W32)?,
            value => op.value(value, Ty::B32)?,
        };
    }
    address_operand(op, loads as usize, space, 0)?;
    op.imm = op.imm & !TRANSPOSED | if transposed { TRANSPOSED } else { 0 };
    Ok(match (access, count) {
        (Access::Load, 1) => load_matrix::<1>(),
        (Access::Load, 2) => load_matrix::<2>(),
        (Access::Load, _) => load_matrix::<4>(),
        (_, 1) => store_matrix::<1>(),
        (_, 2) => store_matrix::<2>(),
        _ => store_matrix::<4>(),
    })
}
