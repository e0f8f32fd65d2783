//! RMSNorm of queries and of the new key before the rotation (QK norm).

use bespoke_codegen::prelude::*;

use super::heads::{Pair, head, is_query, pair, pairs};
use super::shape::{AttentionShape, CONSUMERS, NormSpan, QkNorm, WARPS};
use super::work::{CONSUMER_BARRIER, Operands, Token};

/// Loads the norm weights of a pair.
#[device]
pub(super) fn weights(pair: &Pair, operands: &Operands, token: &Token, s: &AttentionShape) -> [Val<f32>; 2] {
    let load = |norm: Ptr<Global, f32>, head: Val<u32>| {
        pair.elements.map(|element| match s.qk_norm {
            Some(QkNorm { span: NormSpan::Projection, .. }) => norm.at(head * s.head_dim + element).load(),
            _ => norm.at(element).load(),
        })
    };
    let of_query = |norm| load(norm, token.first_head + pair.head);
    let of_key = |norm| load(norm, token.kv_head);
    let mut weights = [val(0.0f32); 2];
    match (operands.q_norm, operands.k_norm) {
        (Some(q_norm), Some(k_norm)) => {
            if is_query(pair, s) {
                weights = of_query(q_norm);
            } else {
                weights = of_key(k_norm);
            }
        }
        // Threads without a pair load some weights, too.
        (Some(q_norm), None) => {
            weights = load(q_norm, token.first_head + pair.head.min(s.heads_per_block - 1));
        }
        (None, Some(k_norm)) => weights = of_key(k_norm),
        (None, None) => {}
    }
    weights
}

/// Normalises the pairs of elements that this thread has loaded, one per pass, and multiplies them by `weights`, as
/// loaded by [`weights()`].
pub(super) fn normalise(
    loaded: Vec<[Val<f32>; 2]>,
    weights: &[[Val<f32>; 2]],
    norm: QkNorm,
    operands: &Operands,
    s: &AttentionShape,
) -> Vec<[Val<f32>; 2]> {
    let factors = match norm.span {
        NormSpan::Head => Factors::of_heads(&loaded, norm.eps, s),
        NormSpan::Projection => Factors::of_projections(operands, norm.eps, s),
    };
    let normalised = (0u32..).zip(loaded).zip(weights).map(|((pass, values), weights)| {
        let factor = factors.of_pair(&pair(pass, s), s);
        std::array::from_fn(|i| values[i] * factor * weights[i])
    });
    normalised.collect()
}

/// The factors 1 / √(mean(x²) + ε).
enum Factors {
    /// In shared memory, one per query head, then that of the new key.
    Heads(Ptr<Shared, f32>),
    /// Of all queries, and of all keys.
    Projections([Val<f32>; 2]),
}

/// Shared memory for factors and sums. The warps' partial results are stored there later.
fn scratch(s: &AttentionShape) -> Ptr<Shared, f32> {
    dynamic_shared::<u8>().byte_add(s.shared_map().partial).cast()
}

impl Factors {
    /// Computes the factor of each query head and of the new key, through shared memory.
    fn of_heads(loaded: &[[Val<f32>; 2]], eps: f32, s: &AttentionShape) -> Factors {
        for (pass, &values) in (0u32..).zip(loaded) {
            store_pair(&pair(pass, s), values, s);
        }
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        let factors = scratch(s);
        head_factors(factors, eps, s);
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        Factors::Heads(factors)
    }

    /// Computes the factors of all queries and of all keys, in every CTA from device memory. The order of the sums is
    /// the same in all CTAs, and so are their bits.
    fn of_projections(operands: &Operands, eps: f32, s: &AttentionShape) -> Factors {
        let widths = [s.heads * s.head_dim, s.kv_heads * s.head_dim];
        let rows = [operands.qkv, operands.qkv.at(widths[0])];
        let sums = scratch(s);
        for i in 0..2 {
            let sum = warp_sum(sum_of_squares(rows[i], widths[i]));
            store_sum(sums.at(warp_index() + i as u32 * WARPS), sum);
        }
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        Factors::Projections(std::array::from_fn(|i| {
            let parts = sums.at(i as u32 * WARPS).load_vector::<{ WARPS as usize }>();
            let sum = parts[1..].iter().fold(parts[0], |sum, &part| sum + part);
            (sum * (1.0 / widths[i] as f32) + eps).rsqrt_approx()
        }))
    }

    fn of_pair(&self, pair: &Pair, s: &AttentionShape) -> Val<f32> {
        match *self {
            Factors::Heads(factors) => factors.at(pair.head.min(s.heads_per_block)).load(),
            Factors::Projections([of_queries, of_keys]) => select(is_query(pair, s), of_queries, of_keys),
        }
    }
}

/// Stores a warp's sum.
#[device]
fn store_sum(to: Ptr<Shared, f32>, sum: Val<f32>) {
    if lane() == 0 {
        to.store(sum);
    }
}

/// Vectors of four elements that a thread loads at once.
const VECTORS_IN_FLIGHT: u32 = 8;

/// This thread's part of the sum of the squares of `width` elements, a multiple of 16.
#[device]
fn sum_of_squares(row: Ptr<Global, f32>, width: u32) -> Val<f32> {
    let mut sum = val(0.0f32);
    let mut first = thread_index() * 4;
    while first < width {
        for i in 0..VECTORS_IN_FLIGHT.min(width.div_ceil(CONSUMERS * 4)) {
            let index = first + i * (CONSUMERS * 4);
            let counts = index < width;
            for value in row.at(index.min(width - 4)).load_vector::<4>() {
                let value = select(counts, value, 0.0f32);
                sum = fma(value, value, sum);
            }
        }
        first += VECTORS_IN_FLIGHT * (CONSUMERS * 4);
    }
    sum
}

#[device]
fn store_pair(pair: &Pair, values: [Val<f32>; 2], s: &AttentionShape) {
    if pair.index < pairs(s) {
        for (element, value) in pair.elements.into_iter().zip(values) {
            head(pair.head, s).at(element).store(value);
        }
    }
}

/// Computes 1 / √(mean(x²) + ε) of each query head and of the new key, one head per warp.
#[device]
fn head_factors(factors: Ptr<Shared, f32>, eps: f32, s: &AttentionShape) {
    let heads = s.heads_per_block + 1;
    for first in (0..heads).step_by(WARPS as usize) {
        let index = warp_index() + first;
        if index < heads {
            let mut sum = val(0.0f32);
            for pass in 0..s.head_dim.div_ceil(WARP) {
                let element = lane() + pass * WARP;
                if element < s.head_dim {
                    let value = head(index, s).at(element).load();
                    sum = fma(value, value, sum);
                }
            }
            let mean = warp_sum(sum) * (1.0 / s.head_dim as f32);
            if lane() == 0 {
                factors.at(index).store((mean + eps).rsqrt_approx());
            }
        }
    }
}
