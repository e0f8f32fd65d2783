//! Pipelines whose stages consist of tiles that tensor maps load.

use std::panic::Location;

use super::position::next_position;
use super::{Consumer, Consumers, Pipeline, PipelineCopy, PipelineShape, Producer, WarpgroupRoles};
use crate::device;
use crate::dsl::cache_policy::CachePolicy;
use crate::dsl::mbarrier::{Mbarrier, mbarrier_array};
use crate::dsl::mma::MmaElement;
use crate::dsl::pointer::{Ptr, Shared};
use crate::dsl::recorder::fail;
use crate::dsl::scalar::Scalar;
use crate::dsl::shared_tile::{Coordinates, SharedTile, TileSwizzle};
use crate::dsl::tensor::TensorMap;
use crate::dsl::value::{IntoVal, Val};
use crate::dsl::wgmma::{
    LeftOperand, MatrixDescriptor, WarpgroupElement, WarpgroupSums, WarpgroupWith, start_products,
    wait_for_products,
};

/// The tensor maps of the tiles of a stage: a tuple of one to four. A map may be in it several times, for several tiles.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not describe the tiles of a stage",
    label = "expected a tuple of one to four tensor maps"
)]
pub trait StageTiles: Copy {
    /// The tiles in shared memory, in the same order.
    type Tiles: Copy;

    /// Bytes that the loads of all tiles write.
    fn loaded_bytes(self) -> u32;

    /// Bytes of a stage, and its alignment. Each tile is aligned to its swizzle pattern.
    fn layout(self) -> [u32; 2];

    /// The tiles of the stage at an address.
    fn tiles_at(self, stage: Ptr<Shared, u8>) -> Self::Tiles;
}

/// The positions in their tensors from which the tiles of a stage are loaded: a tuple with the position for each map.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give a position for each of the tiles `{M}`",
    label = "expected a tuple with a position for each tensor map of the pipeline",
    note = "a position is a tuple or an array with an index for each dimension of its tensor map"
)]
pub trait TilePositions<M: StageTiles>: Copy {
    /// Starts loading the tiles; `done` counts their bytes.
    fn load(self, maps: M, tiles: M::Tiles, done: Mbarrier, policy: Option<CachePolicy>);
}

macro_rules! tuples {
    ($($($map:ident $rank:ident $swizzle:ident $position:ident $index:tt),*;)*) => { $(
        impl<$($map: Scalar, $swizzle: TileSwizzle, const $rank: usize),*> StageTiles
            for ($(TensorMap<$map, $rank, $swizzle>,)*)
        {
            type Tiles = ($(SharedTile<$map, $rank, $swizzle>,)*);

            fn loaded_bytes(self) -> u32 {
                let tiles = [$(self.$index.tile_bytes()),*];
                tiles.into_iter().fold(0, u32::saturating_add)
            }

            fn layout(self) -> [u32; 2] {
                let (mut bytes, mut alignment) = (0u32, 16u32);
                for (tile, align) in [$((self.$index.tile_distance(), $swizzle::SWIZZLE.alignment())),*] {
                    bytes = round_up(bytes, align).saturating_add(tile);
                    alignment = alignment.max(align);
                }
                [round_up(bytes, alignment), alignment]
            }

            #[track_caller]
            fn tiles_at(self, stage: Ptr<Shared, u8>) -> Self::Tiles {
                let mut end = 0;
                let mut next = |align, bytes| {
                    let first = round_up(end, align);
                    end = first.saturating_add(bytes);
                    stage.byte_add(first)
                };
                ($({
                    let first = next($swizzle::SWIZZLE.alignment(), self.$index.tile_distance());
                    self.$index.tile_at(first.cast())
                },)*)
            }
        }

        impl<$($map: Scalar, $swizzle: TileSwizzle, const $rank: usize, $position: Coordinates<$rank>),*>
            TilePositions<($(TensorMap<$map, $rank, $swizzle>,)*)> for ($($position,)*)
        {
            #[track_caller]
            fn load(
                self,
                maps: ($(TensorMap<$map, $rank, $swizzle>,)*),
                tiles: ($(SharedTile<$map, $rank, $swizzle>,)*),
                done: Mbarrier,
                policy: Option<CachePolicy>,
            ) {
                $(maps.$index.load(tiles.$index, self.$index, done, policy);)*
            }
        }
    )* };
}
tuples! {
    T0 R0 S0 P0 0;
    T0 R0 S0 P0 0, T1 R1 S1 P1 1;
    T0 R0 S0 P0 0, T1 R1 S1 P1 1, T2 R2 S2 P2 2;
    T0 R0 S0 P0 0, T1 R1 S1 P1 1, T2 R2 S2 P2 2, T3 R3 S3 P3 3;
}

/// `bytes` rounded up to a multiple of `align`.
fn round_up(bytes: u32, align: u32) -> u32 {
    bytes.checked_next_multiple_of(align).unwrap_or(u32::MAX)
}

