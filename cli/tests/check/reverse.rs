//! The kernel of reverse.ptx, as its author wrote it: before the last line a barrier is missing.

fn reverse(x: &[f32; 64], y: &mut [f32; 64], tile: &mut Shared<[f32; 64]>, thread: usize) {
    tile.clear(thread);
    tile[thread] = x[thread];
    y[thread] = tile[63 - thread];
}
