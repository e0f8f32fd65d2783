//! `mma`: matrix products whose operands are fragments in registers.
//!
//! Integer sums are exact. A floating-point sum adds the exact products and the accumulator in double precision and
//! rounds once to the result type; devices add in an unspecified order and precision.

use super::fragment::{ACCUMULATORS, Bfloat, COLUMNS, Element, Half, ROWS, Signed8, Tf32, Unsigned8, Value};
use super::fragment::{accumulator_position, gather_a, gather_b, registers_of, whole_warp};
use super::lane_loop::lane_loop;
#[cfg(target_arch = "x86_64")]
use super::mma_avx2;
use super::rounding::{F16, Format, canonical};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::D;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::LANES;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Flag in `imm` of an integer `mma`: `.satfinite`. The other bits of `imm` are the index of the operand list.
const SATURATES: u64 = 1 << 63;

/// Adds `A · B` to `sums`; `A` and `B` are fragments in registers.
#[inline(always)]
fn product<EA: Element<Value = V>, EB: Element<Value = V>, V: Value>(
    cx: &ExecutionContext<'_>,
    (a, b): (&[u32], &[u32]),
    mut sums: [[V; COLUMNS]; ROWS],
) -> [[V; COLUMNS]; ROWS] {
    // Rows whose sums fit into the vector registers of the CPU.
    const BLOCK: usize = 8;
    let depth = EA::COUNT * 2 * a.len();
    let (a, b) = (gather_a::<EA>(cx, a), gather_b::<EB>(cx, b));
    for block in 0..ROWS / BLOCK {
        let rows: &mut [[V; COLUMNS]] = &mut sums[block * BLOCK..(block + 1) * BLOCK];
        let mut local: [[V; COLUMNS]; BLOCK] = std::array::from_fn(|row| rows[row]);
        for k in 0..depth {
            for row in 0..BLOCK {
                for column in 0..COLUMNS {
                    local[row][column] =
                        local[row][column].multiply_add(a[k][block * BLOCK + row], b[k][column]);
                }
            }
        }
        rows.copy_from_slice(&local);
    }
    sums
}

/// 8-bit element type.
pub(crate) trait Bytes: Element<Value = f32> {
    const SIGNED: bool;
}

impl Bytes for Signed8 {
    const SIGNED: bool = true;
}

impl Bytes for Unsigned8 {
    const SIGNED: bool = false;
}

/// Function for `D = A · B + C` of 8-bit integers, with `RA` registers of `A` and `RA / 2` of `B` per lane.
fn integer_mma<EA: Bytes, EB: Bytes, const RA: usize>() -> Exec {
    fn portable<EA: Bytes, EB: Bytes, const RA: usize>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
        integer_sum::<RA>(cx, i, |cx, a, b| {
            let sums = product::<EA, EB, f32>(cx, (a, b), Default::default());
            let sum = |index, lane| {
                let (row, column) = accumulator_position(lane, index);
                sums[row][column] as i32
            };
            std::array::from_fn(|index| std::array::from_fn(|lane| sum(index, lane)))
        })
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn wide<EA: Bytes, EB: Bytes, const RA: usize>(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
        integer_sum::<RA>(cx, i, |cx, a, b| {
            let mut left = [cx.warp.regs.lanes::<u32>(a[0]); RA];
            for (left, &slot) in left.iter_mut().zip(a) {
                *left = cx.warp.regs.lanes(slot);
            }
            let right = [cx.warp.regs.lanes(b[0]), cx.warp.regs.lanes(b[b.len() - 1])];
            mma_avx2::product((left, EA::SIGNED), (&right[..b.len()], EB::SIGNED))
        })
    }
    #[cfg(target_arch = "x86_64")]
    if crate::lanes::wide() {
        return wide::<EA, EB, RA>;
    }
    portable::<EA, EB, RA>
}

