//! A ring buffer of stages in shared memory, between producer and consumer threads.
//!
//! ```text
//! producers:  acquire → copy … → commit → advance          consumers:  wait → data … → release → advance
//! ```
//!
//! Each stage has two mbarriers. A phase of *full* completes when the stage's bytes have arrived; a phase of *empty*
//! completes when the consumers have released the stage. A [`Producer`] and a [`Consumer`] hold the current stage and
//! the parity to wait for; run-time loops carry them like any handle. [`PipelineCopy`] decides at compile time who
//! copies: one thread with bulk copies (sm_90), one thread of each CTA of a cluster with multicast copies (sm_90), or
//! several threads with `cp.async` (sm_80). The loops of a kernel are the same for all.
//!
//! The stages of [`Pipeline::of_tiles`] consist of tiles that tensor maps load:
//!
//! ```text
//! producer:   fill
//! consumers:  sum_products, or wait → tiles … → release → advance
//! ```

mod consumer;
mod copies;
mod position;
mod producer;
mod roles;
mod tiles;

use std::panic::Location;

use self::position::RingPosition;
use super::mbarrier::{Mbarrier, MbarrierArray, Wait, fence_mbarrier_init};
use super::pointer::{Ptr, Shared};
use super::recorder::fail;
use super::value::{IntoVal, val};
use crate::Carry;

pub use self::consumer::Consumer;
pub use self::producer::Producer;
pub use self::roles::WarpgroupRoles;
pub use self::tiles::{StageTiles, TilePositions};

/// The copies that fill a pipeline's stages.
///
/// With [`PipelineCopy::Multicast`], each CTA of a cluster has a ring, and all rings have the same content. Each stage
/// is loaded in parts, one per CTA in the order of ranks: the producer of a CTA loads its part for all CTAs. A stage is
/// free when the consumers of all CTAs have released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipelineCopy {
    /// Bulk copies, started by one thread (sm_90).
    Bulk,
    /// Multicast bulk copies, started by one thread of each CTA of the cluster (sm_90).
    Multicast {
        /// Number of CTAs in the cluster, at most 16.
        blocks: u32,
    },
    /// `cp.async` of 16 bytes, by several threads (sm_80).
    Async {
        /// Number of threads that copy.
        threads: u32,
    },
}

/// The consumers of a pipeline in each CTA: a stage is free when all of them have called [`Consumer::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consumers {
    /// This many threads, each of which arrives at the stage's mbarrier. On an H200 this costs no more than warps, and
    /// compute-sanitizer's racecheck understands it.
    Threads(u32),
    /// All lanes of this many warps. A warp barrier orders their reads before one lane arrives; racecheck does not recognise
    /// this and reports a race.
    Warps(u32),
}

impl Consumers {
    /// Arrivals that free a stage.
    const fn arrivals(self) -> u32 {
        match self {
            Consumers::Threads(count) | Consumers::Warps(count) => count,
        }
    }
}

/// Compile-time description of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipelineShape {
    /// Number of stages, at least one.
    pub stages: u32,
    /// Bytes per stage, a multiple of 16.
    pub stage_bytes: u32,
    /// The threads or warps of each CTA that read the stages.
    pub consumers: Consumers,
    /// The copies that fill the stages.
    pub copy: PipelineCopy,
}

impl PipelineShape {
    /// Size of the shared memory of all stages, in bytes.
    ///
    /// - PTX: none
    pub const fn bytes(self) -> u32 {
        self.stages * self.stage_bytes
    }

    /// Number of mbarriers of all stages: two per stage.
    ///
    /// - PTX: none
    pub const fn barriers(self) -> u32 {
        2 * self.stages
    }

    /// Number of threads of a CTA that fill a stage.
    ///
    /// - PTX: none
    pub const fn producers(self) -> u32 {
        match self.copy {
            PipelineCopy::Bulk | PipelineCopy::Multicast { .. } => 1,
            PipelineCopy::Async { threads } => threads,
        }
    }

