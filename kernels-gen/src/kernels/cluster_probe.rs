//! A kernel of clusters to test devices by: no model needs it.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// Words of a tile: four a lane of one warp.
pub const TILE: u32 = 128;

/// The probe's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterProbeShape {
    /// Clusters, and CTAs of each: 1, 2, 4 or 8.
    pub clusters: u32,
    /// See `clusters`.
    pub blocks: u32,
    /// Tiles of a cluster.
    pub tiles: u32,
    /// Stages of the ring that they come through.
    pub stages: u32,
}

impl ClusterProbeShape {
    /// Threads of a CTA: a warp that loads, and one that adds.
    pub const THREADS: u32 = 64;

    /// CTAs.
    pub fn grid(&self) -> u32 {
        self.clusters * self.blocks
    }
}

/// Sums of the tiles of each cluster, column by column, times one for the CTA of rank 0, two for that of rank 1 and so
/// on, modulo 2³².
///
/// Every CTA of a cluster needs all of its tiles: they come through a ring whose stages each CTA loads a part of, for all
/// (multicast). Then each adds a part of the columns over all CTAs, in their shared memory.
///
/// `from` u32 [clusters, tiles, 128], `sums` u32 [clusters, 128].
#[kernel(threads = ClusterProbeShape::THREADS, cluster = s.blocks)]
pub fn cluster_probe(from: Ptr<Global, u32>, sums: Ptr<Global, u32>, s: &ClusterProbeShape) {
    let (stages, copy) = (s.stages, PipelineCopy::Multicast { blocks: s.blocks });
    let shape = PipelineShape { stages, stage_bytes: TILE * 4, consumers: 32, copy };
    let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    let own = shared_array::<u32>(TILE);
    let cluster = block_index() / s.blocks;
    if thread_index() == 0 {
        ring.init();
    }
    cluster_barrier();
    if thread_index() == 0 {
        let mut producer = ring.producer(0);
        for tile in range(cluster * s.tiles, (cluster + 1) * s.tiles) {
            producer.acquire(TILE * 4);
            producer.copy(0, from.at(tile * TILE).cast(), TILE * 4, None);
            producer.commit();
            producer.advance();
        }
    }
    if warp_index() == 1 {
        let mut consumer = ring.consumer();
        let mut columns = [val(0u32); 4];
        for _ in range(0u32, s.tiles) {
            consumer.wait();
            let words = consumer.data().cast::<u32>().at(lane() * 4).load_vector::<4>();
            consumer.release();
            consumer.advance();
            for i in 0..4 {
                columns[i] += words[i];
            }
        }
        own.at(lane() * 4).store_vector(columns.map(|column| column * (cluster_rank() + 1)));
    }
    cluster_barrier();
    let share = TILE / s.blocks;
    for first in (0..share).step_by(ClusterProbeShape::THREADS as usize) {
        let column = first + thread_index();
        if column < share {
            let column = cluster_rank() * share + column;
            let mut sum = val(0u32);
            for rank in 0..s.blocks {
                sum += own.at(column).of_block(rank).load();
            }
            sums.at(cluster * TILE + column).store(sum);
        }
    }
    cluster_barrier();
}
