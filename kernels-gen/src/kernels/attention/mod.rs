//! Decode attention: one query per head against the KV cache, split over the context (split-KV), in one launch.
//!
//! A CTA has one key head, up to eight query heads of its group, and a run of pages of the cache. The producer warp
//! streams the pages of earlier positions through a ring in shared memory while the launch that computes the query is
//! still running, and then computes the scores of the new key. The consumer warps load query, key and value of the
//! current position into shared memory, normalised if the model has QK norms, and rotated (`query`). Each consumer warp
//! then multiplies one quarter of every page on tensor cores, and keeps its own running maximum (`tile`). The CTA with
//! the last run appends the new key and value to the cache. Warps combine their results in shared memory and runs in
//! device memory, where the last CTA to arrive combines them (`combine`). Results are combined in the order of
//! positions, so the output has the same bits in every launch.
//!
//! # The cache
//!
//! Keys and values are f16, each in pages of 64 positions: [page][key head][tile of 16 positions][16 · head_dim]. A
//! tile is stored in the order of the B fragments of `mma.m16n8k16` (PTX ISA, "Matrix Fragments for mma.m16n8k16"): 512
//! bytes for every 16 elements of the head dimension, 16 per lane. Of a tile of keys, lane 4g + t has elements 2t,
//! 2t+1, 2t+8 and 2t+9 of positions g and g+8; of a tile of values, elements g and g+8 of positions 2t, 2t+1, 2t+8 and
//! 2t+9. See [`AttentionShape::key_index`].
//!
//! Tiles are loaded whole. Positions past the end have weight zero, but zero times a stale infinity is NaN, so a tile
//! is cleared before its first position is appended. The cache therefore needs no initialisation.

mod combine;
mod query;
mod shape;
mod tile;
mod work;

use bespoke_codegen::prelude::*;

pub use shape::{AttentionShape, PAGE, TILE};
use shape::{CONSUMERS, WARPS};
use work::{CONSUMER_BARRIER, Operands, Work};

/// Mbarriers between the producer warp and the consumer warps: query, key and value are in shared memory; the scores of
/// the new key are in shared memory. Every writing thread arrives, because racecheck does not follow one arrival on
/// behalf of others.
const PREPARED: u32 = 0;
const SCORED: u32 = 1;

/// y = softmax(q·Kᵀ/√d)·V for one position, whose key and value are appended to the cache.
///
/// `qkv` f32 [heads + 2·kv_heads, head_dim]: projected queries, keys and values; `q_norm` and `k_norm` f32 [head_dim],
/// if the shape has QK norms: weights of an RMSNorm of each query and key head before the rotation; `rope_table`: see
/// [`super::rope::frequencies`]; `keys` and `values` f16, as described in the module; `partial` f32
/// [heads, splits, head_dim + 4] and `counters` u32 [blocks of heads], zero at the start and at the end, are workspace;
/// `y` f32 [heads, head_dim]; `state`: see [`super::state`].
///
/// Products have f16 operands and f32 sums; queries and softmax weights are each split into two f16. Scores are base-2
/// logarithms: the query is scaled by log₂e/√d.
#[kernel(threads = s.threads(), min_blocks = 1)]
pub fn attention(
    qkv: Ptr<Global, f32>,
    #[present(s.qk_norm.is_some())] q_norm: Option<Ptr<Global, f32>>,
    #[present(s.qk_norm.is_some())] k_norm: Option<Ptr<Global, f32>>,
    rope_table: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    partial: Ptr<Global, f32>,
    counters: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &AttentionShape,
) {
    let norms = q_norm.zip(k_norm);
    let operands = Operands { qkv, norms, rope_table, keys, values, partial, counters, y, state };
    s.trigger.at_start();
    let (ring, mbarriers) = (ring(s), mbarrier_array(2));
    if thread_index() == 0 {
        mbarriers.at(PREPARED).init(CONSUMERS);
        mbarriers.at(SCORED).init(WARP);
        ring.init();
    }
    barrier();
    let work = Work::of_cta(&operands, s);
    if warp_index() == WARPS {
        if s.copy.takes_lane() {
            load(&operands, ring, &work, s);
        }
        if work.pages[0] < work.pages[1] {
            warp_barrier(ALL_LANES);
            mbarriers.at(PREPARED).wait(0, s.copy.wait_kind());
            combine::new_scores(s);
            mbarriers.at(SCORED).arrive();
        }
    } else {
        multiply(&operands, ring, mbarriers, &work, s);
    }
}

/// The ring of pages, at the start of dynamic shared memory.
fn ring(s: &AttentionShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.stages,
        stage_bytes: 2 * s.page_bytes(),
        consumers: CONSUMERS,
        copy: s.copy.engine(),
    };
    Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()))
}

/// Producer warp: streams the tiles of earlier positions.
#[device]
fn load(operands: &Operands, ring: Pipeline, work: &Work, s: &AttentionShape) {
    let mut producer = ring.producer(lane());
    let mut page = work.pages[0];
    while page < work.pages[1] {
        let earlier = (work.position - page * PAGE).min(PAGE);
        if earlier > 0 {
            let bytes = (earlier + (TILE - 1)) / TILE * (TILE * s.head_dim * 2);
            let at = mul_wide(page * s.kv_heads + work.kv_head, s.page_bytes());
            producer.acquire(bytes * 2);
            producer.copy(0, operands.keys.bytes(at).cast(), bytes, None);
            producer.copy(s.page_bytes(), operands.values.bytes(at).cast(), bytes, None);
            producer.commit();
            producer.advance();
        }
        page += 1;
    }
}

/// Consumer warps: prepare the query, attend to the pages of the run, append the new entry, and combine the results.
#[device]
fn multiply(operands: &Operands, ring: Pipeline, mbarriers: MbarrierArray, work: &Work, s: &AttentionShape) {
    let rotation = query::Rotation::new(operands, work, s);
    query::begin_tile(operands, work, s);
    s.trigger.wait();
    if work.pages[0] < work.pages[1] {
        query::prepare(operands, &rotation, work, s);
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        // The producer waits for this only after its last copy, possibly after pages have been multiplied.
        mbarriers.at(PREPARED).arrive();
        let query = tile::Query::load(s);
        let mut running = tile::RunningSoftmax::new(s);
        let mut consumer = ring.consumer();
        let mut page = work.pages[0];
        while page < work.pages[1] {
            let earlier = (work.position - page * PAGE).min(PAGE);
            if earlier > 0 {
                consumer.wait();
                let tile = warp_index() * TILE;
                if tile < earlier {
                    let at = consumer.data().bytes(warp_index() * (TILE * s.head_dim * 2));
                    tile::attend(at, (earlier - tile).min(TILE), &query, &mut running, s);
                }
                consumer.release();
                consumer.advance();
            }
            page += 1;
        }
        query::append(operands, work, s);
        combine::store_partial(&running, s);
        named_barrier(CONSUMER_BARRIER, CONSUMERS);
        mbarriers.at(SCORED).wait(0, s.copy.wait_kind());
        combine::combine_warps(operands, work, s);
        if work.runs > 1 {
            combine::combine_runs(operands, work, s);
        }
    }
}
