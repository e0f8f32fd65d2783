//! Dot product, generic over the element.

use bespoke_codegen::prelude::*;

/// Threads of a CTA.
pub const THREADS: u32 = 256;
const WARPS: u32 = THREADS / WARP;

/// Each CTA's part of Σ xᵢ · yᵢ, in a fixed order. `N` elements have 16 bytes; `length` is a multiple of `N`.
#[kernel(threads = THREADS)]
pub fn dot<T: Word + Number + Default, const N: usize>(
    #[aligned(16)] x: Ptr<Global, T>,
    #[aligned(16)] y: Ptr<Global, T>,
    parts: Ptr<Global, T>,
    length: Val<u32>,
) {
    let mut sum = val(T::default());
    let first = (block_index() * THREADS + thread_index()) * N as u32;
    // Full occupancy hides the latency; more loads in flight need more registers.
    for at in range(first, length).step_by(grid_size() * (THREADS * N as u32)).unroll(1) {
        let (x, y) = (x.at(at).load_vector::<N>(), y.at(at).load_vector::<N>());
        for (x, y) in x.into_iter().zip(y) {
            sum = mul_add(x, y, sum);
        }
    }
    let sum = block_sum(sum, shared_array(WARPS), WARPS);
    if thread_index() == 0 {
        parts.at(block_index()).store(sum);
    }
}
