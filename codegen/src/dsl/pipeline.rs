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

use std::panic::Location;

use super::async_copy::{
    commit_copies, copy_async, copy_async_filled, copy_async_with, copy_bulk, copy_bulk_multicast,
    wait_copies,
};
use super::cache_policy::CachePolicy;
use super::cluster::cluster_rank;
use super::hooks::range;
use super::math::{mul_wide, select};
use super::mbarrier::{Mbarrier, MbarrierArray, Wait, fence_mbarrier_init};
use super::pointer::{Global, Index, Ptr, Shared};
use super::record::{fail, with};
use super::sync::warp_barrier;
use super::threads::lane;
use super::value::{IntoVal, Val, val};
use super::warp::ALL_LANES;
use crate::{Carry, device};

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

/// Compile-time description of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipelineShape {
    /// Number of stages, at least one.
    pub stages: u32,
    /// Bytes per stage, a multiple of 16.
    pub stage_bytes: u32,
    /// Arrivals per CTA that free a stage: threads that call [`Consumer::release`], or warps that call
    /// [`Consumer::release_by_warp`].
    pub consumers: u32,
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
///     let shape = PipelineShape { stages: 2, stage_bytes: 512, consumers: 1, copy };
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
///             consumer.release_by_warp();
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
///     let shape = PipelineShape { stages: 2, stage_bytes: 128, consumers: 1, copy };
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
///             consumer.release_by_warp();
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
pub struct Pipeline {
    #[carry(skip)]
    shape: PipelineShape,
    memory: Ptr<Shared, u8>,
    /// The *full* mbarriers of stages 0, 1, …, then the *empty* mbarriers of stages 0, 1, …
    barriers: MbarrierArray,
}

/// Position of a producer or consumer in the ring.
#[derive(Clone, Copy, Debug, Carry)]
struct RingPosition {
    /// Index of the stage, from 0.
    slot: Val<u32>,
    /// Parity of the phase to wait for; it changes with each round through the ring.
    parity: Val<u32>,
}

/// Position in the ring of a thread that fills stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Producer {
    ring: Pipeline,
    at: RingPosition,
    worker: Val<u32>,
}