    /// Number of CTAs that share the content of a stage.
    const fn blocks(self) -> u32 {
        match self.copy {
            PipelineCopy::Multicast { blocks } => blocks,
            PipelineCopy::Bulk | PipelineCopy::Async { .. } => 1,
        }
    }

    /// The form of mbarrier wait that the oldest target with this kind of copies supports.
    const fn wait_mode(self) -> Wait {
        match self.copy {
            PipelineCopy::Bulk | PipelineCopy::Multicast { .. } => Wait::Try,
            PipelineCopy::Async { .. } => Wait::Test,
        }
    }
}

/// Form of a two-dimensional copy, see [`Producer::copy_rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowsShape {
    /// Number of rows.
    pub rows: u32,
    /// Bytes of a row, a multiple of 16.
    pub row_bytes: u32,
    /// Bytes from a row to the next one in the stage, a multiple of 16; more than `row_bytes` leaves a gap.
    pub stage_stride: u32,
}

/// A ring of stages with its mbarriers.
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
///
/// /// Copies `tiles` tiles of 512 bytes through a ring: warp 0 fills it, warp 1 uses it.
/// #[kernel(threads = 64)]
/// fn through_a_ring(from: Ptr<Global, u32>, to: Ptr<Global, u32>, tiles: Val<u32>, copy: PipelineCopy) {
///     let shape = PipelineShape { stages: 2, stage_bytes: 512, consumers: Consumers::Warps(1), copy };
///     let ring = Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()));
///     if thread_index() == 0 {
///         ring.init();
///     }
///     barrier();
///     if thread_index() < shape.producers() {
///         let mut producer = ring.producer(thread_index());
///         for tile in 0..tiles {
///             producer.acquire(512);
///             producer.copy(0, from.at(tile * 128).cast(), 512, None);
///             producer.commit();
///             producer.advance();
///         }
///     }
///     if warp_index() == 1 {
///         let mut consumer = ring.consumer();
///         for tile in 0..tiles {
///             consumer.wait();
///             let words = consumer.data().cast::<u32>().at(lane() * 4).load_vector::<4>();
///             consumer.release();
///             consumer.advance();
///             to.at(tile * 128 + lane() * 4).store_vector(words);
///         }
///     }
/// }
///
/// let numbers: Vec<u32> = (0..5 * 128).collect();
/// for copy in [PipelineCopy::Bulk, PipelineCopy::Async { threads: 32 }] {
///     let kernel = through_a_ring(copy)?;
///     let launch = Launch::of(&kernel).buffer(&numbers).uninitialised::<u32>(5 * 128).value(5u32);
///     let done = launch.dynamic_shared(1024).run()?;
///     assert_eq!(done.buffer::<u32>(1), numbers);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With multicast copies, a cluster loads every byte from global memory once. Its CTAs wait for each other before the
/// first copy and before they end, because each writes into the others' stages and arrives at their mbarriers:
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
///
/// /// CTA `b` stores the sum of all tiles times b + 1; each lane of warp 1 has one word.
/// #[kernel(threads = 64, cluster = blocks)]
/// fn weighed(from: Ptr<Global, u32>, to: Ptr<Global, u32>, tiles: Val<u32>, blocks: u32) {
///     let copy = PipelineCopy::Multicast { blocks };
///     let shape = PipelineShape { stages: 2, stage_bytes: 128, consumers: Consumers::Warps(1), copy };
///     let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
///     if thread_index() == 0 {
///         ring.init();
///     }
///     cluster_barrier();
///     if thread_index() == 0 {
///         let mut producer = ring.producer(0);
///         for tile in 0..tiles {
///             producer.acquire(128);
///             producer.copy(0, from.at(tile * 32).cast(), 128, None);
///             producer.commit();
///             producer.advance();
///         }
///     }
///     if warp_index() == 1 {
///         let mut consumer = ring.consumer();
///         let mut sum = val(0u32);
///         for _ in 0..tiles {
///             consumer.wait();
///             sum += consumer.data().cast::<u32>().at(lane()).load();
///             consumer.release();
///             consumer.advance();
///         }
///         to.at(block_index() * 32 + lane()).store(sum * (cluster_rank() + 1));
///     }
///     cluster_barrier();
/// }
///
/// let numbers: Vec<u32> = (0..5 * 32).collect();
/// let kernel = weighed(4)?;
/// let launch = Launch::of(&kernel).buffer(&numbers).uninitialised::<u32>(4 * 32).value(5u32);
/// let done = launch.grid(4).run()?;
/// let sums = |b: u32| (0..32).map(move |i| (5 * i + 320) * (b + 1));
/// assert_eq!(done.buffer::<u32>(1), (0..4).flat_map(sums).collect::<Vec<u32>>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Carry)]
pub struct Pipeline<M = ()> {
    #[carry(skip)]
    shape: PipelineShape,
    memory: Ptr<Shared, u8>,
    /// The *full* mbarriers of stages 0, 1, …, then the *empty* mbarriers of stages 0, 1, …
    barriers: MbarrierArray,
    /// The tensor maps of the tiles of a stage.
    #[carry(skip)]
    maps: M,
}

