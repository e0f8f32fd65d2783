//! Product of f16 matrices on tensor cores by `mma`.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
/// Rows and columns of C per CTA.
pub const TILE: u32 = 128;
/// Columns of A and rows of B per stage.
pub const DEPTH: u32 = 32;
const STAGES: u32 = 4;
const A_TILE: TileShape<f16, 2, Padded<16>> = TileShape::new([DEPTH, TILE]);
const B_TILE: TileShape<f16, 2, Padded<16>> = TileShape::new([TILE, DEPTH]);
/// Dynamic shared memory of a CTA in bytes.
pub const SHARED: u32 = STAGES * (A_TILE.tile_distance() + B_TILE.tile_distance());

/// C = A·B of row-major matrices with f32 sums. A has `k` columns, B and C have `n`; `n` and the rows of A are multiples of
/// `TILE`, `k` is a multiple of `DEPTH` and has at least three of them. A warp has 64 × 32 sums.
#[kernel(threads = THREADS)]
pub fn hgemm(
    #[aligned(16)] a: Ptr<Global, f16>,
    #[aligned(16)] b: Ptr<Global, f16>,
    #[aligned(16)] c: Ptr<Global, f16>,
    n: Val<u32>,
    k: Val<u32>,
) {
    let (a_tiles, b_tiles) = (
        A_TILE.tiles_at(dynamic_shared()),
        B_TILE.tiles_at(dynamic_shared().byte_add(STAGES * A_TILE.tile_distance())),
    );
    let (thread, warp) = (thread_index(), warp_index());
    let (a, b) = (a.at(block_index_y() * TILE * k), b.at(block_index() * TILE));
    let copy = |step: Val<u32>| {
        let (a_tile, b_tile) = (a_tiles.at(step % STAGES), b_tiles.at(step % STAGES));
        a_tile.copy_async::<16>(a.at(step * DEPTH), k, thread, THREADS);
        b_tile.copy_async::<16>(b.at(step * DEPTH * n), n, thread, THREADS);
    };
    for step in 0..STAGES - 1 {
        copy(val(step));
        commit_copies();
    }
    let (row, column) = (warp / 4 * 64, warp % 4 * 32);
    let mut sums = [[FragmentC::zero(); 4]; 4];
    for step in 0..k / DEPTH {
        wait_copies(STAGES - 2);
        barrier();
        if (step + (STAGES - 1)) * DEPTH < k {
            copy(step + (STAGES - 1));
        }
        commit_copies();
        let (a_tile, b_tile) = (a_tiles.at(step % STAGES), b_tiles.at(step % STAGES));
        for p in (0..DEPTH).step_by(16) {
            let left = [0, 16, 32, 48].map(|i| a_tile.fragment_a::<4>((val(p), row + i)));
            for j in [0, 2] {
                let right = b_tile.transposed_fragments_b((column + j as u32 * 8, p));
                for (i, j) in (0..8).map(|i| (i % 4, j + i / 4)) {
                    sums[i][j] = mma(left[i], right[j % 2], sums[i][j]);
                }
            }
        }
    }
    let c = c.at((block_index_y() * TILE + row) * n + block_index() * TILE + column);
    for (i, j, r) in (0..32u32).map(|i| (i / 8, i / 2 % 4, i % 2 * 2)) {
        let FragmentC(values) = sums[i as usize][j as usize];
        let at = (FragmentC::<f32>::row(r) + i * 16) * n + FragmentC::<f32>::column(r) + j * 8;
        c.at(at).cast::<F16x2>().store(pack_rounded(values[r as usize], values[r as usize + 1]));
    }
}
