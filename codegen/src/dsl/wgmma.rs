//! Matrix products by a warpgroup on Hopper's tensor cores (`wgmma`).
//!
//! A warpgroup is four warps whose first index is a multiple of four. It adds A·B to sums: A has 64 rows, of which warp w
//! of the warpgroup holds rows 16·w and up in registers, as [`FragmentA`], or which are in shared memory; B has 8 to 256
//! columns in shared memory. A [`MatrixDescriptor`] describes an operand in shared memory, for example a part of a
//! [`SharedTile`] that a tensor map loaded, with its swizzle. The product runs while the warps continue: [`RunningSums`] cannot be read, and
//! [`RunningSums::wait`] returns the [`WarpgroupSums`], which can. Operands in shared memory must not change before the wait.
//!
//! The kernel's PTX has the target `sm_90a`: it runs on devices of compute capability 9.0 alone.

use std::marker::PhantomData;
use std::panic::Location;

use super::mma::{FragmentA, MatrixSum, MmaElement, SumFragment};
use super::pointer::{Ptr, Shared};
use super::record::{Site, emit, fail};
use super::scalar::{E4m3, E5m2, F16x2};
use super::shared_tile::{SharedTile, Swizzle32, Swizzle64, Swizzle128, TileSwizzle};
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{Op, Swizzle, Type, Value, WgmmaOperands};

/// Elements of a warpgroup's products: u8 and i8 with wrapping i32 sums; f16, bf16, f32 as tf32, [`E4m3`] and [`E5m2`] with f32
/// sums. A product has 32 bytes along K: 32, 16 or 8 elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the element of a warpgroup's product",
    label = "expected u8, i8, f16, bf16, f32, E4m3 or E5m2"
)]
pub trait WarpgroupElement: MmaElement {}

/// Element type of A that warpgroups multiply by elements of type `B`, with sums of type `S`: u8 and i8 by each other, and
/// [`E4m3`] and [`E5m2`] by each other; others by the same type. Products of f16 and of 8-bit floats also have f16 sums
/// ([`F16x2`]).
#[diagnostic::on_unimplemented(
    message = "a warpgroup has no product of `{Self}` and `{B}` with sums of type `{S}`",
    label = "expected bytes with i32 sums, or floats of one type with f32 sums",
    note = "E4m3 and E5m2 can be mixed; products of f16, E4m3 and E5m2 also have F16x2 sums"
)]
pub trait WarpgroupWith<B: WarpgroupElement, S: MatrixSum = <Self as MmaElement>::Sum>:
    WarpgroupElement
{
}

impl WarpgroupElement for u8 {}
impl WarpgroupElement for i8 {}
impl WarpgroupElement for half::f16 {}
impl WarpgroupElement for half::bf16 {}
impl WarpgroupElement for f32 {}
impl WarpgroupElement for E4m3 {}
impl WarpgroupElement for E5m2 {}

impl WarpgroupWith<u8, i32> for u8 {}
impl WarpgroupWith<i8, i32> for u8 {}
impl WarpgroupWith<u8, i32> for i8 {}
impl WarpgroupWith<i8, i32> for i8 {}
impl WarpgroupWith<half::f16, f32> for half::f16 {}
impl WarpgroupWith<half::f16, F16x2> for half::f16 {}
impl WarpgroupWith<half::bf16, f32> for half::bf16 {}
impl WarpgroupWith<f32, f32> for f32 {}
impl WarpgroupWith<E4m3, f32> for E4m3 {}
impl WarpgroupWith<E4m3, F16x2> for E4m3 {}
impl WarpgroupWith<E5m2, f32> for E4m3 {}
impl WarpgroupWith<E5m2, F16x2> for E4m3 {}
impl WarpgroupWith<E4m3, f32> for E5m2 {}
impl WarpgroupWith<E4m3, F16x2> for E5m2 {}
impl WarpgroupWith<E5m2, f32> for E5m2 {}
impl WarpgroupWith<E5m2, F16x2> for E5m2 {}

/// The descriptor of an operand in shared memory: 32 bytes along K of the 64 rows of A, or of the 8 to 256 columns of B.
///
/// Without swizzle the operand consists of *core matrices* of eight rows of A, or columns of B, by 16 bytes along K, each
/// contiguous: 128 bytes, row after row (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").
/// [`SharedTile::operand`] and [`SharedTile::transposed_operand`] make descriptors of swizzled tiles.
#[derive(Clone, Copy, Debug, Carry)]
pub struct MatrixDescriptor<T> {
    low: Val<u32>,
    high: Val<u32>,
    #[carry(skip)]
    transposed: bool,
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
            transposed: false,
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

