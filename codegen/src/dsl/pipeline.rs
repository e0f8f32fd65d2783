//! A ring of stages in shared memory between threads that fill them and threads that use them.
//!
//! ```text
//! producers:  acquire → copy … → commit → advance          consumers:  wait → data … → release → advance
//! ```
//!
//! Each stage has two mbarriers. *Full* ends a phase when a stage's bytes are there, *empty* when its consumers have
//! released it. A [`Producer`] and a [`Consumer`] know the stage that their threads are at and the parity to wait for,
//! and are carried around run-time loops like any handle. The producers are one thread that starts bulk copies (sm_90), one
//! in each CTA of a cluster that starts them for all (sm_90), or some threads that start `cp.async` each for its part
//! (sm_80): a compile-time choice ([`Engine`]) that the code of a kernel's loops does not show.

use std::panic::Location;

use super::record::{fail, with};
use super::*;
use crate::{Carry, device};

/// What moves the bytes of a pipeline's stages.
///
/// With [`Engine::Multicast`] the CTAs of a cluster have a ring each, all with the same bytes in their stages. The
/// producer of each loads its part of them, from the first part for rank 0 on, for all; a stage is free when the
/// consumers of all CTAs have released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Bulk copies that one thread starts (sm_90).
    Bulk,
    /// Bulk copies that one thread of each CTA of the cluster starts, for all of them (sm_90).
    Multicast {
        /// CTAs of the cluster, at most 16.
        blocks: u32,
    },
    /// `cp.async` of 16 bytes by each of some threads (sm_80).
    Async {
        /// How many.
        threads: u32,
    },
}

/// A pipeline as it is known while the kernel is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipelineShape {
    /// Stages, at least one.
    pub stages: u32,
    /// Bytes a stage, a multiple of 16.
    pub stage_bytes: u32,
    /// Arrivals that free a stage: threads that [`Consumer::release`] it, or warps that
    /// [`Consumer::release_by_warp`] it; of each CTA.
    pub consumers: u32,
    /// Who copies, and how.
    pub copy: Engine,
}

impl PipelineShape {
    /// The shared memory of all stages, in bytes.
    ///
    /// - PTX: none
    pub const fn bytes(self) -> u32 {
        self.stages * self.stage_bytes
    }

    /// The mbarriers of all stages.
    ///
    /// - PTX: none
    pub const fn barriers(self) -> u32 {
        2 * self.stages
    }

    /// The threads that fill a stage together.
    ///
    /// - PTX: none
    pub const fn producers(self) -> u32 {
        match self.copy {
            Engine::Bulk | Engine::Multicast { .. } => 1,
            Engine::Async { threads } => threads,
        }
    }

    /// CTAs whose consumers use the same bytes.
    const fn blocks(self) -> u32 {
        match self.copy {
            Engine::Multicast { blocks } => blocks,
            Engine::Bulk | Engine::Async { .. } => 1,
        }
    }

    /// How its threads wait: as the oldest target with the engine can.
    const fn how(self) -> Wait {
        match self.copy {
            Engine::Bulk | Engine::Multicast { .. } => Wait::Try,
            Engine::Async { .. } => Wait::Test,
        }
    }
}

/// A ring of stages with its barriers.
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
///
/// /// Copies `tiles` tiles of 512 bytes through a ring: warp 0 fills it, warp 1 uses it.
/// #[kernel(threads = 64)]
/// fn through_a_ring(from: Ptr<Global, u32>, to: Ptr<Global, u32>, tiles: Val<u32>, copy: Engine) {
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
/// for copy in [Engine::Bulk, Engine::Async { threads: 32 }] {
///     let kernel = through_a_ring(copy)?;
///     let launch = Launch::of(&kernel).buffer(&numbers).uninitialised::<u32>(5 * 128).value(5u32);
///     let done = launch.dynamic_shared(1024).run()?;
///     assert_eq!(done.buffer::<u32>(1), numbers);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Over a cluster, every byte comes from global memory once for all CTAs. They meet before the first copy and before
/// they end, since each writes into the others' stages and arrives at their barriers:
///
/// ```
/// use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
///
/// /// CTA `b` stores the sums of all tiles' words, times b + 1: a word a lane of warp 1.
/// #[kernel(threads = 64, cluster = blocks)]
/// fn weighed(from: Ptr<Global, u32>, to: Ptr<Global, u32>, tiles: Val<u32>, blocks: u32) {
///     let shape = PipelineShape { stages: 2, stage_bytes: 128, consumers: 1, copy: Engine::Multicast { blocks } };
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
    /// Full of stage 0, 1, …, then empty of stage 0, 1, …
    barriers: MbarrierArray,
}

/// Where in the ring some threads are.
#[derive(Clone, Copy, Debug, Carry)]
struct Cursor {
    /// The stage, from 0.
    slot: Val<u32>,
    /// The parity of the phase to wait for: it changes with each round.
    parity: Val<u32>,
}

