//! Histogram with a run-time number of bins.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;

/// Adds to `counts` the number of samples in each of `bins` equal parts of the numbers from 0 to 1; samples outside count in
/// the first and the last. `n` is a multiple of 4. Each CTA counts in dynamic shared memory of `bins` words.
#[kernel(threads = THREADS)]
pub fn histogram(#[aligned(16)] x: Ptr<Global, f32>, counts: Ptr<Global, u32>, n: Val<u32>, bins: Val<u32>) {
    let own = dynamic_shared::<u32>();
    for bin in range(thread_index(), bins).step_by(THREADS) {
        own.at(bin).store(0);
    }
    barrier();
    let first = (block_index() * THREADS + thread_index()) * 4;
    for at in range(first, n).step_by(grid_size() * (THREADS * 4)) {
        for sample in x.at(at).load_vector::<4>() {
            let bin = (sample * bins.cast::<f32>()).cast::<u32>().min(bins - 1);
            own.at(bin).atomic_add(1, Scope::Cta);
        }
    }
    barrier();
    for bin in range(thread_index(), bins).step_by(THREADS) {
        counts.at(bin).atomic_add(own.at(bin).load(), Scope::Gpu);
    }
}