    /// The descriptor of a swizzled matrix, whose pattern of eight rows begins at a multiple of its size. `leading` and
    /// `stride` are the byte offsets of the leading dimension and of the stride dimension.
    fn swizzled(
        start: Ptr<Shared, T>,
        swizzle: Swizzle,
        offsets: [u32; 2],
        transposed: bool,
        site: Site,
    ) -> Self {
        let [leading, stride] = offsets;
        let code: u32 = match swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes128 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes32 => 3,
        };
        let address = Val::<u32>::from_id(emit(Op::Bitcast, Type::U32, &[start.id()], site)[0]);
        MatrixDescriptor {
            low: ((address >> 4) & 0x3FFF) | (leading >> 4 << 16),
            high: val(stride >> 4 | code << 30),
            transposed,
            elements: PhantomData,
        }
    }

    #[track_caller]
    fn value(self) -> Value {
        emit(Op::Pack, Type::U64, &[self.low.id(), self.high.id()], Location::caller())[0]
    }
}

/// A swizzle of tiles that operands of `wgmma` have.
#[diagnostic::on_unimplemented(
    message = "a tile with the swizzle `{Self}` cannot be an operand of a warpgroup's product",
    label = "expected `Swizzle32`, `Swizzle64` or `Swizzle128`"
)]
pub trait MatrixSwizzle: TileSwizzle {}

impl MatrixSwizzle for Swizzle32 {}
impl MatrixSwizzle for Swizzle64 {}
impl MatrixSwizzle for Swizzle128 {}

impl<T: WarpgroupElement, S: MatrixSwizzle> SharedTile<T, 2, S> {
    /// Bytes of a row of the swizzle pattern.
    const SPAN: u32 = S::SWIZZLE.chunks() * 16;

    /// The operand with K along dimension 0 of the tile: row `first` and up are the rows of A or the columns of B, and the
    /// elements along K are the 32 bytes number `step` of each row.
    ///
    /// - PTX: `shr.u32`, `and.b32`, `or.b32`
    /// - Target: sm_80
    /// - Requires: rows of the tile as long as the swizzle; `first` a multiple of 8, and as many rows from there on as the
    ///   product has; the tile aligned to its swizzle pattern
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// Multiplies 64 rows by 64 columns along K = 64; both operands are contiguous along K.
    /// #[kernel(threads = 128)]
    /// fn product(
    ///     #[tile([64, 64])] a: TensorMap<f16, 2, Swizzle128>,
    ///     #[tile([64, 64])] b: TensorMap<f16, 2, Swizzle128>,
    ///     x: Ptr<Global, f32>,
    /// ) {
    ///     let (left, right, done) = (a.shared_tile(), b.shared_tile(), mbarrier_array(1).at(0));
    ///     if thread_index() == 0 {
    ///         done.init(1);
    ///         fence_mbarrier_init();
    ///         done.arrive_expect(left.size() + right.size());
    ///         a.load(left, (0, 0), done, None);
    ///         b.load(right, (0, 0), done, None);
    ///     }
    ///     barrier();
    ///     done.wait(0, Wait::Try);
    ///     let products: Vec<_> = (0..4).map(|step| (left.operand(0, step), right.operand(0, step))).collect();
    ///     let sums = start_products(64, &products).wait();
    ///     x.at(thread_index()).store(sums.fragments()[0].0[0]);
    /// }
    /// // A has the row's number in every element, B is 1.
    /// let rows: Vec<f16> = (0..64 * 64).map(|i| f16::from_f32((i / 64) as f32)).collect();
    /// let kernel = product()?;
    /// let launch = Launch::of(&kernel).tensor(&rows, [64, 64]).tensor(&[f16::ONE; 64 * 64], [64, 64]);
    /// let done = launch.uninitialised::<f32>(128).run()?;
    /// // Lane 4 of warp 1 has row 17.
    /// assert_eq!(done.buffer::<f32>(2)[36], 17.0 * 64.0);
    /// assert!(done.has("and.b32") && done.has("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn operand(self, first: u32, step: u32) -> MatrixDescriptor<T> {
        let site = Location::caller();
        self.check_rows(site);
        if !first.is_multiple_of(8) || first >= self.sizes()[1] || step * 32 >= Self::SPAN {
            fail(
                site,
                format!(
                    "no operand begins at row {first} and step {step} of this tile: rows are multiples of 8 below {}, \
                     steps are below {}",
                    self.sizes()[1],
                    Self::SPAN / 32
                ),
            );
        }
        let start = self.pointer().bytes(first * Self::SPAN + step * 32);
        // The offset of the leading dimension has no meaning for a swizzled operand along K.
        MatrixDescriptor::swizzled(start, S::SWIZZLE, [16, 8 * Self::SPAN], false, site)
    }

    /// The operand with K along dimension 1 of the tile: rows `first_k` and up are the 16 positions along K, and dimension 0
    /// are the rows of A or the columns of B. If the product has more than a row of the tile holds, they continue in tiles
    /// that follow at distances of `between_tiles` bytes.
    ///
    /// - PTX: `shr.u32`, `and.b32`, `or.b32`
    /// - Target: sm_80
    /// - Requires: elements of 16 bits; rows of the tile as long as the swizzle; `first_k` a multiple of 8; the tile aligned
    ///   to its swizzle pattern
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// Multiplies 64 rows by 128 columns along K = 16; B is contiguous along its columns, in two tiles.
    /// #[kernel(threads = 128)]
    /// fn product(#[tile([64, 16])] b: TensorMap<f16, 2, Swizzle128>, x: Ptr<Global, f32>) {
    ///     let (tiles, done) = (b.shared_tiles(2), mbarrier_array(1).at(0));
    ///     if thread_index() == 0 {
    ///         done.init(1);
    ///         fence_mbarrier_init();
    ///         done.arrive_expect(2 * tiles.at(0).size());
    ///         b.load(tiles.at(0), (0, 0), done, None);
    ///         b.load(tiles.at(1), (64, 0), done, None);
    ///     }
    ///     barrier();
    ///     done.wait(0, Wait::Try);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let right = tiles.at(0).transposed_operand(0, b.tile_distance());
    ///     let sums = start_products(128, &[(a, right)]).wait();
    ///     x.at(thread_index()).store(sums.fragments()[9].0[1]);
    /// }
    /// // Each element is its column's number.
    /// let columns: Vec<f16> = (0..16 * 128).map(|i| f16::from_f32((i % 128) as f32)).collect();
    /// let done = Launch::of(&product()?).tensor(&columns, [128, 16]).uninitialised::<f32>(128).run()?;
    /// // Lane 2 has columns 4 and 5 of eight.
    /// assert_eq!(done.buffer::<f32>(1)[2], 16.0 * (9.0 * 8.0 + 5.0));
    /// assert!(done.has("and.b32"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn transposed_operand(self, first_k: u32, between_tiles: u32) -> MatrixDescriptor<T> {
        let site = Location::caller();
        self.check_rows(site);
        if T::TYPE.bytes() != 2 {
            fail(site, format!("an operand of {} cannot be transposed: only those of f16 and bf16", T::TYPE));
        }
        if !first_k.is_multiple_of(8) || first_k >= self.sizes()[1] {
            fail(
                site,
                format!(
                    "no operand begins at row {first_k}: rows are multiples of 8 below {}",
                    self.sizes()[1]
                ),
            );
        }
        if !between_tiles.is_multiple_of(16) || between_tiles >= 1 << 18 {
            fail(site, format!("{between_tiles} bytes between tiles: not a multiple of 16 below 2¹⁸"));
        }
        let start = self.pointer().bytes(first_k * Self::SPAN);
        MatrixDescriptor::swizzled(start, S::SWIZZLE, [between_tiles, 8 * Self::SPAN], true, site)
    }

    /// Fails if the rows of the tile are shorter than the swizzle.
    fn check_rows(self, site: Site) {
        let row = self.sizes()[0] * T::TYPE.bytes();
        if row != Self::SPAN {
            fail(
                site,
                format!(
                    "rows of {row} bytes: an operand of a warpgroup's product has rows of {} bytes, as long as the swizzle",
                    Self::SPAN
                ),
            );
        }
    }
}

