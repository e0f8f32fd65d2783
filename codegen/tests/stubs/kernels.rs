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

/// Doubles a tile of a matrix.
#[kernel(threads = 64)]
pub fn doubled(factor: Val<f32>, #[tile([8, 8])] x: TensorMap<f32, 2, Swizzle32>) {
    let (tile, done) = (x.shared_tile(), mbarrier_array(1).at(0));
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(tile.size());
        x.load(tile, (0, 0), done, None);
    }
    barrier();
    done.wait(0, Wait::Try);
    let element = tile.at((thread_index() % 8, thread_index() / 8));
    element.store(element.load() * factor);
    fence_async_shared();
    barrier();
    if thread_index() == 0 {
        x.store((0, 0), tile, None);
        commit_bulk_stores();
        wait_bulk_stores_read(0);
    }
}

/// A kernel whose body requires sm_90.
#[kernel(threads = 32)]
pub fn early() {
    launch_dependents();
}

/// A matrix in global memory.
#[derive(Clone, Copy, Parameters)]
pub struct Matrix {
    #[aligned(16)]
    data: Ptr<Global, f32>,
    size: [Val<u32>; 2],
    transposed: Val<bool>,
}

/// y = the element of x in a row and a column.
#[kernel(threads = 1)]
pub fn picked(#[parameters] x: Matrix, row: Val<u32>, column: Val<u32>, y: Ptr<Global, f32>) {
    let index = select(x.transposed, column * x.size[0] + row, row * x.size[1] + column);
    y.store(x.data.at(index).load());
}

/// x[i] *= factor for i < 2.
#[kernel(threads = 1)]
pub fn scaled(x: Ptr<Global, f32>, factor: Val<f32>) {
    let x = x.at(block_index());
    x.store(x.load() * factor);
}

/// y[i] += x[i % 2] for i < 4.
#[kernel(threads = 1)]
pub fn added(x: Ptr<Global, f32>, y: Ptr<Global, f32>) {
    let y = y.at(block_index());
    y.store(y.load() + x.at(block_index() % 2).load());
}
