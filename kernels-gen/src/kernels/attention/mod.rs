//! Attention: for each row of a step one query per head against the KV cache, split over the context (split-KV), in one
//! launch; and `append`, which writes keys and values to the cache.
//!
//! A CTA has a row, one key head, up to eight query heads of its group, and a run of pages of the cache, or several such runs,
//! one after the other. The producer warp streams the pages through a ring in shared memory while the launch that computes the
//! query is still running. A stage of the ring holds a page, or a part of it if pages are too large. The consumer warps load
//! query, key and value of the current position into shared memory, normalised if the model has QK norms (`norm`), and rotated
//! if the layer has RoPE (`query`). Each consumer warp then multiplies one quarter of every page on tensor cores, and keeps its
//! own running maximum (`tile`). The new key and value are written into the staged copy of their tile (`last_tile`), so that
//! they are attended to like all others. The CTA with the last run also appends them to the cache. Warps combine their results
//! in shared memory and runs in device memory, where the last CTA to arrive combines them (`combine`). Results are combined in
//! the order of positions, so the output has the same bits in every launch.
//!
//! Rows are the last tokens of different sequences. In verify steps, whose rows may also be consecutive tokens of a sequence,
//! [`append()`] writes the entries of all rows before, and the rest is the same ([`AttentionShape::appended`]). In prefill
//! steps [`append()`] writes the entries too, and [`attention_chunk()`] attends. A row's result depends on its position, its
//! query and the entries of its sequence alone.
//!
//! In steps of many rows the CTAs are divided by the lengths of the rows' contexts, once a step: see `share`.
//!
//! With a sliding window the runs divide the pages that the window touches. Tiles before the window are not loaded, and
//! positions before it in the first tile are masked.
//!
//! The cache is a pool of pages. A page table has the physical page of each page of a sequence. The layout of a page, and
//! the types f16 and q8_0, are described in `cache`.

mod append;
mod cache;
mod chunk;
mod combine;
mod entry;
mod heads;
mod kv;
mod last_tile;
mod norm;
mod query;
mod score;
mod shape;
mod share;
mod tile;
mod work;

use bespoke_codegen::prelude::*;

pub use append::{AppendShape, append};
pub use chunk::{ChunkShape, ROW_GROUP, attention_chunk};
pub use kv::{BIAS, BLOCK, KvType, UnknownKvType};
pub use shape::{AttentionShape, NormSpan, PAGE, QkNorm, Rope, TILE};
use shape::{CONSUMERS, WARPS};
use share::Share;
pub use share::{SharesShape, attention_shares};
use work::{CONSUMER_BARRIER, Operands, Positions, Results, Run, Work};

/// y = softmax(b(q·Kᵀ·scale))·V for the position of each row. Appends the row's key and value to the cache, unless
/// [`AttentionShape::appended`]. K and V have the positions of the window; b(x) = softcap · tanh(x / softcap) if the shape has
/// a softcap, else x. y is zero for a row that does not exist.
///
/// `qkv` f32 [rows, heads + 2·kv_heads, head_dim]: projected queries, keys and values; `q_norm` and `k_norm` f32, if the shape
/// has QK norms: weights of the RMSNorm before the rotation (see [`NormSpan`]); `rope_table`, if the shape has RoPE: see
/// [`super::rope::frequencies`]; `keys` and `values`: the pools of pages, as described in `cache`; `page_table` u32: entry
/// PAGES + i is the physical page of the positions from 64·i on, where PAGES is a word of the row's record; `partial` f32
/// [rows, heads, splits, head_dim + 4] and `counters` u32 [rows, blocks of heads], zero at the start and at the end, are
/// workspace; `y` f32 [rows, heads, head_dim]; if the shape has an `output_layout`, `inputs` in place of `y`: the same values
/// quantised, with the bytes that [`super::gemv::tokens::prepare()`] would write; `state`, the rows' records: see
/// [`super::state`]; if the CTAs are divided by the lengths of the rows' contexts (`at_once`), `shares` in place of `state`, the
/// table of [`attention_shares()`].
///
/// Products have f16 operands and f32 sums; elements of type q8_0 are converted to f16 in registers. Queries and softmax
/// weights are each split into two f16. Scores are base-2 logarithms of softmax weights: see `score`.
#[kernel(threads = s.threads(), min_blocks = s.min_blocks(), allow_spills = s.allowed_spills())]
pub fn attention(
    qkv: Ptr<Global, f32>,
    #[present(s.qk_norm.is_some())] q_norm: Option<Ptr<Global, f32>>,
    #[present(s.qk_norm.is_some())] k_norm: Option<Ptr<Global, f32>>,
    #[present(s.rope.is_some())] rope_table: Option<Ptr<Global, f32>>,
    keys: Ptr<Global, u8>,
    values: Ptr<Global, u8>,
    page_table: Ptr<Global, u32>,
    partial: Ptr<Global, f32>,
    counters: Ptr<Global, u32>,
    #[present(s.output_layout.is_none())] y: Option<Ptr<Global, f32>>,
    #[present(s.output_layout.is_some())] inputs: Option<Ptr<Global, u8>>,
    #[present(s.at_once.is_none())] state: Option<Ptr<Global, u32>>,
    #[present(s.at_once.is_some())] shares: Option<Ptr<Global, u32>>,
    s: &AttentionShape,
) {
    s.trigger.at_start();
    let operands = Operands { qkv, q_norm, k_norm, rope_table, keys, values, page_table };
    let results = Results { partial, counters, y, inputs, row: val(0u32) };
    if let Some(state) = state {
        let share = Share::of_record(state, s);
        attend(&operands.of_row(share.row, s), &results.of_row(share.row, s), share, s);
    }
    if let Some(shares) = shares {
        let share = Share::load(shares);
        if share.row < s.tokens {
            attend(&operands.of_row(share.row, s), &results.of_row(share.row, s), share, s);
        } else {
            s.trigger.wait();
        }
    }
}