/// Operand A of a warpgroup's product: [`FragmentA`] in registers, or a [`MatrixDescriptor`] of shared memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be operand A of a warpgroup's product",
    label = "expected `FragmentA<T, 4>` or `MatrixDescriptor<T>`"
)]
pub trait LeftOperand: Copy {
    /// Type of the elements.
    type Element: WarpgroupElement;
    /// The registers, if the operand is in registers.
    fn words(self) -> Vec<Val<u32>>;
    /// The descriptor, if the operand is in shared memory.
    fn descriptor(self) -> Option<MatrixDescriptor<Self::Element>>;
}

impl<T: WarpgroupElement> LeftOperand for FragmentA<T, 4> {
    type Element = T;

    fn words(self) -> Vec<Val<u32>> {
        self.registers().to_vec()
    }

    fn descriptor(self) -> Option<MatrixDescriptor<T>> {
        None
    }
}

impl<T: WarpgroupElement> LeftOperand for MatrixDescriptor<T> {
    type Element = T;

    fn words(self) -> Vec<Val<u32>> {
        Vec::new()
    }

    fn descriptor(self) -> Option<MatrixDescriptor<T>> {
        Some(self)
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
///     let running = running.multiply(&[(a, b.bytes(256))]);
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

    /// Waits until at most the `pending` newest groups of products of the warpgroup run. None of these adds to the sums.
    ///
    /// - PTX: `wgmma.wait_group.sync.aligned 1`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup; `pending` newer groups at most
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
///     let sums = start_products(8, &[(a, b), (a, b.bytes(256))]).wait();
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
        super::record::fail(Location::caller(), "a group of products without products");
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
        super::record::fail(Location::caller(), "a group of products without products");
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
