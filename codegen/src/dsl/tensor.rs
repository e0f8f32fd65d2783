//! Tensor maps: copies of tiles of tensors between global and shared memory (TMA, sm_90).
//!
//! A [`TensorMap`] is a parameter of the kernel. It describes a tensor of 1 to 5 dimensions in global memory, of which
//! dimension 0 is contiguous, and the tiles that copies move; `#[tile([64, 128])]` before the parameter states the elements of
//! a tile along each dimension. One thread starts a copy; the hardware computes the addresses, fills elements outside the
//! tensor with zeros, and swizzles. On the host, `launch::TensorDescription` describes the tensor, and the device encodes it.
//!
//! | method | copies | completion |
//! | --- | --- | --- |
//! | [`TensorMap::load`] | a tile to shared memory | an mbarrier counts the bytes of the whole tile |
//! | [`TensorMap::load_multicast`] | the same to several CTAs of the cluster | an mbarrier in each CTA |
//! | [`TensorMap::store`] | a tile to global memory, without elements outside the tensor | [`wait_bulk_stores`](super::wait_bulk_stores) |
//! | [`TensorMap::reduce`] | as `store`, but combines elements | [`wait_bulk_stores`](super::wait_bulk_stores) |

use std::marker::{PhantomData, PhantomPinned};
use std::panic::Location;

use super::cache_policy::CachePolicy;
use super::kernel_param::TensorParam;
use super::mbarrier::Mbarrier;
use super::pointer::{Ptr, Shared};
use super::recorder::{Handle, Site, emit, fail};
use super::scalar::Scalar;
use super::shared_tile::{Coordinates, SharedTile, SharedTiles, TileShape, TileSwizzle, Unswizzled};
use super::value::{IntoVal, Val};
use crate::ir::{self, AsyncCopy, Op, Param, TensorLayout, TensorReduction, Type};

/// A tensor map: a kernel parameter that describes a tensor of `RANK` dimensions with elements of type `T`, and its tiles
/// with the swizzle `S` in shared memory.
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::*};
///
/// /// Transposes the tiles of 8 × 8 words of a matrix.
/// #[kernel(threads = 64)]
/// fn transposed(#[tile([8, 8])] x: TensorMap<u32, 2>) {
///     let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
///     let (column, row) = (thread_index() % 8, thread_index() / 8);
///     let (first_column, first_row) = (block_index() * 8, block_index_y() * 8);
///     if thread_index() == 0 {
///         done.init(1);
///         fence_mbarrier_init();
///         done.arrive_expect(tile.size());
///         x.load(tile, (first_column, first_row), done, None);
///     }
///     barrier();
///     done.wait(0, Wait::Try);
///     let word = tile.at((row, column)).load();
///     barrier();
///     tile.at((column, row)).store(word);
///     fence_async_shared();
///     barrier();
///     if thread_index() == 0 {
///         x.store((first_column, first_row), tile, None);
///         commit_bulk_stores();
///         wait_bulk_stores_read(0);
///     }
/// }
///
/// let words: Vec<u32> = (0..16 * 8).collect();
/// let done = Launch::of(&transposed()?).tensor(&words, [16, 8]).grid(2).run()?;
/// let found = done.buffer::<u32>(0);
/// assert_eq!(found[..3], [0, 16, 32]);
/// assert_eq!(found[8..11], [8, 24, 40]);
/// assert!(done.has("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorMap<T, const RANK: usize, S = Unswizzled> {
    handle: Handle,
    tile: TileShape<T, RANK, S>,
    // `PhantomPinned` marks types with handles for `hooks::compile_time`.
    kind: PhantomData<PhantomPinned>,
}

impl<T, const RANK: usize, S> Clone for TensorMap<T, RANK, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize, S> Copy for TensorMap<T, RANK, S> {}

impl<T, const RANK: usize, S> std::fmt::Debug for TensorMap<T, RANK, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.handle.id())
    }
}

impl<T: Scalar, const RANK: usize, S: TileSwizzle> TensorParam for TensorMap<T, RANK, S> {
    type Tile = [u32; RANK];

    fn declare(name: &str, tile: &[u32; RANK]) -> Param {
        let tensor = TensorLayout { element: T::TYPE, tile: tile.to_vec(), swizzle: S::SWIZZLE };
        Param { name: name.to_owned(), ty: Type::TensorMap, element: None, align: None, tensor: Some(tensor) }
    }

