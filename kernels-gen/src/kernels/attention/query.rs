//! Query, key and value of the current position: QK norm, RoPE, and the append to the cache.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, CONSUMERS, PAGE, TILE, WARPS};
use super::work::{CONSUMER_BARRIER, Operands, Work};
use crate::kernels::rope::{self, RopeKind};

/// RoPE rotations and norm weights of the element pairs that this thread processes. They do not depend on the query, so
/// they are loaded before the query is ready.
pub(super) struct Rotation {
    /// sin and cos of the angle of this thread's pair, per pass.
    sin_cos: Vec<[Val<f32>; 2]>,
    /// Norm weights of the two elements of this thread's pair, per pass; empty without QK norms.
    norms: Vec<[Val<f32>; 2]>,
}

/// Number of element pairs in the CTA's query heads and key head.
fn pairs(s: &AttentionShape) -> u32 {
    (s.heads_per_block + 1) * (s.head_dim / 2)
}

/// Number of passes over the element pairs; in a pass each thread processes one pair.
fn passes(s: &AttentionShape) -> u32 {
    pairs(s).div_ceil(CONSUMERS)
}

/// Pair of elements of one head, which a thread processes in one pass. RoPE rotates the two elements together.
struct Pair {
    /// Index among all pairs of the CTA.
    index: Val<u32>,
    /// Index of the head; the key head comes after the query heads.
    head: Val<u32>,
    /// Index of the pair within the head; pairs that are not rotated come last.
    pair: Val<u32>,
    /// Indices within the head of the pair's two elements.
    elements: [Val<u32>; 2],
}

/// The element pair that this thread processes in pass `pass`.
fn pair(pass: u32, s: &AttentionShape) -> Pair {
    let index = thread_index() + pass * CONSUMERS;
    let (head, pair) = (index / (s.head_dim / 2), index % (s.head_dim / 2));
    Pair { index, head, pair, elements: elements(pair, s) }
}

/// Indices of the two elements of pair `pair` within a head.
#[device]
fn elements(pair: Val<u32>, s: &AttentionShape) -> [Val<u32>; 2] {
    match s.rope {
        RopeKind::Norm => [pair * 2, pair * 2 + 1],
        RopeKind::Neox => {
            let half = s.rotated / 2;
            if s.rotated == s.head_dim {
                [pair, pair + half]
            } else {
                let rotated = pair < half;
                [select(rotated, pair, pair * 2), select(rotated, pair + half, pair * 2 + 1)]
            }
        }
    }
}

impl Rotation {
    /// Loads the RoPE rotations and norm weights of the element pairs that this thread processes.
    pub fn new(operands: &Operands, work: &Work, s: &AttentionShape) -> Rotation {
        let mut rotation = Rotation { sin_cos: Vec::new(), norms: Vec::new() };
        for pass in 0..passes(s) {
            let pair = pair(pass, s);
            rotation.sin_cos.push(sin_cos(&pair, operands, work, s));
            if let Some(norms) = operands.norms {
                rotation.norms.push(norm_weights(&pair, norms, s));
            }
        }
        rotation
    }
}

/// sin and cos of the pair's RoPE angle; 0 and 1 for a pair that is not rotated.
#[device]
fn sin_cos(pair: &Pair, operands: &Operands, work: &Work, s: &AttentionShape) -> [Val<f32>; 2] {
    let half = s.rotated / 2;
    let mut sin_cos = [val(0.0f32), val(1.0f32)];
    if pair.pair < half {
        sin_cos = rope::sin_cos(operands.rope_table, pair.pair, work.position);
    }
    sin_cos
}

/// Loads the norm weights of a pair.
#[device]
fn norm_weights(
    pair: &Pair,
    (q_norm, k_norm): (Ptr<Global, f32>, Ptr<Global, f32>),
    s: &AttentionShape,
) -> [Val<f32>; 2] {
    let mut weights = [val(0.0f32); 2];
    if pair.head < s.heads_per_block {
        weights = pair.elements.map(|element| q_norm.at(element).load());
    } else {
        weights = pair.elements.map(|element| k_norm.at(element).load());
    }
    weights
}

/// Address in shared memory of query head `index`, of the key (after the queries), or of the value (after the key).
pub(super) fn head(index: impl IntoVal<u32>, s: &AttentionShape) -> Ptr<Shared, f32> {
    dynamic_shared::<u8>().bytes(s.shared_map().heads).cast::<f32>().at(index.into_val() * s.shared_stride())
}

/// Whether this CTA appends the new key and value to the cache: among the CTAs that have this key head and the last run
/// of pages, the one with the first query heads.
#[device]
fn appends(work: &Work, s: &AttentionShape) -> Val<bool> {
    work.last && work.first_head % s.group() == 0
}

/// In the CTA that appends to the cache: clears the cache tile of the current position if the position is the first of
/// the tile. No running launch reads this tile, so it may be cleared before the wait for earlier launches.
#[device]
pub(super) fn begin_tile(operands: &Operands, work: &Work, s: &AttentionShape) {
    if appends(work, s) && work.position % TILE == 0 {
        let sixteens = TILE * s.head_dim / 8;
        for cache in [operands.keys, operands.values] {
            let tile = cache.at(tile_index(work, s)).cast::<u32>();
            for pass in 0..sixteens.div_ceil(CONSUMERS) {
                let sixteen = thread_index() + pass * CONSUMERS;
                if sixteen < sixteens {
                    tile.at(sixteen * 4).store_vector([val(0u32); 4]);
                }
            }
        }
        // The barrier is needed because other threads append to the tile.
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
    }
}

