//! Copies of parts of matrices into tiles by `cp.async`, divided among threads.

use std::panic::Location;

use super::layout::TileLayout;
use super::position::Coordinates;
use super::{SharedTile, unsigned};
use crate::device;
use crate::dsl::async_copy::{copy_async, copy_async_filled};
use crate::dsl::hooks::range;
use crate::dsl::math::{mul_wide, select};
use crate::dsl::pointer::{Global, Ptr, Shared};
use crate::dsl::recorder::{Site, fail};
use crate::dsl::scalar::Scalar;
use crate::dsl::value::{IntoVal, Val};
use crate::ir::Swizzle;

/// Maximum number of rounds that are unrolled if the position of a piece takes divisions in each round.
const UNROLLED_ROUNDS: u32 = 4;

/// Bounds of a matrix; elements of the tile outside the matrix become zero. Pairs are `[column, row]`; positions may be
/// negative as i32.
#[derive(Clone, Copy)]
pub(in crate::dsl) struct Inside {
    /// Position of the tile's first element in the matrix.
    pub(in crate::dsl) first: [Val<u32>; 2],
    /// Sizes of the matrix.
    pub(in crate::dsl) sizes: [Val<u32>; 2],
}

/// A copy of a part of a matrix to a tile.
#[derive(Clone, Copy)]
pub(in crate::dsl) struct TileCopy<T, L> {
    pub(in crate::dsl) tile: SharedTile<T, 2, L>,
    /// Address of the matrix element that is copied to the tile's first element; with `inside`, of the first element
    /// of the matrix.
    pub(in crate::dsl) from: Ptr<Global, T>,
    /// Elements from a row of the matrix to the next one.
    pub(in crate::dsl) stride: Val<u32>,
    pub(in crate::dsl) inside: Option<Inside>,
}

impl<T: Scalar, L: TileLayout> TileCopy<T, L> {
    /// Copies `BYTES` bytes of consecutive elements to the tile's element at (`column`, `row`), whose address is
    /// `to`.
    #[device]
    fn copy<const BYTES: usize>(self, to: Ptr<Shared, u8>, column: Val<u32>, row: Val<u32>) {
        let size = T::TYPE.bytes();
        let stride = self.stride * size;
        match self.inside {
            None => {
                let from = self.from.byte_add(mul_wide(row, stride)).at(column);
                copy_async::<BYTES>(to, from.cast());
            }
            Some(Inside { first, sizes }) => {
                // Below zero the numbers wrap, so one comparison finds both edges.
                let (column, row) = (column + first[0], row + first[1]);
                let from = self.from.byte_add(mul_wide(row, stride)).at(column);
                let count = if BYTES as u32 == size {
                    select((row < sizes[1]) & (column < sizes[0]), size, 0)
                } else {
                    let left = select(row < sizes[1], sizes[0], 0);
                    (left.max(column) - column).min(BYTES as u32 / size) * size
                };
                copy_async_filled::<BYTES>(to, from.cast(), count);
            }
        }
    }

    /// Copies piece number `at` of the tile, in the order of its elements.
    #[device]
    fn copy_piece<const BYTES: usize>(self, at: Val<u32>) {
        let (piece, tile) = (BYTES as u32 / T::TYPE.bytes(), self.tile);
        let in_row = tile.sizes()[0] / piece;
        let (column, row) = (at % in_row * piece, at / in_row);
        let to = if L::SWIZZLE == Swizzle::None && tile.row_stride() == tile.shape.row_bytes() {
            tile.pointer().cast().byte_add(at * BYTES as u32)
        } else {
            tile.at((column, row)).cast()
        };
        self.copy::<BYTES>(to, column, row);
    }

    /// Copies the share of thread `worker`: the threads take the tile's pieces of `BYTES` bytes in turn.
    #[device]
    pub(in crate::dsl) fn copy_share<const BYTES: usize>(self, worker: Val<u32>, threads: u32) {
        let [columns, rows] = self.tile.sizes();
        let piece = BYTES as u32 / T::TYPE.bytes();
        let in_row = columns / piece;
        let total = in_row * rows;
        if threads % in_row != 0 && total / threads > UNROLLED_ROUNDS {
            for at in range(worker, total).step_by(threads) {
                self.copy_piece::<BYTES>(at);
            }
            return;
        }
        // If a round has whole rows, a thread copies the same columns of every row.
        let (column, first) = (worker % in_row * piece, worker / in_row);
        let step = threads / in_row;
        for round in 0..total / threads {
            if threads % in_row == 0 {
                let skipped = round * step;
                // Layouts repeat after eight rows.
                let to = if step % 8 == 0 {
                    self.tile.at((column, first)).byte_add(skipped * self.tile.row_stride())
                } else {
                    self.tile.at((column, first + skipped))
                };
                self.copy::<BYTES>(to.cast(), column, first + skipped);
            } else {
                self.copy_piece::<BYTES>(worker + round * threads);
            }
        }
        if total % threads > 0 {
            let at = worker + total / threads * threads;
            if at < total {
                self.copy_piece::<BYTES>(at);
            }
        }
    }

