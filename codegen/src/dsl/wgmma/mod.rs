//! Matrix products by a warpgroup on Hopper's tensor cores (`wgmma`).
//!
//! A warpgroup is four warps whose first index is a multiple of four. It adds A·B to sums: A has 64 rows, of which warp w
//! of the warpgroup holds rows 16·w and up in registers, as [`FragmentA`], or which are in shared memory; B has 8 to 256
//! columns in shared memory. A [`MatrixDescriptor`] describes an operand in shared memory, for example a part of a
//! [`SharedTile`] that a tensor map loaded, with its swizzle. The product runs while the warps continue: [`RunningSums`] cannot be read, and
//! [`RunningSums::wait`] returns the [`WarpgroupSums`], which can. Operands in shared memory must not change before the wait.
//!
//! The kernel's PTX has the target `sm_90a`: it runs on devices of compute capability 9.0 alone.

mod operand;

use std::panic::Location;

pub use operand::*;

#[cfg(doc)]
use super::mma::FragmentA;
use super::mma::{MatrixSum, MmaElement, SumFragment};
use super::recorder::{Site, emit, fail};
use super::scalar::F16x2;
#[cfg(doc)]
use super::scalar::{E4m3, E5m2};
#[cfg(doc)]
use super::shared_tile::SharedTile;
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{Op, Type, Value, WgmmaOperands};

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
pub struct WarpgroupSums<S: MatrixSum = f32> {
    fragments: Vec<S::Fragment>,
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
///     let running = running.multiply(&[(a, b.byte_add(256))]);
///     x.at(thread_index()).store(running.wait().fragments()[0].0[0]);
/// }
///
/// let found = run(product(), "wgmma.wait_group.sync.aligned 0", [0.0f32; 128]);
/// assert_eq!(found, [32.0; 128]);
/// ```
#[derive(Clone, Debug, Carry)]
#[must_use = "products that nothing waits for may still read shared memory when it changes"]
pub struct RunningSums<S: MatrixSum = f32> {
    fragments: Vec<S::Fragment>,
}

impl<S: MatrixSum> WarpgroupSums<S> {
    /// Zero sums for `columns` columns: 8, 16, … or 256. [`start_products`] starts from zero without them.
    ///
    /// - PTX: none: constants
    #[track_caller]
    pub fn zero(columns: u32) -> WarpgroupSums<S> {
        if !columns.is_multiple_of(8) || !(8..=256).contains(&columns) {
            fail(Location::caller(), format!("sums of {columns} columns: a product has 8, 16, … or 256"));
        }
        let zeros = vec![val(S::default()); S::REGISTERS];
        WarpgroupSums { fragments: vec![S::fragment(&zeros); columns as usize / 8] }
    }

    /// Sums whose parts in this lane are `fragments`, in the order of [`WarpgroupSums::fragments`].
    ///
    /// - PTX: none
    pub fn from_fragments<F>(fragments: Vec<F>) -> WarpgroupSums<S>
    where
        F: SumFragment<Sum = S>,
        S: MatrixSum<Fragment = F>,
    {
        WarpgroupSums { fragments }
    }

    /// The sums of this lane, one fragment of 16 rows for each eight columns: a [`FragmentC`](super::mma::FragmentC), or two pairs
    /// of f16. The rows of a fragment are those of the warp.
    ///
    /// - PTX: none
    pub fn fragments(&self) -> &[S::Fragment] {
        &self.fragments
    }

    /// The same sums as sums of products that may run, to start a loop that carries [`RunningSums`].
    ///
    /// - PTX: none
    pub fn into_running(self) -> RunningSums<S> {
        RunningSums { fragments: self.fragments }
    }

    /// Starts adding products A·B, in their order, and closes the group.
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`, by the columns and the
    ///   type, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`WarpgroupSums`]
    #[track_caller]
    pub fn multiply<A, B>(self, products: &[(A, MatrixDescriptor<B>)]) -> RunningSums<S>
    where
        A: LeftOperand<Element: WarpgroupWith<B, S> + MmaElement<Sum = S>>,
        B: WarpgroupElement,
    {
        self.into_running().multiply(products)
    }
}

impl<S: MatrixSum> RunningSums<S> {
    /// Starts adding further products A·B, in their order, and closes the group.
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`, by the columns and the
    ///   type, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`RunningSums`]
    #[track_caller]
    pub fn multiply<A, B>(self, products: &[(A, MatrixDescriptor<B>)]) -> RunningSums<S>
    where
        A: LeftOperand<Element: WarpgroupWith<B, S> + MmaElement<Sum = S>>,
        B: WarpgroupElement,
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
        self.wait_until(0, Location::caller())
    }

