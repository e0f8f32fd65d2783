//! `mma`: matrix products whose operands are fragments in registers.
//!
//! Integer sums are exact. Floats are added as on Hopper ([`super::tensor_sum`]), doubles by [`super::mma_double`].

use super::element::{Bfloat, Element, Float8E4m3, Float8E5m2, Half, Signed8, Tf32, Unsigned8};
use super::fragment::{ACCUMULATORS, COLUMNS};
use super::fragment::{accumulator_position, gather_a, gather_b, register_slots, whole_warp};
use super::lane_loop::lane_loop;
#[cfg(target_arch = "x86_64")]
use super::mma_avx2;
use super::mma_double;
use super::rounding::{F16, Format, canonical};
use super::tensor_sum::{ALL_BITS, Addition, CUT, MAX_DEPTH, ROWS, SINGLE_BITS, add_products};
use crate::code::cursor::InstructionCursor;
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::Ty;

/// Flag in `imm` of an integer `mma`: `.satfinite`. The other bits of `imm` are the index of the operand list.
const SATURATES: u64 = 1 << 63;

/// `A · B` of 8-bit integers; `A` and `B` are fragments in registers. A sum of 32 products of bytes is below 2^24, so an `f32`
/// holds it exactly.
#[inline(always)]
fn integer_product<EA: Bytes, EB: Bytes>(
    cx: &ExecutionContext<'_>,
    (a, b): (&[u32], &[u32]),
) -> [[f32; COLUMNS]; ROWS] {
    let depth = EA::COUNT * 2 * a.len();
    let (a, b) = (gather_a::<EA>(cx, a), gather_b::<EB>(cx, b));
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for (a, b) in a.iter().zip(&b).take(depth) {
        for (sums, a) in sums.iter_mut().zip(a) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    sums
}

/// Adds `A · B` to `sums`, numbers of type `C`; `A` and `B` are fragments in registers. The caller rounds the sums to nearest.
#[inline(always)]
fn add_product<A: Element, B: Element, C: Sum>(
    cx: &ExecutionContext<'_>,
    (a, b): (&[u32], &[u32]),
    sums: &mut [[f64; COLUMNS]; ROWS],
) {
    let depth = A::COUNT * 2 * a.len();
    let (a, b) = (gather_a::<A>(cx, a), gather_b::<B>(cx, b));
    let lowest = [A::LOWEST_EXPONENT, B::LOWEST_EXPONENT].map(Option::unwrap_or_default);
    let addition = Addition { lowest, lowest_accumulator: C::LOWEST_EXPONENT, cut: CUT, kept: C::KEPT };
    if A::BYTES > 1 {
        return add_products((&a[..depth], &b[..depth]), sums, COLUMNS, addition);
    }
    // Sum of two f16 products: of elements 0 and 1, and of elements 2 and 3 of every four along K. The accumulator is
    // added last.
    let mut totals = [[0.0; COLUMNS]; ROWS];
    for first in [0, 2] {
        let half = |at: usize| 4 * (at / 2) + first + at % 2;
        let a: [_; MAX_DEPTH / 2] = std::array::from_fn(|at| a[half(at)]);
        let b: [_; MAX_DEPTH / 2] = std::array::from_fn(|at| b[half(at)]);
        add_products((&a[..depth / 2], &b[..depth / 2]), &mut totals, COLUMNS, addition);
        totals.iter_mut().flatten().for_each(|total| *total = C::round(*total));
    }
    for (sums, totals) in sums.iter_mut().zip(totals) {
        for (sum, total) in sums.iter_mut().zip(totals) {
            *sum += total;
        }
    }
}

/// Type of the sums of floats.
trait Sum: 'static {
    /// Exponent of the smallest normal number.
    const LOWEST_EXPONENT: i32;
    /// Number of fraction bits of a sum that are not truncated.
    const KEPT: i32;
    /// The nearest number of the type.
    fn round(sum: f64) -> f64;
}

struct Single;
struct HalfSum;

impl Sum for Single {
    const LOWEST_EXPONENT: i32 = -126;
    const KEPT: i32 = SINGLE_BITS;
    #[inline(always)]
    fn round(sum: f64) -> f64 {
        sum as f32 as f64
    }
}

impl Sum for HalfSum {
    const LOWEST_EXPONENT: i32 = -14;
    const KEPT: i32 = ALL_BITS;
    #[inline(always)]
    fn round(sum: f64) -> f64 {
        F16::to_f32(F16::from_f64(sum)) as f64
    }
}

