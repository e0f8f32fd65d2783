//! Tiles of tensors in shared memory, with their swizzle, and positions in them.

use std::marker::PhantomData;
use std::panic::Location;

use super::pointer::{Index, Ptr, Shared};
use super::record::{Site, emit1};
use super::scalar::Scalar;
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{Op, Swizzle, Type};

/// A swizzle of tiles in shared memory, as a type: [`Unswizzled`], [`Swizzle32`], [`Swizzle64`] or [`Swizzle128`].
pub trait TileSwizzle: Copy + 'static {
    /// The swizzle.
    const SWIZZLE: Swizzle;
}

macro_rules! swizzles {
    ($($(#[$doc:meta])* $name:ident: $swizzle:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl TileSwizzle for $name {
            const SWIZZLE: Swizzle = Swizzle::$swizzle;
        }
    )* };
}
swizzles! {
    /// No swizzle: the rows of a tile follow each other. Tiles are aligned to 128 bytes.
    Unswizzled: None;
    /// Swizzle of 32 bytes: rows of a tile have up to 32 bytes. Tiles are aligned to 256 bytes.
    Swizzle32: Bytes32;
    /// Swizzle of 64 bytes: rows of a tile have up to 64 bytes. Tiles are aligned to 512 bytes.
    Swizzle64: Bytes64;
    /// Swizzle of 128 bytes: rows of a tile have up to 128 bytes. Tiles are aligned to 1024 bytes.
    Swizzle128: Bytes128;
}

/// A tile of a tensor in shared memory: `RANK` dimensions of elements `T`, dimension 0 contiguous but for the swizzle `S`.
#[derive(Carry)]
pub struct SharedTile<T, const RANK: usize, S = Unswizzled> {
    first: Ptr<Shared, T>,
    #[carry(skip)]
    sizes: [u32; RANK],
    #[carry(skip)]
    swizzle: PhantomData<S>,
}

impl<T, const RANK: usize, S> Clone for SharedTile<T, RANK, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize, S> Copy for SharedTile<T, RANK, S> {}

impl<T, const RANK: usize, S> std::fmt::Debug for SharedTile<T, RANK, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.first)
    }
}

/// Consecutive tiles in shared memory, for a ring of stages.
#[derive(Clone, Copy, Debug)]
pub struct SharedTiles<T, const RANK: usize, S = Unswizzled>(pub(super) SharedTile<T, RANK, S>);

/// An index along one dimension: a handle or a compile-time number of type i32 or u32.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index along a dimension of a tensor",
    label = "expected a `Val` of i32 or u32, or a compile-time i32 or u32"
)]
pub trait Coordinate: Copy {
    /// The index as a handle, recorded at `site`.
    fn coordinate(self, site: Site) -> Val<i32>;
}

impl Coordinate for Val<i32> {
    fn coordinate(self, _: Site) -> Val<i32> {
        self
    }
}

impl Coordinate for Val<u32> {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::from_id(emit1(Op::Bitcast, Type::I32, &[self.id()], site))
    }
}

impl Coordinate for i32 {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::constant(self, site)
    }
}

impl Coordinate for u32 {
    fn coordinate(self, site: Site) -> Val<i32> {
        Val::constant(self as i32, site)
    }
}

/// Position in a tensor or a tile of `RANK` dimensions, dimension 0 first: an array of indices, or a tuple where the
/// indices are of different types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a position in {RANK} dimensions",
    label = "expected a tuple or an array of {RANK} indices, dimension 0 first"
)]
pub trait Coordinates<const RANK: usize>: Copy {
    /// The indices as handles, recorded at `site`.
    fn coordinates(self, site: Site) -> [Val<i32>; RANK];
}

impl<C: Coordinate, const RANK: usize> Coordinates<RANK> for [C; RANK] {
    fn coordinates(self, site: Site) -> [Val<i32>; RANK] {
        self.map(|index| index.coordinate(site))
    }
}

macro_rules! tuples {
    ($($rank:literal: $($name:ident)*;)*) => { $(
        impl<$($name: Coordinate),*> Coordinates<$rank> for ($($name,)*) {
            #[allow(non_snake_case)]
            fn coordinates(self, site: Site) -> [Val<i32>; $rank] {
                let ($($name,)*) = self;
                [$($name.coordinate(site)),*]
            }
        }
    )* };
}
tuples! {
    1: A;
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
}

/// Bytes of a tile.
pub(super) fn tile_bytes<T: Scalar>(sizes: &[u32]) -> u32 {
    sizes.iter().fold(T::TYPE.bytes(), |bytes, &size| bytes.saturating_mul(size))
}

impl<T: Scalar, const RANK: usize, S: TileSwizzle> SharedTile<T, RANK, S> {
    /// The tile of these sizes at `first`.
    pub(super) fn new(first: Ptr<Shared, T>, sizes: [u32; RANK]) -> Self {
        SharedTile { first, sizes, swizzle: PhantomData }
    }

    /// Bytes between consecutive tiles of these sizes.
    pub(super) fn distance(sizes: &[u32; RANK]) -> u32 {
        let (bytes, align) = (tile_bytes::<T>(sizes), S::SWIZZLE.alignment());
        bytes.checked_next_multiple_of(align).unwrap_or(bytes)
    }