/// The work of a CTA that has a share of the row of `operands` and `results`.
#[device]
fn attend(operands: &Operands, results: &Results, share: Share, s: &AttentionShape) {
    // A CTA without pages returns after the wait.
    let work = Work::of_share(share, operands.page_table, s);
    if share.first < work.runs.count {
        let ring = ring(s);
        if thread_index() == 0 {
            ring.init();
        }
        barrier();
        if warp_index() == WARPS {
            if s.copy.takes_lane() {
                load(operands, ring, &work, s);
            }
        } else {
            multiply(operands, results, ring, &work, s);
        }
    } else {
        s.trigger.wait();
        combine::clear_inactive(results, &work, s);
    }
}

/// The ring, at the start of dynamic shared memory.
fn ring(s: &AttentionShape) -> Pipeline {
    let shape = PipelineShape {
        stages: s.stages,
        stage_bytes: s.stage_bytes(),
        consumers: Consumers::Threads(CONSUMERS),
        copy: s.copy.engine(),
    };
    Pipeline::new(shape, dynamic_shared(), mbarrier_array(shape.barriers()))
}

/// Producer warp: streams the pages of the CTA's runs.
#[device]
fn load(operands: &Operands, ring: Pipeline, work: &Work, s: &AttentionShape) {
    if s.appended {
        // The pages have entries of the launch before this one.
        s.trigger.wait();
    }
    let mut producer = ring.producer(lane());
    let mut index = work.share.first;
    let run = work.run(index, s);
    let page = work.share.page.unwrap_or_else(|| work.page_of(run.parts[0], s));
    load_run(&mut producer, page, operands, work, &run, s);
    if !s.has_one_run() {
        index += work.share.ctas;
        while index < work.runs.count {
            let run = work.run(index, s);
            load_run(&mut producer, work.page_of(run.parts[0], s), operands, work, &run, s);
            index += work.share.ctas;
        }
    }
}

/// Streams the tiles of a run to which the token attends, one part of a page per stage. The first is on physical page
/// `first_page`. In a kernel that appends, the entries from the current position on are stale.
#[device]
fn load_run(
    producer: &mut Producer,
    first_page: Val<u32>,
    operands: &Operands,
    work: &Work,
    run: &Run,
    s: &AttentionShape,
) {
    let (mut part, mut page) = (run.parts[0], first_page);
    while part < run.parts[1] {
        let positions = work.positions_in(part, s);
        let bytes = positions.tiles() * s.tile_bytes();
        let at = part_offset(page, part, &positions, work, s);
        producer.acquire(bytes * 2);
        producer.copy(0, operands.keys.byte_add(at), bytes, None);
        producer.copy(s.part_bytes(), operands.values.byte_add(at), bytes, None);
        producer.commit();
        producer.advance();
        part += 1;
        // Before the wait for a free stage.
        page = work.page_of(part.min(run.parts[1] - 1), s);
    }
}

