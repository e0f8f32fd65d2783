//! Matrix products by a warpgroup on Hopper's tensor cores (`wgmma`).
//!
//! A warpgroup is four warps whose first index is a multiple of four. It adds A·B to sums: A has 64 rows, of which warp w
//! of the warpgroup holds rows 16·w and up in registers, as [`FragmentA`]; B has 8 to 256 columns in shared memory, which a
//! [`MatrixDescriptor`] describes. The product runs while the warps continue: [`RunningSums`] cannot be read, and
//! [`RunningSums::wait`] returns the [`WarpgroupSums`], which can. B must not change before the wait.
//!
//! The kernel's PTX has the target `sm_90a`: it runs on devices of compute capability 9.0 alone.

use std::marker::PhantomData;
use std::panic::Location;

use super::mma::{FragmentA, FragmentC, MmaElement, MmaWith};
use super::pointer::{Ptr, Shared};
use super::record::emit;
use super::scalar::Scalar;
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{Op, Type, Value};

/// Elements of a warpgroup's products: u8 and i8 with wrapping i32 sums, f16 and bf16 with f32 sums.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the element of a warpgroup's product",
    label = "expected u8, i8, f16 or bf16"
)]
pub trait WarpgroupElement: MmaElement {}

impl WarpgroupElement for u8 {}
impl WarpgroupElement for i8 {}
impl WarpgroupElement for half::f16 {}
impl WarpgroupElement for half::bf16 {}

/// The descriptor of operand B in shared memory: columns of 32 bytes, 8 to 256 of them, without swizzle.
///
/// B consists of *core matrices* of eight columns by 16 bytes along K, each contiguous: 128 bytes, column after column
/// (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").
#[derive(Clone, Copy, Debug, Carry)]
pub struct MatrixDescriptor<T> {
    low: Val<u32>,
    high: Val<u32>,
    #[carry(skip)]
    elements: PhantomData<T>,
}

impl<T: WarpgroupElement> MatrixDescriptor<T> {
    /// The descriptor of a matrix at `tile`. `along_k` is the distance in bytes between core matrices that follow each other
    /// along K, `along_columns` between those that follow each other along the columns; both are multiples of 16 below 2¹⁸.
    ///
    /// - PTX: `shr.u32`, `and.b32`, `or.b32`
    /// - Target: sm_80
    /// - Requires: `tile` aligned to 16
    /// - Example: [`WarpgroupSums`]
    #[track_caller]
    pub fn new(tile: Ptr<Shared, T>, along_k: u32, along_columns: u32) -> MatrixDescriptor<T> {
        let site = Location::caller();
        for bytes in [along_k, along_columns] {
            if !bytes.is_multiple_of(16) || bytes >= 1 << 18 {
                super::record::fail(
                    site,
                    format!("{bytes} bytes between core matrices: not a multiple of 16 below 2¹⁸"),
                );
            }
        }
        let address = Val::<u32>::from_id(emit(Op::Bitcast, Type::U32, &[tile.id()], site)[0]);
        MatrixDescriptor {
            low: ((address >> 4) & 0x3FFF) | (along_k >> 4 << 16),
            high: val(along_columns >> 4),
            elements: PhantomData,
        }
    }

    /// The descriptor of a matrix `bytes` behind this one, a multiple of 16.
    ///
    /// - PTX: `add.u32`
    /// - Target: sm_80
    /// - Example: [`RunningSums`]
    #[track_caller]
    pub fn bytes(self, bytes: u32) -> MatrixDescriptor<T> {
        if !bytes.is_multiple_of(16) {
            super::record::fail(
                Location::caller(),
                format!("{bytes} bytes behind a matrix: the address of a matrix is a multiple of 16"),
            );
        }
        MatrixDescriptor { low: self.low + (bytes >> 4), ..self }
    }

    #[track_caller]
    fn value(self) -> Value {
        emit(Op::Pack, Type::U64, &[self.low.id(), self.high.id()], Location::caller())[0]
    }
}

/// The sums of a warpgroup's product: 64 rows by 8 to 256 columns.
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// Multiplies 64 × 16 ones by 16 × 8 twos.
/// #[kernel(threads = 128)]
/// fn product(x: Ptr<Global, f32>) {
///     let tile = shared_array::<f16>(128);
///     tile.at(thread_index()).store(f16::from_f32(2.0));
///     fence_async_shared();
///     barrier();
///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
///     // The second core matrix, rows 8 to 15, follows the first.
///     let b = MatrixDescriptor::new(tile, 128, 128);
///     let sums = WarpgroupSums::zero(8).multiply(&[(a, b)]).wait();
///     x.at(thread_index()).store(sums.fragments()[0].0[0]);
/// }
///
/// let found = run(product(), "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", [0.0f32; 128]);
/// assert_eq!(found, [32.0; 128]);
/// ```
#[derive(Clone, Debug, Carry)]
pub struct WarpgroupSums<S: Scalar = f32> {
    fragments: Vec<FragmentC<S>>,
}

