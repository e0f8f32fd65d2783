//! Cost model of products of many tokens by warpgroups: divides the tokens among CTAs.

use super::gpu::Gpu;
use super::tuning::Rule;
use crate::kernels::gemv::tokens::{QUAD, TokenSchedule};
use crate::kernels::gemv::{GemvShape, Output};
use crate::kernels::launching::CopyEngine;

/// Fewest tokens for which warpgroups are faster than warps, on an H200 with the matrices of Llama-3.1-8B; and fewest if there are
/// [`TENTHS_OF_TILES`] of tiles for each multiprocessor, on an H100: with gate and up a step of 32 tokens is 5 to 6% faster for
/// Llama-3.2-1B and 3B, and with QKV 3% for Llama-3.1-8B (29 tenths), but 1% slower for Qwen2.5-7B (22) and 8% for Llama-3.2-3B (24).
const FEWEST_TOKENS: u32 = 33;
const FEWEST_OF_MANY_TILES: u32 = 32;
const TENTHS_OF_TILES: u32 = 28;

/// Columns of a step.
const STEP: u32 = 256;

/// Numbers of consumer warpgroups of a CTA in order of preference, unless a rule sets the number. Three instead of two in gate and up
/// make a step of 64 tokens 1.5 to 4% faster on an H100 (Llama-3.1-8B, 3.2-1B and 3.2-3B, Qwen2.5-7B and 1.5B).
const WARPGROUPS: [u32; 2] = [3, 2];

/// Fewest tiles of a CTA for which warpgroups multiply. With fewer, two or more warps of each warpgroup are idle. Measured on an H100
/// with 64 tokens: with two tiles, in the down projections of Llama-3.2-1B and Qwen2.5-1.5B, warps are faster by 3 to 4% of a step.
const FEWEST_TILES: u32 = 3;

/// Largest number of stages of the ring of weights for each warpgroup. More fill shared memory that the next launch could
/// use: with four, a step of 64 tokens takes 2 to 3% longer on an H100 for Llama-3.2-3B, Llama-3.1-8B and Qwen2.5-7B.
const MAX_STAGES: u32 = 2;

/// Time of a CTA, in cycles, for 256 columns of a quad of tiles: [`QUAD_STEP`], and [`COLUMN`] more for each column of operand B.
/// Fitted to launches on an H200 with 64 and 128 columns of B. Two CTAs that read the same weights are not slower than one.
const COLUMN: u64 = 15;
const QUAD_STEP: u64 = 400;

/// Divides `shape` among warpgroups, if they are faster than warps or the rule asks for them, and a division that the rule
/// allows fits.
pub(super) fn divide(gpu: &Gpu, shape: &GemvShape, rule: &Rule) -> Option<GemvShape> {
    let all_tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).sum();
    let has_many_tiles = 10 * all_tiles >= TENTHS_OF_TILES * gpu.multiprocessors;
    let fewest = if has_many_tiles { FEWEST_OF_MANY_TILES } else { FEWEST_TOKENS };
    let is_worthwhile = rule.warpgroups.map_or(shape.tokens >= fewest, |warpgroups| warpgroups > 0);
    if !is_worthwhile
        || !gpu.warpgroups
        || shape.schedule.copy != CopyEngine::Bulk
        || !shape.supports_warpgroups()
    {
        return None;
    }
    // An argmax has one CTA for each share of the rows.
    let most_blocks = if shape.output == Output::Argmax { 1 } else { 2.min(gpu.multiprocessors) };
    let into = |warpgroups: u32| {
        // A slice of the inputs for each warpgroup, and one that is being loaded, if it fits.
        let buffers = [warpgroups + 1, warpgroups];
        let divisions = (1..=most_blocks).flat_map(|blocks| buffers.map(|it| [warpgroups, blocks, it]));
        let fitting = divisions.filter_map(|division| divided(gpu, shape, division, rule));
        fitting.min_by_key(time)
    };
    match rule.warpgroups {
        Some(warpgroups) => into(warpgroups),
        None => WARPGROUPS.into_iter().find_map(into).filter(|found| tiles(found) >= FEWEST_TILES),
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
    shape.schedule.grid = rule.grid.unwrap_or((gpu.multiprocessors / blocks).min(most_tiles));
    shape.schedule.warps = warpgroups * QUAD;
    shape.schedule.groups = warpgroups;
    let buffers = if shape.cols == STEP { 1 } else { buffers };
    let several = TokenSchedule { prepared: true, slice: STEP, buffers, ..TokenSchedule::ONE };
    shape.schedule.several = TokenSchedule { warpgroups, blocks, ..several };
    let tiles = tiles(&shape);
    for batches in 1..=tiles.div_ceil(QUAD) {
        let batch = tiles.div_ceil(batches);
        // Batches of whole quads, unless there is one.
        shape.schedule.several.tiles = if batches == 1 { batch } else { batch.next_multiple_of(QUAD) };
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

/// Tiles of each segment that a CTA has at most.
fn tiles(shape: &GemvShape) -> u32 {
    shape.most_tiles().div_ceil(segments(shape)).max(1)
}

/// Segments whose tiles a CTA has side by side.
fn segments(shape: &GemvShape) -> u32 {
    if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 }
}

/// Estimated time of the CTA with the most quads, in cycles.
fn time(shape: &GemvShape) -> u64 {
    let columns = u64::from(shape.input_layout().block_tokens) * 2;
    u64::from(shape.most_quads()) * u64::from(shape.cols / STEP) * (QUAD_STEP + COLUMN * columns)
}
