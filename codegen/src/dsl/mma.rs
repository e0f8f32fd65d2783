//! Matrix products by a warp on tensor cores.
//!
//! A product D = A·B + C has 16 rows and 8 columns. All 32 lanes execute it together; each holds a fragment of every
//! matrix. Lane l has group g = l / 4 and index t = l mod 4 in the group (PTX ISA, "Matrix Fragments for mma"):
//!
//! | fragment        | register i holds                                                                     |
//! |-----------------|--------------------------------------------------------------------------------------|
//! | [`FragmentA`]   | row g + 8·(i mod 2), bytes 4t + 16·(i / 2) and the next three of the row             |
//! | [`FragmentB`]   | column g, bytes 4t + 16·i and the next three of the column                           |
//! | [`FragmentC`]   | the sum in row g + 8·(i / 2) and column 2t + i mod 2                                 |
//!
//! A row of A and a column of B have 16 or 32 bytes, according to the number of registers. Elements are u8 and i8 (with
//! wrapping i32 sums), [`half::f16`], [`half::bf16`] or f32 as tf32 (with f32 sums).

use std::marker::PhantomData;
use std::panic::Location;

use super::pointer::{Ptr, Shared};
use super::record::{Site, emit};
use super::scalar::{E4m3, E5m2, F16x2, Scalar};
use super::threads::lane;
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{self, Mma, MmaShape, Op, Type, Value};

/// Element type of A and B. [`mma`](fn@mma) takes all but [`E4m3`] and [`E5m2`], which only warpgroups multiply.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the element of a matrix",
    label = "expected u8, i8, f16, bf16, f32, E4m3 or E5m2"
)]
pub trait MmaElement: Scalar {
    /// The IR's element type.
    const ELEMENT: ir::MmaElement;
    /// Element type of C and D.
    type Sum: MatrixSum;
}

/// Element type of A that can be multiplied by elements of type `B`: bytes by bytes of any signedness, floats by the
/// same type.
#[diagnostic::on_unimplemented(
    message = "a matrix of `{Self}` cannot be multiplied by one of `{B}`",
    label = "expected fragments of bytes, of f16, of bf16 or of f32",
    note = "u8 and i8 can be mixed; f16 and bf16 cannot"
)]
pub trait MmaWith<B: MmaElement<Sum = Self::Sum>>: MmaElement {}

macro_rules! elements {
    ($($ty:ty: $name:ident, $sum:ty, $($with:ty)*;)*) => {
        $(impl MmaElement for $ty {
            const ELEMENT: ir::MmaElement = ir::MmaElement::$name;
            type Sum = $sum;
        }
        $(impl MmaWith<$with> for $ty {})*)*
    };
}
elements! {
    u8: U8, i32, u8 i8;
    i8: I8, i32, u8 i8;
    half::f16: F16, f32, half::f16;
    half::bf16: Bf16, f32, half::bf16;
    f32: Tf32, f32, f32;
    E4m3: E4m3, f32,;
    E5m2: E5m2, f32,;
}

/// Type of the sums of products: i32, f32, or [`F16x2`] for pairs of f16.
pub trait MatrixSum: Scalar + Default {
    /// A lane's sums in 16 rows and 8 columns. Pairs of f16 have the order of [`mma_f16_sums`].
    type Fragment: SumFragment<Sum = Self>;
    /// Registers of a fragment.
    const REGISTERS: usize;
    /// The fragment that consists of these values, [`MatrixSum::REGISTERS`] of them.
    fn fragment(values: &[Val<Self>]) -> Self::Fragment;
}

/// A lane's sums in 16 rows and 8 columns: [`FragmentC`], or two [`F16x2`].
pub trait SumFragment: Carry + Clone + std::fmt::Debug {
    /// Type of the sums.
    type Sum;
}

impl<S: Scalar + std::fmt::Debug> SumFragment for FragmentC<S> {
    type Sum = S;
}

impl SumFragment for [Val<F16x2>; 2] {
    type Sum = F16x2;
}

macro_rules! sums {
    ($($ty:ty)*) => {
        $(impl MatrixSum for $ty {
            type Fragment = FragmentC<$ty>;
            const REGISTERS: usize = 4;
            fn fragment(values: &[Val<$ty>]) -> FragmentC<$ty> {
                FragmentC(std::array::from_fn(|i| values[i]))
            }
        })*
    };
}
sums!(i32 f32);