/// `D = product(A, B) + C` of integers; `product` gets the register slots of `A` and of `B`.
#[inline(always)]
fn integer_sum<const RA: usize>(
    cx: &mut ExecutionContext<'_>,
    i: &Inst,
    product: impl Fn(&ExecutionContext<'_>, &[u32], &[u32]) -> [[i32; LANES]; ACCUMULATORS],
) -> Flow {
    if !whole_warp(cx) {
        return Flow::Fault;
    }
    let list = cx.launch.program.list(i.imm & !SATURATES);
    let (d, rest) = list.split_at(ACCUMULATORS);
    let (a, rest) = rest.split_at(RA);
    let (b, c) = rest.split_at(RA / 2);
    let mut totals = product(cx, a, b);
    let saturates = i.imm & SATURATES != 0;
    for (totals, &c) in totals.iter_mut().zip(c) {
        let c = cx.warp.regs.lanes::<i32>(c);
        for lane in 0..LANES {
            let (c, sum) = (c[lane], totals[lane]);
            totals[lane] = if saturates { c.saturating_add(sum) } else { c.wrapping_add(sum) };
        }
    }
    for (totals, &d) in totals.iter().zip(d) {
        *cx.warp.regs.lanes_mut(d) = *totals;
    }
    Flow::Next
}

lane_loop! {
    /// `D = A · B + C` with `f32` accumulators.
    fn single_mma[E: Element<Value = f64>, const RA: usize][E, RA](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let list = cx.launch.program.list(i.imm);
        let (d, rest) = list.split_at(ACCUMULATORS);
        let (a, rest) = rest.split_at(RA);
        let (b, c) = rest.split_at(RA / 2);
        let mut sums = [[0.0; COLUMNS]; ROWS];
        for index in 0..ACCUMULATORS {
            let values = cx.warp.regs.lanes::<f32>(c[index]);
            for lane in 0..LANES {
                let (row, column) = accumulator_position(lane, index);
                sums[row][column] = values[lane] as f64;
            }
        }
        let sums = product::<E, E, f64>(cx, (a, b), sums);
        for index in 0..ACCUMULATORS {
            let values = cx.warp.regs.lanes_mut::<f32>(d[index]);
            for lane in 0..LANES {
                let (row, column) = accumulator_position(lane, index);
                values[lane] = canonical(sums[row][column] as f32);
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// `D = A · B + C` with `f16` accumulators, two per register.
    fn half_mma[const RA: usize][RA](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let list = cx.launch.program.list(i.imm);
        let (d, rest) = list.split_at(ACCUMULATORS / 2);
        let (a, rest) = rest.split_at(RA);
        let (b, c) = rest.split_at(RA / 2);
        let mut sums = [[0.0; COLUMNS]; ROWS];
        for index in 0..ACCUMULATORS {
            let values = cx.warp.regs.lanes::<u32>(c[index / 2]);
            for lane in 0..LANES {
                let (row, column) = accumulator_position(lane, index);
                sums[row][column] = Half::get(values[lane], index & 1);
            }
        }
        let sums = product::<Half, Half, f64>(cx, (a, b), sums);
        for half in 0..ACCUMULATORS / 2 {
            let values = cx.warp.regs.lanes_mut::<u32>(d[half]);
            for lane in 0..LANES {
                let (row, column) = accumulator_position(lane, 2 * half);
                let bits = |column: usize| F16::from_f64(sums[row][column]) as u32;
                values[lane] = bits(column) | bits(column + 1) << 16;
            }
        }
        Flow::Next
    }
}

lane_loop! {
    /// `mma.m8n8k4` of doubles. Lane `l` holds row `l / 4`, column `l mod 4` of `A`, row `l mod 4`, column `l / 4` of
    /// `B`, and two accumulators. Each sum is a chain of fused multiply-adds in the order of `k`.
    fn double_mma[][](cx, i) {
        if !whole_warp(cx) {
            return Flow::Fault;
        }
        let list = cx.launch.program.list(i.imm);
        let a = *cx.warp.regs.lanes::<f64>(list[2]);
        let b = *cx.warp.regs.lanes::<f64>(list[3]);
        let mut totals = [4, 5].map(|c| *cx.warp.regs.lanes::<f64>(list[c]));
        for (index, sums) in totals.iter_mut().enumerate() {
            for lane in 0..LANES {
                let (row, column) = (lane / 4, 2 * (lane % 4) + index);
                for k in 0..4 {
                    sums[lane] = a[4 * row + k].mul_add(b[4 * column + k], sums[lane]);
                }
            }
        }
        for index in 0..2 {
            *cx.warp.regs.lanes_mut(list[index]) = totals[index];
        }
        Flow::Next
    }
}

/// Decodes `mma.m8n8k4` of doubles.
fn decode_double(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let layouts = op.take("row") && op.take("col");
    op.take("rn");
    for _ in 0..4 {
        if op.take_ty()? != Ty::F64 || !layouts {
            return Err(op.unsupported());
        }
    }
    let mut list = Vec::new();
    for (index, count) in [2, 1, 1, 2].into_iter().enumerate() {
        let elements = registers_of(op, index)?;
        if elements.len() != count {
            return Err(op.error(format!(
                "operand {} of `{}` must have {count} registers",
                index + 1,
                op.text()
            )));
        }
        for element in elements {
            list.push(match element {
                Operand::Reg(register) if index == D => op.write_register(*register, Width::W64)?,
                _ if index == D => return Err(op.unsupported()),
                value => op.value(value, Ty::F64)?,
            });
        }
    }
    op.imm = op.list(list);
    Ok(double_mma())
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    if op.take("m8n8k4") {
        return decode_double(op);
    }
    let shapes = [("m16n8k4", 4), ("m16n8k8", 8), ("m16n8k16", 16), ("m16n8k32", 32)];
    let depth = op.take_any(&shapes);
    let (true, true, Some(depth)) = (op.take("row"), op.take("col"), depth) else {
        return Err(op.unsupported());
    };
    let saturates = op.take("satfinite");
    let types = [op.take_ty()?, op.take_ty()?, op.take_ty()?, op.take_ty()?];
    use Ty::{Bf16, F16, F32, S8, S32, U8};
    let (exec, registers, accumulators) = match (depth, types) {
        (32, [S32, S8, S8, S32]) => (integer_mma::<Signed8, Signed8, 4>(), 4, 4),
        (32, [S32, S8, U8, S32]) => (integer_mma::<Signed8, Unsigned8, 4>(), 4, 4),
        (32, [S32, U8, S8, S32]) => (integer_mma::<Unsigned8, Signed8, 4>(), 4, 4),
        (32, [S32, U8, U8, S32]) => (integer_mma::<Unsigned8, Unsigned8, 4>(), 4, 4),
        (16, [S32, S8, S8, S32]) => (integer_mma::<Signed8, Signed8, 2>(), 2, 4),
        (16, [S32, S8, U8, S32]) => (integer_mma::<Signed8, Unsigned8, 2>(), 2, 4),
        (16, [S32, U8, S8, S32]) => (integer_mma::<Unsigned8, Signed8, 2>(), 2, 4),
        (16, [S32, U8, U8, S32]) => (integer_mma::<Unsigned8, Unsigned8, 2>(), 2, 4),
        (16, [F32, F16, F16, F32]) => (single_mma::<Half, 4>(), 4, 4),
        (8, [F32, F16, F16, F32]) => (single_mma::<Half, 2>(), 2, 4),
        (16, [F32, Bf16, Bf16, F32]) => (single_mma::<Bfloat, 4>(), 4, 4),
        (8, [F32, Bf16, Bf16, F32]) => (single_mma::<Bfloat, 2>(), 2, 4),
        (8, [F32, Ty::Tf32, Ty::Tf32, F32]) => (single_mma::<Tf32, 4>(), 4, 4),
        (4, [F32, Ty::Tf32, Ty::Tf32, F32]) => (single_mma::<Tf32, 2>(), 2, 4),
        (16, [F16, F16, F16, F16]) => (half_mma::<4>(), 4, 2),
        (8, [F16, F16, F16, F16]) => (half_mma::<2>(), 2, 2),
        _ => return Err(op.unsupported()),
    };
    if saturates && types[0] != S32 {
        return Err(op.unsupported());
    }
    let mut list = Vec::new();
    let counts = [accumulators, registers, registers / 2, accumulators];
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
                Operand::Reg(register) if index == D => op.write_register(*register, Width::W32)?,
                _ if index == D => return Err(op.unsupported()),
                value => op.value(value, Ty::B32)?,
            };
            list.push(slot);
        }
    }
    op.imm = op.list(list) | if saturates { SATURATES } else { 0 };
    Ok(exec)
}
