//! Scale and bound of the scores.
//!
//! The kernel's scores are base-2 logarithms of softmax weights: log₂e times the natural score. Constant factors are
//! multiplied into the query, so that without a bound the product of query and key is the score.

use std::f32::consts::LOG2_E;

use bespoke_codegen::prelude::*;

use super::shape::AttentionShape;

/// Factor of the query: `scale` · log₂e; with a bound 2 · `scale` · log₂e / `softcap`, see [`of_product`].
pub(super) fn query_factor(s: &AttentionShape) -> f32 {
    match s.softcap {
        None => s.scale * LOG2_E,
        Some(cap) => s.scale * LOG2_E * 2.0 / cap,
    }
}

/// Largest product whose power of two is computed. From 2^25 on, tanh rounds to 1.
const LARGEST: f32 = 64.0;

/// The score of a query (multiplied by [`query_factor`]) and a key, from their product p.
///
/// With a bound c the score is c · log₂e · tanh(x / c), where x is the natural score and p = 2 · log₂e · x / c. It is
/// computed as tanh(x / c) = 1 − 2 / (2^p + 1). `ex2.approx` and `rcp.approx` have relative errors of at most 2^-22 and
/// 2^-23 (PTX ISA), so tanh has an absolute error of about 2^-22, and a natural score one of c · 2^-22.
pub(super) fn of_product(product: Val<f32>, s: &AttentionShape) -> Val<f32> {
    match s.softcap {
        None => product,
        Some(cap) => {
            let power = product.min(LARGEST).exp2_approx();
            fma((power + 1.0).rcp_approx(), -2.0 * cap * LOG2_E, val(cap * LOG2_E))
        }
    }
}