    /// Waits for the products of these sums, while at most the `pending` newest groups of products of the warpgroup run.
    ///
    /// - PTX: `wgmma.wait_group.sync.aligned 1`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup; at least `pending` groups that were started after these sums' last product
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 128)]
    /// fn products(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(128);
    ///     tile.at(thread_index()).store(f16::ONE);
    ///     fence_async_shared();
    ///     barrier();
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let b = MatrixDescriptor::new(tile, 128, 128);
    ///     let older = start_products(8, &[(a, b)]);
    ///     let newer = start_products(8, &[(a, b)]);
    ///     // The older sums are doubled while the newer product may run.
    ///     let older = older.wait_for_older(1).fragments()[0].0[0] * 2.0;
    ///     x.at(thread_index()).store(older + newer.wait().fragments()[0].0[0]);
    /// }
    /// assert_eq!(run(products(), "wgmma.wait_group.sync.aligned 1", [0.0f32; 128]), [48.0; 128]);
    /// ```
    #[track_caller]
    pub fn wait_for_older(self, pending: u32) -> WarpgroupSums<S> {
        self.wait_until(pending, Location::caller())
    }

    fn wait_until(self, pending: u32, site: Site) -> WarpgroupSums<S> {
        let mut sums = Vec::new();
        self.fragments.leaves(&mut sums);
        let op = Op::WgmmaWait { pending, sums: sums.len() as u32 };
        WarpgroupSums { fragments: fragments::<S>(&emit(op, S::TYPE, &sums, site)) }
    }
}

