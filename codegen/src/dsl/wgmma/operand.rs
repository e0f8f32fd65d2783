//! Operands of the products of warpgroups: types of elements, descriptors of matrices in shared memory, and operands of tiles.

use std::marker::PhantomData;
use std::panic::Location;

use super::super::mma::{FragmentA, MatrixSum, MmaElement};
use super::super::pointer::{Ptr, Shared};
use super::super::recorder::{Site, emit, fail};
use super::super::scalar::{E4m3, E5m2, F16x2};
use super::super::shared_tile::{SharedTile, Swizzle32, Swizzle64, Swizzle128, TileSwizzle};
use super::super::value::{Val, val};
#[cfg(doc)]
use super::{RunningSums, WarpgroupSums};
use crate::Carry;
use crate::ir::{Op, Swizzle, Type, Value};

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
    pub(super) transposed: bool,
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
                fail(site, format!("{bytes} bytes between core matrices: not a multiple of 16 below 2¹⁸"));
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

    /// The descriptor of a matrix that starts `bytes` bytes, a multiple of 16, after the start of this one.
    ///
    /// - PTX: `add.u32`
    /// - Target: sm_80
    /// - Example: [`RunningSums`]
    #[track_caller]
    pub fn byte_add(self, bytes: u32) -> MatrixDescriptor<T> {
        if !bytes.is_multiple_of(16) {
            fail(
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
    pub(super) fn value(self) -> Value {
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
    /// elements along K are the bytes from 32 · `step` to 32 · `step` + 31 of each row.
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
        let start = self.pointer().byte_add(first * Self::SPAN + step * 32);
        // The offset of the leading dimension has no meaning for a swizzled operand along K.
        MatrixDescriptor::swizzled(start, S::SWIZZLE, [16, 8 * Self::SPAN], false, site)
    }

    /// The operand with K along dimension 1 of the tile: rows `first_k` and up are the 16 positions along K, and dimension 0
    /// holds the rows of A or the columns of B. If the product has more of them than a row of the tile holds, they continue
    /// in further tiles, `between_tiles` bytes apart.
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
        let start = self.pointer().byte_add(first_k * Self::SPAN);
        MatrixDescriptor::swizzled(start, S::SWIZZLE, [between_tiles, 8 * Self::SPAN], true, site)
    }

    /// Fails if the rows of the tile are longer than the swizzle. No tile has shorter ones.
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