impl MatrixSum for F16x2 {
    type Fragment = [Val<F16x2>; 2];
    const REGISTERS: usize = 2;
    fn fragment(values: &[Val<F16x2>]) -> [Val<F16x2>; 2] {
        [values[0], values[1]]
    }
}

/// A lane's fragment of A: 16 rows of 8·`R` bytes. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentA<T, const R: usize> {
    registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

/// A lane's fragment of B: 8 columns of 16·`R` bytes. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentB<T, const R: usize> {
    registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

/// A lane's fragment of C or D: 16 rows of 8 sums. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentC<S: Scalar>(pub [Val<S>; 4]);

impl<T: MmaElement, const R: usize> FragmentA<T, R> {
    /// A fragment from the lane's registers. Each register holds its elements in order from the low bits.
    ///
    /// - PTX: none
    pub fn from_registers(registers: [Val<u32>; R]) -> FragmentA<T, R> {
        FragmentA { registers, elements: PhantomData }
    }

    /// The lane's registers of the fragment.
    ///
    /// - PTX: none
    pub fn registers(self) -> [Val<u32>; R] {
        self.registers
    }

    /// Loads 16 rows of 8·`R` bytes, `pitch` bytes apart. A pitch that is an odd multiple of 16 puts eight consecutive
    /// rows into different banks.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.shared.b16`, for `R` = 2 `.x2`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile` and `pitch` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A tile of ones.
    /// #[kernel(threads = 32)]
    /// fn sixteen(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store(f16::ONE);
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::load(tile, 32);
    ///     let b = FragmentB::<f16, 2>::from_registers([val(0x3c00_3c00); 2]);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     x.at(lane()).store(c.0[0]);
    /// }
    /// assert_eq!(run(sixteen(), "ldmatrix.sync.aligned.m8n8.x4.shared.b16", [0.0f32; 32]), [16.0; 32]);
    /// ```
    #[track_caller]
    pub fn load(tile: Ptr<Shared, T>, pitch: u32) -> FragmentA<T, R> {
        let lane = lane();
        let row = tile.cast().bytes((lane & 15) * pitch);
        let row = if R == 4 { row.bytes((lane >> 4) * 16) } else { row };
        FragmentA::from_registers(load_matrices(row))
    }
}

impl<T: MmaElement, const R: usize> FragmentB<T, R> {
    /// A fragment from the lane's registers. Each register holds its elements in order from the low bits.
    ///
    /// - PTX: none
    pub fn from_registers(registers: [Val<u32>; R]) -> FragmentB<T, R> {
        FragmentB { registers, elements: PhantomData }
    }

    /// The lane's registers of the fragment.
    ///
    /// - PTX: none
    pub fn registers(self) -> [Val<u32>; R] {
        self.registers
    }

    /// Loads 8 columns of 16·`R` bytes, `pitch` bytes apart: B is stored column by column.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x2.shared.b16`, for `R` = 1 `.x1`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile` and `pitch` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A tile of ones.
    /// #[kernel(threads = 32)]
    /// fn sixteen(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store(f16::ONE);
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let b = FragmentB::<f16, 2>::load(tile, 32);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     x.at(lane()).store(c.0[0]);
    /// }
    /// assert_eq!(run(sixteen(), "ldmatrix.sync.aligned.m8n8.x2.shared.b16", [0.0f32; 32]), [16.0; 32]);
    /// ```
    #[track_caller]
    pub fn load(tile: Ptr<Shared, T>, pitch: u32) -> FragmentB<T, R> {
        let lane = lane();
        let column = tile.cast().bytes((lane & 7) * pitch);
        let column = if R == 2 { column.bytes((lane >> 3 & 1) * 16) } else { column };
        FragmentB::from_registers(load_matrices(column))
    }
}

impl<T: MmaElement> FragmentB<T, 2> {
    /// Loads 16 columns as two fragments, each as by [`FragmentB::load`]: the first and the last eight columns.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.shared.b16`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile` and `pitch` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A tile of ones.
    /// #[kernel(threads = 32)]
    /// fn sixteen(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store(f16::ONE);
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let [b, _] = FragmentB::<f16, 2>::load_pair(tile, 32);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     x.at(lane()).store(c.0[0]);
    /// }
    /// assert_eq!(run(sixteen(), "ldmatrix.sync.aligned.m8n8.x4.shared.b16", [0.0f32; 32]), [16.0; 32]);
    /// ```
    #[track_caller]
    pub fn load_pair(tile: Ptr<Shared, T>, pitch: u32) -> [FragmentB<T, 2>; 2] {
        let lane = lane();
        let column = (lane & 7) + (lane >> 4) * 8;
        let [a, b, c, d] = load_matrices(tile.cast().bytes(column * pitch).bytes((lane >> 3 & 1) * 16));
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }
}

