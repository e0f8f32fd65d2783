//! One thread for each element of C.

use bespoke_codegen::prelude::*;

/// Threads of a CTA along x, the columns of C, and y, its rows.
pub const THREADS: [u32; 2] = [32, 8];

/// C = A·Bᵀ. The numbers of rows of A and B are multiples of [`THREADS`]; the grid has a CTA for each of their tiles.
#[kernel(threads = (THREADS[0], THREADS[1]))]
pub fn naive(a: Ptr<Global, f16>, b: Ptr<Global, f16>, c: Ptr<Global, f16>, n: Val<u32>, k: Val<u32>) {
    let column = block_index() * THREADS[0] + thread_index();
    let row = block_index_y() * THREADS[1] + thread_index_y();
    let mut sum = val(0.0f32);
    for p in 0..k {
        let [left, right] = [a.at(row * k + p), b.at(column * k + p)];
        sum = fma(left.load().cast::<f32>(), right.load().cast::<f32>(), sum);
    }
    c.at(row * n + column).store(sum.cast_rounded(Rounding::Nearest));
}
