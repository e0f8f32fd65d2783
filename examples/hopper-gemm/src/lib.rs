//! C = A·Bᵀ of f16 matrices with f32 sums on Hopper's tensor cores.
//!
//! A CTA computes a tile of C with three warpgroups. One thread of the first warpgroup is the producer: it loads tiles of A
//! and B through tensor maps into a ring of stages in shared memory. The two other warpgroups are consumers: each multiplies
//! 64 rows of the tile by `wgmma`, with both operands in shared memory. Two mbarriers for each stage hand it over: `full`
//! counts the bytes that the loads have written, `empty` the warps whose products have read them. The producer's warpgroup
//! gives its registers to the consumers, which hold the sums.
//!
//! The book of `bespoke_codegen` builds this kernel step by step, in the chapter "A matrix product for Hopper".

use bespoke_codegen::prelude::*;

/// Threads of a CTA: a warpgroup of the producer and two of consumers.
pub const THREADS: u32 = 384;
/// Rows of C per CTA, 64 for each consumer.
pub const ROWS: u32 = 128;
/// Elements along K per stage: the 128 bytes of a row of the swizzle pattern.
pub const DEPTH: u32 = 64;
/// Warps of the consumers.
const WARPS: u32 = 8;
/// Columns and rows of a tile of C that a warp stores.
const C_TILE: [u32; 2] = [64, 16];

/// Compile-time parameters.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Columns of C per CTA: 64, 128, 192 or 256.
    pub columns: u32,
    /// Stages of the ring, at least 2.
    pub stages: u32,
}

impl Shape {
    /// Dynamic shared memory of a CTA in bytes: the ring, and a tile of C.
    pub fn dynamic_shared(self) -> u32 {
        2 * (self.stages * (ROWS + self.columns) * DEPTH + ROWS * self.columns)
    }
}

/// C = A·Bᵀ of row-major matrices; the rows of A and B have `k` elements. The matrices may have any numbers of rows
/// whose row sizes are multiples of 16 bytes: elements outside are loaded as zeros and not stored.
///
/// The grid has a CTA for each `shape.columns` rows of B, along x, and for each [`ROWS`] rows of A, along y.
#[kernel(threads = THREADS, min_blocks = 1)]
pub fn gemm(
    shape: Shape,
    #[tile([DEPTH, ROWS])] a: TensorMap<f16, 2, Swizzle128>,
    #[tile([DEPTH, shape.columns])] b: TensorMap<f16, 2, Swizzle128>,
    #[tile(C_TILE)] c: TensorMap<f16, 2, Swizzle128>,
    k: Val<u32>,
) {
    let Shape { columns, stages } = shape;
    let (first_row, first_column) = (block_index_y() * ROWS, block_index() * columns);
    let memory = dynamic_shared::<f16>();
    let a_tiles = a.tiles_at(memory);
    let b_tiles = b.tiles_at(memory.bytes(stages * a.tile_distance()));
    let c_tiles = c.tiles_at(memory.bytes(stages * (a.tile_distance() + b.tile_distance())));
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
                full.arrive_expect(a_tiles.at(0).size() + b_tiles.at(0).size());
                a.load(a_tiles.at(stage), (step * DEPTH, first_row), full, None);
                b.load(b_tiles.at(stage), (step * DEPTH, first_column), full, None);
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
            let left = a_tiles.at(stage).rows(warp / 4 * 64, 64).operand(0, 0);
            let right = b_tiles.at(stage).operand(0, 0);
            // A product has 16 elements along K.
            let product = |step: u32| (left.bytes(step * 32), right.bytes(step * 32));
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
        let sums = running.wait();

        // A warp stores its 16 rows, 64 columns at a time.
        let parts = columns / C_TILE[0];
        for part in 0..parts {
            let tile = c_tiles.at(warp * parts + part);
            for fragment in 0..8u32 {
                let FragmentC(values) = sums.fragments()[(part * 8 + fragment) as usize];
                for pair in [0, 2u32] {
                    let column = FragmentC::<f32>::column(pair) + fragment * 8;
                    let [low, high] = [values[pair as usize], values[pair as usize + 1]];
                    let place = tile.at((column, FragmentC::<f32>::row(pair)));
                    place.cast::<F16x2>().store(pack_rounded(low, high));
                }
            }
        }
        fence_async_shared();
        warp_barrier(u32::MAX);
        if lane() == 0 {
            for part in 0..parts {
                let to = (first_column + part * C_TILE[0], first_row + warp * C_TILE[1]);
                c.store(to, c_tiles.at(warp * parts + part), None);
            }
            commit_bulk_stores();
            wait_bulk_stores_read(0);
        }
    }
}
