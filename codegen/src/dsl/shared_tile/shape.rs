//! Sizes and layouts of tiles, known at compile time.

use std::marker::PhantomData;
use std::panic::Location;

use super::layout::{TileLayout, Unswizzled};
use super::{SharedTile, SharedTiles};
use crate::dsl::pointer::{Ptr, Shared, static_shared};
use crate::dsl::recorder::Site;
use crate::dsl::scalar::Scalar;
use crate::ir::Swizzle;

/// Compile-time description of tiles in shared memory: elements along each dimension, dimension 0 contiguous, and the layout
/// `L`. The tile of a column-major matrix has the matrix's rows along dimension 0.
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
///
/// const TILE: TileShape<u32, 2, Padded<4>> = TileShape::new([32, 32]);
///
/// /// Transposes a matrix of 32 × 32 words.
/// #[kernel(threads = 32)]
/// fn transposed(x: Ptr<Global, u32>) {
///     let tile = TILE.shared_tile();
///     for row in 0..32u32 {
///         tile.at((lane(), row)).store(x.at(lane() + 32 * row).load());
///     }
///     barrier();
///     for row in 0..32u32 {
///         x.at(lane() + 32 * row).store(tile.at((row, lane())).load());
///     }
/// }
///
/// let words: Vec<u32> = (0..32 * 32).collect();
/// let done = Launch::of(&transposed()?).buffer(&words).profile().run()?;
/// assert_eq!(done.buffer::<u32>(0)[..3], [0, 32, 64]);
/// // No bank conflicts: with the padding, the elements of a column are in different banks.
/// assert_eq!(done.profile().unwrap().total().shared.worst_ways, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TileShape<T, const RANK: usize, L = Unswizzled> {
    sizes: [u32; RANK],
    /// Bytes from a row to the next one.
    row_stride: u32,
    kind: PhantomData<(T, L)>,
}

impl<T, const RANK: usize, L> Clone for TileShape<T, RANK, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize, L> Copy for TileShape<T, RANK, L> {}

impl<T, const RANK: usize, L> std::fmt::Debug for TileShape<T, RANK, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TileShape")
            .field("sizes", &self.sizes)
            .field("row_stride", &self.row_stride)
            .finish_non_exhaustive()
    }
}

impl<T: Scalar, const RANK: usize, L: TileLayout> TileShape<T, RANK, L> {
    /// Tiles with `sizes` elements along each dimension.
    ///
    /// - PTX: none
    /// - Requires: rows of 32 bytes with [`Swizzle32`](super::Swizzle32), of 64 bytes with [`Swizzle64`](super::Swizzle64), of
    ///   a multiple of 128 bytes with [`Swizzle128`](super::Swizzle128); padding that is a multiple of the elements' size
    ///
    /// # Panics
    /// If the rows do not fit the layout. In a `const` that is a compile error.
    #[track_caller]
    pub const fn new(sizes: [u32; RANK]) -> Self {
        let shape = Self::of_tensor(sizes);
        let mut dimension = 0;
        while dimension < RANK {
            assert!(sizes[dimension] > 0, "a tile has at least one element along each dimension");
            dimension += 1;
        }
        assert!(
            L::PADDING.is_multiple_of(T::TYPE.bytes()),
            "the padding of a tile is a multiple of the size of its elements"
        );
        let row = shape.row_bytes();
        match L::SWIZZLE {
            Swizzle::None => {}
            Swizzle::Bytes32 => assert!(row == 32, "a tile with `Swizzle32` has rows of 32 bytes"),
            Swizzle::Bytes64 => assert!(row == 64, "a tile with `Swizzle64` has rows of 64 bytes"),
            Swizzle::Bytes128 => assert!(
                row.is_multiple_of(128),
                "a tile with `Swizzle128` has rows of 128 bytes or of a multiple"
            ),
        }
        shape
    }

    /// Tiles of a tensor map, which the verifier checks.
    pub(in crate::dsl) const fn of_tensor(sizes: [u32; RANK]) -> Self {
        let row = if RANK == 0 { 0 } else { sizes[0].saturating_mul(T::TYPE.bytes()) };
        Self::with_row_stride(sizes, row.saturating_add(L::PADDING))
    }

    /// Tiles whose rows are `row_stride` bytes apart, whatever the padding of the layout.
    pub(in crate::dsl) const fn with_row_stride(sizes: [u32; RANK], row_stride: u32) -> Self {
        TileShape { sizes, row_stride, kind: PhantomData }
    }

