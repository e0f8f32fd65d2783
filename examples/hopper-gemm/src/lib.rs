//! C = A·Bᵀ of f16 matrices with f32 sums, in four steps from one thread for each element to most of the speed of Hopper's tensor
//! cores.
//!
//! - [`naive()`]: one thread for each element.
//! - [`tiled()`]: a warpgroup for each tile of C, whose tiles of A and B are loaded through tensor maps.
//! - [`specialised()`]: three warpgroups. One thread of the first is the producer: it loads tiles of A and B into a ring of
//!   stages in shared memory. The two others are consumers: each multiplies 64 rows of the tile of C by `wgmma`, with both
//!   operands in shared memory. Two mbarriers for each stage hand it over: `full` counts the bytes that the loads have
//!   written, `empty` the warps whose products have read them. The producer's warpgroup gives its registers to the
//!   consumers, which hold the sums.
//! - [`scheduled()`]: as before, but a CTA stays on its multiprocessor and computes several tiles; its stores run while it
//!   multiplies the next tile. The CTAs of a cluster can share tiles of B.
//!
//! The book of `bespoke_codegen` explains the steps in the chapter "A matrix product for Hopper". `cargo run --release -p
//! hopper-gemm` measures them on a GPU.

mod naive;
mod scheduled;
mod specialised;
mod tiled;

use bespoke_codegen::prelude::*;

pub use naive::{THREADS as NAIVE_THREADS, naive};
pub use scheduled::{Schedule, scheduled};
pub use specialised::{span, specialised};
pub use tiled::{TILE, tiled};

/// Threads of a CTA of [`specialised()`] and [`scheduled()`]: a warpgroup of the producer and two of consumers.
pub const THREADS: u32 = 384;
/// Rows of C per CTA, 64 for each consumer.
pub const ROWS: u32 = 128;
/// Elements along K per stage.
pub const DEPTH: u32 = 64;
/// Columns and rows of a tile of C that a warp stores.
pub const C_TILE: [u32; 2] = [64, 16];

/// Compile-time parameters of [`specialised()`] and [`scheduled()`].
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Columns of C per CTA: 64, 128, 192 or 256.
    pub columns: u32,
    /// Stages of the ring, at least 2.
    pub stages: u32,
}

impl Shape {
    /// Dynamic shared memory of a CTA in bytes: the ring, and the tile of C.
    pub fn dynamic_shared(self) -> u32 {
        2 * (self.stages * (ROWS + self.columns) * DEPTH + ROWS * self.columns)
    }
}

/// Starts storing the sums of a consumer's warp number `warp`, of 8: 16 rows, 64 columns at a time, through its part of
/// `tiles` in shared memory. `first` is the first column and row of C of the CTA. Lane 0 waits for the stores.
#[device]
fn store_tile(
    c: TensorMap<f16, 2, Swizzle128>,
    tiles: SharedTiles<f16, 2, Swizzle128>,
    sums: WarpgroupSums<f32>,
    warp: Val<u32>,
    first: (Val<u32>, Val<u32>),
) {
    let parts = 8 * sums.fragments().len() as u32 / C_TILE[0];
    for (i, FragmentC(values)) in (0u32..).zip(sums.fragments()) {
        let tile = tiles.at(warp * parts + i / 8);
        for pair in [0, 2u32] {
            let column = FragmentC::<f32>::column(pair) + i % 8 * 8;
            let [low, high] = [values[pair as usize], values[pair as usize + 1]];
            let place = tile.at((column, FragmentC::<f32>::row(pair)));
            place.cast::<F16x2>().store(pack_rounded(low, high));
        }
    }
    fence_async_shared();
    warp_barrier(u32::MAX);
    if lane() == 0 {
        for part in 0..parts {
            let to = (first.0 + part * C_TILE[0], first.1 + warp * C_TILE[1]);
            c.store(to, tiles.at(warp * parts + part), None);
        }
        commit_bulk_stores();
    }
}
