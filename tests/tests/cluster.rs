//! A ring with multicast copies and a reduction through distributed shared memory, for clusters of 1 to 8 CTAs.

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

/// Words per tile: four for each lane of a warp.
const TILE: u32 = 128;
/// Threads per CTA: a warp that loads, and a warp that adds.
const THREADS: u32 = 64;

/// Compile-time parameters of the kernel.
#[derive(Clone)]
struct Shape {
    /// CTAs per cluster: 1, 2, 4 or 8.
    blocks: u32,
    /// Tiles that each cluster adds.
    tiles: u32,
    /// Stages of the ring buffer in shared memory.
    stages: u32,
}

/// sums[cluster, c] = Σ_rank (rank + 1) · Σ_tile from[cluster, tile, c] modulo 2³², over the CTAs of the cluster.
///
/// Every CTA reads all tiles of its cluster through a ring. Each CTA loads a part of every stage, and multicasts the
/// part to the cluster. Then each CTA adds some of the columns over the shared memory of all CTAs.
///
/// `from` u32 [clusters, tiles, 128], `sums` u32 [clusters, 128].
#[kernel(threads = THREADS, cluster = s.blocks)]
fn cluster_sums(from: Ptr<Global, u32>, sums: Ptr<Global, u32>, s: &Shape) {
    let (stages, copy) = (s.stages, PipelineCopy::Multicast { blocks: s.blocks });
    let shape = PipelineShape { stages, stage_bytes: TILE * 4, consumers: Consumers::Threads(32), copy };
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
    for first in (0..share).step_by(THREADS as usize) {
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

#[test]
fn sums_over_clusters_are_exact() {
    for (clusters, blocks, tiles, stages) in [(1, 1, 1, 1), (3, 2, 7, 2), (2, 4, 9, 3), (2, 8, 5, 4)] {
        let s = Shape { blocks, tiles, stages };
        let words: Vec<u32> =
            (0..clusters * tiles * TILE).map(|i| (i + 1).wrapping_mul(0x9E37_79B9)).collect();
        let factor = blocks * (blocks + 1) / 2;
        let expected: Vec<u32> = words
            .chunks((tiles * TILE) as usize)
            .flat_map(|tiles| {
                (0..TILE as usize).map(move |column| {
                    let column = tiles.iter().skip(column).step_by(TILE as usize);
                    column.fold(0u32, |sum, &word| sum.wrapping_add(word)).wrapping_mul(factor)
                })
            })
            .collect();
        let kernel = cluster_sums(&s).expect("the kernel records");
        let launch = Launch::of(&kernel).target(Target::Sm90).grid(clusters * blocks);
        let launch = launch.buffer(&words).uninitialised::<u32>(expected.len());
        let done = launch.run().unwrap_or_else(|error| panic!("{blocks} CTAs: {error}"));
        assert_eq!(done.buffer::<u32>(1), expected, "{clusters} clusters of {blocks} CTAs");
    }
}
