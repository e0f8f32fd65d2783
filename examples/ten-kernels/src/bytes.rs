//! Histogram of the bytes of a text, as a tokenizer's first step counts them.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
const WARPS: u32 = THREADS / WARP;

/// Adds the number of each byte value in `text` to `counts`. `length` is a multiple of 16. Each warp counts in its own 256
/// words of shared memory, because many letters of a text are equal; a thread reads 16 bytes at a time.
#[kernel(threads = THREADS)]
pub fn bytes(#[aligned(16)] text: Ptr<Global, u8>, counts: Ptr<Global, u32>, length: Val<u32>) {
    let all = shared_array::<u32>(256 * WARPS);
    let own = all.at(warp_index() * 256);
    for warp in 0..WARPS {
        all.at(thread_index() + warp * 256).store(0);
    }
    barrier();
    let first = (block_index() * THREADS + thread_index()) * 16;
    for at in range(first, length).step_by(grid_size() * (THREADS * 16)) {
        for byte in text.at(at).load_vector::<16>() {
            own.at(byte.cast::<u32>()).atomic_add(1, Scope::Cta);
        }
    }
    barrier();
    let mut count = val(0u32);
    for warp in 0..WARPS {
        count += all.at(thread_index() + warp * 256).load();
    }
    counts.at(thread_index()).atomic_add(count, Scope::Gpu);
}
