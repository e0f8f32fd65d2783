//! Softmax of rows with a run-time width.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
const WARPS: u32 = THREADS / WARP;

/// y = exp(x − max(x)) / Σ exp(x − max(x)) of each row; `width` is a multiple of 4. One CTA per row.
#[kernel(threads = THREADS)]
pub fn softmax(#[aligned(16)] x: Ptr<Global, f32>, #[aligned(16)] y: Ptr<Global, f32>, width: Val<u32>) {
    let (x, y) = (x.at(block_index() * width), y.at(block_index() * width));
    let columns = || range(thread_index() * 4, width).step_by(4 * THREADS);
    let mut largest = val(f32::NEG_INFINITY);
    for column in columns() {
        for value in x.at(column).load_vector::<4>() {
            largest = largest.max(value);
        }
    }
    let largest = block_max(largest, shared_array(WARPS), WARPS);
    let mut sum = val(0.0f32);
    for column in columns() {
        for value in x.at(column).load_vector::<4>() {
            sum += (value - largest).exp_approx();
        }
    }
    let scale = 1.0 / block_sum(sum, shared_array(WARPS), WARPS);
    for column in columns() {
        let values = x.at(column).load_vector::<4>();
        y.at(column).store_vector(values.map(|value| (value - largest).exp_approx() * scale));
    }
}
