//! The kernel, which the build script records, and its shape, which the program uses, too.

use std::array;

use bespoke_codegen::prelude::*;

/// Compile-time parameters of the kernel.
pub struct RowShape {
    /// Elements per row: a multiple of 4 · `threads`.
    pub cols: u32,
    /// Threads that share a row: a multiple of 32.
    pub threads: u32,
}

/// The width of a small model.
pub const SHAPE: RowShape = RowShape { cols: 2048, threads: 128 };

/// The end of a transformer's layer in one launch, one CTA per row of `cols` elements: hidden += update; then
/// y = weight · hidden / √(mean(hidden²) + epsilon), rounded to bytes: y ≈ scales[row] · quants.
#[kernel(threads = s.threads)]
pub fn add_norm_quantize(
    hidden: Ptr<Global, f32>,
    update: Ptr<Global, f32>,
    weight: Ptr<Global, f32>,
    quants: Ptr<Global, i8>,
    scales: Ptr<Global, f32>,
    epsilon: Val<f32>,
    s: &RowShape,
) {
    let warps = s.threads / WARP;
    let first = thread_index() * 4;
    let at = block_index() * s.cols + first;
    let (hidden, update) = (hidden.at(at), update.at(at));
    // Loops over Rust ranges unroll, so the row stays in registers: at each step four elements per thread.
    let columns = (0..s.cols).step_by(4 * s.threads as usize);
    let mut values: Vec<[Val<f32>; 4]> = Vec::new();
    let mut squares = val(0.0f32);
    for column in columns.clone() {
        let old = hidden.at(column).load_vector::<4>();
        let add = update.at(column).load_vector::<4>();
        let new = array::from_fn(|i| old[i] + add[i]);
        hidden.at(column).store_vector(new);
        for value in new {
            squares = fma(value, value, squares);
        }
        values.push(new);
    }
    let mean = block_sum(squares, shared_array(warps), warps) * (1.0 / s.cols as f32);
    let factor = (mean + epsilon).rsqrt_approx();

    let mut largest = val(0.0f32);
    for (four, column) in values.iter_mut().zip(columns.clone()) {
        let weights = weight.at(first).at(column).load_vector::<4>();
        for (value, weight) in four.iter_mut().zip(weights) {
            *value = *value * factor * weight;
            largest = largest.max(value.abs());
        }
    }
    let largest = block_max(largest, shared_array(warps), warps);
    // A row of zeros has scale 0 and quants 0.
    let inverse = select(largest > 0.0, 127.0 / largest, 0.0);
    for (four, column) in values.iter().zip(columns) {
        let bytes = four.map(|value| (value * inverse).cast_rounded::<i8>(Rounding::Nearest));
        quants.at(at).at(column).store_vector(bytes);
    }
    if thread_index() == 0 {
        scales.at(block_index()).store(largest * (1.0 / 127.0));
    }
}