impl WarpgroupSums<F16x2> {
    /// As [`WarpgroupSums::multiply`], for sums of f16: products of f16, [`E4m3`] and [`E5m2`].
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2`, by the columns and the
    ///   types, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`start_products_f16_sums`]
    #[track_caller]
    pub fn multiply_f16_sums<A, B>(self, products: &[(A, MatrixDescriptor<B>)]) -> RunningSums<F16x2>
    where
        A: LeftOperand<Element: WarpgroupWith<B, F16x2>>,
        B: WarpgroupElement,
    {
        self.into_running().multiply_f16_sums(products)
    }
}

impl RunningSums<F16x2> {
    /// As [`RunningSums::multiply`], for sums of f16: products of f16, [`E4m3`] and [`E5m2`].
    ///
    /// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2`, by the columns and the
    ///   types, `wgmma.commit_group.sync.aligned`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup
    /// - Example: [`start_products_f16_sums`]
    #[track_caller]
    pub fn multiply_f16_sums<A, B>(self, products: &[(A, MatrixDescriptor<B>)]) -> RunningSums<F16x2>
    where
        A: LeftOperand<Element: WarpgroupWith<B, F16x2>>,
        B: WarpgroupElement,
    {
        let columns = 8 * self.fragments.len() as u32;
        start(columns, self.fragments, products)
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
///     let sums = start_products(8, &[(a, b), (a, b.byte_add(256))]).wait();
///     x.at(thread_index()).store(sums.fragments()[0].0[0]);
/// }
///
/// let found = run(product(), "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8", [0i32; 128]);
/// assert_eq!(found, [-192; 128]);
/// ```
#[track_caller]
pub fn start_products<A, B>(columns: u32, products: &[(A, MatrixDescriptor<B>)]) -> RunningSums<Sum<A>>
where
    A: LeftOperand<Element: WarpgroupWith<B>>,
    B: WarpgroupElement,
{
    if products.is_empty() {
        fail(Location::caller(), "a group of products without products");
    }
    start(columns, Vec::new(), products)
}

/// As [`start_products`], with sums of f16 instead of f32: products of f16, [`E4m3`] and [`E5m2`].
///
/// - PTX: `wgmma.fence.sync.aligned`, `wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2`, by the columns and the types,
///   `wgmma.commit_group.sync.aligned`
/// - Target: sm_90a
/// - Requires: all lanes of the warpgroup
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// Multiplies 64 × 32 ones (0x38 in e4m3) by 32 × 8 twos (0x40 in e5m2), three times.
/// #[kernel(threads = 128)]
/// fn product(x: Ptr<Global, F16x2>) {
///     let tile = shared_array::<E5m2>(256);
///     tile.cast::<u16>().at(thread_index()).store(0x4040);
///     fence_async_shared();
///     barrier();
///     let a = FragmentA::<E4m3, 4>::from_registers([val(0x3838_3838); 4]);
///     let b = MatrixDescriptor::new(tile, 128, 128);
///     let sums = start_products_f16_sums(8, &[(a, b)]).multiply_f16_sums(&[(a, b)]).wait();
///     let sums = sums.multiply_f16_sums(&[(a, b)]).wait();
///     let [upper, lower] = sums.fragments()[0];
///     x.at(thread_index()).store(upper + lower);
/// }
///
/// let zeros = [F16x2::default(); 128];
/// let found = run(product(), "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2", zeros);
/// assert_eq!(found, [F16x2(f16::from_f32(384.0), f16::from_f32(384.0)); 128]);
/// ```
#[track_caller]
pub fn start_products_f16_sums<A, B>(
    columns: u32,
    products: &[(A, MatrixDescriptor<B>)],
) -> RunningSums<F16x2>
where
    A: LeftOperand<Element: WarpgroupWith<B, F16x2>>,
    B: WarpgroupElement,
{
    if products.is_empty() {
        fail(Location::caller(), "a group of products without products");
    }
    start(columns, Vec::new(), products)
}

/// Type of the sums of products with the operand `A`.
type Sum<A> = <<A as LeftOperand>::Element as MmaElement>::Sum;

/// Starts products that are added to `sums`, or to zeros if there are none.
#[track_caller]
fn start<A, B, S>(
    columns: u32,
    sums: Vec<S::Fragment>,
    products: &[(A, MatrixDescriptor<B>)],
) -> RunningSums<S>
where
    A: LeftOperand<Element: WarpgroupWith<B, S>>,
    B: WarpgroupElement,
    S: MatrixSum,
{
    let site = Location::caller();
    let ty = S::TYPE;
    let lefts: Vec<Option<MatrixDescriptor<A::Element>>> =
        products.iter().map(|(a, _)| a.descriptor()).collect();
    let descriptors: Vec<(Option<Value>, Value)> =
        lefts.iter().zip(products).map(|(left, (_, b))| (left.map(|left| left.value()), b.value())).collect();
    let mut registers: Vec<Value> = Vec::new();
    sums.leaves(&mut registers);
    let count = registers.len();
    registers.extend(products.iter().flat_map(|(a, _)| a.words()).map(Val::id));
    let fence = Op::WgmmaFence { sums: count as u32, words: (registers.len() - count) as u32 };
    let ordered = emit(fence, ty, &registers, site);
    let (sums, words) = ordered.split_at(count);
    let mut sums = sums.to_vec();
    let mut words = words.chunks(4);
    for ((left, right), (a_descriptor, (_, b))) in descriptors.into_iter().zip(lefts.iter().zip(products)) {
        let operands = WgmmaOperands {
            a_shared: left.is_some(),
            a_transposed: a_descriptor.is_some_and(|left| left.transposed),
            b_transposed: b.transposed,
        };
        let (a, b) = (A::Element::ELEMENT, B::ELEMENT);
        let product = Op::Wgmma { a, b, columns, from_zero: sums.is_empty(), operands };
        match left {
            Some(left) => sums.push(left),
            None => sums.extend_from_slice(words.next().unwrap_or_default()),
        }
        sums.push(right);
        sums = emit(product, ty, &sums, site).to_vec();
    }
    emit(Op::WgmmaCommit, Type::U32, &[], site);
    RunningSums { fragments: fragments::<S>(&sums) }
}

fn fragments<S: MatrixSum>(sums: &[Value]) -> Vec<S::Fragment> {
    let values: Vec<Val<S>> = sums.iter().map(|&value| Val::from_id(value)).collect();
    values.chunks(S::REGISTERS).map(S::fragment).collect()
}
