//! Cost model of products of many tokens by warpgroups: divides the tokens among CTAs.

use super::gpu::Gpu;
use super::token_cost::{self, tiles};
use super::tuning::Rule;
use crate::kernels::gemv::{GemvShape, Output, QUAD, TokenSchedule};
use crate::kernels::launching::CopyEngine;

/// Minimum number of tokens for which warpgroups are faster than warps, on an H200 with the matrices of Llama-3.1-8B; and the
/// minimum number if there are at least [`TENTHS_OF_TILES`] / 10 tiles per multiprocessor, on an H100: with gate and up a step of
/// 32 tokens is 5 to 6% faster for Llama-3.2-1B and 3B, and with QKV 3% for Llama-3.1-8B (29 tenths), but 1% slower for
/// Qwen2.5-7B (22) and 8% for Llama-3.2-3B (24).
const MIN_TOKENS: u32 = 33;
const MIN_TOKENS_OF_MANY_TILES: u32 = 32;
const TENTHS_OF_TILES: u32 = 28;

/// Bounds for products of f16: with fewer than 9 tokens warps are faster, with 17 or more warpgroups are. Measured on an H200.
const MIN_TOKENS_OF_HALVES: u32 = 9;
const ALWAYS_FROM_HALVES: u32 = 17;

/// Between these bounds, warpgroups multiply if at least half of the warps have a tile, and a CTA's number of quads times its
/// number of steps of 256 columns is at least this. Measured on an H200 with 16 tokens, steps a second: Llama-3.1-8B 7%,
/// Qwen2.5-7B 11%, Qwen3-4B 16%, Llama-3.2-3B 5% more, Llama-3.2-1B and Qwen2.5-1.5B the same. With warpgroups in all products
/// the 1B and Qwen3-0.6B are 5% slower. Measured were 12, 20 and 30; 18 is between 16 (gate and up of the 1B, slower) and 19
/// (down of the 4B, faster).
const MIN_QUAD_STEPS: u32 = 18;

/// Tokens of the smallest block.
const MIN_BLOCK: u32 = 8;

/// Columns of a step.
const STEP: u32 = 256;

/// Numbers of consumer warpgroups of a CTA in order of preference, unless a rule sets the number. Three instead of two in gate and up
/// make a step of 64 tokens 1.5 to 4% faster on an H100 (Llama-3.1-8B, 3.2-1B and 3.2-3B, Qwen2.5-7B and 1.5B).
const WARPGROUPS: [u32; 2] = [3, 2];

/// Minimum number of tiles of a CTA for which warpgroups multiply. With fewer, two or more warps of each warpgroup are idle.
/// Measured on an H100 with 64 tokens: with two tiles, in the down projections of Llama-3.2-1B and Qwen2.5-1.5B, warps are faster
/// by 3 to 4% of a step.
const MIN_TILES: u32 = 3;

/// Largest number of stages of the ring of weights for each warpgroup. More fill shared memory that the next launch could
/// use: with four, a step of 64 tokens takes 2 to 3% longer on an H100 for Llama-3.2-3B, Llama-3.1-8B and Qwen2.5-7B.
const MAX_STAGES: u32 = 2;

/// Time of a CTA, in cycles, for 256 columns of a quad of tiles: [`QUAD_STEP`], and [`COLUMN`] more for each column of operand B.
/// Fitted to launches on an H200 with 64 and 128 columns of B. Two CTAs that read the same weights are not slower than one.
const COLUMN: u64 = 15;
const QUAD_STEP: u64 = 400;

/// The same for products of f16, from gate and up of Llama-3.1-8B with 16 and 64 columns, on an H200.
const HALF_COLUMN: u64 = 9;
const HALF_QUAD_STEP: u64 = 570;

/// Time of a batch of f16 besides its products, in cycles: its barriers, and an epilogue during which no warpgroup multiplies.
/// With gate and up of Llama-3.1-8B in one batch instead of two, a step of 64 tokens is 1.6% faster.
const HALF_BATCH: u64 = 1500;

/// Divides `shape` among warpgroups, if they are faster than warps or the rule asks for them, and a division that the rule
/// allows fits.
pub(super) fn divide(gpu: &Gpu, shape: &GemvShape, rule: &Rule) -> Option<GemvShape> {
    let all_tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).sum();
    let has_many_tiles = 10 * all_tiles >= TENTHS_OF_TILES * gpu.multiprocessors;
    let fewest = match shape.is_f16() {
        true => MIN_TOKENS_OF_HALVES,
        false if has_many_tiles => MIN_TOKENS_OF_MANY_TILES,
        false => MIN_TOKENS,
    };
    let is_worthwhile = rule.warpgroups.map_or(shape.tokens >= fewest, |warpgroups| warpgroups > 0);
    if !is_worthwhile
        || !gpu.warpgroups
        || shape.schedule.copy != CopyEngine::Bulk
        || !shape.supports_warpgroups()
    {
        return None;
    }
    // An argmax has one CTA for each share of the rows. Two blocks decode the weights twice, which does not pay with few tokens of f16.
    let is_short = shape.is_f16() && shape.tokens < ALWAYS_FROM_HALVES && rule.blocks.is_none();
    let is_whole = is_short || shape.tokens <= MIN_BLOCK || shape.output == Output::Argmax;
    let most_blocks = if is_whole { 1 } else { 2.min(gpu.multiprocessors) };
    let into = |warpgroups: u32| {
        // A slice of the inputs for each warpgroup, and one that is being loaded, if it fits.
        let buffers = [warpgroups + 1, warpgroups];
        let divisions = (1..=most_blocks).flat_map(|blocks| buffers.map(|it| [warpgroups, blocks, it]));
        let fitting = divisions.filter_map(|division| divided(gpu, shape, division, rule));
        fitting.min_by_key(time)
    };
    match rule.warpgroups {
        Some(warpgroups) => into(warpgroups),
        None => WARPGROUPS
            .into_iter()
            .find_map(into)
            .filter(|found| tiles(found) >= MIN_TILES && has_enough_work(found)),
    }
}