/// 8-bit element type.
pub(crate) trait Bytes: Element {
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
            let sums = integer_product::<EA, EB>(cx, (a, b));
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
    fn single_mma[A: Element, B: Element, const RA: usize][A, B, RA](cx, i) {
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
        add_product::<A, B, Single>(cx, (a, b), &mut sums);
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
    fn half_mma[A: Element, B: Element, const RA: usize][A, B, RA](cx, i) {
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
                sums[row][column] = Half::get(values[lane], index & 1) as f64;
            }
        }
        add_product::<A, B, HalfSum>(cx, (a, b), &mut sums);
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

/// Function for `D = A · B + C` with accumulators of type `sum`: f32 or f16.
fn float_mma<A: Element, B: Element, const RA: usize>(sum: &str) -> Exec {
    if sum == "f16" { half_mma::<A, B, RA>() } else { single_mma::<A, B, RA>() }
}

/// Function for `D = A · B + C` of 8-bit floats of types `a` and `b`.
fn float8_mma<const RA: usize>(sum: &str, a: &str, b: &str) -> Exec {
    match (a, b) {
        ("e4m3", "e4m3") => float_mma::<Float8E4m3, Float8E4m3, RA>(sum),
        ("e4m3", _) => float_mma::<Float8E4m3, Float8E5m2, RA>(sum),
        (_, "e4m3") => float_mma::<Float8E5m2, Float8E4m3, RA>(sum),
        _ => float_mma::<Float8E5m2, Float8E5m2, RA>(sum),
    }
}

/// Registers per lane of accumulators of type `sum`: f32 or f16.
fn sums(sum: &str) -> usize {
    if sum == "f16" { ACCUMULATORS / 2 } else { ACCUMULATORS }
}

/// Types of matrices.
const TYPES: [&str; 10] = ["f64", "f32", "s32", "f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"];

fn take_type(op: &mut InstructionCursor<'_, '_>) -> Option<&'static str> {
    op.take_map(|name| TYPES.into_iter().find(|&known| known == name))
}

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    let shapes = [
        ("m8n8k4", (8, 4)),
        ("m16n8k4", (16, 4)),
        ("m16n8k8", (16, 8)),
        ("m16n8k16", (16, 16)),
        ("m16n8k32", (16, 32)),
    ];
    let shape = op.take_any(&shapes);
    let (true, true, Some((rows, depth))) = (op.take("row"), op.take("col"), shape) else {
        return Err(op.unsupported());
    };
    let saturates = op.take("satfinite");
    let rounds = op.take("rn");
    let types = [take_type(op), take_type(op), take_type(op), take_type(op)];
    let [Some(d), Some(a), Some(b), Some(c)] = types else { return Err(op.unsupported()) };
    if [d, a, b, c] == ["f64"; 4] && !saturates {
        return mma_double::decode(op, rows, depth);
    }
    if c != d || rows != 16 || rounds {
        return Err(op.unsupported());
    }
    let (exec, registers_a, accumulators) = match (d, a, b, depth) {
        ("s32", "s8", "s8", 32) => (integer_mma::<Signed8, Signed8, 4>(), 4, 4),
        ("s32", "s8", "u8", 32) => (integer_mma::<Signed8, Unsigned8, 4>(), 4, 4),
        ("s32", "u8", "s8", 32) => (integer_mma::<Unsigned8, Signed8, 4>(), 4, 4),
        ("s32", "u8", "u8", 32) => (integer_mma::<Unsigned8, Unsigned8, 4>(), 4, 4),
        ("s32", "s8", "s8", 16) => (integer_mma::<Signed8, Signed8, 2>(), 2, 4),
        ("s32", "s8", "u8", 16) => (integer_mma::<Signed8, Unsigned8, 2>(), 2, 4),
        ("s32", "u8", "s8", 16) => (integer_mma::<Unsigned8, Signed8, 2>(), 2, 4),
        ("s32", "u8", "u8", 16) => (integer_mma::<Unsigned8, Unsigned8, 2>(), 2, 4),
        ("f32" | "f16", "f16", "f16", 16) => (float_mma::<Half, Half, 4>(d), 4, sums(d)),
        ("f32" | "f16", "f16", "f16", 8) => (float_mma::<Half, Half, 2>(d), 2, sums(d)),
        ("f32", "bf16", "bf16", 16) => (float_mma::<Bfloat, Bfloat, 4>(d), 4, 4),
        ("f32", "bf16", "bf16", 8) => (float_mma::<Bfloat, Bfloat, 2>(d), 2, 4),
        ("f32", "tf32", "tf32", 8) => (float_mma::<Tf32, Tf32, 4>(d), 4, 4),
        ("f32", "tf32", "tf32", 4) => (float_mma::<Tf32, Tf32, 2>(d), 2, 4),
        ("f32" | "f16", "e4m3" | "e5m2", "e4m3" | "e5m2", 32) => (float8_mma::<4>(d, a, b), 4, sums(d)),
        ("f32" | "f16", "e4m3" | "e5m2", "e4m3" | "e5m2", 16) => (float8_mma::<2>(d, a, b), 2, sums(d)),
        _ => return Err(op.unsupported()),
    };
    if saturates && d != "s32" {
        return Err(op.unsupported());
    }
    let list = register_slots(op, [accumulators, registers_a, registers_a / 2, accumulators], Ty::B32)?;
    op.imm = op.list(list) | if saturates { SATURATES } else { 0 };
    Ok(exec)
}