/// Writes query, key and value to shared memory: the queries normalised, rotated and scaled, the key normalised and
/// rotated, key and value rounded to f16 as in the cache.
#[device]
pub(super) fn prepare(operands: &Operands, rotation: &Rotation, work: &Work, s: &AttentionShape) {
    let (dim, heads) = (s.head_dim, s.heads_per_block);
    let mut loaded = Vec::new();
    for pass in 0..passes(s) {
        loaded.push(load_pair(&pair(pass, s), operands, work, s));
    }
    if let Some(eps) = s.qk_norm {
        loaded = normalise(loaded, rotation, eps, s);
    }
    let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
    for (pass, (values, [sin, cos])) in (0u32..).zip(loaded.into_iter().zip(&rotation.sin_cos)) {
        let pair = pair(pass, s);
        let [a, b] = values;
        let rotated = [a * *cos - b * *sin, a * *sin + b * *cos];
        if pair.index < pairs(s) {
            let to = head(pair.head, s);
            let is_query = pair.head < heads;
            for (element, value) in pair.elements.into_iter().zip(rotated) {
                let rounded = value.cast::<f16>().cast::<f32>();
                to.at(element).store(select(is_query, value * scale, rounded));
            }
        }
    }
    let value_row = operands.qkv.at((work.kv_head + (s.heads + s.kv_heads)) * dim);
    for pass in 0..dim.div_ceil(CONSUMERS) {
        let element = thread_index() + pass * CONSUMERS;
        if element < dim {
            let rounded = value_row.at(element).load().cast::<f16>();
            head(heads + 1, s).at(element).store(rounded.cast::<f32>());
        }
    }
}

/// In the CTA that appends: writes the current key and value to the cache. The CTA's copies from the cache must have
/// completed, because they read whole tiles, including the entry of the current position.
#[device]
pub(super) fn append(operands: &Operands, work: &Work, s: &AttentionShape) {
    if appends(work, s) {
        for pass in 0..s.head_dim.div_ceil(CONSUMERS) {
            let element = thread_index() + pass * CONSUMERS;
            if element < s.head_dim {
                let [key, value] = [0, 1].map(|row| head(s.heads_per_block + row, s).at(element).load());
                operands.keys.at(key_index(element, work, s)).store(key.cast::<f16>());
                operands.values.at(value_index(element, work, s)).store(value.cast::<f16>());
            }
        }
    }
}

/// Loads the two projected elements of a pair from device memory.
#[device]
fn load_pair(pair: &Pair, operands: &Operands, work: &Work, s: &AttentionShape) -> [Val<f32>; 2] {
    let mut values = [val(0.0f32); 2];
    if pair.index < pairs(s) {
        let is_query = pair.head < s.heads_per_block;
        let row = select(is_query, work.first_head + pair.head, work.kv_head + s.heads);
        values = pair.elements.map(|element| operands.qkv.at(row * s.head_dim + element).load());
    }
    values
}

/// RMSNorm of each query head and of the key, through shared memory.
fn normalise(
    loaded: Vec<[Val<f32>; 2]>,
    rotation: &Rotation,
    eps: f32,
    s: &AttentionShape,
) -> Vec<[Val<f32>; 2]> {
    for (pass, &values) in (0u32..).zip(&loaded) {
        store_pair(&pair(pass, s), values, s);
    }
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    let scales = dynamic_shared::<u8>().bytes(s.shared_map().partial).cast::<f32>();
    head_scales(scales, eps, s);
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    let normalised = (0u32..).zip(loaded).zip(&rotation.norms).map(|((pass, values), weights)| {
        let head = pair(pass, s).head.min(s.heads_per_block);
        let scale = scales.at(head).load();
        std::array::from_fn(|i| values[i] * scale * weights[i])
    });
    normalised.collect()
}

#[device]
fn store_pair(pair: &Pair, values: [Val<f32>; 2], s: &AttentionShape) {
    if pair.index < pairs(s) {
        for (element, value) in pair.elements.into_iter().zip(values) {
            head(pair.head, s).at(element).store(value);
        }
    }
}

/// Computes 1 / √(mean(x²) + ε) of each query head and of the key, one head per warp.
#[device]
fn head_scales(scales: Ptr<Shared, f32>, eps: f32, s: &AttentionShape) {
    for first in (0..s.heads_per_block + 1).step_by(WARPS as usize) {
        let index = warp_index() + first;
        if index < s.heads_per_block + 1 {
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
                scales.at(index).store((mean + eps).rsqrt());
            }
        }
    }
}

/// Device version of [`AttentionShape::key_index`] for element `element` of the CTA's key head at the current position.
fn key_index(element: Val<u32>, work: &Work, s: &AttentionShape) -> Val<u64> {
    let position = work.position;
    let within = (element >> 4) * 256
        + ((position & 7) * 4 + ((element >> 1) & 3)) * 8
        + ((position >> 3) & 1) * 4
        + ((element >> 3) & 1) * 2
        + (element & 1);
    tile_index(work, s) + within.cast::<u64>()
}

/// Device version of [`AttentionShape::value_index`] for element `element` of the CTA's value head at the current
/// position.
fn value_index(element: Val<u32>, work: &Work, s: &AttentionShape) -> Val<u64> {
    let position = work.position;
    let within = (element >> 4) * 256
        + ((element & 7) * 4 + ((position >> 1) & 3)) * 8
        + ((element >> 3) & 1) * 4
        + ((position >> 3) & 1) * 2
        + (position & 1);
    tile_index(work, s) + within.cast::<u64>()
}

/// Index in the cache of the first element of the current position's tile.
fn tile_index(work: &Work, s: &AttentionShape) -> Val<u64> {
    let page = work.position / PAGE * s.kv_heads + work.kv_head;
    mul_wide(page * WARPS + work.position % PAGE / TILE, TILE * s.head_dim)
}
