//! The side of a pipeline that fills stages.

use std::panic::Location;

use super::copies::{Share, copy_share, copy_share_of};
use super::position::{RingPosition, next_position};
use super::{Pipeline, PipelineCopy, RowsShape};
use crate::Carry;
use crate::dsl::async_copy::{commit_copies, copy_bulk, copy_bulk_multicast, wait_copies};
use crate::dsl::cache_policy::CachePolicy;
use crate::dsl::cluster::cluster_rank;
use crate::dsl::pointer::{Global, Ptr, Shared};
use crate::dsl::recorder::{fail, with};
use crate::dsl::shared_tile::{Inside, TileCopy, TileShape, Unswizzled};
use crate::dsl::value::{IntoVal, Val, val};

/// Position in the ring of a thread that fills stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Producer<M = ()> {
    pub(super) ring: Pipeline<M>,
    pub(super) at: RingPosition,
    pub(super) worker: Val<u32>,
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
        let (to, bytes) = (self.ring.data(self.at).byte_add(to), bytes.into_val());
        match self.ring.shape.copy {
            PipelineCopy::Bulk => copy_bulk(to, from, bytes, self.ring.full(self.at), policy),
            PipelineCopy::Multicast { blocks } => {
                let share = bytes / blocks;
                let (first, all) = (cluster_rank() * share, ((1u32 << blocks) - 1) as u16);
                let full = self.ring.full(self.at);
                copy_bulk_multicast(to.byte_add(first), from.byte_add(first), share, full, all, policy);
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
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 272, consumers: Consumers::Warps(1), copy };
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
    ///         consumer.release();
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
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 256, consumers: Consumers::Warps(1), copy };
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
        let inside = Inside { first: [val(0), val(0)], sizes: [bytes.into_val(), rows.into_val()] };
        self.rows(to, from, stride.into_val(), shape, Some(inside));
    }

    #[track_caller]
    fn rows(
        &self,
        to: u32,
        from: Ptr<Global, u8>,
        stride: Val<u32>,
        shape: RowsShape,
        inside: Option<Inside>,
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
        let tile = TileShape::<u8, 2, Unswizzled>::with_row_stride([row_bytes, rows], stage_stride);
        let tile = tile.tile_at(self.ring.data(self.at).byte_add(to));
        TileCopy { tile, from, stride, inside }.copy_share::<16>(self.worker, threads);
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
}

impl<M: Copy> Producer<M> {
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