/// Offset in the cache of the first tile of a part to which the token attends, in bytes. The part is on physical page `page`.
fn part_offset(
    page: Val<u32>,
    part: Val<u32>,
    positions: &Positions,
    work: &Work,
    s: &AttentionShape,
) -> Val<u64> {
    let parts = s.parts_per_page();
    let mut at = mul_wide(page * s.kv_heads + work.token.kv_head, s.page_bytes());
    if parts > 1 {
        at += mul_wide(part % parts, s.part_bytes());
    }
    positions.first_tile().map_or(at, |tile| at + mul_wide(tile, s.tile_bytes()))
}

/// Consumer warps: prepare the query, attend to the pages of each run, append the new entry, and combine the results.
#[device]
fn multiply(operands: &Operands, results: &Results, ring: Pipeline, work: &Work, s: &AttentionShape) {
    let rotation = query::Rotation::new(operands, &work.token, s);
    // The physical page of the new entry.
    let page = work.token.page(work.token.position / PAGE);
    s.trigger.wait();
    query::prepare(operands, &rotation, &work.token, s, |head, element, value| {
        tile::store_query(head, element, value, s);
    });
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    let query = tile::Query::load(s);
    let mut consumer = ring.consumer();
    let mut index = work.share.first;
    if s.has_one_run() {
        let run = work.run(index, s);
        let running = attend_to_run(&mut consumer, &query, work, &run, s);
        finish_run(&running, page, operands, results, work, &run, s);
    } else {
        while index < work.runs.count {
            let run = work.run(index, s);
            let running = attend_to_run(&mut consumer, &query, work, &run, s);
            finish_run(&running, page, operands, results, work, &run, s);
            // The next run's partial results are in the same shared memory.
            named_barrier(CONSUMER_BARRIER, CONSUMERS);
            index += work.share.ctas;
        }
    }
    let mut has_output = work.runs.count == 1;
    if work.runs.count > 1 {
        has_output = combine::combine_runs(results, work, s);
    }
    if s.output_layout.is_some() {
        if has_output {
            combine::quantise_output(results, work, s);
        }
    }
}

/// Attends to the pages of a run.
#[device]
fn attend_to_run(
    consumer: &mut Consumer,
    query: &tile::Query,
    work: &Work,
    run: &Run,
    s: &AttentionShape,
) -> tile::RunningSoftmax {
    let mut running = tile::RunningSoftmax::new(s);
    let mut part = run.parts[0];
    while part < run.parts[1] {
        let positions = work.positions_in(part, s);
        consumer.wait();
        let tile = warp_tile(s);
        if attends(part, tile, &positions, s) {
            let copied = positions.first_tile().map_or(tile, |first| tile - first);
            let at = consumer.data().byte_add(copied * s.tile_bytes());
            if is_last_tile(part, tile, work, s) {
                last_tile::complete(at, work.token.in_tile(), s);
            }
            tile::attend(at, &positions.in_tile(tile), query, &mut running, s);
        }
        consumer.release();
        consumer.advance();
        part += 1;
    }
    running
}

/// Appends the new entry, if the run is the last one, to physical page `page`, and combines the warps' results of the run.
#[device]
fn finish_run(
    running: &tile::RunningSoftmax,
    page: Val<u32>,
    operands: &Operands,
    results: &Results,
    work: &Work,
    run: &Run,
    s: &AttentionShape,
) {
    entry::append(page, operands, &work.token, run, s);
    combine::store_partial(running, s);
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    combine::combine_warps(results, work, run, s);
}

/// Whether tile `tile` of part `part` has the token's position.
#[device]
fn is_last_tile(part: Val<u32>, tile: Val<u32>, work: &Work, s: &AttentionShape) -> Val<bool> {
    part * s.stage_tiles + tile == work.token.position / TILE
}

/// Index within its part of the tile that this warp attends to. Of every page, a warp attends to the tile with its own
/// index, whatever the size of a part.
fn warp_tile(s: &AttentionShape) -> Val<u32> {
    if s.parts_per_page() == 1 { warp_index() } else { warp_index() % s.stage_tiles }
}

/// Whether this warp attends to tile `tile` of a part.
#[device]
fn attends(part: Val<u32>, tile: Val<u32>, positions: &Positions, s: &AttentionShape) -> Val<bool> {
    let parts = s.parts_per_page();
    let mut attends = tile * TILE < positions.end;
    if let Some(first) = positions.first_tile() {
        attends &= first <= tile;
    }
    if parts > 1 {
        attends &= warp_index() / s.stage_tiles == part % parts;
    }
    attends
}
