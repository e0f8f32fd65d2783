//! A producer and two consumer warpgroups for each tile of C, with a ring of stages between them.

use bespoke_codegen::prelude::*;

use crate::{C_TILE, DEPTH, ROWS, Shape, THREADS, store_tile};

/// Warps of the consumers.
const WARPS: u32 = 8;

/// Elements of a row of the swizzle pattern `S`: the columns of a tile of A or B.
pub const fn span<S: TileSwizzle>() -> u32 {
    S::SWIZZLE.chunks() * 8
}

/// C = A·Bᵀ of row-major matrices; the rows of A and B have `k` elements. The matrices may have any numbers of rows
/// whose row sizes are multiples of 16 bytes: elements outside are loaded as zeros and not stored.
///
/// The grid has a CTA for each `shape.columns` rows of B, along x, and for each [`ROWS`] rows of A, along y.
#[kernel(threads = THREADS, min_blocks = 1)]
pub fn specialised<S: MatrixSwizzle>(
    shape: Shape,
    #[tile([span::<S>(), ROWS])] a: TensorMap<f16, 2, S>,
    #[tile([span::<S>(), shape.columns])] b: TensorMap<f16, 2, S>,
    #[tile(C_TILE)] c: TensorMap<f16, 2, Swizzle128>,
    k: Val<u32>,
) {
    let Shape { columns, stages } = shape;
    let (first_row, first_column) = (block_index_y() * ROWS, block_index() * columns);
    // A stage has this many tiles of each matrix, which follow each other along K.
    let parts = DEPTH / span::<S>();
    let memory = dynamic_shared::<f16>();
    let a_tiles = a.tiles_at(memory);
    let b_tiles = b.tiles_at(memory.byte_add(stages * parts * a.tile_distance()));
    let c_tiles = c.tiles_at(memory.byte_add(stages * parts * (a.tile_distance() + b.tile_distance())));
    let (full, empty) = (mbarrier_array(stages), mbarrier_array(stages));
    if thread_index() == 0 {
        for stage in 0..stages {
            full.at(stage).init(1);
            empty.at(stage).init(WARPS);
        }
        fence_mbarrier_init();
        a.prefetch_map();
        b.prefetch_map();
        c.prefetch_map();
    }
    barrier();

    let steps = (k + (DEPTH - 1)) / DEPTH;
    if warp_index() / 4 == 0 {
        decrease_registers(40);
        if thread_index() == 0 {
            // A wait for parity 1 returns at once in the first phase: all stages are empty.
            let (mut stage, mut parity) = (val(0u32), val(1u32));
            for step in 0..steps {
                let full = full.at(stage);
                empty.at(stage).wait(parity, Wait::Try);
                full.arrive_expect(parts * (a_tiles.at(0).size() + b_tiles.at(0).size()));
                for part in 0..parts {
                    let at = step * DEPTH + part * span::<S>();
                    a.load(a_tiles.at(stage * parts + part), (at, first_row), full, None);
                    b.load(b_tiles.at(stage * parts + part), (at, first_column), full, None);
                }
                stage += 1;
                if stage == stages {
                    stage = val(0);
                    parity ^= 1;
                }
            }
        }
    } else {
        increase_registers(232);
        let warp = warp_index() - 4;
        let products = |stage: Val<u32>| {
            // A product has 16 elements along K.
            let product = |step: u32| {
                let (part, step) = (step * 16 / span::<S>(), step % (span::<S>() / 16));
                let left = a_tiles.at(stage * parts + part).rows(warp / 4 * 64, 64);
                (left.operand(0, step), b_tiles.at(stage * parts + part).operand(0, step))
            };
            [product(0), product(1), product(2), product(3)]
        };
        let mut running = WarpgroupSums::zero(columns).into_running();
        let (mut previous, mut stage, mut parity) = (val(0u32), val(0u32), val(0u32));
        for step in 0..steps {
            full.at(stage).wait(parity, Wait::Try);
            running = running.multiply(&products(stage));
            // The products of the previous stage are complete: the producer may load it again.
            wait_for_products(1);
            if (step > 0) & (lane() == 0) {
                empty.at(previous).arrive();
            }
            previous = stage;
            stage += 1;
            if stage == stages {
                stage = val(0);
                parity ^= 1;
            }
        }
        store_tile(c, c_tiles, running.wait(), warp, (first_column, first_row));
        wait_bulk_stores_read(0);
    }
}
