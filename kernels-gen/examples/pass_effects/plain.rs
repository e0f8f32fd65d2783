//! Kernels written without optimisation in mind: one element at a time, with 64-bit indices.

use bespoke_codegen::prelude::*;

/// The kernels of this file, recorded.
pub fn kernels() -> Result<Vec<Kernel>, RecordError> {
    [norm(2048), rotate(24, 96), append(8, 128), softmax(), rows_of_16()].into_iter().collect()
}

/// y = weight · x / √(mean(x²) + 1e-5): one CTA per row of `cols` elements, four adjacent elements per thread at a
/// time.
#[kernel(threads = 128)]
fn norm(
    #[aligned(16)] x: Ptr<Global, f32>,
    #[aligned(16)] weight: Ptr<Global, f32>,
    #[aligned(16)] y: Ptr<Global, f32>,
    cols: u32,
) {
    let first = thread_index() * 4;
    let row = block_index() * cols + first;
    let mut squares = val(0.0f32);
    for column in (0..cols).step_by(512) {
        for i in 0..4 {
            let value = x.at(row).at(column + i).load_cached(Cache::ReadOnly);
            squares = fma(value, value, squares);
        }
    }
    let mean = block_sum(squares, shared_array(4), 4) * (1.0 / cols as f32);
    let factor = (mean + 1e-5).rsqrt_approx();
    for column in (0..cols).step_by(512) {
        for i in 0..4 {
            let value = x.at(row).at(column + i).load_cached(Cache::ReadOnly);
            y.at(row)
                .at(column + i)
                .store(value * factor * weight.at(first).at(column + i).load_cached(Cache::ReadOnly));
        }
    }
}

/// RoPE of all heads at all positions, of `pairs` pairs of elements: one thread per pair, with 64-bit indices.
#[kernel(threads = 256)]
fn rotate(
    #[aligned(8)] x: Ptr<Global, f32>,
    #[aligned(8)] table: Ptr<Global, f32>,
    pairs: Val<u32>,
    heads: u64,
    head_size: u64,
) {
    let pair = block_index().cast::<u64>() * 256 + thread_index().cast::<u64>();
    if pair < pairs.cast::<u64>() {
        let half = head_size / 2;
        let (vector, column) = (pair / half, pair % half);
        let position = vector / heads;
        let angle = table.at((position * half + column) * 2);
        let (cos, sin) = (angle.load_cached(Cache::ReadOnly), angle.at(1).load_cached(Cache::ReadOnly));
        let (a, b) = (x.at(pair * 2), x.at(pair * 2).at(1));
        let (old_a, old_b) = (a.load(), b.load());
        a.store(old_a * cos - old_b * sin);
        b.store(old_a * sin + old_b * cos);
    }
}

/// Appends keys and values of a position to an f16 cache, four adjacent elements per thread.
#[kernel(threads = heads * head_size / 4)]
fn append(
    #[aligned(16)] key: Ptr<Global, f32>,
    #[aligned(16)] value: Ptr<Global, f32>,
    #[aligned(16)] keys: Ptr<Global, f16>,
    #[aligned(16)] values: Ptr<Global, f16>,
    position: Ptr<Global, u32>,
    capacity: Val<u32>,
    heads: u32,
    head_size: u32,
) {
    let position = position.load();
    if position < capacity {
        let element = (thread_index() * 4).cast::<u64>();
        let (head, column) = (element / u64::from(head_size), element % u64::from(head_size));
        let place = (head * capacity.cast::<u64>() + position.cast::<u64>()) * u64::from(head_size) + column;
        for i in 0..4 {
            keys.at(place).at(i).store(key.at(element).at(i).load_cached(Cache::ReadOnly).cast::<f16>());
            values.at(place).at(i).store(value.at(element).at(i).load_cached(Cache::ReadOnly).cast::<f16>());
        }
    }
}

/// Softmax of rows of `cols` elements: one CTA per row, which loops over the elements at run time.
#[kernel(threads = 128)]
fn softmax(#[aligned(16)] x: Ptr<Global, f32>, cols: Val<u32>) {
    let row = x.at(block_index().cast::<u64>() * cols.cast::<u64>());
    let mut largest = val(f32::NEG_INFINITY);
    for i in range(thread_index(), cols).step_by(128) {
        largest = largest.max(row.at(i).load());
    }
    let largest = block_max(largest, shared_array(4), 4);
    let mut sum = val(0.0f32);
    for i in range(thread_index(), cols).step_by(128) {
        let weight = ((row.at(i).load() - largest) * std::f32::consts::LOG2_E).exp2_approx();
        row.at(i).store(weight);
        sum += weight;
    }
    let inverse = 1.0 / block_sum(sum, shared_array(4), 4);
    for i in range(thread_index(), cols).step_by(128) {
        row.at(i).store(row.at(i).load() * inverse);
    }
}

/// y = W · x for rows of 16 elements: one row per thread, in a loop with a constant trip count.
#[kernel(threads = 128)]
fn rows_of_16(#[aligned(16)] w: Ptr<Global, f32>, #[aligned(16)] x: Ptr<Global, f32>, y: Ptr<Global, f32>) {
    let row = block_index() * 128 + thread_index();
    let mut sum = val(0.0f32);
    for i in range(val(0u32), val(16)) {
        sum = fma(w.at(row * 16 + i).load(), x.at(i).load(), sum);
    }
    y.at(row).store(sum);
}