impl<T: MmaElement<Sum = f32>> FragmentB<T, 2> {
    /// Loads 8 columns of 16 elements from rows that are `pitch` bytes apart: B is stored row by row.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile` and `pitch` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A tile of ones.
    /// #[kernel(threads = 32)]
    /// fn sixteen(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store(f16::ONE);
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let b = FragmentB::<f16, 2>::load_transposed(tile, 16);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     x.at(lane()).store(c.0[0]);
    /// }
    /// assert_eq!(run(sixteen(), "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", [0.0f32; 32]), [16.0; 32]);
    /// ```
    #[track_caller]
    pub fn load_transposed(tile: Ptr<Shared, T>, pitch: u32) -> FragmentB<T, 2> {
        const { assert!(size_of::<T>() == 2, "`load_transposed` takes elements of 16 bits: store B by columns") };
        let row = tile.cast().bytes((lane() & 15) * pitch);
        FragmentB::from_registers(load_matrices_transposed(row))
    }

    /// Loads 16 columns as two fragments, each as by [`FragmentB::load_transposed`]: the first and the last eight columns.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile` and `pitch` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // B[k][n] = n: each column of the product with ones is 16·n.
    /// #[kernel(threads = 32)]
    /// fn products(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store((lane() % 16).cast::<f16>());
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     for (i, b) in FragmentB::<f16, 2>::load_transposed_pair(tile, 32).into_iter().enumerate() {
    ///         let FragmentC([sum, ..]) = mma(a, b, FragmentC::zero());
    ///         if lane() < 4 {
    ///             x.at(lane() + 4 * i as u32).store(sum);
    ///         }
    ///     }
    /// }
    /// let even_columns = [0.0f32, 32.0, 64.0, 96.0, 128.0, 160.0, 192.0, 224.0];
    /// assert_eq!(run(products(), "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", [0.0f32; 8]), even_columns);
    /// ```
    #[track_caller]
    pub fn load_transposed_pair(tile: Ptr<Shared, T>, pitch: u32) -> [FragmentB<T, 2>; 2] {
        const { assert!(size_of::<T>() == 2, "`load_transposed_pair` takes elements of 16 bits: use `load_pair`") };
        let row = tile.cast().bytes((lane() & 15) * pitch).bytes((lane() >> 4) * 16);
        let [a, b, c, d] = load_matrices_transposed(row);
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }
}

impl<S: Scalar + Default> FragmentC<S> {
    /// A fragment of zeros: the start of a sum.
    ///
    /// - PTX: none: constants
    #[track_caller]
    pub fn zero() -> FragmentC<S> {
        FragmentC([val(S::default()); 4])
    }

    /// The row of the sum in register `i` of the lane's fragment.
    ///
    /// - PTX: `shr.u32` of `%laneid`, and constants
    /// - Target: sm_80
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
    /// assert_eq!(run(product(), "shr.u32", [0.0f32; 128]), [16.0; 128]);
    /// ```
    #[track_caller]
    pub fn row(i: u32) -> Val<u32> {
        (lane() >> 2) + (i / 2 * 8)
    }

