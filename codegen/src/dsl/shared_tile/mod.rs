//! Tiles in shared memory: their sizes and layouts, positions in them, and copies into them.
//!
//! A [`SharedTile`] is filled by the copies of a [`TensorMap`](super::TensorMap), or by threads: with stores, or with
//! [`SharedTile::copy_async`]. A [`TileShape`] describes tiles without a tensor map.

mod copy;
mod layout;
mod position;
mod shape;

use std::panic::Location;

use super::pointer::{Index, Ptr, Shared};
use super::recorder::{Site, emit1};
use super::scalar::Scalar;
use super::value::{Val, val};
use crate::Carry;
use crate::ir::{Op, Type};

pub(super) use self::copy::{Inside, TileCopy};
pub use self::layout::{Padded, Swizzle32, Swizzle64, Swizzle128, TileLayout, TileSwizzle, Unswizzled};
pub use self::position::{Coordinate, Coordinates};
pub use self::shape::TileShape;

/// A tile in shared memory: `RANK` dimensions of elements `T`, dimension 0 contiguous but for the swizzle of the layout `S`.
#[derive(Carry)]
pub struct SharedTile<T, const RANK: usize, S = Unswizzled> {
    first: Ptr<Shared, T>,
    #[carry(skip)]
    shape: TileShape<T, RANK, S>,
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
pub struct SharedTiles<T, const RANK: usize, S = Unswizzled>(SharedTile<T, RANK, S>);

/// The bits of an index.
fn unsigned(index: Val<i32>, site: Site) -> Val<u32> {
    Val::from_id(emit1(Op::Bitcast, Type::U32, &[index.id()], site))
}

impl<T: Scalar, const RANK: usize, S: TileLayout> SharedTile<T, RANK, S> {
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
        self.shape.size()
    }

    /// Elements of the tile along each dimension.
    ///
    /// - PTX: none: compile-time numbers
    pub fn sizes(self) -> [u32; RANK] {
        self.shape.sizes()
    }

    /// Bytes from a row of dimension 0 to the next one.
    pub(super) fn row_stride(self) -> u32 {
        self.shape.row_stride()
    }

    /// Pointer to the element at `position` in the tile, by its layout. Elements of the same 16 bytes follow each other in every
    /// layout, so vector accesses of up to 16 bytes are possible.
    ///
    /// - PTX: `mad.lo.u32`, `add.s32`; with a swizzle also `and.b32` or `bfe.u32`, `shl.b32`, `xor.b32`
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
        let indices = position.coordinates(site).map(|index| unsigned(index, site));
        let (shape, chunks) = (self.shape, S::SWIZZLE.chunks());
        let Some((&column, rows)) = indices.split_first() else { return self.first };
        let mut row = val(0u32);
        for (&index, &size) in rows.iter().zip(&shape.sizes()[1..]).rev() {
            row = row * size + index;
        }
        let in_row = column * T::TYPE.bytes();
        // A swizzle combines the number of a chunk of 16 bytes with the number of its line of 128 bytes, or of its longer row.
        let offset = if chunks == 1 {
            row * shape.row_stride() + in_row
        } else {
            let in_line = (128 / shape.row_bytes()).max(1);
            row * shape.row_stride() + (in_row ^ ((row / in_line % chunks) << 4))
        };
        self.first.byte_add(offset)
    }
}

impl<T: Scalar, S: TileLayout> SharedTile<T, 2, S> {
    /// The part of the tile with `count` rows from row `first` on.
    ///
    /// - PTX: `shl.b32`, `add.s32`; nothing for a compile-time number, which becomes part of the access
    /// - Target: sm_80
    /// - Requires: with a swizzle `first` a multiple of 8, the rows of a pattern; the rows in the tile
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
        let ([columns, _], shape) = (self.sizes(), self.shape);
        let first = self.first.moved(first, shape.row_stride(), Location::caller());
        shape.with_sizes([columns, count]).tile_at(first)
    }
}

impl<T: Scalar, const RANK: usize, S: TileLayout> SharedTiles<T, RANK, S> {
    /// The tile with number `index`.
    ///
    /// - PTX: `mad.lo.u32` or `shl.b32`, `add.s32`; nothing for a compile-time number, which becomes part of the access
    /// - Target: sm_80
    /// - Example: [`TensorMap::shared_tiles`](crate::dsl::TensorMap::shared_tiles)
    #[track_caller]
    pub fn at(self, index: impl Index) -> SharedTile<T, RANK, S> {
        let SharedTile { first, shape } = self.0;
        shape.tile_at(first.moved(index, shape.tile_distance(), Location::caller()))
    }
}
