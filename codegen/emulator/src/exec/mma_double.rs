//! `mma` of doubles.
//!
//! Lane `l` holds in register `r` of `A` the element in row `l / 4 + 8 · (r mod 2)` and column `l mod 4 + 4 · (r / 2)`, in
//! register `r` of `B` the element in row `l mod 4 + 4 · r` and column `l / 4`, and accumulators as in other shapes
//! ([`super::fragment`]). `m8n8k4` has the upper eight rows alone. Each sum is a chain of fused multiply-adds in the order
//! of `k`.

use super::fragment::{accumulator_position, register_slots, whole_warp};
use super::lane_loop::lane_loop;
use crate::code::cursor::InstructionCursor;
use crate::context::Exec;
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::Ty;

lane_loop! {
    /// `D = A · B + C`: `HALVES` times eight rows, and `STEPS` times four columns of `A`.
    fn double_mma[const HALVES: usize, const STEPS: usize][HALVES, STEPS](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let list = cx.launch.program.list(i.imm);
        let (d, rest) = list.split_at(2 * HALVES);
        let (a, rest) = rest.split_at(HALVES * STEPS);
        let (b, c) = rest.split_at(STEPS);
        let mut totals = [[0.0; LANES]; 4];
        for (totals, &c) in totals.iter_mut().zip(c) {
            *totals = *cx.warp.regs.lanes::<f64>(c);
        }
        for step in 0..STEPS {
            let b = *cx.warp.regs.lanes::<f64>(b[step]);
            for (index, sums) in totals.iter_mut().enumerate().take(2 * HALVES) {
                let a = cx.warp.regs.lanes::<f64>(a[HALVES * step + index / 2]);
                for lane in 0..LANES {
                    let (row, column) = accumulator_position(lane, index);
                    for k in 0..4 {
                        sums[lane] = a[4 * (row % 8) + k].mul_add(b[4 * column + k], sums[lane]);
                    }
                }
            }
        }
        for (totals, &d) in totals.iter().zip(d) {
            *cx.warp.regs.lanes_mut(d) = *totals;
        }
        Flow::Next
    }
}

/// Decodes the operands of a product with `rows` rows and `depth` columns of `A`.
pub(super) fn decode(
    op: &mut InstructionCursor<'_, '_>,
    rows: usize,
    depth: usize,
) -> Result<Exec, ParseError> {
    let exec = match (rows, depth) {
        (8, 4) => double_mma::<1, 1>(),
        (16, 4) => double_mma::<2, 1>(),
        (16, 8) => double_mma::<2, 2>(),
        (16, 16) => double_mma::<2, 4>(),
        _ => return Err(op.unsupported()),
    };
    let (halves, steps) = (rows / 8, depth / 4);
    let list = register_slots(op, [2 * halves, halves * steps, steps, 2 * halves], Ty::F64)?;
    op.imm = op.list(list);
    Ok(exec)
}