/// A thread that fills stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Producer {
    ring: Pipeline,
    at: Cursor,
    worker: Val<u32>,
}

/// A thread that uses stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Consumer {
    ring: Pipeline,
    at: Cursor,
}

impl Pipeline {
    /// A pipeline with its stages at `memory`, [`PipelineShape::bytes`] bytes aligned to 16 (128 is better), and its
    /// [`PipelineShape::barriers`] mbarriers.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn new(shape: PipelineShape, memory: Ptr<Shared, u8>, barriers: MbarrierArray) -> Pipeline {
        let PipelineShape { stages, stage_bytes, .. } = shape;
        if stages == 0 || stage_bytes % 16 != 0 {
            let what =
                format!("no pipeline of {stages} stages of {stage_bytes} bytes: sizes are multiples of 16");
            fail(Location::caller(), what);
        }
        if !(1..=16).contains(&shape.blocks()) {
            let what = format!("no pipeline over a cluster of {} CTAs: there are 1 to 16", shape.blocks());
            fail(Location::caller(), what);
        }
        Pipeline { shape, memory, barriers }
    }

    /// What it was made as.
    ///
    /// - PTX: none
    pub fn shape(self) -> PipelineShape {
        self.shape
    }

    /// Initialises the barriers.
    ///
    /// - PTX: `mbarrier.init.shared.b64` a barrier; with [`Engine::Bulk`] and [`Engine::Multicast`]
    ///   `fence.mbarrier_init.release.cluster`
    /// - Target: sm_80, with [`Engine::Bulk`] and [`Engine::Multicast`] sm_90
    /// - Requires: by one thread, before a barrier of all threads that use the pipeline; with [`Engine::Multicast`] by one
    ///   of each CTA, before a [`cluster_barrier`]
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn init(self) {
        let PipelineShape { stages, consumers, .. } = self.shape;
        for stage in 0..stages {
            self.barriers.at(stage).init(self.shape.producers());
            self.barriers.at(stages + stage).init(consumers * self.shape.blocks());
        }
        match self.shape.copy {
            Engine::Bulk | Engine::Multicast { .. } => fence_mbarrier_init(),
            Engine::Async { .. } => {}
        }
    }

    /// Producer number `worker` of [`PipelineShape::producers`], at the first stage, which is free.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn producer(self, worker: impl IntoVal<u32>) -> Producer {
        // As if the phase before the first one had freed the stages.
        Producer { ring: self, at: Cursor { slot: val(0), parity: val(1) }, worker: worker.into_val() }
    }

    /// A consumer at the first stage.
    ///
    /// - PTX: none
    #[track_caller]
    pub fn consumer(self) -> Consumer {
        Consumer { ring: self, at: Cursor { slot: val(0), parity: val(0) } }
    }

    #[track_caller]
    fn data(self, at: Cursor) -> Ptr<Shared, u8> {
        self.memory.bytes(at.slot * self.shape.stage_bytes)
    }

    #[track_caller]
    fn full(self, at: Cursor) -> Mbarrier {
        self.barriers.at(at.slot)
    }

    #[track_caller]
    fn empty(self, at: Cursor) -> Mbarrier {
        self.barriers.at(at.slot + self.shape.stages)
    }
}

impl Producer {
    /// Waits until the stage is free, and says how many bytes will be copied into it in all.
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64` and a branch; with [`Engine::Bulk`]
    ///   `mbarrier.try_wait.parity.shared::cta.b64`, and `mbarrier.arrive.expect_tx.shared::cta.b64`; with
    ///   [`Engine::Multicast`] the wait is `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64`
    /// - Target: sm_80, with [`Engine::Bulk`] and [`Engine::Multicast`] sm_90
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn acquire(&self, bytes: impl IntoVal<u32>) {
        let (shape, empty) = (self.ring.shape, self.ring.empty(self.at));
        match shape.copy {
            Engine::Multicast { .. } => empty.wait_for_cluster(self.at.parity),
            Engine::Bulk | Engine::Async { .. } => empty.wait(self.at.parity, shape.how()),
        }
        match shape.copy {
            Engine::Bulk | Engine::Multicast { .. } => self.ring.full(self.at).arrive_expect(bytes),
            Engine::Async { .. } => {}
        }
    }

    /// Starts copying `bytes` bytes to byte `to` of the stage.
    ///
    /// - PTX: `cp.async.cg.shared.global` for each 16 bytes; with [`Engine::Bulk`]
    ///   `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`; with [`Engine::Multicast`] the same of a part
    ///   of the bytes, `.multicast::cluster`
    /// - Target: sm_80, with [`Engine::Bulk`] and [`Engine::Multicast`] sm_90
    /// - Requires: `bytes` a multiple of 16, all addresses aligned to 16; with [`Engine::Multicast`] `bytes` a multiple of 16
    ///   a CTA, and all CTAs copy the same
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
            Engine::Bulk => copy_bulk(to, from, bytes, self.ring.full(self.at), policy),
            Engine::Multicast { blocks } => {
                let share = bytes / blocks;
                let (first, all) = (cluster_rank() * share, ((1u32 << blocks) - 1) as u16);
                let full = self.ring.full(self.at);
                copy_bulk_multicast(to.bytes(first), from.bytes(first), share, full, all, policy);
            }
            Engine::Async { threads } => {
                let share = Share { to, from, worker: self.worker, threads, policy };
                match with(|r| r.func.constant(bytes.id)) {
                    Some(bytes) => copy_share(share, bytes as u32),
                    None => copy_share_of(share, bytes),
                }
            }
        }
    }

    /// Says that this thread has started all of its copies into the stage.
    ///
    /// - PTX: with [`Engine::Async`] `cp.async.mbarrier.arrive.noinc.shared.b64`, else nothing
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn commit(&self) {
        if let Engine::Async { .. } = self.ring.shape.copy {
            self.ring.full(self.at).arrive_after_copies();
        }
    }

    /// Goes to the next stage.
    ///
    /// - PTX: `add.u32`, `setp.eq.u32`, `selp.b32`, `xor.b32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn advance(&mut self) {
        self.at = following(self.at, self.ring.shape.stages);
    }
}