impl<M: StageTiles> Pipeline<M> {
    /// A pipeline whose stages consist of a tile of each of the tensor maps `maps`, in the memory at `memory`
    /// ([`PipelineShape::bytes`] bytes, aligned to the swizzle patterns). One thread of the producer loads; all consumers of
    /// `roles` read every stage.
    ///
    /// - PTX: `.shared`, `mov.u32 …, shared0`
    /// - Target: sm_80
    ///
    /// ```
    /// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    ///
    /// const ROLES: WarpgroupRoles = WarpgroupRoles { consumers: 1 };
    ///
    /// /// C = A·Bᵀ for 64 rows of A and 64 rows of B with `k` elements.
    /// #[kernel(threads = ROLES.threads(), min_blocks = 1)]
    /// fn product(
    ///     #[tile([64, 64])] a: TensorMap<f16, 2, Swizzle128>,
    ///     #[tile([64, 64])] b: TensorMap<f16, 2, Swizzle128>,
    ///     c: Ptr<Global, f32>,
    ///     k: Val<u32>,
    /// ) {
    ///     let ring = Pipeline::of_tiles((a, b), 3, ROLES, dynamic_shared());
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     let stages = (k + 63) / 64;
    ///     if ROLES.is_producer() {
    ///         ROLES.start_producer();
    ///         if thread_index() == 0 {
    ///             let mut producer = ring.producer(0);
    ///             for stage in 0..stages {
    ///                 producer.fill(((stage * 64, 0), (stage * 64, 0)), None);
    ///             }
    ///         }
    ///     } else {
    ///         let warpgroup = ROLES.start_consumer();
    ///         let mut consumer = ring.consumer();
    ///         let sums = consumer.sum_products(stages, 64, |(a, b)| {
    ///             let a = a.rows(warpgroup * 64, 64);
    ///             [0, 1, 2, 3].map(|part| (a.operand(0, part), b.operand(0, part)))
    ///         });
    ///         for (part, FragmentC(values)) in sums.fragments().iter().enumerate() {
    ///             for register in 0..4 {
    ///                 let row = warp_index() % 4 * 16 + FragmentC::<f32>::row(register);
    ///                 let column = part as u32 * 8 + FragmentC::<f32>::column(register);
    ///                 c.at(row * 64 + column).store(values[register as usize]);
    ///             }
    ///         }
    ///     }
    /// }
    ///
    /// let halves = |seed: u32| (0..64 * 320).map(|i| f16::from_f32((i * seed % 5) as f32)).collect::<Vec<_>>();
    /// let kernel = product()?;
    /// let launch = Launch::of(&kernel).tensor(&halves(1), [320, 64]).tensor(&halves(3), [320, 64]);
    /// let launch = launch.uninitialised::<f32>(64 * 64).value(320u32);
    /// let done = launch.dynamic_shared(3 * 2 * 64 * 64 * 2).run()?;
    /// let sum: f32 = (0..320).map(|p| halves(1)[p].to_f32() * halves(3)[320 + p].to_f32()).sum();
    /// assert_eq!(done.buffer::<f32>(2)[1], sum);
    /// assert!(done.has(".shared") && done.has("mov.u32 …, shared0"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn of_tiles(maps: M, stages: u32, roles: WarpgroupRoles, memory: Ptr<Shared, u8>) -> Pipeline<M> {
        let WarpgroupRoles { consumers } = roles;
        if stages == 0 || !(1..=7).contains(&consumers) {
            let what = format!(
                "a pipeline of tiles cannot have {stages} stages and {consumers} consumers: write at least one stage, and one \
                 to seven consumers"
            );
            fail(Location::caller(), what);
        }
        let [stage_bytes, _] = maps.layout();
        let shape = PipelineShape {
            stages,
            stage_bytes,
            consumers: Consumers::Warps(4 * consumers),
            copy: PipelineCopy::Bulk,
        };
        Pipeline { shape, memory, barriers: mbarrier_array(shape.barriers()), maps }
    }
}

impl<M: StageTiles> Producer<M> {
    /// Waits until the current stage is free, starts loading its tiles from the positions `from` in their tensors, and advances
    /// to the next stage. A stage is full when the bytes of all its tiles have arrived.
    ///
    /// - PTX: `mbarrier.try_wait.parity.shared::cta.b64` and a branch, `mbarrier.arrive.expect_tx.shared::cta.b64`,
    ///   `cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes` for each tile, by the rank, and the
    ///   instructions of [`Producer::advance`]
    /// - Target: sm_90
    /// - Requires: one thread
    /// - Example: [`Pipeline::of_tiles`]
    #[track_caller]
    pub fn fill(&mut self, from: impl TilePositions<M>, policy: Option<CachePolicy>) {
        let Pipeline { shape, maps, .. } = self.ring;
        let full = self.ring.full(self.at);
        self.ring.empty(self.at).wait(self.at.parity, shape.wait_mode());
        full.arrive_expect(maps.loaded_bytes());
        from.load(maps, maps.tiles_at(self.ring.data(self.at)), full, policy);
        self.at = next_position(self.at, shape.stages);
    }
}

