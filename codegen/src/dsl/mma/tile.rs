//! Fragments of matrices in tiles of shared memory.

use std::panic::Location;

use super::element::MmaElement;
use super::fragment::{FragmentA, FragmentB};
use super::lane_rows::LaneRows;
use super::load::{load_matrices, load_matrices_transposed};
use crate::dsl::pointer::{Ptr, Shared};
use crate::dsl::recorder::fail;
use crate::dsl::shared_tile::{Coordinates, SharedTile, TileLayout};
use crate::dsl::value::{Val, val};

impl<T: MmaElement, L: TileLayout> SharedTile<T, 2, L> {
    /// The fragment of A whose first element is at `position`: K is along dimension 0 of the tile, and its 16 rows are along
    /// dimension 1. With a layout that puts eight rows into different banks, there are no bank conflicts.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.shared.b16`, for `R` = 2 `.x2`
    /// - Target: sm_80
    /// - Requires: all lanes; the position in a row a multiple of 16 bytes; the fragment in the tile
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// 16 × 32 halves, and B in 16 rows of 32 columns.
    /// const TILE: TileShape<f16, 2, Swizzle64> = TileShape::new([32, 16]);
    ///
    /// /// C = A·B, of the last 16 columns of A and the first 16 of B.
    /// #[kernel(threads = 32)]
    /// fn product(a: Ptr<Global, f16>, b: Ptr<Global, f16>, c: Ptr<Global, f32>) {
    ///     let (a_tile, b_tile) = (TILE.shared_tile(), TILE.shared_tile());
    ///     a_tile.copy_async::<16>(a, 32, lane(), 32);
    ///     b_tile.copy_async::<16>(b, 32, lane(), 32);
    ///     commit_copies();
    ///     wait_copies(0);
    ///     barrier();
    ///     let left = a_tile.fragment_a::<4>((16, 0));
    ///     for (j, right) in (0..2u32).zip(b_tile.transposed_fragments_b((0, 0))) {
    ///         let FragmentC(sums) = mma(left, right, FragmentC::zero());
    ///         for i in 0..4u32 {
    ///             let at = FragmentC::<f32>::row(i) * 16 + j * 8 + FragmentC::<f32>::column(i);
    ///             c.at(at).store(sums[i as usize]);
    ///         }
    ///     }
    /// }
    /// // A is the unit matrix from column 16 on.
    /// let halves = |f: fn(usize) -> usize| (0..16 * 32).map(|i| f16::from_f32(f(i) as f32)).collect::<Vec<_>>();
    /// let (a, b) = (halves(|i| usize::from(i % 32 == 16 + i / 32)), halves(|i| i));
    /// let done = Launch::of(&product()?).buffer(&a).buffer(&b).uninitialised::<f32>(256).profile().run()?;
    /// assert_eq!(done.buffer::<f32>(2), (0..256).map(|i| (i / 16 * 32 + i % 16) as f32).collect::<Vec<f32>>());
    /// assert_eq!(done.profile().unwrap().total().shared.worst_ways, 1);
    /// assert!(done.has("ldmatrix.sync.aligned.m8n8.x4.shared.b16"));
    /// assert!(done.has("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn fragment_a<const R: usize>(self, position: impl Coordinates<2>) -> FragmentA<T, R> {
        let rows = LaneRows::Sixteen;
        let chunk = if R == 4 { rows.chunk() } else { val(0) };
        FragmentA::from_registers(load_matrices(self.matrix_row(position, rows.row(), chunk)))
    }

    /// The fragment of B whose first element is at `position`: K is along dimension 0 of the tile, and its 8 columns are along
    /// dimension 1.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x2.shared.b16`, for `R` = 1 `.x1`
    /// - Target: sm_80
    /// - Requires: as [`SharedTile::fragment_a`]
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<u8, 2, Padded<16>> = TileShape::new([32, 8]);
    ///
    /// /// The sums of the columns of B.
    /// #[kernel(threads = 32)]
    /// fn sums(b: Ptr<Global, u8>, x: Ptr<Global, i32>) {
    ///     let tile = TILE.shared_tile();
    ///     tile.copy_async::<16>(b, 32, lane(), 32);
    ///     commit_copies();
    ///     wait_copies(0);
    ///     barrier();
    ///     let ones = FragmentA::<u8, 4>::from_registers([val(0x0101_0101); 4]);
    ///     let sums = mma(ones, tile.fragment_b::<2>((0, 0)), FragmentC::zero());
    ///     if lane() < 4 {
    ///         x.at(lane() * 2).store_vector([sums.0[0], sums.0[1]]);
    ///     }
    /// }
    /// let bytes: Vec<u8> = (0..8 * 32u32).map(|i| (i / 32) as u8).collect();
    /// let done = Launch::of(&sums()?).buffer(&bytes).uninitialised::<i32>(8).run()?;
    /// assert_eq!(done.buffer::<i32>(1), [0, 32, 64, 96, 128, 160, 192, 224]);
    /// assert!(done.has("ldmatrix.sync.aligned.m8n8.x2.shared.b16"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn fragment_b<const R: usize>(self, position: impl Coordinates<2>) -> FragmentB<T, R> {
        let rows = LaneRows::Eight;
        let chunk = if R == 2 { rows.chunk() } else { val(0) };
        FragmentB::from_registers(load_matrices(self.matrix_row(position, rows.row(), chunk)))
    }

    /// Two fragments of B, of 16 columns, each as by [`SharedTile::fragment_b`].
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.shared.b16`
    /// - Target: sm_80
    /// - Requires: as [`SharedTile::fragment_a`]
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// const TILE: TileShape<f16, 2, Swizzle32> = TileShape::new([16, 16]);
    ///
    /// /// The sums of the columns of B, which are rows of the tile.
    /// #[kernel(threads = 32)]
    /// fn sums(b: Ptr<Global, f16>, x: Ptr<Global, f32>) {
    ///     let tile = TILE.shared_tile();
    ///     tile.copy_async::<16>(b, 16, lane(), 32);
    ///     commit_copies();
    ///     wait_copies(0);
    ///     barrier();
    ///     let ones = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     for (i, b) in (0..2u32).zip(tile.fragments_b((0, 0))) {
    ///         let sums = mma(ones, b, FragmentC::zero());
    ///         if lane() < 4 {
    ///             x.at(i * 8 + lane() * 2).store_vector([sums.0[0], sums.0[1]]);
    ///         }
    ///     }
    /// }
    /// let halves: Vec<f16> = (0..256).map(|i| f16::from_f32((i / 16) as f32)).collect();
    /// let done = Launch::of(&sums()?).buffer(&halves).uninitialised::<f32>(16).run()?;
    /// assert_eq!(done.buffer::<f32>(1), (0..16).map(|i| (16 * i) as f32).collect::<Vec<f32>>());
    /// assert!(done.has("ldmatrix.sync.aligned.m8n8.x4.shared.b16"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn fragments_b(self, position: impl Coordinates<2>) -> [FragmentB<T, 2>; 2] {
        let rows = LaneRows::EightTwice;
        let [a, b, c, d] = load_matrices(self.matrix_row(position, rows.row(), rows.chunk()));
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }

    /// Two fragments of B, of 16 columns: the columns are along dimension 0 of the tile, and K is along dimension 1.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`
    /// - Target: sm_80
    /// - Requires: as [`SharedTile::fragment_a`]; elements of 16 bits
    /// - Example: [`SharedTile::fragment_a`]
    #[track_caller]
    pub fn transposed_fragments_b(self, position: impl Coordinates<2>) -> [FragmentB<T, 2>; 2] {
        const {
            assert!(
                size_of::<T>() == 2,
                "`transposed_fragments_b` takes elements of 16 bits: store B by columns"
            )
        };
        let rows = LaneRows::Sixteen;
        let [a, b, c, d] = load_matrices_transposed(self.matrix_row(position, rows.row(), rows.chunk()));
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }

    /// Address of 16 bytes: `row` rows and `chunk` times 16 bytes from `position` on.
    #[track_caller]
    fn matrix_row(self, position: impl Coordinates<2>, row: Val<u32>, chunk: Val<u32>) -> Ptr<Shared, u8> {
        let (site, stride) = (Location::caller(), self.row_stride());
        if !stride.is_multiple_of(16) {
            fail(
                site,
                format!(
                    "rows that are {stride} bytes apart: `ldmatrix` reads 16 aligned bytes of a row, so pad rows to a \
                     multiple of 16 bytes"
                ),
            );
        }
        let [x, y] = position.coordinates(site).map(Val::bitcast::<u32>);
        self.at((x + chunk * (16 / T::TYPE.bytes()), y + row)).cast()
    }
}