/// The sums of products that a warpgroup has started: see [`WarpgroupSums`].
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// Multiplies 64 × 32 ones by 32 × 8 ones, in two products.
/// #[kernel(threads = 128)]
/// fn product(x: Ptr<Global, f32>) {
///     let tile = shared_array::<f16>(256);
///     for half in 0..2u32 {
///         tile.at(half * 128 + thread_index()).store(f16::ONE);
///     }
///     fence_async_shared();
///     barrier();
///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
///     let b = MatrixDescriptor::new(tile, 128, 128);
///     let running = WarpgroupSums::zero(8).multiply(&[(a, b)]);
///     let running = running.multiply(&[(a, b.bytes(256))]);
///     x.at(thread_index()).store(running.wait().fragments()[0].0[0]);
/// }
///
/// let found = run(product(), "wgmma.wait_group.sync.aligned 0", [0.0f32; 128]);
/// assert_eq!(found, [32.0; 128]);
/// ```
#[derive(Clone, Debug, Carry)]
#[must_use = "products that nothing waits for may still read shared memory when it changes"]
pub struct RunningSums<S: Scalar = f32> {
    fragments: Vec<FragmentC<S>>,
}

impl<S: Scalar + Default> WarpgroupSums<S> {
    /// Zeros for `columns` columns: 8, 16, … or 256. [`start_products`] needs none.
    ///
    /// - PTX: none: constants
    #[track_caller]
    pub fn zero(columns: u32) -> WarpgroupSums<S> {
        if !columns.is_multiple_of(8) || !(8..=256).contains(&columns) {
            super::record::fail(
                Location::caller(),
                format!("sums of {columns} columns: a product has 8, 16, … or 256"),
            );
        }
        WarpgroupSums { fragments: vec![FragmentC::zero(); columns as usize / 8] }
    }

    /// Sums whose parts in this lane are `fragments`, in the order of [`WarpgroupSums::fragments`].
    ///
    /// - PTX: none
    pub fn from_fragments(fragments: Vec<FragmentC<S>>) -> WarpgroupSums<S> {
        WarpgroupSums { fragments }
    }

    /// The sums of this lane, one fragment of 16 rows for each eight columns. The rows of a fragment are those of the warp.
    ///
    /// - PTX: none
    pub fn fragments(&self) -> &[FragmentC<S>] {
        &self.fragments
    }

    /// Starts adding products A·B, in their order, and closes the group.
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`, by the columns and the
    ///   type, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`WarpgroupSums`]
    #[track_caller]
    pub fn multiply<A, B>(self, products: &[(FragmentA<A, 4>, MatrixDescriptor<B>)]) -> RunningSums<S>
    where
        A: WarpgroupElement<Sum = S> + MmaWith<B>,
        B: WarpgroupElement<Sum = S>,
    {
        let columns = 8 * self.fragments.len() as u32;
        start(columns, self.fragments, products)
    }
}

impl<S: Scalar + Default> RunningSums<S> {
    /// Starts adding further products A·B, in their order, and closes the group.
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`, by the columns and the
    ///   type, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`RunningSums`]
    #[track_caller]
    pub fn multiply<A, B>(self, products: &[(FragmentA<A, 4>, MatrixDescriptor<B>)]) -> RunningSums<S>
    where
        A: WarpgroupElement<Sum = S> + MmaWith<B>,
        B: WarpgroupElement<Sum = S>,
    {
        let columns = 8 * self.fragments.len() as u32;
        start(columns, self.fragments, products)
    }

    /// Waits for all products of the warpgroup.
    ///
    /// - PTX: `wgmma.wait_group.sync.aligned 0`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`WarpgroupSums`]
    #[track_caller]
    pub fn wait(self) -> WarpgroupSums<S> {
        let sums: Vec<Value> = self.fragments.iter().flat_map(|fragment| fragment.0.map(Val::id)).collect();
        let op = Op::WgmmaWait { pending: 0, sums: sums.len() as u32 };
        WarpgroupSums { fragments: fragments(&emit(op, S::TYPE, &sums, Location::caller())) }
    }
}

