//! Decode attention: one query against the cache, split over the context.
//!
//! Flash-decoding in two launches. [`attention`] gives every CTA one key head and a run of positions, and computes
//! for each query head of the group the softmax numerator over its run with its own maximum; [`attention_combine`] joins the
//! runs of each head. Which positions a CTA takes depends on the length alone, so results are the same bits on
//! every run.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// Attention's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Elements a head: a multiple of 8, at most 256.
    pub head_dim: u32,
    /// Query heads of one group that a CTA computes at a time; divides heads / kv_heads.
    pub heads_per_block: u32,
    /// Most runs that the context is split into.
    pub splits: u32,
    /// Fewest positions a run.
    pub min_run: u32,
    /// Threads a CTA of [`attention`].
    pub threads: u32,
    /// Threads a CTA of [`attention_combine`]: covers the head dimension.
    pub combine_threads: u32,
}

/// Lowest score: finite, so that the difference of two of them is not a NaN.
const LOWEST: f32 = -1e30;

impl AttentionShape {
    /// Query heads a key head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// CTAs of [`attention`]: query-head blocks, runs.
    pub fn grid(&self) -> [u32; 3] {
        [self.heads / self.heads_per_block, self.splits, 1]
    }

    /// f32 a partial result: the numerator, then the maximum and the denominator.
    fn partial_stride(&self) -> u32 {
        self.head_dim + 2
    }

    /// Elements of the f32 workspace between the two launches: [heads, splits, head_dim + 2].
    pub fn workspace(&self) -> u32 {
        self.heads * self.splits * self.partial_stride()
    }

    /// Lanes that share one position: 8 elements each.
    fn lanes(&self) -> u32 {
        (self.head_dim / 8).next_power_of_two()
    }
}

/// The softmax numerator of some positions for one query head: of a lane's 8 elements.
#[derive(Clone, Carry)]
struct Running {
    largest: Val<f32>,
    denominator: Val<f32>,
    numerator: Vec<Val<f32>>,
}

/// Positions a run, and the number of positions.
#[device]
fn run_length(state: Ptr<Global, u32>, s: &AttentionShape) -> (Val<u32>, Val<u32>) {
    let length = state::position(state) + 1;
    let even = (length + (s.splits - 1)) / s.splits;
    (even.max(s.min_run), length)
}

/// Joins two partial results of one head.
#[device]
fn join(a: &Running, b: &Running) -> Running {
    let largest = a.largest.max(b.largest);
    let (from_a, from_b) = ((a.largest - largest).exp2(), (b.largest - largest).exp2());
    let numerator = a.numerator.iter().zip(&b.numerator).map(|(&x, &y)| fma(x, from_a, y * from_b)).collect();
    Running { largest, denominator: fma(a.denominator, from_a, b.denominator * from_b), numerator }
}

