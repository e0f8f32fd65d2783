//! Tiled product of f32 matrices.

use std::array::from_fn;

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
/// Rows and columns of C per CTA.
pub const TILE: u32 = 128;
/// Columns of A and rows of B per step.
pub const DEPTH: u32 = 8;
/// A's tile, transposed; the padding avoids bank conflicts of its stores.
const A_TILE: TileShape<f32, 2, Padded<16>> = TileShape::new([TILE, DEPTH]);
const B_TILE: TileShape<f32, 2> = TileShape::new([TILE, DEPTH]);

/// C = A·B of row-major matrices. A has `k` columns, B and C have `n`; `n` and the rows of A are multiples of `TILE`, `k`
/// is a multiple of `DEPTH`. The tiles are double-buffered; a thread has 8 × 8 sums.
#[kernel(threads = THREADS, min_blocks = 2)]
pub fn sgemm(
    #[aligned(16)] a: Ptr<Global, f32>,
    #[aligned(16)] b: Ptr<Global, f32>,
    #[aligned(16)] c: Ptr<Global, f32>,
    n: Val<u32>,
    k: Val<u32>,
) {
    let (a_tiles, b_tiles) = (A_TILE.shared_tiles(2), B_TILE.shared_tiles(2));
    let (thread, lane, warp) = (thread_index(), lane(), warp_index());
    let (a_row, a_column) = (thread / 2, thread % 2 * 4);
    let a = a.at((block_index_y() * TILE + a_row) * k + a_column);
    let b = b.at(warp * n + block_index() * TILE + lane * 4);
    let (row, column) = ((warp / 2 * 4 + lane / 8) * 4, (warp % 2 * 8 + lane % 8) * 4);
    let (mut next_a, mut next_b) = (a.load_vector::<4>(), b.load_vector::<4>());
    let mut sums = [[val(0.0f32); 8]; 8];
    for step in (0..k).step_by(DEPTH) {
        let (a_tile, b_tile) = (a_tiles.at(step / DEPTH % 2), b_tiles.at(step / DEPTH % 2));
        for i in 0..4 {
            a_tile.at((a_row, a_column + i)).store(next_a[i as usize]);
        }
        b_tile.at((lane * 4, warp)).store_vector(next_b);
        barrier();
        if step + DEPTH < k {
            next_a = a.at(step + DEPTH).load_vector();
            next_b = b.at((step + DEPTH) * n).load_vector();
        }
        for p in 0..DEPTH {
            let left = [0, TILE / 2].map(|half| a_tile.at((row + half, p)).load_vector::<4>());
            let right = [0, TILE / 2].map(|half| b_tile.at((column + half, p)).load_vector::<4>());
            // Back and forth along the rows, so that two products after each other share an operand in the reuse cache.
            for (i, j) in (0..64).map(|q| (q / 8, (q % 8) ^ (q / 8 % 2 * 7))) {
                sums[i][j] = fma(left[i / 4][i % 4], right[j / 4][j % 4], sums[i][j]);
            }
        }
    }
    let c = c.at((block_index_y() * TILE + row) * n + block_index() * TILE + column);
    for (i, half) in (0..8u32).flat_map(|i| [(i, 0), (i, 1)]) {
        let four: [_; 4] = from_fn(|j| sums[i as usize][half * 4 + j]);
        c.at(n * (i / 4 * (TILE / 2) + i % 4) + half as u32 * (TILE / 2)).store_vector(four);
    }
}
