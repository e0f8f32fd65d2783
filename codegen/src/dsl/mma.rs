//! Matrix products by a warp.
//!
//! All 32 lanes run a product together, each holding a part of every matrix. Lane l is in group g = l / 4 and has
//! place t = l mod 4 in it (PTX ISA, "Matrix Fragments for mma").

use std::panic::Location;

use super::record::emit;
use super::value::Val;
use crate::ir::{Mma, MmaElement, MmaShape, Op, Type};

/// D = A·B + C for A of 16×32 bytes, B of 32×8 bytes, C and D of 16×8 sums, wrapping
/// (`mma.sync.aligned.m16n8k32.row.col.s32`, sm_80).
///
/// What a lane holds, four bytes a register, the first in the low byte:
/// - `a[i]`: row g + 8·(i mod 2), columns 4t + 16·(i / 2) and the next three;
/// - `b[i]`: column g, rows 4t + 16·i and the next three;
/// - `c[i]`, and the result: row g + 8·(i / 2), column 2t + i mod 2.
#[track_caller]
pub fn mma_m16n8k32_i8(
    a: [Val<u32>; 4],
    a_signed: bool,
    b: [Val<u32>; 2],
    b_signed: bool,
    c: [Val<i32>; 4],
) -> [Val<i32>; 4] {
    let element = |signed: bool| if signed { MmaElement::I8 } else { MmaElement::U8 };
    let mma = Mma { shape: MmaShape::M16N8K32, a: element(a_signed), b: element(b_signed) };
    let words = a.iter().chain(&b).map(|value| value.id);
    let args: Vec<_> = words.chain(c.iter().map(|value| value.id)).collect();
    let sums = emit(Op::Mma(mma), Type::I32, &args, Location::caller());
    std::array::from_fn(|i| Val::from_id(sums[i]))
}
