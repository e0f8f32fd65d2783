//! Query, key and value of the current position: QK norm, RoPE, and rounding as in the cache.

use bespoke_codegen::prelude::*;

use super::entry::{NewEntry, quantise};
use super::heads::{Pair, head, is_query, pair, pairs, passes};
use super::kv::KvType;
use super::shape::{AttentionShape, CONSUMERS, Rope};
use super::work::{CONSUMER_BARRIER, Operands, Token};
use super::{norm, score};
use crate::kernels::rope;

/// RoPE rotations and norm weights of the element pairs that this thread processes. They do not depend on the query, so
/// they are loaded before the query is ready.
pub(super) struct Rotation {
    /// sin and cos of the angle of this thread's pair, per pass; none without RoPE.
    sin_cos: Vec<Option<[Val<f32>; 2]>>,
    /// Norm weights of the two elements of this thread's pair, per pass; empty without QK norms.
    norms: Vec<[Val<f32>; 2]>,
}

impl Rotation {
    /// Loads the RoPE rotations and norm weights of the element pairs that this thread processes.
    pub fn new(operands: &Operands, token: &Token, s: &AttentionShape) -> Rotation {
        let mut rotation = Rotation { sin_cos: Vec::new(), norms: Vec::new() };
        for pass in 0..passes(s) {
            let pair = pair(pass, s);
            let rope = s.rope.zip(operands.rope_table);
            rotation.sin_cos.push(rope.map(|(rope, table)| sin_cos(&pair, rope, table, token)));
            if s.qk_norm.is_some() {
                rotation.norms.push(norm::weights(&pair, operands, token, s));
            }
        }
        rotation
    }
}

/// sin and cos of the pair's RoPE angle, times the magnitude; 0 and 1 for a pair that is not rotated.
#[device]
fn sin_cos(pair: &Pair, rope: Rope, table: Ptr<Global, f32>, token: &Token) -> [Val<f32>; 2] {
    let half = rope.rotated / 2;
    let mut sin_cos = [val(0.0f32), val(1.0f32)];
    if pair.pair < half {
        sin_cos = rope::sin_cos(table, pair.pair, token.position, rope.magnitude);
    }
    sin_cos
}

/// Prepares queries, key and value. The queries are normalised, rotated and scaled; `store_query(head, element, value)` stores an element of
/// query head `head` of the CTA. The new key (normalised and rotated) and value are written to shared memory as an entry of the
/// cache.
pub(super) fn prepare(
    operands: &Operands,
    rotation: &Rotation,
    token: &Token,
    s: &AttentionShape,
    store_query: impl Fn(Val<u32>, Val<u32>, Val<f32>),
) {
    let mut loaded = Vec::new();
    for pass in 0..passes(s) {
        loaded.push(load_pair(&pair(pass, s), operands, token, s));
    }
    // All loads come before the barriers of norms.
    let value = load_value(operands, token, s);
    if let Some(qk_norm) = s.qk_norm {
        loaded = norm::normalise(loaded, &rotation.norms, qk_norm, operands, s);
    }
    let scale = score::query_factor(s);
    for (pass, (values, sin_cos)) in (0u32..).zip(loaded.into_iter().zip(&rotation.sin_cos)) {
        let pair = pair(pass, s);
        let rotated = sin_cos.map_or(values, |sin_cos| rotate(values, sin_cos));
        store_prepared(&pair, rotated, scale, &store_query, s);
    }
    store_value(&value, s);
}

/// Loads the thread's elements of the projected value, one for each pass over the head.
fn load_value(operands: &Operands, token: &Token, s: &AttentionShape) -> Vec<Val<f32>> {
    let row = operands.qkv.at((token.kv_head + (s.heads + s.kv_heads)) * s.head_dim);
    let element = |pass: u32| thread_index() + pass * CONSUMERS;
    (0..s.head_dim.div_ceil(CONSUMERS)).map(|pass| load_element(row, element(pass), s)).collect()
}

/// Loads an element of a head, or 0 past its end.
#[device]
fn load_element(row: Ptr<Global, f32>, element: Val<u32>, s: &AttentionShape) -> Val<f32> {
    if element < s.head_dim { row.at(element).load() } else { val(0.0f32) }
}

/// Writes the new value, and in a cache of type q8_0 also the new key, to shared memory as an entry of the cache.
#[device]
fn store_value(values: &[Val<f32>], s: &AttentionShape) {
    for (pass, &value) in (0u32..).zip(values) {
        let element = thread_index() + pass * CONSUMERS;
        if element < s.head_dim {
            if s.kv == KvType::F16 {
                NewEntry::new(s).halves(1, s).at(element).store(value.cast::<f16>());
            } else {
                head(s.heads_per_block + 1, s).at(element).store(value);
            }
        }
    }
    if s.kv == KvType::Q8_0 {
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        quantise(s);
    }
}

/// Stores a pair of elements of a query, or of the new key.
#[device]
fn store_prepared(
    pair: &Pair,
    values: [Val<f32>; 2],
    scale: f32,
    store_query: &impl Fn(Val<u32>, Val<u32>, Val<f32>),
    s: &AttentionShape,
) {
    if pair.index < pairs(s) {
        if is_query(pair, s) {
            for (element, value) in pair.elements.into_iter().zip(values) {
                store_query(pair.head, element, value * scale);
            }
        } else {
            for (element, value) in pair.elements.into_iter().zip(values) {
                if s.kv == KvType::F16 {
                    NewEntry::new(s).halves(0, s).at(element).store(value.cast::<f16>());
                } else {
                    head(s.heads_per_block, s).at(element).store(value);
                }
            }
        }
    }
}

/// Rotates a pair.
fn rotate([a, b]: [Val<f32>; 2], [sin, cos]: [Val<f32>; 2]) -> [Val<f32>; 2] {
    [a * cos - b * sin, a * sin + b * cos]
}

/// Loads the two projected elements of a pair from device memory.
#[device]
fn load_pair(pair: &Pair, operands: &Operands, token: &Token, s: &AttentionShape) -> [Val<f32>; 2] {
    let mut values = [val(0.0f32); 2];
    if pair.index < pairs(s) {
        let row = select(is_query(pair, s), token.first_head + pair.head, token.kv_head + s.heads);
        values = pair.elements.map(|element| operands.qkv.at(row * s.head_dim + element).load());
    }
    values
}
