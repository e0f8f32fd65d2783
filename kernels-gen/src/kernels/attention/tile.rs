//! Attention of one warp to a tile of 16 positions.
//!
//! The scores are the product of the queries (A, 16 rows) with the keys (B, 8 positions at a time); rows g and g + 8 of
//! A are the two f16 whose sum is the query of head g. Lane 4g + t gets the scores of head g at positions 2t, 2t + 1,
//! 2t + 8 and 2t + 9. Those are the positions that the lane holds in the A fragment of the product with the values, in
//! which rows g and g + 8 are the two f16 whose sum is the softmax weight of head g.

use bespoke_codegen::prelude::*;

use super::cache::TileReader;
use super::score;
use super::shape::AttentionShape;
use super::work::Positions;

/// Score of a masked position. Finite, so that the difference of two such scores is not NaN.
const LOWEST_SCORE: f32 = -1e30;

/// This lane's fragments of the queries: one A fragment per 16 elements of the head dimension. The fragments of large
/// heads do not fit the registers; the others are loaded from shared memory for each tile.
pub(super) struct Query {
    /// Fragments of the first [`AttentionShape::held_steps`] steps.
    held: Vec<FragmentA<f16, 4>>,
}

/// Online softmax in lane 4g + t: numerator and denominator of head g, relative to a running maximum.
#[derive(Clone, Carry)]
pub(super) struct RunningSoftmax {
    /// Largest score of head g so far.
    pub largest: Val<f32>,
    /// This lane's part of the denominator of head g.
    pub denominator: Val<f32>,
    /// Numerator, one C fragment per 8 elements: lane 4g + t has elements 2t and 2t + 1 of head g, each as two
    /// summands.
    pub numerator: Vec<FragmentC<f32>>,
}

impl RunningSoftmax {
    pub fn new(s: &AttentionShape) -> RunningSoftmax {
        let numerator = vec![FragmentC::zero(); (s.head_dim / 8) as usize];
        RunningSoftmax { largest: val(LOWEST_SCORE), denominator: val(0.0f32), numerator }
    }
}

/// Splits each of two f32 into two f16 whose sum is the f32, up to the rounding of the second f16. Returns the two
/// pairs.
fn split(values: [Val<f32>; 2]) -> [Val<u32>; 2] {
    let high = pack_rounded::<F16x2>(values[0], values[1]);
    let [first, second] = high.unpack().map(|half| half.cast::<f32>());
    let low = pack_rounded::<F16x2>(values[0] - first, values[1] - second);
    [high.bitcast(), low.bitcast()]
}

/// Stores element `element` of query head `head` in shared memory: as two f16, in the order of fragments.
#[device]
pub(super) fn store_query(head: Val<u32>, element: Val<u32>, value: Val<f32>, s: &AttentionShape) {
    let high = value.cast::<f16>();
    let low = (value - high.cast::<f32>()).cast::<f16>();
    // Lane 4g + t has elements 2t and 2t + 1 of head g, then 2t + 8 and 2t + 9; of both the high halves, then the low ones.
    let lane = head * 4 + element % 8 / 2;
    let register = element % 16 / 8 * 2;
    let at = registers(element / 16, lane, s).at(register).cast::<f16>().at(element % 2);
    at.store(high);
    at.at(2).store(low);
}

/// Address in shared memory of the four registers of a step, for a lane that has a head of the CTA.
fn registers(step: impl IntoVal<u32>, lane: Val<u32>, s: &AttentionShape) -> Ptr<Shared, u32> {
    let fragments = dynamic_shared::<u8>().byte_add(s.shared_map().query).cast::<u32>();
    fragments.at((step.into_val() * s.query_lanes() + lane) * 4)
}

impl Query {
    /// Loads the queries, which must be in shared memory.
    pub fn load(s: &AttentionShape) -> Query {
        Query { held: (0..s.held_steps()).map(|step| load_fragment(step, s)).collect() }
    }

    /// The fragment of a step.
    fn fragment(&self, step: u32, s: &AttentionShape) -> FragmentA<f16, 4> {
        self.held.get(step as usize).copied().unwrap_or_else(|| load_fragment(step, s))
    }
}

/// Loads this lane's fragment of a step. Lanes whose row has no head load another lane's fragment; their results are not used.
fn load_fragment(step: u32, s: &AttentionShape) -> FragmentA<f16, 4> {
    let lanes = s.query_lanes();
    let lane = if lanes < WARP { lane().min(lanes - 1) } else { lane() };
    FragmentA::from_registers(registers(step, lane, s).load_vector::<4>())
}

/// Whether the query attends to position `position` of a tile.
#[device]
fn is_valid(position: Val<u32>, valid: &Positions) -> Val<bool> {
    let mut is_valid = position < valid.end;
    if let Some(start) = valid.start {
        is_valid &= start <= position;
    }
    is_valid
}

/// Attends to the positions `valid` of a tile: updates the running softmax. The tile's keys are at `keys`, the values
/// one part later.
#[device]
pub(super) fn attend(
    keys: Ptr<Shared, u8>,
    valid: &Positions,
    query: &Query,
    running: &mut RunningSoftmax,
    s: &AttentionShape,
) {
    let reader = TileReader::of_keys(keys, s);
    // Separate accumulators for even and odd steps halve the chain of dependent products.
    let mut sums = [[FragmentC::<f32>::zero(); 2]; 2];
    for step in 0..s.steps() {
        let fragments = reader.fragments(step);
        let query = query.fragment(step, s);
        for (sum, keys) in sums.iter_mut().zip(fragments) {
            let sum = &mut sum[step as usize % 2];
            *sum = mma(query, keys, *sum);
        }
    }
    let first = (lane() & 3) * 2;
    let mut scores = Vec::new();
    for (half, [even, odd]) in (0u32..).zip(&sums) {
        for i in 0..2u32 {
            let part = |at: u32| even.0[at as usize] + odd.0[at as usize];
            let score = score::of_product(part(i) + part(i + 2), s);
            scores.push(select(is_valid(first + (half * 8 + i), valid), score, LOWEST_SCORE));
        }
    }
    let mut largest = scores[0].max(scores[1]).max(scores[2].max(scores[3]));
    largest = largest.max(shuffle_xor(largest, 1));
    largest = running.largest.max(largest.max(shuffle_xor(largest, 2)));
    let rescale = (running.largest - largest).exp2_approx();
    let weights: Vec<Val<f32>> = scores.into_iter().map(|score| (score - largest).exp2_approx()).collect();
    running.largest = largest;
    running.denominator =
        fma(running.denominator, rescale, (weights[0] + weights[1]) + (weights[2] + weights[3]));

    let [first, second] = [split([weights[0], weights[1]]), split([weights[2], weights[3]])];
    let weights = FragmentA::<f16, 4>::from_registers([first[0], first[1], second[0], second[1]]);
    let reader = reader.of_values(keys, s);
    for step in 0..s.steps() {
        for (half, values) in reader.fragments(step).into_iter().enumerate() {
            let sum = &mut running.numerator[2 * step as usize + half];
            let rescaled = FragmentC(sum.0.map(|part| part * rescale));
            *sum = mma(weights, values, rescaled);
        }
    }
}
