//! Kernels whose signatures cover the cases of launch stubs.

use bespoke_codegen::prelude::*;

/// A kernel whose stub uses every feature: pointers, and adjacent scalars of different sizes.
#[kernel(threads = 64)]
pub fn blend(
    x: Ptr<Global, f32>,
    y: Ptr<Global, i8>,
    flip: Val<bool>,
    scale: Val<f16>,
    pair: Val<F16x2>,
    n: Val<u32>,
) {
    let i = block_index() * 64 + thread_index();
    if i < n {
        let [low, high] = pair.unpack();
        let value = x.at(i).load() * select(flip, low, high).cast::<f32>() + scale.cast::<f32>();
        y.at(i).store(value.cast_rounded::<i8>(Rounding::Nearest));
    }
}

/// y[0] = x[0] + a + b + c, with parameter names that the stub itself also uses.
#[kernel]
pub fn names(
    launcher: Ptr<Global, u64>,
    #[aligned(16)] params: Ptr<Global, u64>,
    grid: Val<u64>,
    grid_: Val<u64>,
    config: Val<u64>,
) {
    params.store(launcher.load() + grid + grid_ + config);
}

/// A kernel without parameters, with dynamic shared memory.
#[kernel(threads = 32)]
pub fn nothing() {
    let scratch = dynamic_shared::<u32>();
    scratch.at(thread_index()).store(lane());
}

/// A kernel whose body requires sm_90.
#[kernel(threads = 32)]
pub fn early() {
    launch_dependents();
}