/// Position in the ring of a thread that reads stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Consumer {
    ring: Pipeline,
    at: RingPosition,
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
        Pipeline { shape, memory, barriers }
    }

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
            self.barriers.at(stages + stage).init(consumers * self.shape.blocks());
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
    pub fn producer(self, worker: impl IntoVal<u32>) -> Producer {
        // Waiting for parity 1 during the first phase returns at once: the stages are free.
        Producer { ring: self, at: RingPosition { slot: val(0), parity: val(1) }, worker: worker.into_val() }
    }

    /// A consumer positioned at the first stage.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn consumer(self) -> Consumer {
        Consumer { ring: self, at: RingPosition { slot: val(0), parity: val(0) } }
    }

    #[track_caller]
    fn data(self, at: RingPosition) -> Ptr<Shared, u8> {
        self.memory.bytes(at.slot * self.shape.stage_bytes)
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

impl Producer {
    /// Waits until the current stage is free, and sets the number of bytes that will be copied into it.
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64` and a branch; with [`PipelineCopy::Bulk`]
    ///   `mbarrier.try_wait.parity.shared::cta.b64`, and `mbarrier.arrive.expect_tx.shared::cta.b64`; with
    ///   [`PipelineCopy::Multicast`] the wait is `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64`
    /// - Target: sm_80, with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`] sm_90
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn acquire(&self, bytes: impl IntoVal<u32>) {
        let (shape, empty) = (self.ring.shape, self.ring.empty(self.at));
        match shape.copy {
            PipelineCopy::Multicast { .. } => empty.wait_for_cluster(self.at.parity),
            PipelineCopy::Bulk | PipelineCopy::Async { .. } => empty.wait(self.at.parity, shape.wait_mode()),
        }
        match shape.copy {
            PipelineCopy::Bulk | PipelineCopy::Multicast { .. } => {
                self.ring.full(self.at).arrive_expect(bytes)
            }
            PipelineCopy::Async { .. } => {}
        }
    }

    /// Starts copying `bytes` bytes to the current stage, from byte `to` of the stage on.
    ///
    /// - PTX: `cp.async.cg.shared.global` for each 16 bytes; with [`PipelineCopy::Bulk`]
    ///   `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`; with [`PipelineCopy::Multicast`] the same
    ///   for a part of the bytes, with `.multicast::cluster`
    /// - Target: sm_80, with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`] sm_90
    /// - Requires: `bytes` a multiple of 16, all addresses aligned to 16; with [`PipelineCopy::Multicast`] `bytes` a
    ///   multiple of 16 per CTA, and all CTAs make the same copies
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn copy(
        &self,
        to: u32,
        from: Ptr<Global, u8>,
        bytes: impl IntoVal<u32>,
        policy: Option<CachePolicy>,
    ) {
        let (to, bytes) = (self.ring.data(self.at).bytes(to), bytes.into_val());
        match self.ring.shape.copy {
            PipelineCopy::Bulk => copy_bulk(to, from, bytes, self.ring.full(self.at), policy),
            PipelineCopy::Multicast { blocks } => {
                let share = bytes / blocks;
                let (first, all) = (cluster_rank() * share, ((1u32 << blocks) - 1) as u16);
                let full = self.ring.full(self.at);
                copy_bulk_multicast(to.bytes(first), from.bytes(first), share, full, all, policy);
            }
            PipelineCopy::Async { threads } => {
                let share = Share { to, from, worker: self.worker, threads, policy };
                match with(|r| r.constant(bytes.id())) {
                    Some(bytes) => copy_share(share, bytes as u32),
                    None => copy_share_of(share, bytes),
                }
            }
        }
    }

    /// Address of the current stage's bytes, for threads that write into it themselves, before
    /// [`Producer::commit_stores`].
    ///
    /// - PTX: `mul.lo.u32`, `add.s32`
    /// - Target: sm_80
    /// - Requires: [`PipelineCopy::Async`], whose producers all arrive at the stage's mbarrier
    /// - Example: [`Producer::copy_rows`]
    #[track_caller]
    pub fn data(&self) -> Ptr<Shared, u8> {
        self.require_async();
        self.ring.data(self.at)
    }

    /// Starts copying rows that are `stride` bytes apart in global memory to the current stage, from byte `to` of the
    /// stage on. All threads copy 16 bytes each, whatever the length of a row.
    ///
    /// - PTX: `cp.async.cg.shared.global` for each 16 bytes
    /// - Target: sm_80
    /// - Requires: [`PipelineCopy::Async`]; addresses and `stride` multiples of 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// Copies a tile of 8 rows and 8 columns of a matrix with 16 columns; the first word is written by hand.
    /// #[kernel(threads = 64)]
    /// fn tile(from: Ptr<Global, u32>, to: Ptr<Global, u32>) {
    ///     let copy = PipelineCopy::Async { threads: 32 };
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 272, consumers: 1, copy };
    ///     let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         let producer = ring.producer(lane());
    ///         producer.acquire(272);
    ///         producer.copy_rows(16, from.cast(), 64, RowsShape { rows: 8, row_bytes: 32, stage_stride: 32 });
    ///         if lane() == 0 {
    ///             producer.data().cast::<u32>().store(7);
    ///         }
    ///         producer.commit_stores();
    ///     } else {
    ///         let consumer = ring.consumer();
    ///         consumer.wait();
    ///         let words = consumer.data().cast::<u32>();
    ///         let word = words.at(lane() + 4).load() + words.at(lane() + 36).load() + words.load();
    ///         consumer.release_by_warp();
    ///         to.at(lane()).store(word);
    ///     }
    /// }
    ///
    /// let kernel = tile()?;
    /// let numbers: Vec<u32> = (0..128).collect();
    /// let done = Launch::of(&kernel).buffer(&numbers).uninitialised::<u32>(32).run()?;
    /// let word = |i: u32| i / 8 * 16 + i % 8;
    /// assert_eq!(done.buffer::<u32>(1), (0..32).map(|i| word(i) + word(i + 32) + 7).collect::<Vec<_>>());
    /// // 16 copies of 16 bytes are one instruction.
    /// assert_eq!(done.ptx().matches("cp.async.cg.shared.global").count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn copy_rows(&self, to: u32, from: Ptr<Global, u8>, stride: impl IntoVal<u32>, shape: RowsShape) {
        self.rows(to, from, stride.into_val(), shape, None);
    }

    /// As [`Producer::copy_rows`], at the edge of a matrix: only the first `rows` rows and the first `bytes` bytes of
    /// each are copied; the others become zero, and their addresses are not read.
    ///
    /// - PTX: `cp.async.cg.shared.global` with a source size for each 16 bytes
    /// - Target: sm_80
    /// - Requires: [`PipelineCopy::Async`]; addresses and `stride` multiples of 16
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// /// A tile of 8 × 8 of a matrix with 5 rows and 7 of 8 columns that count.
    /// #[kernel(threads = 64)]
    /// fn edge(from: Ptr<Global, u32>, to: Ptr<Global, u32>, rows: Val<u32>, columns: Val<u32>) {
    ///     let copy = PipelineCopy::Async { threads: 32 };
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 256, consumers: 1, copy };
    ///     let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         let producer = ring.producer(lane());
    ///         producer.acquire(256);
    ///         let tile = RowsShape { rows: 8, row_bytes: 32, stage_stride: 32 };
    ///         producer.copy_rows_filled(0, from.cast(), 32, tile, (rows, columns * 4));
    ///         producer.commit();
    ///     } else {
    ///         let consumer = ring.consumer();
    ///         consumer.wait();
    ///         to.at(lane() * 2).store_vector(consumer.data().cast::<u32>().at(lane() * 2).load_vector::<2>());
    ///     }
    /// }
    ///
    /// let kernel = edge()?;
    /// let launch = Launch::of(&kernel).buffer(&[1u32; 40]).uninitialised::<u32>(64).value(5u32).value(7u32);
    /// let done = launch.run()?;
    /// let inside = |i: u32| u32::from(i / 8 < 5 && i % 8 < 7);
    /// assert_eq!(done.buffer::<u32>(1), (0..64).map(inside).collect::<Vec<_>>());
    /// assert!(done.has("cp.async.cg.shared.global"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn copy_rows_filled(
        &self,
        to: u32,
        from: Ptr<Global, u8>,
        stride: impl IntoVal<u32>,
        shape: RowsShape,
        (rows, bytes): (impl IntoVal<u32>, impl IntoVal<u32>),
    ) {
        let inside = (rows.into_val(), bytes.into_val());
        self.rows(to, from, stride.into_val(), shape, Some(inside));
    }

    #[track_caller]
    fn rows(
        &self,
        to: u32,
        from: Ptr<Global, u8>,
        stride: Val<u32>,
        shape: RowsShape,
        inside: Option<(Val<u32>, Val<u32>)>,
    ) {
        let RowsShape { rows, row_bytes, stage_stride } = shape;
        let PipelineCopy::Async { threads } = self.ring.shape.copy else {
            let what = "bulk copies have no rows: use `PipelineCopy::Async`, or `copy` for each row";
            fail(Location::caller(), what);
        };
        if row_bytes == 0 || row_bytes % 16 != 0 || stage_stride % 16 != 0 {
            let what = format!(
                "rows of {row_bytes} bytes, {stage_stride} bytes apart, cannot be copied: write multiples of 16"
            );
            fail(Location::caller(), what);
        }
        if rows > 1 && stage_stride < row_bytes {
            let what = format!(
                "rows of {row_bytes} bytes, {stage_stride} bytes apart in the stage, overwrite each other: write a \
                 `stage_stride` of at least {row_bytes}"
            );
            fail(Location::caller(), what);
        }
        let before_last = u64::from(rows.saturating_sub(1)) * u64::from(stage_stride);
        let (end, stage_bytes) =
            (u64::from(to) + before_last + u64::from(row_bytes), self.ring.shape.stage_bytes);
        if end > stage_bytes.into() {
            let what = format!(
                "{rows} rows of {row_bytes} bytes, {stage_stride} bytes apart from byte {to} on, end at byte {end} of \
                 a stage of {stage_bytes} bytes: write a larger `stage_bytes`, or copy fewer rows"
            );
            fail(Location::caller(), what);
        }
        let to = self.ring.data(self.at).bytes(to);
        copy_rows(Rows { to, from, stride, shape, inside }, self.worker, threads);
    }

    /// Signals that this thread has started all its copies into the current stage.
    ///
    /// - PTX: with [`PipelineCopy::Async`] `cp.async.mbarrier.arrive.noinc.shared.b64`, else nothing
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn commit(&self) {
        if let PipelineCopy::Async { .. } = self.ring.shape.copy {
            self.ring.full(self.at).arrive_after_copies();
        }
    }

    /// Signals that this thread has written its part of the current stage, by stores to [`Producer::data`] or by copies,
    /// in place of [`Producer::commit`]. It waits for the thread's copies, because the arrival of `commit` does not order
    /// stores.
    ///
    /// - PTX: `cp.async.wait_group`, `mbarrier.arrive.shared.b64`
    /// - Target: sm_80
    /// - Requires: [`PipelineCopy::Async`]
    /// - Example: [`Producer::copy_rows`]
    #[track_caller]
    pub fn commit_stores(&self) {
        self.require_async();
        commit_copies();
        wait_copies(0);
        self.ring.full(self.at).arrive();
    }

    #[track_caller]
    fn require_async(&self) {
        if !matches!(self.ring.shape.copy, PipelineCopy::Async { .. }) {
            let what = "threads cannot write into a stage of bulk copies: use `PipelineCopy::Async`";
            fail(Location::caller(), what);
        }
    }

    /// Advances to the next stage.
    ///
    /// - PTX: `add.u32`, `setp.eq.u32`, `selp.b32`, `xor.b32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn advance(&mut self) {
        self.at = next_position(self.at, self.ring.shape.stages);
    }
}

