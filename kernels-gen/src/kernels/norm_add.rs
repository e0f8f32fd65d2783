//! Normalisation after a block, added to the residual stream: y += scale · RMSNorm(x).

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// Compile-time parameters of [`norm_add`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormAddShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Number of columns: the width of the residual stream.
    pub cols: u32,
    /// ε, which is added to the mean square.
    pub eps: f32,
    /// Factor of the normalised vector; normally 1.
    pub scale: f32,
    /// Threads per CTA: a multiple of 32, at most 1024.
    pub threads: u32,
    /// Whether rows that do not exist are left out: in prefill steps, which do not write x for them.
    pub only_existing: bool,
}

/// Largest number of threads that [`NormAddShape::new`] chooses. Up to a width of 8192, a thread holds at most 48
/// values.
const MAX_THREADS: u32 = 512;

impl NormAddShape {
    /// Shape for a step of `tokens` rows of a width: a thread per four columns, but at most 512 threads.
    pub fn new(tokens: u32, cols: u32, eps: f32, scale: f32) -> NormAddShape {
        let threads = cols.div_ceil(4).next_multiple_of(WARP).min(MAX_THREADS);
        NormAddShape { tokens, cols, eps, scale, threads, only_existing: false }
    }

    /// Columns per load: 4, or 1 if rows are not whole vectors.
    fn vector(&self) -> u32 {
        if self.cols.is_multiple_of(4) { 4 } else { 1 }
    }

    /// Loads per thread and buffer, rounded up.
    fn passes(&self) -> u32 {
        self.cols.div_ceil(self.vector() * self.threads)
    }
}

/// y[i] += scale · w[i] · x[i] / √(mean(x²) + ε), for each row of x and y.
///
/// `x` and `y` are f32 [rows of the step, cols], `w` f32 [cols], aligned to 16 bytes; `x` and `y` are different buffers;
/// `state`, if rows that do not exist are left out: the rows' records. A CTA has a row; a thread has the columns of every
/// `threads`-th vector. It loads all its values before the barrier, so that the latencies overlap. The sum of squares has a
/// fixed order: columns of a thread, lanes of a warp, warps.
#[kernel(threads = s.threads)]
pub fn norm_add(
    x: Ptr<Global, f32>,
    w: Ptr<Global, f32>,
    y: Ptr<Global, f32>,
    #[present(s.only_existing)] state: Option<Ptr<Global, u32>>,
    s: &NormAddShape,
) {
    if let Some(state) = state {
        if state::exists(state, block_index()) {
            add_row(x, w, y, s);
        }
    } else {
        add_row(x, w, y, s);
    }
}

/// Adds the normalised row of this CTA.
#[device]
fn add_row(x: Ptr<Global, f32>, w: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &NormAddShape) {
    let warps = s.threads / WARP;
    let row = |all: Ptr<Global, f32>| if s.tokens == 1 { all } else { all.at(block_index() * s.cols) };
    let (x, y) = (row(x), row(y));
    let scratch = shared_array::<f32>(warps);
    let (values, weights, before) = (load(x, s), load(w, s), load(y, s));
    let mut squares = val(0.0f32);
    for &value in values.iter().flatten() {
        squares = fma(value, value, squares);
    }
    let mean = block_sum(squares, scratch, warps) * (1.0 / s.cols as f32);
    let mut factor = (mean + s.eps).rsqrt_approx();
    if s.scale != 1.0 {
        factor *= s.scale;
    }
    for pass in 0..s.passes() {
        let at = column(pass, s);
        let mut sums = Vec::new();
        for i in 0..s.vector() as usize {
            let normed = values[pass as usize][i] * factor;
            sums.push(fma(normed, weights[pass as usize][i], before[pass as usize][i]));
        }
        if at < s.cols {
            if s.vector() == 4 {
                y.at(at).store_vector([sums[0], sums[1], sums[2], sums[3]]);
            } else {
                y.at(at).store(sums[0]);
            }
        }
    }
}

/// This thread's values of a vector of `cols` elements, per pass; zeros past the end.
#[device]
fn load(from: Ptr<Global, f32>, s: &NormAddShape) -> Vec<Vec<Val<f32>>> {
    let mut loaded = Vec::new();
    for pass in 0..s.passes() {
        let mut values = vec![val(0.0f32); s.vector() as usize];
        let at = column(pass, s);
        if at < s.cols {
            if s.vector() == 4 {
                values = from.at(at).load_vector::<4>().to_vec();
            } else {
                values[0] = from.at(at).load();
            }
        }
        loaded.push(values);
    }
    loaded
}

/// First column of this thread's vector of a pass.
fn column(pass: u32, s: &NormAddShape) -> Val<u32> {
    (thread_index() + pass * s.threads) * s.vector()
}
