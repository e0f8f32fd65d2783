//! A CTA for each multiprocessor, which computes one tile of C after the other; pairs of CTAs share tiles of B.

use bespoke_codegen::prelude::*;

use crate::{C_TILE, DEPTH, ROWS, Shape, THREADS, store_tile};

/// Compile-time parameters of [`scheduled()`] beside its [`Shape`].
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// CTAs of a cluster, 1 or 2: their tiles of C are below each other, so each loads a part of the tile of B for all.
    pub cluster: u32,
    /// Rows of tiles, in clusters, that are computed side by side, so that the parts of A and B in use stay in the L2 cache.
    pub group: u32,
}

/// C = A·Bᵀ of row-major matrices with `m` and `n` rows of `k` elements. The numbers may be any whose row sizes are multiples
/// of 16 bytes: elements outside are loaded as zeros and not stored.
///
/// The grid is a multiple of the cluster, at best the number of multiprocessors.
#[kernel(threads = THREADS, min_blocks = 1, cluster = schedule.cluster)]
pub fn scheduled(
    shape: Shape,
    schedule: Schedule,
    #[tile([DEPTH, ROWS])] a: TensorMap<f16, 2, Swizzle128>,
    #[tile([DEPTH, shape.columns / schedule.cluster])] b: TensorMap<f16, 2, Swizzle128>,
    #[tile(C_TILE)] c: TensorMap<f16, 2, Swizzle128>,
    m: Val<u32>,
    n: Val<u32>,
    k: Val<u32>,
) {
    let Shape { columns, stages } = shape;
    let Schedule { cluster, group } = schedule;
    let rank = cluster_rank();
    let memory = dynamic_shared::<f16>();
    let a_tiles = a.tiles_at(memory);
    // The parts of a tile of B follow each other.
    let b_tiles = b.tiles_at(memory.byte_add(stages * a.tile_distance()));
    let c_tiles = c.tiles_at(memory.byte_add(stages * (a.tile_distance() + cluster * b.tile_distance())));
    let (full, empty) = (mbarrier_array(stages), mbarrier_array(stages));
    if thread_index() == 0 {
        for stage in 0..stages {
            full.at(stage).init(1);
            empty.at(stage).init(8 * cluster);
        }
        fence_mbarrier_init();
        a.prefetch_map();
        b.prefetch_map();
        c.prefetch_map();
    }
    cluster_barrier();

    let steps = (k + (DEPTH - 1)) / DEPTH;
    let [across, down] = [(n + (columns - 1)) / columns, (m + (cluster * ROWS - 1)) / (cluster * ROWS)];
    let tiles = || range(block_index() / cluster, across * down).step_by(grid_size() / cluster);
    // First column and row of C of this CTA.
    let place = |tile: Val<u32>| {
        let first = tile / (across * group) * group;
        let rows = (down - first).min(group);
        let within = tile % (across * group);
        (within / rows * columns, ((first + within % rows) * cluster + rank) * ROWS)
    };
    if warp_index() / 4 == 0 {
        decrease_registers(40);
        if thread_index() == 0 {
            // A wait for parity 1 returns at once in the first phase: all stages are empty.
            let (mut stage, mut parity) = (val(0u32), val(1u32));
            for tile in tiles() {
                let (first_column, first_row) = place(tile);
                let part = rank * (columns / cluster);
                for step in 0..steps {
                    let full = full.at(stage);
                    // The consumers of all CTAs have read the stage, since this CTA writes to all of them.
                    if cluster == 1 {
                        empty.at(stage).wait(parity, Wait::Try);
                    } else {
                        empty.at(stage).wait_for_cluster(parity);
                    }
                    full.arrive_expect(a_tiles.at(0).size() + cluster * b_tiles.at(0).size());
                    a.load(a_tiles.at(stage), (step * DEPTH, first_row), full, None);
                    let (to, from) =
                        (b_tiles.at(stage * cluster + rank), (step * DEPTH, first_column + part));
                    if cluster == 1 {
                        b.load(to, from, full, None);
                    } else {
                        b.load_multicast(to, from, full, (1u16 << cluster) - 1, None);
                    }
                    stage += 1;
                    if stage == stages {
                        stage = val(0);
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        increase_registers(232);
        let warp = warp_index() - 4;
        let products = |stage: Val<u32>| {
            let left = a_tiles.at(stage).rows(warp / 4 * 64, 64).operand(0, 0);
            let right = b_tiles.at(stage * cluster).operand(0, 0);
            // A product has 16 elements along K.
            let product = |step: u32| (left.byte_add(step * 32), right.byte_add(step * 32));
            [product(0), product(1), product(2), product(3)]
        };
        // A lane for each CTA of the cluster tells its producer.
        let release = |stage: Val<u32>| {
            if cluster == 1 {
                if lane() == 0 {
                    empty.at(stage).arrive();
                }
            } else if lane() < cluster {
                empty.at(stage).of_block(lane()).arrive();
            }
        };
        let (mut stage, mut parity) = (val(0u32), val(0u32));
        for tile in tiles() {
            let mut running = WarpgroupSums::zero(columns).into_running();
            let mut previous = stage;
            for step in 0..steps {
                full.at(stage).wait(parity, Wait::Try);
                running = running.multiply(&products(stage));
                // The products of the previous stage are complete: the producers may load it again.
                wait_for_products(1);
                if step > 0 {
                    release(previous);
                }
                previous = stage;
                stage += 1;
                if stage == stages {
                    stage = val(0);
                    parity ^= 1;
                }
            }
            let sums = running.wait();
            release(previous);
            // The stores of the last tile have read the warp's shared memory. They run while the next tile is multiplied.
            wait_bulk_stores_read(0);
            warp_barrier(u32::MAX);
            store_tile(c, c_tiles, sums, warp, place(tile));
        }
        wait_bulk_stores_read(0);
    }
    // No CTA ends while the other one may write to it.
    cluster_barrier();
}