/// Waits until at most the `pending` newest groups of products of the warpgroup run: the shared memory that earlier groups
/// read may change. The sums stay unreadable until [`RunningSums::wait`].
///
/// - PTX: `wgmma.wait_group.sync.aligned`
/// - Target: sm_90a
/// - Requires: all lanes of the warpgroup
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// #[kernel(threads = 128)]
/// fn product(x: Ptr<Global, f32>) {
///     let tile = shared_array::<f16>(128);
///     tile.at(thread_index()).store(f16::ONE);
///     fence_async_shared();
///     barrier();
///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
///     let b = MatrixDescriptor::new(tile, 128, 128);
///     let sums = WarpgroupSums::zero(8).multiply(&[(a, b)]).multiply(&[(a, b)]);
///     wait_for_products(1);
///     x.at(thread_index()).store(sums.wait().fragments()[0].0[0]);
/// }
/// assert_eq!(run(product(), "wgmma.wait_group.sync.aligned 1", [0.0f32; 128]), [32.0; 128]);
/// ```
#[track_caller]
pub fn wait_for_products(pending: u32) {
    emit(Op::WgmmaWait { pending, sums: 0 }, Type::U32, &[], Location::caller());
}

/// Starts products A·B with `columns` columns, whose sums start at zero, in their order, and closes the group.
///
/// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8`, by the columns and the types,
///   `wgmma.commit_group.sync.aligned`
/// - Target: sm_90a
/// - Requires: all lanes of the warpgroup
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// Multiplies 64 × 64 ones by 64 × 8 numbers of −3.
/// #[kernel(threads = 128)]
/// fn product(x: Ptr<Global, i32>) {
///     let tile = shared_array::<i8>(512);
///     tile.cast::<u32>().at(thread_index()).store(0xfdfd_fdfd);
///     fence_async_shared();
///     barrier();
///     let a = FragmentA::<u8, 4>::from_registers([val(0x0101_0101); 4]);
///     let b = MatrixDescriptor::new(tile, 128, 128);
///     let sums = start_products(8, &[(a, b), (a, b.bytes(256))]).wait();
///     x.at(thread_index()).store(sums.fragments()[0].0[0]);
/// }
///
/// let found = run(product(), "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8", [0i32; 128]);
/// assert_eq!(found, [-192; 128]);
/// ```
#[track_caller]
pub fn start_products<A, B>(
    columns: u32,
    products: &[(FragmentA<A, 4>, MatrixDescriptor<B>)],
) -> RunningSums<A::Sum>
where
    A: WarpgroupElement + MmaWith<B>,
    B: WarpgroupElement<Sum = A::Sum>,
{
    if products.is_empty() {
        super::record::fail(Location::caller(), "a group of products without products");
    }
    start(columns, Vec::new(), products)
}

/// Starts products that are added to `sums`, or to zeros if there are none.
#[track_caller]
fn start<A, B>(
    columns: u32,
    sums: Vec<FragmentC<A::Sum>>,
    products: &[(FragmentA<A, 4>, MatrixDescriptor<B>)],
) -> RunningSums<A::Sum>
where
    A: WarpgroupElement + MmaWith<B>,
    B: WarpgroupElement<Sum = A::Sum>,
{
    let site = Location::caller();
    let ty = A::ELEMENT.sum();
    let descriptors: Vec<Value> = products.iter().map(|(_, b)| b.value()).collect();
    let mut registers: Vec<Value> = sums.iter().flat_map(|fragment| fragment.0.map(Val::id)).collect();
    let count = registers.len();
    registers.extend(products.iter().flat_map(|(a, _)| a.registers().map(Val::id)));
    let fence = Op::WgmmaFence { sums: count as u32, words: (registers.len() - count) as u32 };
    let ordered = emit(fence, ty, &registers, site);
    let (sums, words) = ordered.split_at(count);
    let mut sums = sums.to_vec();
    for (a, &b) in words.chunks(4).zip(&descriptors) {
        let product = Op::Wgmma { a: A::ELEMENT, b: B::ELEMENT, columns, from_zero: sums.is_empty() };
        sums.extend_from_slice(a);
        sums.push(b);
        sums = emit(product, ty, &sums, site).to_vec();
    }
    emit(Op::WgmmaCommit, Type::U32, &[], site);
    RunningSums { fragments: fragments(&sums) }
}

fn fragments<S: Scalar>(sums: &[Value]) -> Vec<FragmentC<S>> {
    sums.chunks(4).map(|part| FragmentC(std::array::from_fn(|i| Val::from_id(part[i])))).collect()
}
