//! Products of fragments.

use std::panic::Location;

use super::element::{MmaElement, MmaWith};
use super::fragment::{FragmentA, FragmentB};
use super::sums::FragmentC;
use crate::dsl::recorder::{Site, emit};
use crate::dsl::scalar::{F16x2, Scalar};
use crate::dsl::value::Val;
use crate::ir::{Mma, MmaShape, Op, Type, Value};

/// The product A·B + C. `RA` is 4 for rows of 32 bytes and 2 for rows of 16 bytes; `RB` is half of `RA`.
///
/// - PTX: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`, by element and size `.m16n8k8`, `.m16n8k32`,
///   `.bf16.bf16`, `.tf32.tf32`, `.e4m3.e5m2`, `.s32.s8.u8.s32`, …
/// - Target: sm_80; [`E4m3`](crate::dsl::E4m3) and [`E5m2`](crate::dsl::E5m2) sm_89
/// - Requires: all lanes
///
/// Of f32 elements the tensor cores ignore the low 13 bits (tf32): a fraction of 10 bits remains.
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A product of ones, stored row by row.
/// #[kernel(threads = 32)]
/// fn product(x: Ptr<Global, f32>) {
///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
///     let b = FragmentB::<f16, 2>::from_registers([val(0x3c00_3c00); 2]);
///     let c = mma(a, b, FragmentC::zero());
///     for i in 0..4u32 {
///         x.at(FragmentC::<f32>::row(i) * 8 + FragmentC::<f32>::column(i)).store(c.0[i as usize]);
///     }
/// }
/// assert_eq!(run(product(), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [0.0f32; 128]), [16.0; 128]);
/// ```
#[track_caller]
pub fn mma<A, B, const RA: usize, const RB: usize>(
    a: FragmentA<A, RA>,
    b: FragmentB<B, RB>,
    c: FragmentC<A::Sum>,
) -> FragmentC<A::Sum>
where
    A: MmaWith<B>,
    B: MmaElement<Sum = A::Sum>,
{
    const {
        assert!(
            matches!((RA, RB), (4, 2) | (2, 1)),
            "use `FragmentA<_, 4>` with `FragmentB<_, 2>`, or `FragmentA<_, 2>` with `FragmentB<_, 1>`"
        );
    }
    let mma = Mma { shape: shape::<A>(RB), a: A::ELEMENT, b: B::ELEMENT };
    let sums = product(mma, A::Sum::TYPE, [&a.registers, &b.registers], &c.0, Location::caller());
    FragmentC(std::array::from_fn(|i| sums[i]))
}

/// The shape of a product with columns of 16·`registers` bytes.
fn shape<A: MmaElement>(registers: usize) -> MmaShape {
    match registers * 16 / A::TYPE.bytes() as usize {
        4 => MmaShape::M16N8K4,
        8 => MmaShape::M16N8K8,
        16 => MmaShape::M16N8K16,
        _ => MmaShape::M16N8K32,
    }
}

fn product<S: Scalar>(
    mma: Mma,
    ty: Type,
    factors: [&[Val<u32>]; 2],
    sums: &[Val<S>],
    site: Site,
) -> Vec<Val<S>> {
    let words = factors.into_iter().flatten().map(|word| word.id());
    let args: Vec<Value> = words.chain(sums.iter().map(|sum| sum.id())).collect();
    emit(Op::Mma(mma), ty, &args, site).into_iter().map(Val::from_id).collect()
}

/// [`mma`] of f16, [`E4m3`](crate::dsl::E4m3) or [`E5m2`](crate::dsl::E5m2) with f16 sums, which is faster on some GPUs and
/// needs half the registers. Pair i of the sums is in row l / 4 + 8·i and columns 2·(l mod 4) and the next, for lane l. Every
/// sum is rounded to f16.
///
/// - PTX: `mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16`, for `RA` = 2 `.m16n8k8`; for 8-bit floats
///   `mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16`
/// - Target: sm_80; 8-bit floats sm_89
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A product of ones.
/// #[kernel(threads = 32)]
/// fn product(x: Ptr<Global, F16x2>) {
///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
///     let b = FragmentB::<f16, 2>::from_registers([val(0x3c00_3c00); 2]);
///     let [upper, lower] = mma_f16_sums(a, b, [val(F16x2::default()); 2]);
///     x.at(lane()).store(upper + lower);
/// }
/// let sixteens = F16x2(f16::from_f32(32.0), f16::from_f32(32.0));
/// let found = run(product(), "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", [F16x2::default(); 32]);
/// assert_eq!(found, [sixteens; 32]);
/// ```
#[track_caller]
pub fn mma_f16_sums<A, B, const RA: usize, const RB: usize>(
    a: FragmentA<A, RA>,
    b: FragmentB<B, RB>,
    c: [Val<F16x2>; 2],
) -> [Val<F16x2>; 2]
where
    A: MmaWith<B, F16x2>,
    B: MmaElement<Sum = A::Sum>,
{
    const { assert!(matches!((RA, RB), (4, 2) | (2, 1)), "see `mma` for the numbers of registers") };
    let mma = Mma { shape: shape::<A>(RB), a: A::ELEMENT, b: B::ELEMENT };
    let sums = product(mma, Type::F16x2, [&a.registers, &b.registers], &c, Location::caller());
    std::array::from_fn(|i| sums[i])
}

/// [`mma`] of bytes, 16×32 by 32×8, with registers instead of fragments.
///
/// - PTX: `mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32`, by the signs
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 32)]
/// fn product(x: Ptr<Global, i32>) {
///     let (minus, plus) = (val(0xffff_ffff), val(0x0202_0202));
///     let c = mma_m16n8k32_i8([minus; 4], true, [plus; 2], false, [val(1); 4]);
///     x.at(lane()).store(c[0]);
/// }
/// // 32 times −1·2, and 1.
/// assert_eq!(run(product(), "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", [0; 32]), [-63; 32]);
/// ```
#[track_caller]
pub fn mma_m16n8k32_i8(
    a: [Val<u32>; 4],
    a_signed: bool,
    b: [Val<u32>; 2],
    b_signed: bool,
    c: [Val<i32>; 4],
) -> [Val<i32>; 4] {
    let c = FragmentC(c);
    let sums = match (a_signed, b_signed) {
        (false, false) => mma::<u8, u8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (false, true) => mma::<u8, i8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (true, false) => mma::<i8, u8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
        (true, true) => mma::<i8, i8, 4, 2>(FragmentA::from_registers(a), FragmentB::from_registers(b), c),
    };
    sums.0
}