    fn from_value(value: ir::Value, tile: [u32; RANK]) -> Self {
        TensorMap { handle: Handle::new(value), tile: TileShape::of_tensor(tile), kind: PhantomData }
    }
}

impl<T: Scalar, const RANK: usize, S: TileSwizzle> TensorMap<T, RANK, S> {
    fn id(self) -> ir::Value {
        self.handle.id()
    }

    /// A tile in static shared memory, aligned to the swizzle pattern. The tile is uninitialised.
    ///
    /// - PTX: `.shared .align 128`, by the swizzle, `mov.u32 …, shared0`
    /// - Target: sm_80
    /// - Requires: at most 48 KiB of static shared memory per kernel
    /// - Example: [`TensorMap`]
    #[track_caller]
    pub fn shared_tile(self) -> SharedTile<T, RANK, S> {
        self.tile.shared_tile()
    }

    /// `count` consecutive tiles in static shared memory, each aligned to the swizzle pattern. The tiles are uninitialised.
    ///
    /// - PTX: `.shared .align 128`, by the swizzle, `mov.u32 …, shared0`
    /// - Target: sm_80
    /// - Requires: at most 48 KiB of static shared memory per kernel
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn second(#[tile([4])] x: TensorMap<u32, 1>, sum: Ptr<Global, u32>) {
    ///     let (tiles, done) = (x.shared_tiles(2), mbarrier_array(1).at(0));
    ///     done.init(1);
    ///     fence_mbarrier_init();
    ///     done.arrive_expect(2 * tiles.at(0).size());
    ///     for stage in 0..2u32 {
    ///         x.load(tiles.at(stage), (stage * 4,), done, None);
    ///     }
    ///     done.wait(0, Wait::Try);
    ///     sum.store(tiles.at(0).at((1,)).load() + tiles.at(1).at((2,)).load());
    /// }
    /// let kernel = second()?;
    /// let done = Launch::of(&kernel).tensor(&[1u32, 2, 3, 4, 5, 6, 7, 8], [8]).buffer(&[0u32]).run()?;
    /// assert_eq!(done.buffer::<u32>(1), [9]);
    /// assert!(done.has("mov.u32 …, shared0") && done.has("cp.async.bulk.tensor.1d.shared::cluster"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn shared_tiles(self, count: u32) -> SharedTiles<T, RANK, S> {
        self.tile.shared_tiles(count)
    }

    /// The tile at address `first`, for example in dynamic shared memory.
    ///
    /// - PTX: none
    pub fn tile_at(self, first: Ptr<Shared, T>) -> SharedTile<T, RANK, S> {
        self.tile.tile_at(first)
    }

    /// Consecutive tiles from address `first` on, for example in dynamic shared memory.
    ///
    /// - PTX: none
    pub fn tiles_at(self, first: Ptr<Shared, T>) -> SharedTiles<T, RANK, S> {
        self.tile.tiles_at(first)
    }

    /// Bytes that a load writes.
    pub(super) fn tile_bytes(self) -> u32 {
        self.tile.size()
    }

    /// Bytes between consecutive tiles: the size of a tile, rounded up to the alignment of the swizzle pattern.
    ///
    /// - PTX: none
    pub fn tile_distance(self) -> u32 {
        self.tile.tile_distance()
    }

    /// Fails if `tile` has other sizes than the tiles of the tensor map.
    fn check(self, tile: SharedTile<T, RANK, S>, site: Site) {
        if tile.sizes() != self.tile.sizes() {
            let sizes = |sizes: [u32; RANK]| sizes.map(|size| size.to_string()).join(" × ");
            fail(
                site,
                format!(
                    "the tile in shared memory has {} elements, and the tiles of the tensor map have {}: make it by \
                     `shared_tile` or `tile_at` of the tensor map",
                    sizes(tile.sizes()),
                    sizes(self.tile.sizes())
                ),
            );
        }
    }

    /// Tensor map and coordinates, the first operands of an instruction.
    fn operands(self, at: impl Coordinates<RANK>, site: Site) -> Vec<ir::Value> {
        std::iter::once(self.id()).chain(at.coordinates(site).map(Val::id)).collect()
    }

