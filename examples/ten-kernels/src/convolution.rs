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
const X_TILE: TileShape<f32, 2> = TileShape::new([TILE + 2 * HALO; 2]);
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
    let tile = X_TILE.shared_tile();
    let (left, top) = (block_index() * TILE, block_index_y() * TILE);
    let thread = thread_index_y() * TILE + thread_index();
    tile.copy_async_filled::<4>(
        x,
        width,
        (left - HALO, top - HALO),
        (width, height),
        thread,
        TILE * THREADS.1,
    );
    commit_copies();
    wait_copies(0);
    barrier();
    let (column, row) = (thread_index(), thread_index_y() * ROWS as u32);
    let mut sums = [val(0.0f32); ROWS];
    for i in 0..ROWS + FILTER - 1 {
        let pixels: [_; FILTER] = from_fn(|j| tile.at((column + j as u32, row + i as u32)).load());
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