    /// Address of the first element. Use [`SharedTile::at`] for elements: chunks of 16 bytes of a swizzled tile change places.
    ///
    /// - PTX: none
    pub fn pointer(self) -> Ptr<Shared, T> {
        self.first
    }

    /// Size of the tile in bytes: what an mbarrier that counts a load must expect.
    ///
    /// - PTX: none: a compile-time number
    pub fn size(self) -> u32 {
        tile_bytes::<T>(&self.sizes)
    }

    /// Elements of the tile along each dimension.
    ///
    /// - PTX: none: compile-time numbers
    pub fn sizes(self) -> [u32; RANK] {
        self.sizes
    }

    /// Pointer to the element at `position` in the tile, with the swizzle applied.
    ///
    /// - PTX: `mad.lo.u32`, `add.s32`; with a swizzle also `bfe.u32`, `shl.b32`, `xor.b32`
    /// - Target: sm_80
    /// - Requires: the tile aligned to its swizzle pattern; indices less than the sizes of the tile
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A warp reads a column: with the swizzle, the eight rows of a pattern are in different banks.
    /// #[kernel(threads = 32)]
    /// fn column(#[tile([32, 32])] x: TensorMap<u32, 2, Swizzle128>, out: Ptr<Global, u32>) {
    ///     let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    ///     if thread_index() == 0 {
    ///         done.init(1);
    ///         fence_mbarrier_init();
    ///         done.arrive_expect(tile.size());
    ///         x.load(tile, (0, 0), done, None);
    ///     }
    ///     barrier();
    ///     done.wait(0, Wait::Try);
    ///     out.at(lane()).store(tile.at((5, lane())).load());
    /// }
    /// let words: Vec<u32> = (0..1024).collect();
    /// let done = Launch::of(&column()?).tensor(&words, [32, 32]).uninitialised::<u32>(32).run()?;
    /// assert_eq!(done.buffer::<u32>(1), (0..32).map(|row| row * 32 + 5).collect::<Vec<u32>>());
    /// assert!(done.has("xor.b32") && done.has("add.s32"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn at(self, position: impl Coordinates<RANK>) -> Ptr<Shared, T> {
        let site = Location::caller();
        let unsigned =
            |index: Val<i32>| Val::<u32>::from_id(emit1(Op::Bitcast, Type::U32, &[index.id()], site));
        let mut element = val(0u32);
        for (index, size) in position.coordinates(site).into_iter().zip(self.sizes).rev() {
            element = element * size + unsigned(index);
        }
        let offset = element * T::TYPE.bytes();
        let chunks = S::SWIZZLE.chunks();
        // The chunk's number in its row is combined with the number of the line of 128 bytes.
        let offset = if chunks == 1 { offset } else { offset ^ (((offset >> 7) & (chunks - 1)) << 4) };
        self.first.bytes(offset)
    }
}

impl<T: Scalar, S: TileSwizzle> SharedTile<T, 2, S> {
    /// The part of the tile with `count` rows from row `first` on.
    ///
    /// - PTX: `shl.b32`, `add.s32`; nothing for a compile-time number, which becomes part of the access
    /// - Target: sm_80
    /// - Requires: `first` a multiple of 8, the rows of a swizzle pattern, and the rows in the tile
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Each warp stores its 8 rows.
    /// #[kernel(threads = 64)]
    /// fn numbered(#[tile([4, 8])] x: TensorMap<u32, 2>) {
    ///     let tiles = x.shared_tiles(2).at(0);
    ///     let own = tiles.rows(warp_index() * 8, 8);
    ///     own.at((lane() % 4, lane() / 4)).store(thread_index());
    ///     fence_async_shared();
    ///     warp_barrier(u32::MAX);
    ///     if lane() == 0 {
    ///         x.store((0, warp_index() * 8), own, None);
    ///         commit_bulk_stores();
    ///         wait_bulk_stores_read(0);
    ///     }
    /// }
    /// let done = Launch::of(&numbered()?).tensor(&[0u32; 64], [4, 16]).run()?;
    /// assert_eq!(done.buffer::<u32>(0), (0..64).collect::<Vec<u32>>());
    /// assert!(done.has("add.s32"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn rows(self, first: impl Index, count: u32) -> SharedTile<T, 2, S> {
        let [row, _] = self.sizes;
        let first = self.first.moved(first, row * T::TYPE.bytes(), Location::caller());
        SharedTile { first, sizes: [row, count], swizzle: PhantomData }
    }
}

impl<T: Scalar, const RANK: usize, S: TileSwizzle> SharedTiles<T, RANK, S> {
    /// The tile with number `index`.
    ///
    /// - PTX: `mad.lo.u32` or `shl.b32`, `add.s32`; nothing for a compile-time number, which becomes part of the access
    /// - Target: sm_80
    /// - Example: [`TensorMap::shared_tiles`](crate::dsl::TensorMap::shared_tiles)
    #[track_caller]
    pub fn at(self, index: impl Index) -> SharedTile<T, RANK, S> {
        let distance = SharedTile::<T, RANK, S>::distance(&self.0.sizes);
        SharedTile { first: self.0.first.moved(index, distance, Location::caller()), ..self.0 }
    }
}