impl Consumer {
    /// Waits until the current stage is full.
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64`, with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`]
    ///   `mbarrier.try_wait.parity.shared::cta.b64`, and a branch
    /// - Target: sm_80, with [`PipelineCopy::Bulk`] and [`PipelineCopy::Multicast`] sm_90
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn wait(&self) {
        self.ring.full(self.at).wait(self.at.parity, self.ring.shape.wait_mode());
    }

    /// Address of the current stage's bytes.
    ///
    /// - PTX: `mul.lo.u32`, `add.s32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn data(&self) -> Ptr<Shared, u8> {
        self.ring.data(self.at)
    }

    /// Signals that this thread has finished reading the current stage.
    ///
    /// On an H200 this call costs no more than [`Consumer::release_by_warp`], and compute-sanitizer's racecheck
    /// understands it.
    ///
    /// - PTX: `mbarrier.arrive.shared.b64`; with [`PipelineCopy::Multicast`] `mapa.shared::cluster.u32` and
    ///   `mbarrier.arrive.release.cluster.shared::cluster.b64` for each CTA
    /// - Target: sm_80, with [`PipelineCopy::Multicast`] sm_90
    /// - Requires: [`PipelineShape::consumers`] threads of each CTA call it
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Two tiles of 128 words go through one stage; every lane of warp 1 takes a word of each.
    /// #[kernel(threads = 64)]
    /// fn through_a_stage(x: Ptr<Global, u32>) {
    ///     let copy = PipelineCopy::Async { threads: 32 };
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 512, consumers: 32, copy };
    ///     let ring = Pipeline::new(shape, shared_array(512), mbarrier_array(2));
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         let mut producer = ring.producer(lane());
    ///         for tile in 0..2u32 {
    ///             producer.acquire(512);
    ///             producer.copy(0, x.at(tile * 128).cast(), 512, None);
    ///             producer.commit();
    ///             producer.advance();
    ///         }
    ///     } else {
    ///         let mut consumer = ring.consumer();
    ///         for tile in 0..2u32 {
    ///             consumer.wait();
    ///             let word = consumer.data().cast::<u32>().at(lane()).load();
    ///             consumer.release();
    ///             consumer.advance();
    ///             x.at(256 + tile * 32).at(lane()).store(word);
    ///         }
    ///     }
    /// }
    /// let words: [u32; 320] = std::array::from_fn(|i| i as u32);
    /// let words = run(through_a_stage(), "mbarrier.arrive.shared.b64", words);
    /// assert_eq!((words[256], words[319]), (0, 128 + 31));
    /// ```
    #[track_caller]
    pub fn release(&self) {
        let empty = self.ring.empty(self.at);
        match self.ring.shape.copy {
            PipelineCopy::Multicast { blocks } => {
                for rank in 0..blocks {
                    empty.of_block(rank).arrive();
                }
            }
            PipelineCopy::Bulk | PipelineCopy::Async { .. } => empty.arrive(),
        }
    }

    /// Signals, once for the warp, that all lanes have finished reading the current stage. A warp barrier orders their
    /// reads before the arrival; racecheck does not recognise this and reports a race.
    ///
    /// - PTX: `bar.warp.sync`, `mbarrier.arrive.shared.b64` by one lane; with [`PipelineCopy::Multicast`]
    ///   `mbarrier.arrive.release.cluster.shared::cluster.b64` by one lane for each CTA
    /// - Target: sm_80, with [`PipelineCopy::Multicast`] sm_90
    /// - Requires: all lanes; [`PipelineShape::consumers`] warps of each CTA call it
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn release_by_warp(&self) {
        let empty = self.ring.empty(self.at);
        match self.ring.shape.copy {
            PipelineCopy::Multicast { blocks } => arrive_everywhere(empty, blocks),
            PipelineCopy::Bulk | PipelineCopy::Async { .. } => arrive_by_warp(empty),
        }
    }

    /// Advances to the next stage.
    ///
    /// - PTX: `add.u32`, `setp.eq.u32`, `selp.b32`, `xor.b32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn advance(&mut self) {
        self.at = next_position(self.at, self.ring.shape.stages);
    }

    /// Advances by `count` stages, at most as many as the ring has: past the stages of other consumers.
    ///
    /// - PTX: `add.u32`, `setp.ge.u32`, `sub.u32`, `selp.b32`, `xor.b32`
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Warps 1 and 2 take the four tiles of 32 words in turn.
    /// #[kernel(threads = 96)]
    /// fn in_turn(x: Ptr<Global, u32>) {
    ///     let copy = PipelineCopy::Async { threads: 32 };
    ///     let shape = PipelineShape { stages: 2, stage_bytes: 128, consumers: 1, copy };
    ///     let ring = Pipeline::new(shape, shared_array(256), mbarrier_array(4));
    ///     if thread_index() == 0 {
    ///         ring.init();
    ///     }
    ///     barrier();
    ///     if warp_index() == 0 {
    ///         let mut producer = ring.producer(lane());
    ///         for tile in 0..4u32 {
    ///             producer.acquire(128);
    ///             producer.copy(0, x.at(tile * 32).cast(), 128, None);
    ///             producer.commit();
    ///             producer.advance();
    ///         }
    ///     } else {
    ///         let first = warp_index() - 1;
    ///         let mut consumer = ring.consumer();
    ///         consumer.advance_by(first);
    ///         for round in 0..2u32 {
    ///             consumer.wait();
    ///             let word = consumer.data().cast::<u32>().at(lane()).load();
    ///             consumer.release_by_warp();
    ///             consumer.advance_by(2);
    ///             x.at(128 + (round * 2 + first) * 32).at(lane()).store(word + 1);
    ///         }
    ///     }
    /// }
    /// let words: [u32; 256] = std::array::from_fn(|i| i as u32);
    /// let words = run(in_turn(), "setp.ge.u32", words);
    /// assert!((0..128).all(|i| words[128 + i] == i as u32 + 1));
    /// ```
    #[track_caller]
    pub fn advance_by(&mut self, count: impl IntoVal<u32>) {
        self.at = position_after(self.at, count.into_val(), self.ring.shape.stages);
    }
}

