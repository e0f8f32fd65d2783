//! 2-D convolution with halo.

use std::array::from_fn;

use bespoke_codegen::prelude::*;

/// Threads of a CTA along x and y.
pub const THREADS: (u32, u32) = (32, 8);
/// Rows and columns of the output per CTA.
pub const TILE: u32 = 32;
/// Rows and columns of the filter.
pub const FILTER: usize = 5;
const HALO: u32 = FILTER as u32 / 2;
const PITCH: u32 = TILE + 2 * HALO;
const ROWS: usize = (TILE / THREADS.1) as usize;

/// y[r][c] = Σ filter[i][j] · x[r + i − 2][c + j − 2], with zeros outside of the image. A thread computes four rows.
#[kernel(threads = THREADS)]
pub fn convolution(
    x: Ptr<Global, f32>,
    y: Ptr<Global, f32>,
    width: Val<u32>,
    height: Val<u32>,
    filter: &[[f32; FILTER]; FILTER],
) {
    let tile = shared_array::<f32>(PITCH * PITCH);
    let (left, top) = (block_index() * TILE, block_index_y() * TILE);
    for i in range(thread_index_y() * TILE + thread_index(), PITCH * PITCH).step_by(TILE * THREADS.1) {
        // Below zero the numbers wrap, so one comparison finds both edges.
        let (row, column) = (top + i / PITCH - HALO, left + i % PITCH - HALO);
        let inside = row < height && column < width;
        copy_async_filled::<4>(tile.at(i).cast(), x.at(row * width + column).cast(), select(inside, 4, 0));
    }
    commit_copies();
    wait_copies(0);
    barrier();
    let (column, row) = (thread_index(), thread_index_y() * ROWS as u32);
    let mut sums = [val(0.0f32); ROWS];
    for i in 0..ROWS + FILTER - 1 {
        let pixels: [_; FILTER] = from_fn(|j| tile.at((row + i as u32) * PITCH + column + j as u32).load());
        for (r, sum) in sums.iter_mut().enumerate().filter(|(r, _)| (*r..*r + FILTER).contains(&i)) {
            for j in 0..FILTER {
                *sum = fma(pixels[j], filter[i - r][j], *sum);
            }
        }
    }
    for (r, sum) in (0u32..).zip(sums) {
        let (row, column) = (top + row + r, left + column);
        if row < height && column < width {
            y.at(row * width + column).store(sum);
        }
    }
}
