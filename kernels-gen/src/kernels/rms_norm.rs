//! y = x / rms(x) · w, for one row or for each head.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// The norm's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNormShape {
    /// Rows, each normalised by itself with the same weights: one CTA a row.
    pub rows: u32,
    /// Elements a row.
    pub cols: u32,
    /// ε under the root.
    pub eps: f32,
    /// Threads a CTA: a multiple of 32.
    pub threads: u32,
}

/// y[r, i] = x[r, i] · w[i] / √(Σ_j x[r, j]² / cols + ε).
///
/// `x` and `y` f32 [rows, cols] (may be the same), `w` f32 [cols]. The sum is in f32 in a fixed order; the root is
/// `rsqrt.approx`.
#[kernel(threads = s.threads)]
pub fn rms_norm(x: Ptr<Global, f32>, w: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &RmsNormShape) {
    let scratch = shared_array::<f32>(s.threads / WARP);
    let start = block_index() * s.cols;
    let passes = s.cols.div_ceil(s.threads);
    let mut values = Vec::new();
    let mut sum = val(0.0f32);
    for pass in 0..passes {
        let i = thread_index() + pass * s.threads;
        let value = if i < s.cols { x.at(start + i).load() } else { val(0.0f32) };
        sum = fma(value, value, sum);
        values.push(value);
    }
    let mean = block_sum(sum, scratch, s.threads / WARP) * (1.0 / s.cols as f32);
    let scale = (mean + s.eps).rsqrt();
    for (pass, value) in values.into_iter().enumerate() {
        let i = thread_index() + pass as u32 * s.threads;
        if i < s.cols {
            y.at(start + i).store(value * scale * w.at(i).load());
        }
    }
}