/// Divides a product among warpgroups and blocks of tokens, with `buffers` slices of the inputs in shared memory. Chooses the largest batches
/// of tiles that leave room for two stages for each warpgroup. None if there is no room or the rule forbids the division.
fn divided(
    gpu: &Gpu,
    shape: &GemvShape,
    [warpgroups, blocks, buffers]: [u32; 3],
    rule: &Rule,
) -> Option<GemvShape> {
    let mut shape = shape.clone();
    let most_tiles = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    shape.schedule.warps = warpgroups * QUAD;
    shape.schedule.groups = warpgroups;
    let buffers = if shape.cols == STEP { 1 } else { buffers };
    let several = TokenSchedule { prepared: true, slice: STEP, buffers, ..TokenSchedule::ONE };
    shape.schedule.several = TokenSchedule { warpgroups, blocks, ..several };
    let ctas = (gpu.multiprocessors / (blocks * shape.cluster())).max(1);
    shape.schedule.grid = rule.grid.unwrap_or(ctas.min(most_tiles));
    let tiles = tiles(&shape);
    // The CTAs of a cluster have one batch.
    let most_batches = if shape.cluster() > 1 { 1 } else { tiles.div_ceil(QUAD) };
    for batches in 1..=most_batches {
        let batch = tiles.div_ceil(batches);
        // Batches of whole quads, of one segment or of two, unless there is one.
        shape.schedule.several.tiles = batch.next_multiple_of(QUAD / 2);
        if batches == 1 {
            shape.schedule.several.tiles = batch;
        } else if !shape.mixes_segments() {
            shape.schedule.several.tiles = batch.next_multiple_of(QUAD);
        }
        shape.schedule.stages = 0;
        let Some(free) = gpu.shared_budget(1).checked_sub(shape.token_bytes()) else { continue };
        let most = rule.stages.unwrap_or(MAX_STAGES * warpgroups);
        let stages = (free / shape.stage_bytes()).min(most) / warpgroups * warpgroups;
        if stages >= 2 * warpgroups {
            (shape.schedule.stages, shape.schedule.in_flight) = (stages, stages);
            if rule.allows(&shape) {
                return Some(shape);
            }
        }
    }
    None
}

/// Whether the warpgroups have enough work; always true except for few tokens of f16.
fn has_enough_work(shape: &GemvShape) -> bool {
    if !shape.is_f16() || shape.tokens >= ALWAYS_FROM_HALVES {
        return true;
    }
    let quads = shape.most_quads();
    let tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).sum();
    2 * tiles >= QUAD * quads * shape.schedule.grid && quads * steps(shape) >= MIN_QUAD_STEPS
}

/// Whether warps may be faster than the warpgroups of a division: with few tokens of f16, unless a rule asks for warpgroups.
pub(super) fn may_be_slower(divided: &GemvShape, rule: &Rule) -> bool {
    let is_short = divided.is_f16() && divided.tokens < ALWAYS_FROM_HALVES;
    is_short && divided.has_warpgroups() && rule.warpgroups.is_none()
}

/// Whether a division of few tokens of f16 is slower by warpgroups than by warps: if these hold the sums of all tiles (of gate and up
/// those of half of the tiles, if their time is not estimated to be more than a fourth longer). Measured with 16 tokens on an H200, by
/// steps a second: gate and up of Qwen3-4B 3.5%, Qwen2.5-1.5B 2.4% and Llama-3.1-8B 1.7% faster by warps, Llama-3.2-3B the same,
/// Qwen2.5-7B, in three batches, 4% slower, and Qwen3-8B 2% slower; down of Qwen3-4B 1% faster, of Llama-3.1-8B the same,
/// of Qwen2.5-7B, in two batches, 11% slower.
pub(super) fn is_slower(gpu: &Gpu, by_warpgroups: &GemvShape, by_warps: &GemvShape) -> bool {
    let several = &by_warps.schedule.several;
    let batches = tiles(by_warps).div_ceil(several.tiles);
    let has_close_estimate = || 4 * token_cost::estimate(gpu, by_warps) <= 5 * time(by_warpgroups);
    several.holds
        && match by_warps.output {
            Output::Glu(_) => batches <= 2 && has_close_estimate(),
            _ => batches == 1,
        }
}

/// Steps of the columns that a CTA has at most.
fn steps(shape: &GemvShape) -> u32 {
    (shape.cols / STEP).div_ceil(shape.cluster())
}

/// Estimated time of the CTA with the most quads, in cycles.
fn time(shape: &GemvShape) -> u64 {
    let tokens = u64::from(shape.input_layout().block_tokens);
    let (step, batch) = match shape.is_f16() {
        true => (HALF_QUAD_STEP + HALF_COLUMN * tokens, HALF_BATCH),
        false => (QUAD_STEP + COLUMN * (2 * tokens), 0),
    };
    let batches = tiles(shape).div_ceil(shape.schedule.several.tiles);
    u64::from(shape.most_quads()) * u64::from(steps(shape)) * step + u64::from(batches) * batch
}