impl<M: StageTiles> Consumer<M> {
    /// The tiles of the current stage, which must be full: see [`Consumer::wait`].
    ///
    /// - PTX: `mul.lo.u32`, `add.s32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    /// const ROLES: WarpgroupRoles = WarpgroupRoles { consumers: 1 };
    ///
    /// /// The consumer's threads add up tiles of 128 words.
    /// #[kernel(threads = ROLES.threads())]
    /// fn added(#[tile([128])] x: TensorMap<u32, 1>, sums: Ptr<Global, u32>, tiles: Val<u32>) {
    ///     let ring = Pipeline::of_tiles((x,), 2, ROLES, dynamic_shared());
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     if thread_index() == 0 {
    ///         let mut producer = ring.producer(0);
    ///         for tile in 0..tiles {
    ///             producer.fill(((tile * 128,),), None);
    ///         }
    ///     }
    ///     if !ROLES.is_producer() {
    ///         let (mut consumer, mut sum, own) = (ring.consumer(), val(0u32), thread_index() % 128);
    ///         for _ in 0..tiles {
    ///             consumer.wait();
    ///             let (tile,) = consumer.tiles();
    ///             sum += tile.at((own,)).load();
    ///             consumer.release();
    ///             consumer.advance();
    ///         }
    ///         sums.at(own).store(sum);
    ///     }
    /// }
    /// let words: Vec<u32> = (0..5 * 128).collect();
    /// let kernel = added()?;
    /// let launch = Launch::of(&kernel).tensor(&words, [640]).uninitialised::<u32>(128).value(5u32);
    /// let done = launch.dynamic_shared(1024).run()?;
    /// assert_eq!(done.buffer::<u32>(1), (0..128).map(|i| 5 * i + 1280).collect::<Vec<u32>>());
    /// assert!(done.has("add.s32"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn tiles(&self) -> M::Tiles {
        self.ring.maps.tiles_at(self.ring.data(self.at))
    }

    /// The sum of the products of `stages` stages, from the current one on, with `columns` columns. `products` returns the
    /// products of a stage, with operands in its tiles. Without stages the sums are zeros.
    ///
    /// The products of a stage run while the warpgroup waits for the next stage. A stage is released as soon as its products
    /// are complete, and afterwards the consumer is at the stage after the last one.
    ///
    /// - PTX: `mbarrier.try_wait.parity.shared::cta.b64` and a branch, the instructions of
    ///   [`RunningSums::multiply`](crate::dsl::RunningSums::multiply),
    ///   `wgmma.wait_group.sync.aligned 1`, `mbarrier.arrive.shared.b64` by one lane, and the instructions of
    ///   [`Consumer::advance`]; at the end `wgmma.wait_group.sync.aligned 0`
    /// - Target: sm_90a
    /// - Requires: all lanes of the warpgroup; the stages have no other readers in the warpgroup
    /// - Example: [`Pipeline::of_tiles`]
    #[track_caller]
    pub fn sum_products<A, B, P>(
        &mut self,
        stages: impl IntoVal<u32>,
        columns: u32,
        products: impl Fn(M::Tiles) -> P,
    ) -> WarpgroupSums<<A::Element as MmaElement>::Sum>
    where
        A: LeftOperand<Element: WarpgroupWith<B>>,
        B: WarpgroupElement,
        P: IntoIterator<Item = (A, MatrixDescriptor<B>)>,
    {
        let of_stage = |consumer: &Consumer<M>| products(consumer.tiles()).into_iter().collect();
        sum_stages(self, stages.into_val(), columns, &of_stage)
    }
}

/// Products with the left operand `A` and elements `B` of the right one.
type Products<A, B> = Vec<(A, MatrixDescriptor<B>)>;

/// [`Consumer::sum_products`], with the products of the current stage of a consumer.
#[device]
fn sum_stages<M, A, B>(
    consumer: &mut Consumer<M>,
    stages: Val<u32>,
    columns: u32,
    products: &dyn Fn(&Consumer<M>) -> Products<A, B>,
) -> WarpgroupSums<<A::Element as MmaElement>::Sum>
where
    M: StageTiles,
    A: LeftOperand<Element: WarpgroupWith<B>>,
    B: WarpgroupElement,
{
    let mut sums = WarpgroupSums::zero(columns);
    if stages > 0 {
        consumer.wait();
        let mut running = start_products(columns, &products(consumer));
        for _ in 1..stages {
            let previous = *consumer;
            consumer.advance();
            consumer.wait();
            running = running.multiply(&products(consumer));
            // The products of all stages but this one are complete. The wait has synchronised the warp.
            wait_for_products(1);
            previous.arrive_once(true);
        }
        sums = running.wait();
        consumer.arrive_once(true);
        consumer.advance();
    }
    sums
}
