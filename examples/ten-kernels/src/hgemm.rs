//! Product of f16 matrices on tensor cores by `mma`.

use std::array::from_fn;

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
/// Rows and columns of C per CTA.
pub const TILE: u32 = 128;
/// Columns of A and rows of B per stage.
pub const DEPTH: u32 = 32;
const STAGES: u32 = 4;
/// Bytes between rows in shared memory; eight consecutive rows are in different banks.
const PITCHES: [u32; 2] = [DEPTH * 2 + 16, TILE * 2 + 16];
const A_BYTES: u32 = TILE * PITCHES[0];
const STAGE_BYTES: u32 = A_BYTES + DEPTH * PITCHES[1];
/// Dynamic shared memory of a CTA in bytes.
pub const SHARED: u32 = STAGES * STAGE_BYTES;

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
    let (shared, thread, warp) = (dynamic_shared::<u8>(), thread_index(), warp_index());
    let (a, b) = (a.at(block_index_y() * TILE * k), b.at(block_index() * TILE));
    let copy = |step: Val<u32>| {
        let stage = shared.bytes(step % STAGES * STAGE_BYTES);
        for piece in [thread, thread + THREADS] {
            let (row, at) = (piece / 4, piece % 4 * 8);
            let from = a.at(row * k + step * DEPTH + at);
            copy_async::<16>(stage.bytes(row * PITCHES[0] + at * 2), from.cast());
            let (row, at) = (piece / 16, piece % 16 * 8);
            let from = b.at((step * DEPTH + row) * n + at);
            copy_async::<16>(stage.bytes(A_BYTES + row * PITCHES[1] + at * 2), from.cast());
        }
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
        let stage = shared.bytes(step % STAGES * STAGE_BYTES);
        for p in (0..DEPTH).step_by(16) {
            let a_tile = stage.bytes(row * PITCHES[0] + p * 2).cast::<f16>();
            let b_tile = stage.bytes(A_BYTES + p * PITCHES[1] + column * 2).cast::<f16>();
            let left: [FragmentA<f16, 4>; 4] =
                from_fn(|i| FragmentA::load(a_tile.bytes(i as u32 * 16 * PITCHES[0]), PITCHES[0]));
            for j in [0, 2] {
                let right = FragmentB::load_transposed_pair(b_tile.at(j * 8), PITCHES[1]);
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