    /// Fails if the tile does not consist of pieces of `bytes` bytes.
    fn check(self, bytes: u32, threads: u32, site: Site) {
        let (row, stride) = (self.tile.shape.row_bytes(), self.tile.row_stride());
        if threads == 0
            || bytes < T::TYPE.bytes()
            || !row.is_multiple_of(bytes)
            || !stride.is_multiple_of(bytes)
        {
            fail(
                site,
                format!(
                    "rows of {row} bytes of {}, {stride} bytes apart, cannot be copied by {threads} threads, {bytes} bytes at a \
                     time: write at least one thread, and 4, 8 or 16 bytes of which rows and their distances are multiples",
                    T::TYPE
                ),
            );
        }
    }
}

impl<T: Scalar, L: TileLayout> SharedTile<T, 2, L> {
    /// Starts copying a part of a matrix to the tile: the thread, number `worker` of `threads`, copies its share, `BYTES` (4, 8
    /// or 16) bytes at a time. Row r of the tile comes from `from` plus r · `stride` elements. Threads wait for their copies
    /// with [`wait_copies`](crate::dsl::wait_copies), and for each other with a barrier.
    ///
    /// - PTX: `cp.async.cg.shared.global` for each 16 bytes; for 4 or 8 bytes `cp.async.ca.shared.global`
    /// - Target: sm_80
    /// - Requires: rows of the tile, and all addresses, multiples of `BYTES`; a row of the matrix below 4 GiB
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<u32, 2, Padded<16>> = TileShape::new([16, 8]);
    ///
    /// /// Reads the columns of a tile of a matrix that has 64 columns.
    /// #[kernel(threads = 32)]
    /// fn columns(x: Ptr<Global, u32>, y: Ptr<Global, u32>) {
    ///     let tile = TILE.shared_tile();
    ///     tile.copy_async::<16>(x.at(16), 64, lane(), 32);
    ///     commit_copies();
    ///     wait_copies(0);
    ///     barrier();
    ///     y.at(lane()).store(tile.at((lane() / 8, lane() % 8)).load());
    /// }
    /// let words: Vec<u32> = (0..64 * 8).collect();
    /// let done = Launch::of(&columns()?).buffer(&words).uninitialised::<u32>(32).run()?;
    /// assert_eq!(done.buffer::<u32>(1)[7..10], [7 * 64 + 16, 17, 64 + 17]);
    /// assert_eq!(done.ptx().matches("cp.async.cg.shared.global").count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn copy_async<const BYTES: usize>(
        self,
        from: Ptr<Global, T>,
        stride: impl IntoVal<u32>,
        worker: impl IntoVal<u32>,
        threads: u32,
    ) {
        let copy = TileCopy { tile: self, from, stride: stride.into_val(), inside: None };
        copy.check(BYTES as u32, threads, Location::caller());
        copy.copy_share::<BYTES>(worker.into_val(), threads);
    }

    /// As [`SharedTile::copy_async`], but the tile begins at the position `first` of the matrix at `from`, which has `sizes`
    /// (columns and rows). Elements outside of the matrix become zero, and are not read. The position may be negative.
    ///
    /// - PTX: `cp.async.ca.shared.global` with a source size, by `BYTES` also `.cg`
    /// - Target: sm_80
    /// - Requires: as [`SharedTile::copy_async`]; the column of `first`, in bytes, a multiple of `BYTES`
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<u32, 2> = TileShape::new([6, 3]);
    ///
    /// /// The upper left corner of a matrix with `width` columns and `height` rows, and a border of one element.
    /// #[kernel(threads = 32)]
    /// fn corner(x: Ptr<Global, u32>, y: Ptr<Global, u32>, width: Val<u32>, height: Val<u32>) {
    ///     let tile = TILE.shared_tile();
    ///     tile.copy_async_filled::<4>(x, width, (-1, -1), (width, height), lane(), 32);
    ///     commit_copies();
    ///     wait_copies(0);
    ///     barrier();
    ///     if lane() < 18 {
    ///         y.at(lane()).store(tile.at((lane() % 6, lane() / 6)).load());
    ///     }
    /// }
    /// let kernel = corner()?;
    /// let launch = Launch::of(&kernel).buffer(&[1u32, 2, 3, 4]).uninitialised::<u32>(18);
    /// let done = launch.value(4u32).value(1u32).run()?;
    /// assert_eq!(done.buffer::<u32>(1), [[0; 6], [0, 1, 2, 3, 4, 0], [0; 6]].concat());
    /// assert!(done.has("cp.async.ca.shared.global"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn copy_async_filled<const BYTES: usize>(
        self,
        from: Ptr<Global, T>,
        stride: impl IntoVal<u32>,
        first: impl Coordinates<2>,
        sizes: (impl IntoVal<u32>, impl IntoVal<u32>),
        worker: impl IntoVal<u32>,
        threads: u32,
    ) {
        let site = Location::caller();
        let first = first.coordinates(site).map(|index| unsigned(index, site));
        let inside = Some(Inside { first, sizes: [sizes.0.into_val(), sizes.1.into_val()] });
        let copy = TileCopy { tile: self, from, stride: stride.into_val(), inside };
        copy.check(BYTES as u32, threads, site);
        copy.copy_share::<BYTES>(worker.into_val(), threads);
    }
}