#[device]
fn next_position(at: RingPosition, stages: u32) -> RingPosition {
    let mut next = at;
    next.slot += 1;
    if next.slot == stages {
        next.slot = val(0);
        next.parity ^= 1;
    }
    next
}

#[device]
fn position_after(at: RingPosition, count: Val<u32>, stages: u32) -> RingPosition {
    let mut next = at;
    next.slot += count;
    if next.slot >= stages {
        next.slot -= stages;
        next.parity ^= 1;
    }
    next
}

/// The part of a `cp.async` copy that thread `worker` of `threads` makes: every `threads`-th 16 bytes.
#[derive(Clone, Copy)]
struct Share {
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    worker: Val<u32>,
    threads: u32,
    policy: Option<CachePolicy>,
}

impl Share {
    #[track_caller]
    fn copy(self, at: impl Index) {
        let (to, from) = (self.to.bytes(at), self.from.bytes(at));
        match self.policy {
            Some(policy) => copy_async_with::<16>(to, from, policy),
            None => copy_async::<16>(to, from),
        }
    }
}

#[device]
fn copy_share(share: Share, bytes: u32) {
    let round = share.threads * 16;
    let first = share.worker * 16;
    let own = Share { to: share.to.bytes(first), from: share.from.bytes(first), ..share };
    for i in 0..bytes / round {
        own.copy(i * round);
    }
    let rest = bytes % round;
    if rest > 0 {
        if first < rest {
            own.copy(bytes - rest);
        }
    }
}

