//! Whole kernels as an author would write them, compared with the host. `examples/ten-kernels` has more.
//!
//! Registers and SASS instructions without NOP for sm_90, beside nvcc 13 (-O3) for the same steps in CUDA:
//!
//! | kernel | registers | nvcc | instructions | nvcc |
//! | --- | ---: | ---: | ---: | ---: |
//! | `matmul` (naive) | 30 | 32 | 73 | 85 |
//! | `batched_lu::<4>` | 54 | 52 | 300 | 290 |
//! | `batched_lu::<6>` | 96 | 96 | 753 | 736 |

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

mod lu;
mod matmul;
mod tile;
mod warpgroup;

/// Numbers that look random, the same in every run.
fn numbers(count: usize) -> impl Iterator<Item = u32> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(12_345u32), next).skip(1).map(|state| state >> 8).take(count)
}
