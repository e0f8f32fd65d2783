//! Products of f64.

use std::panic::Location;

use super::sums::FragmentC;
use crate::dsl::recorder::{Site, emit};
use crate::dsl::value::Val;
use crate::ir::{Mma, MmaElement, MmaShape, Op, Type};

/// The product A·B + C of f64: 16 rows of `RA` · 2 columns by 8 columns, with `RA` = 2, 4 or 8 and `RB` half of `RA`. Element i
/// of `a` is in row l / 4 + 8·(i mod 2) and column l mod 4 + 4·(i / 2), element i of `b` in row l mod 4 + 4·i and column l / 4,
/// for lane l.
///
/// - PTX: `mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64`, by `RA` `.m16n8k4`, `.m16n8k8`
/// - Target: sm_90
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // Row r of A consists of numbers r, B of halves: 16 · r / 2.
/// #[kernel(threads = 32)]
/// fn product(x: Ptr<Global, f64>) {
///     let rows = std::array::from_fn::<_, 8, _>(|i| (lane() / 4 + i as u32 % 2 * 8).cast::<f64>());
///     let c = mma_f64(rows, [val(0.5); 4], FragmentC::zero());
///     for i in 0..4u32 {
///         x.at(FragmentC::<f64>::row(i) * 8 + FragmentC::<f64>::column(i)).store(c.0[i as usize]);
///     }
/// }
/// let found = run(product(), "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", [0.0f64; 128]);
/// assert_eq!(found, std::array::from_fn(|i| (i / 8) as f64 * 8.0));
/// ```
#[track_caller]
pub fn mma_f64<const RA: usize, const RB: usize>(
    a: [Val<f64>; RA],
    b: [Val<f64>; RB],
    c: FragmentC<f64>,
) -> FragmentC<f64> {
    const {
        assert!(
            matches!((RA, RB), (2, 1) | (4, 2) | (8, 4)),
            "`mma_f64` takes 2, 4 or 8 elements of A, and half as many of B"
        );
    }
    let shape = match RA {
        2 => MmaShape::M16N8K4,
        4 => MmaShape::M16N8K8,
        _ => MmaShape::M16N8K16,
    };
    FragmentC(product(shape, [&a, &b, &c.0], Location::caller()))
}

/// The product A·B + C of f64: 8 rows of 4 columns by 8 columns. Lane l has the element of A in row l / 4 and column l mod 4,
/// that of B in row l mod 4 and column l / 4, and the sums in row l / 4 and columns 2·(l mod 4) and the next.
///
/// - PTX: `mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // Row r of A consists of numbers r, B of halves: 4 · r / 2.
/// #[kernel(threads = 32)]
/// fn product(x: Ptr<Global, f64>) {
///     let row = lane() / 4;
///     let c = mma_m8n8k4_f64(row.cast(), val(0.5), [val(0.0); 2]);
///     x.at(row * 8 + lane() % 4 * 2).store_vector(c);
/// }
/// let found = run(product(), "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", [0.0f64; 64]);
/// assert_eq!(found, std::array::from_fn(|i| (i / 8) as f64 * 2.0));
/// ```
#[track_caller]
pub fn mma_m8n8k4_f64(a: Val<f64>, b: Val<f64>, c: [Val<f64>; 2]) -> [Val<f64>; 2] {
    product(MmaShape::M8N8K4, [&[a], &[b], &c], Location::caller())
}

fn product<const N: usize>(shape: MmaShape, operands: [&[Val<f64>]; 3], site: Site) -> [Val<f64>; N] {
    let mma = Mma { shape, a: MmaElement::F64, b: MmaElement::F64 };
    let args: Vec<_> = operands.into_iter().flatten().map(|value| value.id()).collect();
    let sums = emit(Op::Mma(mma), Type::F64, &args, site);
    std::array::from_fn(|i| Val::from_id(sums[i]))
}
