//! Rows of the 8 × 8 matrices of `ldmatrix` and `stmatrix`.

use crate::code::operands::ELEMENTS;
use crate::context::Inst;
use crate::lanes::{LANES, RegisterFile};

/// Rows of an 8 × 8 matrix.
pub(super) const MATRIX_ROWS: usize = 8;

/// Bytes per row of 16-bit elements.
pub(super) const ROW_BYTES: u64 = 16;

/// Flag in `imm` of `ldmatrix` and `stmatrix`: `.trans`. The other bits are the address offset; offsets in shared
/// memory do not reach bit 63.
pub(super) const TRANSPOSED: u64 = 1 << 63;

/// The rows that a `stmatrix` of `count` matrices stores: element `8n + r` is row `r` of matrix `n`.
pub(super) fn stored_rows(registers: &RegisterFile, i: &Inst, count: usize) -> [[u16; MATRIX_ROWS]; LANES] {
    let mut rows = [[0; MATRIX_ROWS]; LANES];
    for matrix in 0..count {
        let values = registers.lanes::<u32>(i.slots[ELEMENTS[matrix]]);
        for lane in 0..LANES {
            let (outer, inner) = (lane / 4, 2 * (lane % 4));
            for (half, value) in [values[lane] as u16, (values[lane] >> 16) as u16].into_iter().enumerate() {
                let (row, column) = match i.imm & TRANSPOSED {
                    0 => (outer, inner + half),
                    _ => (inner + half, outer),
                };
                rows[matrix * MATRIX_ROWS + row][column] = value;
            }
        }
    }
    rows
}
