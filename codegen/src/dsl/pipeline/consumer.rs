//! The side of a pipeline that reads stages.

use super::position::{RingPosition, next_position, position_after};
use super::{Consumers, Pipeline, PipelineCopy};
use crate::dsl::mbarrier::Mbarrier;
use crate::dsl::pointer::{Ptr, Shared};
use crate::dsl::sync::warp_barrier;
use crate::dsl::threads::lane;
use crate::dsl::value::IntoVal;
use crate::dsl::warp::ALL_LANES;
use crate::{Carry, device};

/// Position in the ring of a thread that reads stages.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Consumer<M = ()> {
    pub(super) ring: Pipeline<M>,
    pub(super) at: RingPosition,
}

impl Consumer {
    /// Address of the current stage's bytes.
    ///
    /// - PTX: `mul.lo.u32`, `add.s32`
    /// - Target: sm_80
    /// - Example: [`Pipeline`]
    #[track_caller]
    pub fn data(&self) -> Ptr<Shared, u8> {
        self.ring.data(self.at)
    }
}

impl<M: Copy> Consumer<M> {
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

    /// Signals that this consumer has finished reading the current stage: each thread of [`Consumers::Threads`], or all lanes of
    /// each warp of [`Consumers::Warps`].
    ///
    /// - PTX: `mbarrier.arrive.shared.b64`; with [`PipelineCopy::Multicast`] `mapa.shared::cluster.u32` and
    ///   `mbarrier.arrive.release.cluster.shared::cluster.b64` for each CTA; with [`Consumers::Warps`] `bar.warp.sync` before, and
    ///   the arrivals by one lane
    /// - Target: sm_80, with [`PipelineCopy::Multicast`] sm_90
    /// - Requires: all of [`PipelineShape::consumers`](crate::dsl::PipelineShape::consumers) of each CTA call it
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // Two tiles of 128 words go through one stage; every lane of warp 1 takes a word of each.
    /// #[kernel(threads = 64)]
    /// fn through_a_stage(x: Ptr<Global, u32>) {
    ///     let copy = PipelineCopy::Async { threads: 32 };
    ///     let shape = PipelineShape { stages: 1, stage_bytes: 512, consumers: Consumers::Threads(32), copy };
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
        if let Consumers::Warps(_) = self.ring.shape.consumers {
            return self.arrive_once(false);
        }
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

    /// Signals once for the warp that the current stage is free. The lanes are synchronised first, unless the previous
    /// instruction has done so.
    #[track_caller]
    pub(super) fn arrive_once(&self, synchronised: bool) {
        let empty = self.ring.empty(self.at);
        match self.ring.shape.copy {
            PipelineCopy::Multicast { blocks } => arrive_everywhere(empty, blocks, synchronised),
            PipelineCopy::Bulk | PipelineCopy::Async { .. } => arrive_by_warp(empty, synchronised),
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
    ///     let shape = PipelineShape { stages: 2, stage_bytes: 128, consumers: Consumers::Warps(1), copy };
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
    ///             consumer.release();
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

/// Arrives at the mbarrier of each of the `blocks` CTAs of the cluster: lane r at that of the CTA with rank r.
#[device]
fn arrive_everywhere(barrier: Mbarrier, blocks: u32, synchronised: bool) {
    if !synchronised {
        warp_barrier(ALL_LANES);
    }
    if lane() < blocks {
        barrier.of_block(lane()).arrive();
    }
}

#[device]
fn arrive_by_warp(barrier: Mbarrier, synchronised: bool) {
    if !synchronised {
        warp_barrier(ALL_LANES);
    }
    if lane() == 0 {
        barrier.arrive();
    }
}