impl Consumer {
    /// Waits until the stage is full.
    ///
    /// - PTX: `mbarrier.test_wait.parity.shared.b64`, with [`Engine::Bulk`] and [`Engine::Multicast`]
    ///   `mbarrier.try_wait.parity.shared::cta.b64`, and a branch
    /// - Target: sm_80, with [`Engine::Bulk`] and [`Engine::Multicast`] sm_90
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn wait(&self) {
        self.ring.full(self.at).wait(self.at.parity, self.ring.shape.how());
    }

    /// The stage's bytes.
    ///
    /// - PTX: `mul.lo.u32`, `add.s32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn data(&self) -> Ptr<Shared, u8> {
        self.ring.data(self.at)
    }

    /// Says that this thread has read all it needs of the stage.
    ///
    /// Costs no more than [`Consumer::release_by_warp`] on an H200, and compute-sanitizer's racecheck follows it.
    ///
    /// - PTX: `mbarrier.arrive.shared.b64`; with [`Engine::Multicast`] `mapa.shared::cluster.u32` and
    ///   `mbarrier.arrive.release.cluster.shared::cluster.b64` for each CTA
    /// - Target: sm_80, with [`Engine::Multicast`] sm_90
    /// - Requires: [`PipelineShape::consumers`] threads of each CTA say so
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Two tiles of 128 words go through one stage; of each, every lane of warp 1 takes a word.
    /// #[kernel(threads = 64)]
    /// fn through_a_stage(x: Ptr<Global, u32>) {
    ///     let copy = Engine::Async { threads: 32 };
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
            Engine::Multicast { blocks } => {
                for rank in 0..blocks {
                    empty.of_block(rank).arrive();
                }
            }
            Engine::Bulk | Engine::Async { .. } => empty.arrive(),
        }
    }

    /// Says, once for the whole warp, that its lanes have read all they need of the stage. The warp's barrier orders
    /// their reads before the arrival; racecheck does not know that, and reports them.
    ///
    /// - PTX: `bar.warp.sync`, `mbarrier.arrive.shared.b64` by one lane; with [`Engine::Multicast`]
    ///   `mbarrier.arrive.release.cluster.shared::cluster.b64` by one lane for each CTA
    /// - Target: sm_80, with [`Engine::Multicast`] sm_90
    /// - Requires: all lanes; [`PipelineShape::consumers`] warps of each CTA say so
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn release_by_warp(&self) {
        let empty = self.ring.empty(self.at);
        match self.ring.shape.copy {
            Engine::Multicast { blocks } => arrive_everywhere(empty, blocks),
            Engine::Bulk | Engine::Async { .. } => arrive_by_warp(empty),
        }
    }

    /// Goes to the next stage.
    ///
    /// - PTX: `add.u32`, `setp.eq.u32`, `selp.b32`, `xor.b32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn advance(&mut self) {
        self.at = following(self.at, self.ring.shape.stages);
    }
}

#[device]
fn following(at: Cursor, stages: u32) -> Cursor {
    let mut next = at;
    next.slot += 1;
    if next.slot == stages {
        next.slot = val(0);
        next.parity ^= 1;
    }
    next
}

/// What thread `worker` of `threads` copies: every `threads`-th 16 bytes.
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
    fn copy(self, at: impl pointer::Index) {
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

/// A lane of a warp a CTA arrives there.
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
