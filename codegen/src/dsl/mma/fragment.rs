//! Fragments of matrices: the parts that a lane holds.

use std::marker::PhantomData;

use super::element::MmaElement;
use super::lane_rows::LaneRows;
use super::load::{load_matrices, load_matrices_transposed};
use crate::Carry;
use crate::dsl::pointer::{Ptr, Shared};
use crate::dsl::threads::lane;
use crate::dsl::value::Val;

/// A lane's fragment of A: 16 rows of 8·`R` bytes. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentA<T, const R: usize> {
    pub(super) registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

/// A lane's fragment of B: 8 columns of 16·`R` bytes. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentB<T, const R: usize> {
    pub(super) registers: [Val<u32>; R],
    #[carry(skip)]
    elements: PhantomData<T>,
}

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
        let rows = LaneRows::Sixteen;
        let row = tile.cast().byte_add(rows.row() * pitch);
        let row = if R == 4 { row.byte_add(rows.chunk() * 16) } else { row };
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
        let rows = LaneRows::Eight;
        let column = tile.cast().byte_add(rows.row() * pitch);
        let column = if R == 2 { column.byte_add(rows.chunk() * 16) } else { column };
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
        let rows = LaneRows::EightTwice;
        let column = tile.cast().byte_add(rows.row() * pitch).byte_add(rows.chunk() * 16);
        let [a, b, c, d] = load_matrices(column);
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }
}

impl<T: MmaElement> FragmentB<T, 2> {
    /// Loads 16 columns as two fragments, each as by [`FragmentB::load`], from core matrices of 8 columns by 16 bytes along
    /// K, as [`MatrixDescriptor::new`](crate::dsl::MatrixDescriptor::new) describes them: each is 128 bytes, column after column.
    /// `along_k` is the distance in bytes between core matrices that follow each other along K, `along_columns` between
    /// those that follow each other along the columns.
    ///
    /// - PTX: `ldmatrix.sync.aligned.m8n8.x4.shared.b16`
    /// - Target: sm_80
    /// - Requires: all lanes; `tile`, `along_k` and `along_columns` aligned to 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // The 64 elements of core matrix m are m. Columns 0 to 7 are in core matrices 0 and 2, the others in 1 and 3.
    /// #[kernel(threads = 32)]
    /// fn products(x: Ptr<Global, f32>) {
    ///     let tile = shared_array::<f16>(256);
    ///     for i in 0..8u32 {
    ///         tile.at(lane() + 32 * i).store(f16::from_f32((i / 2) as f32));
    ///     }
    ///     warp_barrier(ALL_LANES);
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     for (i, b) in FragmentB::<f16, 2>::load_core_matrices(tile, 256, 128).into_iter().enumerate() {
    ///         let FragmentC([sum, ..]) = mma(a, b, FragmentC::zero());
    ///         if lane() < 4 {
    ///             x.at(lane() + 4 * i as u32).store(sum);
    ///         }
    ///     }
    /// }
    ///
    /// // 8·0 + 8·2, and 8·1 + 8·3.
    /// let sums = [16.0f32, 16.0, 16.0, 16.0, 32.0, 32.0, 32.0, 32.0];
    /// assert_eq!(run(products(), "ldmatrix.sync.aligned.m8n8.x4.shared.b16", [0.0f32; 8]), sums);
    /// ```
    #[track_caller]
    pub fn load_core_matrices(
        tile: Ptr<Shared, T>,
        along_k: u32,
        along_columns: u32,
    ) -> [FragmentB<T, 2>; 2] {
        let column = tile.cast().byte_add((lane() & 7) * 16);
        let column = column.byte_add((lane() >> 3 & 1) * along_k).byte_add((lane() >> 4) * along_columns);
        let [a, b, c, d] = load_matrices(column);
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
        let row = tile.cast().byte_add(LaneRows::Sixteen.row() * pitch);
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
        let rows = LaneRows::Sixteen;
        let row = tile.cast().byte_add(rows.row() * pitch).byte_add(rows.chunk() * 16);
        let [a, b, c, d] = load_matrices_transposed(row);
        [[a, b], [c, d]].map(FragmentB::from_registers)
    }
}
