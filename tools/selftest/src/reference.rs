//! The kernels' formulas in double precision.

use bespoke_kernels::kernels::attention::{AttentionShape, NormSpan};
use bespoke_kernels::kernels::gemv::Activation;
use bespoke_kernels::kernels::rope::RopeKind;
use rayon::prelude::*;

use super::inputs::Matrix;

/// `y[i] = x[i]·w[i] / √(Σ x[j]²/n + ε)`.
pub(super) fn rms_norm(x: &[f32], w: &[f32], eps: f32) -> Vec<f64> {
    let energy: f64 = x.iter().map(|&value| f64::from(value).powi(2)).sum();
    let scale = 1.0 / (energy / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)).collect()
}

/// Applies the QK norm of the shape to all heads of the queries, or of the keys; without one, converts `x` unchanged.
pub(super) fn qk_norm(x: &[f32], w: &[f32], s: &AttentionShape) -> Vec<f64> {
    let Some(norm) = s.qk_norm else {
        return x.iter().map(|&value| f64::from(value)).collect();
    };
    let span = match norm.span {
        NormSpan::Head => s.head_dim as usize,
        NormSpan::Projection => x.len(),
    };
    x.chunks_exact(span).flat_map(|x| rms_norm(x, w, norm.eps)).collect()
}

/// Outputs of a matrix-vector product for selected rows.
pub(super) struct Products {
    /// Indices of the rows, in order.
    pub rows: Vec<usize>,
    /// `Σ_c W[r, c]·x[c]`.
    pub values: Vec<f64>,
    /// `Σ_c (W[r, c]·x[c])²`: the size that a sum of such terms has when their signs are random.
    pub energies: Vec<f64>,
}

/// Number of rows that are computed of a large matrix.
const SAMPLED_ROWS: usize = 512;
/// Number of weights up to which all rows are computed.
const ALL_ROWS_UP_TO: usize = 1 << 24;

/// W·x for all rows, or for some rows of a large matrix, including the first and the last.
pub(super) fn products(matrix: &Matrix, x: &[f64]) -> Products {
    if matrix.rows() <= SAMPLED_ROWS || matrix.rows() * matrix.cols() <= ALL_ROWS_UP_TO {
        return products_of_all_rows(matrix, x);
    }
    let rows = (0..SAMPLED_ROWS).map(|i| i * (matrix.rows() - 1) / (SAMPLED_ROWS - 1));
    products_of(matrix, rows.collect(), x)
}

/// W·x for all rows.
pub(super) fn products_of_all_rows(matrix: &Matrix, x: &[f64]) -> Products {
    products_of(matrix, (0..matrix.rows()).collect(), x)
}

fn products_of(matrix: &Matrix, rows: Vec<usize>, x: &[f64]) -> Products {
    let (values, energies) = rows
        .par_iter()
        .map(|&row| {
            matrix.row(row).iter().zip(x).fold((0.0, 0.0), |(sum, energy), (&w, &x)| {
                let product = f64::from(w) * x;
                (sum + product, energy + product * product)
            })
        })
        .unzip();
    Products { rows, values, energies }
}

/// The activation f(x) of a gated layer.
pub(super) fn activation(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
    }
}

/// Parameters of RoPE: base, factors and position.
pub(super) struct Rotation<'a> {
    /// The base frequency.
    pub base: f64,
    /// Divisors of the frequencies, or none.
    pub factors: &'a [f32],
    /// Position of the token.
    pub position: u32,
}

/// (a, b) ← m·(a·cos θ − b·sin θ, a·sin θ + b·cos θ), `θ = position·base^(−2i/rotated)/factors[i]`, for the magnitude
/// m; without RoPE, returns `x`.
pub(super) fn rope(x: &[f64], s: &AttentionShape, rotation: &Rotation) -> Vec<f64> {
    let mut out = x.to_vec();
    let Some(rope) = s.rope else { return out };
    let half = (rope.rotated / 2) as usize;
    for head in out.chunks_exact_mut(s.head_dim as usize) {
        for i in 0..half {
            let factor = rotation.factors.get(i).map_or(1.0, |&factor| f64::from(factor));
            let frequency = rotation.base.powf(-2.0 * i as f64 / f64::from(rope.rotated)) / factor;
            let (sin, cos) = (f64::from(rotation.position) * frequency).sin_cos();
            let [sin, cos] = [sin, cos].map(|value| value * f64::from(rope.magnitude));
            let (first, second) = match rope.kind {
                RopeKind::Norm => (2 * i, 2 * i + 1),
                RopeKind::Neox => (i, i + half),
            };
            let (a, b) = (head[first], head[second]);
            head[first] = a * cos - b * sin;
            head[second] = a * sin + b * cos;
        }
    }
    out
}

/// Query, and the keys and values to which the query attends.
pub(super) struct Context {
    /// Query, [heads, head_dim].
    pub q: Vec<f64>,
    /// Number of positions before the first of `keys` and `values`; they are outside of the window.
    pub skipped: usize,
    /// Keys as in the cache, [positions, kv_heads, head_dim].
    pub keys: Vec<f64>,
    /// Values as in the cache, [positions, kv_heads, head_dim].
    pub values: Vec<f64>,
    /// Number of positions, with the skipped ones.
    pub length: usize,
}

/// softmax(c·tanh(q·Kᵀ·scale/c))·V of one head, over the positions of the window; without a bound c,
/// softmax(q·Kᵀ·scale)·V.
pub(super) fn attend(s: &AttentionShape, context: &Context, head: usize) -> Vec<f64> {
    let dim = s.head_dim as usize;
    let kv_head = head / s.group() as usize;
    let row = |position: usize| ((position - context.skipped) * s.kv_heads as usize + kv_head) * dim..;
    let q = &context.q[head * dim..][..dim];
    let score = |position: usize| {
        let key = &context.keys[row(position)][..dim];
        let score = q.iter().zip(key).map(|(&q, k)| q * k).sum::<f64>() * f64::from(s.scale);
        s.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
    };
    let start = s.window.map_or(0, |window| context.length.saturating_sub(window as usize));
    let scores: Vec<f64> = (start..context.length).map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut numerator, mut denominator) = (vec![0.0; dim], 0.0);
    for (position, score) in (start..).zip(scores) {
        let weight = (score - largest).exp();
        denominator += weight;
        for (sum, value) in numerator.iter_mut().zip(&context.values[row(position)][..dim]) {
            *sum += weight * value;
        }
    }
    numerator.into_iter().map(|sum| sum / denominator).collect()
}