impl Pipeline {
    /// A pipeline with its stages at `memory` ([`PipelineShape::bytes`] bytes, aligned to 16 and preferably to 128) and
    /// with [`PipelineShape::barriers`] mbarriers.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn new(shape: PipelineShape, memory: Ptr<Shared, u8>, barriers: MbarrierArray) -> Pipeline {
        let PipelineShape { stages, stage_bytes, .. } = shape;
        if stages == 0 || stage_bytes % 16 != 0 {
            let what = format!(
                "a pipeline cannot have {stages} stages of {stage_bytes} bytes: write at least one stage, and a \
                         multiple of 16 bytes"
            );
            fail(Location::caller(), what);
        }
        if !(1..=16).contains(&shape.blocks()) {
            let what = format!("a pipeline cannot span a cluster of {} CTAs: write 1 to 16", shape.blocks());
            fail(Location::caller(), what);
        }
        Pipeline { shape, memory, barriers, maps: () }
    }
}

impl<M: Copy> Pipeline<M> {
    /// The compile-time description of the pipeline.
    ///
    /// - PTX: none
    pub fn shape(self) -> PipelineShape {
        self.shape
    }

    /// Initialises the mbarriers of all stages.
    ///
    /// - PTX: `mbarrier.init.shared.b64` for each mbarrier; with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`]
    ///   `fence.mbarrier_init.release.cluster`
    /// - Target: sm_80, with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`] sm_90
    /// - Requires: one thread calls it, before a barrier of all threads that use the pipeline; with
    ///   [`PipelineCopy::Multicast`] one thread of each CTA, before a [`cluster_barrier`](super::cluster_barrier)
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn init(self) {
        let PipelineShape { stages, consumers, .. } = self.shape;
        for stage in 0..stages {
            self.barriers.at(stage).init(self.shape.producers());
            self.barriers.at(stages + stage).init(consumers.arrivals() * self.shape.blocks());
        }
        match self.shape.copy {
            PipelineCopy::Bulk | PipelineCopy::Multicast { .. } => fence_mbarrier_init(),
            PipelineCopy::Async { .. } => {}
        }
    }

    /// Producer number `worker`, of [`PipelineShape::producers`], positioned at the first stage, which is free.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn producer(self, worker: impl IntoVal<u32>) -> Producer<M> {
        // Waiting for parity 1 during the first phase returns at once: the stages are free.
        Producer { ring: self, at: RingPosition { slot: val(0), parity: val(1) }, worker: worker.into_val() }
    }

    /// A consumer positioned at the first stage.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn consumer(self) -> Consumer<M> {
        Consumer { ring: self, at: RingPosition { slot: val(0), parity: val(0) } }
    }

    #[track_caller]
    fn data(self, at: RingPosition) -> Ptr<Shared, u8> {
        self.memory.byte_add(at.slot * self.shape.stage_bytes)
    }

    #[track_caller]
    fn full(self, at: RingPosition) -> Mbarrier {
        self.barriers.at(at.slot)
    }

    #[track_caller]
    fn empty(self, at: RingPosition) -> Mbarrier {
        self.barriers.at(at.slot + self.shape.stages)
    }
}