#[device]
fn copy_share_of(share: Share, bytes: Val<u32>) {
    for at in range(share.worker * 16, bytes).step_by(share.threads * 16) {
        share.copy(at);
    }
}

/// A two-dimensional `cp.async` copy; `inside` is the number of rows, and of bytes of each, that are not zero-filled.
#[derive(Clone, Copy)]
struct Rows {
    to: Ptr<Shared, u8>,
    from: Ptr<Global, u8>,
    stride: Val<u32>,
    shape: RowsShape,
    inside: Option<(Val<u32>, Val<u32>)>,
}

impl Rows {
    /// Copies the 16 bytes from byte `column` of row `row` on.
    #[device]
    fn copy(self, row: Val<u32>, column: Val<u32>) {
        let to = self.to.bytes(row * self.shape.stage_stride).bytes(column);
        let from = self.from.bytes(mul_wide(row, self.stride)).bytes(column);
        match self.inside {
            Some((rows, bytes)) => {
                let left = select(row < rows, bytes, 0);
                copy_async_filled::<16>(to, from, (left.max(column) - column).min(16));
            }
            None => copy_async::<16>(to, from),
        }
    }
}

/// Copies rows, 16 bytes after the other by one thread after the other.
#[device]
fn copy_rows(rows: Rows, worker: Val<u32>, threads: u32) {
    let in_row = rows.shape.row_bytes / 16;
    let total = in_row * rows.shape.rows;
    if threads % in_row == 0 {
        // A thread copies the same columns of every row.
        let (first, column) = (worker / in_row, worker % in_row * 16);
        let step = threads / in_row;
        for round in 0..total / threads {
            rows.copy(first + round * step, column);
        }
    } else {
        for round in 0..total / threads {
            let at = worker + round * threads;
            rows.copy(at / in_row, at % in_row * 16);
        }
    }
    if total % threads > 0 {
        let at = worker + total / threads * threads;
        if at < total {
            rows.copy(at / in_row, at % in_row * 16);
        }
    }
}

/// Arrives at the mbarrier of each of the `blocks` CTAs of the cluster: lane r at that of the CTA with rank r.
#[device]
fn arrive_everywhere(barrier: Mbarrier, blocks: u32) {
    warp_barrier(ALL_LANES);
    if lane() < blocks {
        barrier.of_block(lane()).arrive();
    }
}

#[device]
fn arrive_by_warp(barrier: Mbarrier) {
    warp_barrier(ALL_LANES);
    if lane() == 0 {
        barrier.arrive();
    }
}