/// Partial results of softmax(q·Kᵀ/√d)·V over a run of positions.
///
/// `q` f32 [heads, head_dim], `keys` and `values` f16 [context, kv_heads, head_dim], `partial` f32
/// [heads, splits, head_dim + 2]. The grid is (heads / heads_per_block, splits). A position is shared by as many
/// lanes as a head has times 8 elements; each such group of lanes walks its own positions with its own running
/// maximum, the groups of a warp join by shuffles and the warps through shared memory. Scores are in powers of two:
/// the query is scaled by log₂e/√d.
#[kernel(threads = s.threads)]
pub fn attention(
    q: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    partial: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &AttentionShape,
) {
    let (lanes, dim, warps) = (s.lanes(), s.head_dim, s.threads / WARP);
    let (per_warp, heads) = (WARP / lanes, s.heads_per_block);
    let (run, length) = run_length(state, s);
    let start = block_index_y() * run;
    let end = (start + run).min(length);
    let first_head = block_index() * heads;
    let kv_head = first_head / s.group();
    let member = lane() & (lanes - 1);
    let inside = member * 8 < dim;
    let element = select(inside, member * 8, 0u32);

    // Runs past the context have nothing to say: `combine` does not read them.
    if start < end {
        let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
        let mut queries = Vec::new();
        let mut running = Vec::new();
        for head in 0..heads {
            let at = q.at((first_head + head) * dim + element);
            let (low, high) = (at.load_vector::<4>(), at.at(4).load_vector::<4>());
            // Lanes past the head's end repeat its first elements and count for nothing.
            let factor = select(inside, scale, 0.0f32);
            queries.push(low.into_iter().chain(high).map(|value| value * factor).collect::<Vec<_>>());
            let numerator = vec![val(0.0f32); 8];
            running.push(Running { largest: val(LOWEST), denominator: val(0.0), numerator });
        }
        let mut at = start;
        while at < end {
            let position = at + warp_index() * per_warp + lane() / lanes;
            let valid = position < end;
            let row = mul_wide(select(valid, position, start), s.kv_heads * dim * 2);
            let offset = (kv_head * dim + element) * 2;
            let key = halves(keys.bytes(row).bytes(offset));
            let value = halves(values.bytes(row).bytes(offset));
            for (query, state) in queries.iter().zip(running.iter_mut()) {
                let mut score = val(0.0f32);
                for (&a, &b) in query.iter().zip(&key) {
                    score = fma(a, b, score);
                }
                let mut step = lanes / 2;
                while step > 0 {
                    score += shuffle_xor(score, step);
                    step /= 2;
                }
                let score = select(valid, score, LOWEST);
                let largest = state.largest.max(score);
                let keep = (state.largest - largest).exp2();
                let weight = select(valid, (score - largest).exp2(), 0.0f32);
                state.largest = largest;
                state.denominator = fma(state.denominator, keep, weight);
                for (sum, &element) in state.numerator.iter_mut().zip(&value) {
                    *sum = fma(*sum, keep, weight * element);
                }
            }
            at += warps * per_warp;
        }

        let shared = shared_array::<f32>(warps * heads * s.partial_stride());
        for (head, state) in running.into_iter().enumerate() {
            let mut state = state;
            let mut step = lanes;
            while step < WARP {
                let other = Running {
                    largest: shuffle_xor(state.largest, step),
                    denominator: shuffle_xor(state.denominator, step),
                    numerator: state.numerator.iter().map(|&value| shuffle_xor(value, step)).collect(),
                };
                state = join(&state, &other);
                step *= 2;
            }
            let slot = shared.at((warp_index() * heads + head as u32) * s.partial_stride());
            if lane() < lanes && inside {
                for (i, &value) in state.numerator.iter().enumerate() {
                    slot.at(element).at(i).store(value);
                }
            }
            if lane() == 0 {
                slot.at(dim).store(state.largest);
                slot.at(dim + 1).store(state.denominator);
            }
        }
        barrier();
        for pass in 0..(heads * dim).div_ceil(s.threads) {
            let index = thread_index() + pass * s.threads;
            if index < heads * dim {
                let (head, i) = (index / dim, index % dim);
                let slot = |warp: u32| shared.at((head + warp * heads) * s.partial_stride());
                let one = |warp: u32| Running {
                    largest: slot(warp).at(dim).load(),
                    denominator: slot(warp).at(dim + 1).load(),
                    numerator: vec![slot(warp).at(i).load()],
                };
                let mut total = one(0);
                for warp in 1..warps {
                    total = join(&total, &one(warp));
                }
                let out = partial.at(((first_head + head) * s.splits + block_index_y()) * s.partial_stride());
                out.at(i).store(total.numerator[0]);
                if i == 0 {
                    out.at(dim).store(total.largest);
                    out.at(dim + 1).store(total.denominator);
                }
            }
        }
    }
}

/// Eight f16 as f32.
#[device]
fn halves(at: Ptr<Global, f16>) -> Vec<Val<f32>> {
    let words = at.cast::<F16x2>().load_vector::<4>();
    words.into_iter().flat_map(|word| word.unpack().map(|half| half.cast::<f32>())).collect()
}

/// y = Σ over runs of numerator / Σ over runs of denominator, at a common maximum.
///
/// `partial` as [`attention`] wrote it, `y` f32 [heads, head_dim]. One CTA a head, one thread an element; runs join
/// in order.
#[kernel(threads = s.combine_threads)]
pub fn attention_combine(
    partial: Ptr<Global, f32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &AttentionShape,
) {
    let i = thread_index();
    if i < s.head_dim {
        let (run, length) = run_length(state, s);
        let runs = (length + run - 1) / run;
        let head = block_index();
        let mut total = Running { largest: val(LOWEST), denominator: val(0.0), numerator: vec![val(0.0f32)] };
        for split in 0..runs {
            let slot = partial.at((head * s.splits + split) * s.partial_stride());
            let one = Running {
                largest: slot.at(s.head_dim).load(),
                denominator: slot.at(s.head_dim + 1).load(),
                numerator: vec![slot.at(i).load()],
            };
            total = join(&total, &one);
        }
        y.at(head * s.head_dim + i).store(total.numerator[0] / total.denominator);
    }
}