    /// Starts loading the tile whose first element is at `from` to shared memory; the mbarrier `done` counts the bytes of the
    /// whole tile ([`SharedTile::size`]), also of elements outside the tensor, which become zero.
    ///
    /// - PTX: `cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes`, by the rank `.1d` to
    ///   `.5d`, with a policy `.L2::cache_hint`
    /// - Target: sm_90
    /// - Requires: `to` aligned to its swizzle pattern; `done` expects the bytes; the first coordinate at a multiple of 16 bytes
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // The tile begins one row before the tensor.
    /// #[kernel(threads = 4)]
    /// fn loaded(#[tile([4, 2])] x: TensorMap<u32, 2>, out: Ptr<Global, u32>) {
    ///     let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    ///     if thread_index() == 0 {
    ///         done.init(1);
    ///         fence_mbarrier_init();
    ///         done.arrive_expect(tile.size());
    ///         x.load(tile, (0, -1), done, Some(CachePolicy::evict_first()));
    ///     }
    ///     barrier();
    ///     done.wait(0, Wait::Try);
    ///     out.at(thread_index()).store(tile.at((thread_index() % 2, thread_index() / 2)).load());
    /// }
    /// let kernel = loaded()?;
    /// let done = Launch::of(&kernel).tensor(&[1u32, 2, 3, 4, 5, 6, 7, 8], [4, 2]).uninitialised::<u32>(4).run()?;
    /// assert_eq!(done.buffer::<u32>(1), [0, 0, 1, 2]);
    /// assert!(done.has("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn load(
        self,
        to: SharedTile<T, RANK, S>,
        from: impl Coordinates<RANK>,
        done: Mbarrier,
        policy: Option<CachePolicy>,
    ) {
        self.start_load(to, from, done, None, policy, Location::caller());
    }

    /// As [`TensorMap::load`], to the CTAs of the cluster whose ranks are set in the mask `blocks`. Each CTA receives the tile at
    /// the offset of `to` in its own shared memory, and its own mbarrier `done` counts the bytes.
    ///
    /// - PTX: `cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster`, by the
    ///   rank `.1d` to `.5d`, with a policy `.L2::cache_hint`
    /// - Target: sm_90
    /// - Requires: as [`TensorMap::load`], in each of the CTAs; a kernel with `cluster = …`
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // The first CTA loads a tile for both CTAs.
    /// #[kernel(threads = 1, cluster = 2)]
    /// fn loaded(#[tile([4, 1])] x: TensorMap<u32, 2>, out: Ptr<Global, u32>) {
    ///     let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    ///     done.init(1);
    ///     fence_mbarrier_init();
    ///     done.arrive_expect(tile.size());
    ///     cluster_barrier();
    ///     if cluster_rank() == 0 {
    ///         x.load_multicast(tile, (0, 1), done, 0b11u16, None);
    ///     }
    ///     done.wait(0, Wait::Try);
    ///     out.at(block_index()).store(tile.at((3 - cluster_rank(), 0)).load());
    /// }
    /// let kernel = loaded()?;
    /// let launch = Launch::of(&kernel).tensor(&[1u32, 2, 3, 4, 5, 6, 7, 8], [4, 2]).uninitialised::<u32>(2);
    /// let done = launch.grid(2).run()?;
    /// assert_eq!(done.buffer::<u32>(1), [8, 7]);
    /// let name = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster";
    /// assert!(done.has(name));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn load_multicast(
        self,
        to: SharedTile<T, RANK, S>,
        from: impl Coordinates<RANK>,
        done: Mbarrier,
        blocks: impl IntoVal<u16>,
        policy: Option<CachePolicy>,
    ) {
        self.start_load(to, from, done, Some(blocks.into_val()), policy, Location::caller());
    }

    fn start_load(
        self,
        to: SharedTile<T, RANK, S>,
        from: impl Coordinates<RANK>,
        done: Mbarrier,
        blocks: Option<Val<u16>>,
        policy: Option<CachePolicy>,
        site: Site,
    ) {
        self.check(to, site);
        let mut operands = vec![to.pointer().id()];
        operands.extend(self.operands(from, site));
        operands.push(done.address());
        operands.extend(blocks.map(Val::id));
        operands.extend(policy.map(|policy| policy.id()));
        let copy =
            AsyncCopy::TensorLoad { rank: RANK as u8, multicast: blocks.is_some(), hinted: policy.is_some() };
        emit(Op::AsyncCopy(copy), Type::U32, &operands, site);
    }

    /// Starts storing a tile to the tensor, with its first element at `to`. Elements outside the tensor are not stored. The
    /// thread waits for its bulk stores by groups.
    ///
    /// - PTX: `cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group`, by the rank `.1d` to `.5d`, with a policy
    ///   `.L2::cache_hint`
    /// - Target: sm_90
    /// - Requires: `from` aligned to its swizzle pattern; [`fence_async_shared`](super::fence_async_shared) after the
    ///   elements were written; coordinates that are not negative, the first at a multiple of 16 bytes. If a row of the tensor
    ///   ends within 16 bytes, all of them are written
    /// - Example: [`TensorMap`]
    #[track_caller]
    pub fn store(
        self,
        to: impl Coordinates<RANK>,
        from: SharedTile<T, RANK, S>,
        policy: Option<CachePolicy>,
    ) {
        let copy = AsyncCopy::TensorStore { rank: RANK as u8, hinted: policy.is_some() };
        self.start_store(copy, to, from, policy, Location::caller());
    }

    /// As [`TensorMap::store`], but combines each element of the tile with the element of the tensor, atomically.
    ///
    /// - PTX: `cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group`, by the rank and the operation, with a
    ///   policy `.L2::cache_hint`
    /// - Target: sm_90
    /// - Requires: as [`TensorMap::store`]; `Add` of u32, i32, u64, f16, bf16 or f32, `Min` and `Max` of integers of 32 or
    ///   64 bits, f16 or bf16, `And`, `Or` and `Xor` of u32, i32 or u64
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 4)]
    /// fn added(#[tile([4])] x: TensorMap<u32, 1>) {
    ///     let tile = x.shared_tile();
    ///     tile.at((thread_index(),)).store(thread_index() * 10);
    ///     fence_async_shared();
    ///     barrier();
    ///     if thread_index() == 0 {
    ///         x.reduce(TensorReduction::Add, (0,), tile, None);
    ///         commit_bulk_stores();
    ///         wait_bulk_stores_read(0);
    ///     }
    /// }
    /// let done = Launch::of(&added()?).tensor(&[1u32, 2, 3, 4], [4]).grid(2).run()?;
    /// assert_eq!(done.buffer::<u32>(0), [1, 22, 43, 64]);
    /// assert!(done.has("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn reduce(
        self,
        operation: TensorReduction,
        to: impl Coordinates<RANK>,
        from: SharedTile<T, RANK, S>,
        policy: Option<CachePolicy>,
    ) {
        let site = Location::caller();
        if !operation.accepts(T::TYPE) {
            fail(site, format!("a bulk tensor copy has no reduction `{operation}` of {}", T::TYPE));
        }
        let copy = AsyncCopy::TensorReduce { op: operation, rank: RANK as u8, hinted: policy.is_some() };
        self.start_store(copy, to, from, policy, site);
    }

    fn start_store(
        self,
        copy: AsyncCopy,
        to: impl Coordinates<RANK>,
        from: SharedTile<T, RANK, S>,
        policy: Option<CachePolicy>,
        site: Site,
    ) {
        self.check(from, site);
        let mut operands = self.operands(to, site);
        operands.push(from.pointer().id());
        operands.extend(policy.map(|policy| policy.id()));
        emit(Op::AsyncCopy(copy), Type::U32, &operands, site);
    }

    /// Prefetches the tile whose first element is at `from` into L2.
    ///
    /// - PTX: `cp.async.bulk.prefetch.tensor.2d.L2.global.tile`, by the rank `.1d` to `.5d`, with a policy `.L2::cache_hint`
    /// - Target: sm_90
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// #[kernel(threads = 1)]
    /// fn early(#[tile([4, 2])] x: TensorMap<f32, 2>) {
    ///     x.prefetch_map();
    ///     x.prefetch((0, 1), None);
    /// }
    /// let done = Launch::of(&early()?).tensor(&[1.0f32; 16], [4, 4]).run()?;
    /// assert!(done.has("cp.async.bulk.prefetch.tensor.2d.L2.global.tile"));
    /// assert!(done.has("prefetch.tensormap"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn prefetch(self, from: impl Coordinates<RANK>, policy: Option<CachePolicy>) {
        let site = Location::caller();
        let mut operands = self.operands(from, site);
        operands.extend(policy.map(|policy| policy.id()));
        let copy = AsyncCopy::TensorPrefetch { rank: RANK as u8, hinted: policy.is_some() };
        emit(Op::AsyncCopy(copy), Type::U32, &operands, site);
    }

    /// Prefetches the tensor map itself, so that the first copy does not wait for it.
    ///
    /// - PTX: `prefetch.tensormap`
    /// - Target: sm_90
    /// - Example: [`TensorMap::prefetch`]
    #[track_caller]
    pub fn prefetch_map(self) {
        emit(Op::AsyncCopy(AsyncCopy::PrefetchTensorMap), Type::U32, &[self.id()], Location::caller());
    }
}