    /// The column of the sum in register `i` of the lane's fragment.
    ///
    /// - PTX: `and.b32` of `%laneid`, and constants
    /// - Target: sm_80
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
    /// assert_eq!(run(product(), "and.b32", [0.0f32; 128]), [16.0; 128]);
    /// ```
    #[track_caller]
    pub fn column(i: u32) -> Val<u32> {
        (lane() & 3) * 2 + i % 2
    }
}

/// The product A·B + C. `RA` is 4 for rows of 32 bytes and 2 for rows of 16 bytes; `RB` is half of `RA`.
///
/// - PTX: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`, by element and size `.m16n8k8`, `.m16n8k32`,
///   `.bf16.bf16`, `.tf32.tf32`, `.s32.s8.u8.s32`, …
/// - Target: sm_80
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

/// [`mma`] of f16 with f16 sums, which is faster on some GPUs and needs half the registers. Pair i of the sums is in row
/// l / 4 + 8·i and columns 2·(l mod 4) and the next, for lane l. Every sum is rounded to f16.
///
/// - PTX: `mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16`, for `RA` = 2 `.m16n8k8`
/// - Target: sm_80
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
pub fn mma_f16_sums<const RA: usize, const RB: usize>(
    a: FragmentA<half::f16, RA>,
    b: FragmentB<half::f16, RB>,
    c: [Val<F16x2>; 2],
) -> [Val<F16x2>; 2] {
    const { assert!(matches!((RA, RB), (4, 2) | (2, 1)), "see `mma` for the numbers of registers") };
    let mma = Mma { shape: shape::<half::f16>(RB), a: ir::MmaElement::F16, b: ir::MmaElement::F16 };
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

#[track_caller]
fn load_rows<const N: usize>(row: Ptr<Shared, u8>, transposed: bool) -> [Val<u32>; N] {
    const { assert!(matches!(N, 1 | 2 | 4), "an `ldmatrix` loads 1, 2 or 4 matrices") };
    let op = Op::LoadMatrix { matrices: N as u8, transposed };
    let words = emit(op, Type::U32, &[row.id()], Location::caller());
    std::array::from_fn(|i| Val::from_id(words[i]))
}

/// Loads `N` (1, 2 or 4) matrices of 8 rows of 16 bytes from shared memory.
/// Lane l gives the address, aligned to 16, of row l mod 8 of matrix l / 8; addresses of lanes from 8·`N` on are not
/// used. Word i of lane l is the four bytes at 4·(l mod 4) in row l / 4 of matrix i.
///
/// - PTX: `ldmatrix.sync.aligned.m8n8.x1.shared.b16`, also `.x2`, `.x4`
/// - Target: sm_80
/// - Requires: all lanes; addresses aligned to 16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A matrix of 8 rows of 4 words.
/// #[kernel(threads = 32)]
/// fn loaded(x: Ptr<Global, u32>) {
///     let matrix = shared_array::<u32>(32);
///     matrix.at(lane()).store(lane());
///     warp_barrier(ALL_LANES);
///     let [word] = load_matrices::<1>(matrix.at((lane() & 7) * 4).cast());
///     x.at(lane()).store(word);
/// }
/// assert_eq!(run(loaded(), "ldmatrix.sync.aligned.m8n8.x1.shared.b16", [0u32; 32]), LANES);
/// ```
#[track_caller]
pub fn load_matrices<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, false)
}

/// As [`load_matrices`], with each matrix transposed as 8×8 16-bit elements.
///
/// - PTX: `ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16`, also `.x2`, `.x4`
/// - Target: sm_80
/// - Requires: all lanes; addresses aligned to 16
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // A matrix of 8 rows of 4 words.
/// #[kernel(threads = 32)]
/// fn loaded(x: Ptr<Global, u32>) {
///     let matrix = shared_array::<u32>(32);
///     matrix.at(lane()).store(lane());
///     warp_barrier(ALL_LANES);
///     let [word] = load_matrices_transposed::<1>(matrix.at((lane() & 7) * 4).cast());
///     x.at(lane()).store(word);
/// }
/// // Lane 1 has the first elements of rows 2 and 3.
/// let words = run(loaded(), "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", [0u32; 32]);
/// assert_eq!(words[1], 8 | 12 << 16);
/// ```
#[track_caller]
pub fn load_matrices_transposed<const N: usize>(row: Ptr<Shared, u8>) -> [Val<u32>; N] {
    load_rows(row, true)
}

/// Transposes an 8 × 8 matrix of 16-bit elements that the lanes of a warp hold. Lane l holds elements 2·(l mod 4) and
/// 2·(l mod 4) + 1 of row l / 4, as in [`load_matrices`], and gets these elements of column l / 4.
///
/// - PTX: `movmatrix.sync.aligned.m8n8.trans.b16`
/// - Target: sm_80
/// - Requires: all lanes
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// // The matrix of the numbers from 0, in row-major order.
/// #[kernel(threads = 32)]
/// fn transposed(x: Ptr<Global, u32>) {
///     let word = (lane() * 2 + 1) << 16 | lane() * 2;
///     x.at(lane()).store(transpose_matrix(word));
/// }
/// let column_major = |i: u32| i % 8 * 8 + i / 8;
/// let words = std::array::from_fn(|l| column_major(2 * l as u32 + 1) << 16 | column_major(2 * l as u32));
/// assert_eq!(run(transposed(), "movmatrix.sync.aligned.m8n8.trans.b16", [0u32; 32]), words);
/// ```
#[track_caller]
pub fn transpose_matrix(fragment: Val<u32>) -> Val<u32> {
    Val::from_id(emit(Op::TransposeMatrix, Type::U32, &[fragment.id()], Location::caller())[0])
}
