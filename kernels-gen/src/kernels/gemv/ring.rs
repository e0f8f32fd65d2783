//! The ring of stages through which the producer warp streams weights to the consumer warps.

use bespoke_codegen::prelude::*;

use super::schedule::Schedule;
use super::shape::GemvShape;
use crate::kernels::launching::CopyEngine;
use crate::weights::Layout;

/// A run of consecutive tiles of a segment (matrix).
pub(super) struct TileRun<'a> {
    pub layout: &'a Layout,
    /// Address of the segment's first tile.
    pub weights: Ptr<Global, u8>,
    /// Half-open range of tiles: the first tile, and the one after the last.
    pub tiles: [Val<u32>; 2],
}

/// State of the producer warp: the stage to fill next, and the oldest stage whose copy may still be in flight.
#[derive(Clone, Copy, Carry)]
pub(super) struct RingProducer {
    next: Producer,
    oldest: Consumer,
    issued: Val<u32>,
}

impl RingProducer {
    pub fn new(ring: Pipeline) -> RingProducer {
        RingProducer { next: ring.producer(lane()), oldest: ring.consumer(), issued: val(0u32) }
    }
}

impl RingProducer {
    /// Copies `bytes` bytes at `from` to the next stage; at most `in_flight` stages are being copied at once.
    #[device]
    pub fn copy_stage(&mut self, from: Ptr<Global, u8>, bytes: Val<u32>, schedule: &Schedule) {
        self.acquire(bytes, schedule);
        self.next.copy(0, from, bytes, policy(schedule));
        self.next.commit();
        self.next.advance();
    }

    /// Copies `bytes` bytes at the first `count` addresses of `from` to the next stage, one after the other.
    #[device]
    pub fn copy_some(
        &mut self,
        from: &[Ptr<Global, u8>],
        bytes: u32,
        count: Val<u32>,
        policy: Option<CachePolicy>,
        schedule: &Schedule,
    ) {
        self.acquire(count * bytes, schedule);
        for (index, from) in (0u32..).zip(from) {
            if count > index {
                self.next.copy(index * bytes, *from, bytes, policy);
            }
        }
        self.next.commit();
        self.next.advance();
    }

    /// Passes the next stage on empty.
    #[device]
    pub fn skip_stage(&mut self, schedule: &Schedule) {
        self.acquire(val(0u32), schedule);
        self.next.commit();
        self.next.advance();
    }

    /// Waits until the next stage is free and fewer than `in_flight` stages are being copied.
    #[device]
    fn acquire(&mut self, bytes: Val<u32>, schedule: &Schedule) {
        self.next.acquire(bytes);
        if schedule.in_flight < schedule.stages {
            if self.issued >= schedule.in_flight {
                self.oldest.wait();
                self.oldest.advance();
            }
            self.issued += 1;
        }
    }
}

/// Policy of the copies: each weight is read once per step, so weights should not evict data that is read again.
pub(super) fn policy(schedule: &Schedule) -> Option<CachePolicy> {
    (schedule.copy == CopyEngine::Bulk).then(CachePolicy::evict_first)
}

/// The ring, at the start of dynamic shared memory. A CTA barrier must follow before its first use.
#[device]
pub(super) fn ring(s: &GemvShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.schedule.stages,
        stage_bytes: s.stage_bytes(),
        consumers: Consumers::Threads(s.schedule.units_per_stage() * WARP),
        copy: s.schedule.copy.engine(),
    };
    let ring = Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()));
    if thread_index() == 0 {
        ring.init();
    }
    ring
}

/// Number of rounds for a run of tiles; in a round each group of consumer warps takes one stage of the ring.
pub(super) fn rounds(s: &GemvShape, layout: &Layout, tiles: [Val<u32>; 2]) -> Val<u32> {
    let units = (tiles[1] - tiles[0]) * s.units(layout);
    (units + (s.schedule.warps - 1)) / s.schedule.warps
}

/// Streams a run of tiles through the ring. Bulk copies are issued by one lane of the producer warp, `cp.async` by all.
#[device]
pub(super) fn stream(run: &TileRun<'_>, producer: &mut RingProducer, s: &GemvShape) {
    let schedule = &s.schedule;
    let stage = schedule.units_per_stage() * s.depth() * run.layout.ty.block_bytes();
    let from = run.weights.byte_add(mul_wide(run.tiles[0], run.layout.tile_bytes()));
    let total = (run.tiles[1] - run.tiles[0]) * run.layout.tile_bytes();
    let pads = schedule.pads(s.units(run.layout));
    let end = if pads { rounds(s, run.layout, run.tiles) * (stage * schedule.groups) } else { total };
    let mut at = val(0u32);
    while at < end {
        let left = if pads { at.max(total) - at } else { total - at };
        let bytes = left.min(stage);
        if pads {
            producer.acquire(bytes, schedule);
            if bytes > 0 {
                producer.next.copy(0, from.byte_add(at), bytes, policy(schedule));
            }
            producer.next.commit();
            producer.next.advance();
        } else {
            producer.copy_stage(from.byte_add(at), bytes, schedule);
        }
        at += stage;
    }
}