    /// Tiles with another number of rows.
    pub(super) fn with_sizes(self, sizes: [u32; RANK]) -> Self {
        TileShape { sizes, ..self }
    }

    /// Elements along each dimension.
    ///
    /// - PTX: none
    pub const fn sizes(self) -> [u32; RANK] {
        self.sizes
    }

    /// Size of a tile in bytes, without padding: what an mbarrier that counts a load must expect.
    ///
    /// - PTX: none
    pub const fn size(self) -> u32 {
        let (mut bytes, mut dimension) = (T::TYPE.bytes(), 0);
        while dimension < RANK {
            bytes = bytes.saturating_mul(self.sizes[dimension]);
            dimension += 1;
        }
        bytes
    }

    /// Bytes between consecutive tiles: the size of a tile with its padding, rounded up to the alignment of the layout.
    ///
    /// - PTX: none
    pub const fn tile_distance(self) -> u32 {
        let (mut bytes, mut dimension) = (self.row_stride, 1);
        while dimension < RANK {
            bytes = bytes.saturating_mul(self.sizes[dimension]);
            dimension += 1;
        }
        match bytes.checked_next_multiple_of(Self::ALIGNMENT) {
            Some(bytes) => bytes,
            None => bytes,
        }
    }

    /// Alignment of a tile in bytes.
    pub(in crate::dsl) const ALIGNMENT: u32 = L::SWIZZLE.alignment();

    /// Bytes of a row without padding.
    pub(in crate::dsl) const fn row_bytes(self) -> u32 {
        self.sizes[0].saturating_mul(T::TYPE.bytes())
    }

    /// Bytes from a row to the next one.
    pub(in crate::dsl) const fn row_stride(self) -> u32 {
        self.row_stride
    }

    /// A tile in static shared memory, with the alignment of the layout. The tile is uninitialised.
    ///
    /// - PTX: `.shared .align 128`, by the layout, `mov.u32 …, shared0`
    /// - Target: sm_80
    /// - Requires: at most 48 KiB of static shared memory per kernel
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<u32, 2, Padded<4>> = TileShape::new([32, 2]);
    ///
    /// #[kernel(threads = 32)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     let tile = TILE.shared_tile();
    ///     tile.at((lane(), 1)).store(x.at(lane()).load());
    ///     barrier();
    ///     x.at(lane()).store(tile.at((31 - lane(), 1)).load());
    /// }
    /// assert_eq!(run(exchanged(), "mov.u32 …, shared0", LANES)[..3], [31, 30, 29]);
    /// ```
    #[track_caller]
    pub fn shared_tile(self) -> SharedTile<T, RANK, L> {
        self.tiles(1, Location::caller()).0
    }

    /// `count` consecutive tiles in static shared memory, each with the alignment of the layout. The tiles are uninitialised.
    ///
    /// - PTX: `.shared .align 128`, by the layout, `mov.u32 …, shared0`
    /// - Target: sm_80
    /// - Requires: at most 48 KiB of static shared memory per kernel
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<u32, 1> = TileShape::new([32]);
    ///
    /// #[kernel(threads = 64)]
    /// fn exchanged(x: Ptr<Global, u32>) {
    ///     let tiles = TILE.shared_tiles(2);
    ///     tiles.at(warp_index()).at((lane(),)).store(x.at(thread_index()).load());
    ///     barrier();
    ///     x.at(thread_index()).store(tiles.at(1 - warp_index()).at((lane(),)).load());
    /// }
    /// let words = std::array::from_fn::<u32, 64, _>(|i| i as u32);
    /// assert_eq!(run(exchanged(), "mov.u32 …, shared0", words)[..3], [32, 33, 34]);
    /// ```
    #[track_caller]
    pub fn shared_tiles(self, count: u32) -> SharedTiles<T, RANK, L> {
        self.tiles(count, Location::caller())
    }

    fn tiles(self, count: u32, site: Site) -> SharedTiles<T, RANK, L> {
        let all = self.tile_distance().saturating_mul(count) / T::TYPE.bytes();
        self.tiles_at(static_shared(all, Self::ALIGNMENT, site))
    }

    /// The tile at address `first`, for example in dynamic shared memory.
    ///
    /// - PTX: none
    pub fn tile_at(self, first: Ptr<Shared, T>) -> SharedTile<T, RANK, L> {
        SharedTile { first, shape: self }
    }

    /// Consecutive tiles from address `first` on, for example in dynamic shared memory.
    ///
    /// - PTX: none
    pub fn tiles_at(self, first: Ptr<Shared, T>) -> SharedTiles<T, RANK, L> {
        SharedTiles(self.tile_at(first))
    }
}
