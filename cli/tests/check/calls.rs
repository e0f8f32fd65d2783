//! The kernel of calls.ptx, as its author wrote it: `share` and `put` are inlined twice, and between the two calls a
//! barrier is missing.

fn put(word: &mut f32, value: f32) {
    *word = value;
}

fn share(tile: &mut Shared<[f32; 64]>, at: usize, value: f32) {
    put(&mut tile[at], value);
}

fn exchange(x: &[f32; 64], tile: &mut Shared<[f32; 64]>, thread: usize) {
    share(tile, thread, x[thread]);
    share(tile, 63 - thread, 1.0);
}
