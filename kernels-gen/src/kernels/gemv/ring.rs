//! The ring of stages through which a warp feeds weights to the others.

use bespoke_codegen::prelude::*;

use super::shape::{GemvShape, Schedule};
use crate::kernels::launching::CopyEngine;
use crate::weights::Layout;

/// A run of tiles of a segment.
pub(super) struct Run<'a> {
    pub layout: &'a Layout,
    /// The segment.
    pub weights: Ptr<Global, u8>,
    /// The first tile and the one after the last.
    pub tiles: [Val<u32>; 2],
}

/// Where the loading warp is: at the stage to fill next, and at the oldest one that is still being filled.
#[derive(Clone, Copy, Carry)]
pub(super) struct Feeder {
    next: Producer,
    oldest: Consumer,
    issued: Val<u32>,
}

/// The ring, at the start of the dynamic shared memory. A barrier of the CTA must follow before use.
#[device]
pub(super) fn ring(s: &GemvShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.schedule.stages,
        stage_bytes: s.stage_bytes(),
        consumers: s.schedule.units() * WARP,
        copy: s.schedule.copy.engine(),
    };
    let ring = Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()));
    if thread_index() == 0 {
        ring.init();
    }
    ring
}

/// The loading warp's state.
pub(super) fn feeder(ring: Pipeline) -> Feeder {
    Feeder { next: ring.producer(lane()), oldest: ring.consumer(), issued: val(0u32) }
}

/// How often the groups take turns over a run of tiles.
pub(super) fn rounds(schedule: &Schedule, layout: &Layout, tiles: [Val<u32>; 2]) -> Val<u32> {
    let units = (tiles[1] - tiles[0]) * (layout.blocks / schedule.depth);
    (units + (schedule.warps - 1)) / schedule.warps
}

/// Streams a run through the ring. Called by the loading warp: by one lane for bulk copies, by all of them otherwise.
#[device]
pub(super) fn stream(run: &Run<'_>, feeder: &mut Feeder, schedule: &Schedule) {
    let stage = schedule.units() * schedule.depth * run.layout.ty.block_bytes();
    let from = run.weights.bytes(mul_wide(run.tiles[0], run.layout.tile_bytes()));
    let total = (run.tiles[1] - run.tiles[0]) * run.layout.tile_bytes();
    let pads = schedule.pads(run.layout.blocks);
    let end = if pads { rounds(schedule, run.layout, run.tiles) * (stage * schedule.groups) } else { total };
    let mut at = val(0u32);
    while at < end {
        let left = if pads { at.max(total) - at } else { total - at };
        let bytes = left.min(stage);
        feeder.next.acquire(bytes);
        if schedule.in_flight < schedule.stages {
            if feeder.issued >= schedule.in_flight {
                feeder.oldest.wait();
                feeder.oldest.advance();
            }
            feeder.issued += 1;
        }
        // Weights are read once a token: they should not displace what is read again.
        let policy = (schedule.copy == CopyEngine::Bulk).then(CachePolicy::evict_first);
        if pads {
            if bytes > 0 {
                feeder.next.copy(0, from.bytes(at), bytes, policy);
            }
        } else {
            feeder.next.copy(0, from.bytes(at), bytes, policy);
        }
        feeder.next.commit();
        feeder.next.advance();
        at += stage;
    }
}
