//! Decode attention: one query against the cache, split over the context, in one launch.
//!
//! A CTA has one key head, up to eight query heads of its group and a run of pages of the cache. One warp streams the
//! pages of earlier positions through a ring in shared memory, before the launches that make the query are over, and
//! then scores the new key. The others bring query, key and value of the present position into shared memory
//! (`query`): normalised, where the model does that, and rotated. Then each multiplies its quarter of every page
//! (`tile`) on tensor cores, with a running maximum of its own; the CTA whose run ends the context appends the key
//! and the value to the cache. Warps meet in shared memory, runs in device memory, where the last one to arrive joins
//! all (`join`). Everything is joined in the order of positions, so that results are the same bits on every run.
//!
//! # The cache
//!
//! Keys and values are f16, each in pages of 64 positions: [page][key head][tile of 16 positions][16 · head_dim].
//! A tile lies as `mma.m16n8k16` takes its right operand (PTX ISA, "Matrix Fragments for mma.m16n8k16"): for each 16
//! elements of the head dimension 512 bytes, 16 a lane. Of keys lane 4g + t has elements 2t, 2t + 1, 2t + 8, 2t + 9
//! of positions g and g + 8; of values elements g and g + 8 of positions 2t, 2t + 1, 2t + 8, 2t + 9. See
//! [`AttentionShape::key_index`].
//!
//! A tile is loaded whole, and what lies behind the last position weighs nothing; but nothing times a stale infinity
//! is a NaN. So a tile is cleared before its first position is appended, and a cache needs no content to begin with.

mod join;
mod query;
mod shape;
mod tile;

use bespoke_codegen::prelude::*;

use super::state;
pub use shape::{AttentionShape, PAGE, TILE};
use shape::{CONSUMERS, WARPS};

/// The barrier of the warps that multiply.
const BARRIER: u8 = 1;
/// Mbarriers at which the loading warp and the others wait for each other: for query, key and value in shared memory,
/// and for the new key's scores. Every thread that wrote arrives, which racecheck understands better than one for all.
const PREPARED: u32 = 0;
const SCORED: u32 = 1;

/// Lowest score: finite, so that the difference of two of them is not a NaN.
const LOWEST: f32 = -1e30;

/// Where a launch's data lies.
#[derive(Clone, Copy)]
struct Operands {
    qkv: Ptr<Global, f32>,
    norms: Option<[Ptr<Global, f32>; 2]>,
    rope_table: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    partial: Ptr<Global, f32>,
    counters: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
}

/// What a CTA works on.
#[derive(Clone, Copy)]
struct Work {
    /// The present position: as many are in the cache.
    position: Val<u32>,
    /// The first query head.
    first_head: Val<u32>,
    /// The key head.
    kv_head: Val<u32>,
    /// The first page of the run and the one after the last.
    pages: [Val<u32>; 2],
    /// Runs that have pages.
    runs: Val<u32>,
    /// The run has the present position.
    last: Val<bool>,
}

/// y = softmax(q·Kᵀ/√d)·V for one position, whose key and value are appended to the cache.
///
/// `qkv` f32 [heads + 2·kv_heads, head_dim]: queries, keys, values as projected; `rope_table` see
/// [`super::rope::frequencies`]; `keys` and `values` f16 as described in the module; `partial` f32
/// [heads, splits, head_dim + 4] and `counters` u32 [blocks of heads], zero, are workspace; `y` f32 [heads, head_dim].
/// Products have f16 operands, with queries and weights as sums of two, and f32 sums. Scores are in powers of two:
/// the query is scaled by log₂e/√d.
#[kernel(threads = s.threads(), min_blocks = 1)]
pub fn attention(
    qkv: Ptr<Global, f32>,
    rope_table: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    partial: Ptr<Global, f32>,
    counters: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &AttentionShape,
) {
    body(&Operands { qkv, norms: None, rope_table, keys, values, partial, counters, y, state }, s);
}

/// As [`attention`], with the heads of queries and keys normalised (RMSNorm) before the rotation; `q_norm` and
/// `k_norm` f32 [head_dim].
#[kernel(threads = s.threads(), min_blocks = 1)]
pub fn attention_qk_norm(
    qkv: Ptr<Global, f32>,
    q_norm: Ptr<Global, f32>,
    k_norm: Ptr<Global, f32>,
    rope_table: Ptr<Global, f32>,
    keys: Ptr<Global, f16>,
    values: Ptr<Global, f16>,
    partial: Ptr<Global, f32>,
    counters: Ptr<Global, u32>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &AttentionShape,
) {
    let norms = Some([q_norm, k_norm]);
    body(&Operands { qkv, norms, rope_table, keys, values, partial, counters, y, state }, s);
}

#[device]
fn body(operands: &Operands, s: &AttentionShape) {
    s.trigger.at_start();
    let (ring, meetings) = (ring(s), mbarrier_array(2));
    if thread_index() == 0 {
        meetings.at(PREPARED).init(CONSUMERS);
        meetings.at(SCORED).init(WARP);
        ring.init();
    }
    barrier();
    let work = work(operands, s);
    if warp_index() == WARPS {
        if s.copy.takes_lane() {
            load(operands, ring, &work, s);
        }
        if work.pages[0] < work.pages[1] {
            warp_barrier(ALL_LANES);
            meetings.at(PREPARED).wait(0, s.copy.how());
            join::new_scores(s);
            meetings.at(SCORED).arrive();
        }
    } else {
        multiply(operands, ring, meetings, &work, s);
    }
}

fn ring(s: &AttentionShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.stages,
        stage_bytes: 2 * s.page_bytes(),
        consumers: CONSUMERS,
        copy: s.copy.engine(),
    };
    Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()))
}

/// Which heads and pages this CTA has.
///
/// The position is read before the launches in front are known to be over: whoever let this one start must have
/// waited for the launch that set it ([`super::launching::Trigger::AfterWait`]).
fn work(operands: &Operands, s: &AttentionShape) -> Work {
    let position = state::position(operands.state);
    let pages = position / PAGE + 1;
    let run = ((pages + (s.splits - 1)) / s.splits).max(s.min_pages);
    let first = block_index_y() * run;
    let end = (first + run).min(pages);
    let first_head = block_index() * s.heads_per_block;
    Work {
        position,
        first_head,
        kv_head: first_head / s.group(),
        pages: [first, end],
        runs: (pages + run - 1) / run,
        last: is_last(first, end, pages),
    }
}

#[device]
fn is_last(first: Val<u32>, end: Val<u32>, pages: Val<u32>) -> Val<bool> {
    first < end && end == pages
}

/// The loading warp: the tiles of earlier positions.
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

/// The other warps.
#[device]
fn multiply(operands: &Operands, ring: Pipeline, meetings: MbarrierArray, work: &Work, s: &AttentionShape) {
    let rotation = query::Rotation::new(operands, work, s);
    query::begin_tile(operands, work, s);
    s.trigger.wait();
    if work.pages[0] < work.pages[1] {
        query::prepare(operands, &rotation, work, s);
        named_barrier(BARRIER, CONSUMERS);
        // The loading warp comes there when it has no more to load, which may be after pages are multiplied.
        meetings.at(PREPARED).arrive();
        let query = tile::Query::load(s);
        let mut running = tile::Running::new(s);
        let mut consumer = ring.consumer();
        let mut page = work.pages[0];
        while page < work.pages[1] {
            let earlier = (work.position - page * PAGE).min(PAGE);
            if earlier > 0 {
                consumer.wait();
                let mine = warp_index() * TILE;
                if mine < earlier {
                    let at = consumer.data().bytes(warp_index() * (TILE * s.head_dim * 2));
                    tile::attend(at, (earlier - mine).min(TILE), &query, &mut running, s);
                }
                consumer.release();
                consumer.advance();
            }
            page += 1;
        }
        query::append(operands, work, s);
        join::keep(&running, s);
        named_barrier(BARRIER, CONSUMERS);
        meetings.at(SCORED).wait(0, s.copy.how());
        join::join_warps(operands, work, s);
        if work.runs > 1 {
            join::join_runs(operands, work, s);
        }
    }
}
