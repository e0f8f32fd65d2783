//! Cost model of products of many tokens by warpgroups: divides the tokens among CTAs.

use super::gpu::Gpu;
use super::tuning::Rule;
use crate::kernels::gemv::tokens::{QUAD, TokenSchedule};
use crate::kernels::gemv::{GemvShape, Output};
use crate::kernels::launching::CopyEngine;

/// Fewest tokens for which warpgroups are faster than warps, on an H200 with the matrices of Llama-3.1-8B; and fewest if a CTA
/// has [`MANY_QUADS`], on an H100: with gate and up a step of 32 tokens is 5 to 6% faster for Llama-3.2-1B and 3B.
const FEWEST_TOKENS: u32 = 33;
const FEWEST_OF_MANY_QUADS: u32 = 32;
const MANY_QUADS: u32 = 2;

/// Columns of a step.
const STEP: u32 = 256;

/// Consumer warpgroups of a CTA. With three, 128 columns of operand B would leave too few registers.
const WARPGROUPS: u32 = 2;

/// Slices of the inputs in shared memory: one for each warpgroup, and one that is being loaded, if they fit.
const BUFFERS: [u32; 2] = [3, 2];

/// Largest number of stages of the ring of weights: two for each warpgroup. More fill shared memory that the next launch could
/// use: with 8, a step of 64 tokens takes 2 to 3% longer on an H100 for Llama-3.2-3B, Llama-3.1-8B and Qwen2.5-7B.
const MAX_STAGES: u32 = 4;

/// Cycles in which a CTA multiplies a step of a quad: for each column of operand B, and besides. From times of launches on an H200
/// with 64 and 128 columns; two CTAs that read the same weights are not slower than one.
const COLUMN: u64 = 15;
const QUAD_STEP: u64 = 400;

/// Divides `shape` among warpgroups, if they are faster than warps or the rule asks for them, and a division that the rule
/// allows fits.
pub(super) fn divide(gpu: &Gpu, shape: &GemvShape, rule: &Rule) -> Option<GemvShape> {
    let has_many_quads = segments(shape) * tiles(shape).div_ceil(QUAD) >= MANY_QUADS;
    let fewest = if has_many_quads { FEWEST_OF_MANY_QUADS } else { FEWEST_TOKENS };
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
    let divisions = (1..=most_blocks).flat_map(|blocks| BUFFERS.map(|buffers| (blocks, buffers)));
    let fitting = divisions.filter_map(|(blocks, buffers)| division(gpu, shape, blocks, buffers, rule));
    fitting.min_by_key(time)
}

/// The division with `blocks` blocks of tokens, if the rule allows it and it fits in shared memory: the largest batches of tiles with two stages for each
/// warpgroup.
fn division(gpu: &Gpu, shape: &GemvShape, blocks: u32, buffers: u32, rule: &Rule) -> Option<GemvShape> {
    let mut shape = shape.clone();
    let most_tiles = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    shape.schedule.grid = rule.grid.unwrap_or((gpu.multiprocessors / blocks).min(most_tiles));
    shape.schedule.warps = WARPGROUPS * QUAD;
    shape.schedule.groups = WARPGROUPS;
    let buffers = if shape.cols == STEP { 1 } else { buffers };
    let several = TokenSchedule { prepared: true, slice: STEP, buffers, ..TokenSchedule::ONE };
    shape.schedule.several = TokenSchedule { warpgroups: WARPGROUPS, blocks, ..several };
    let tiles = tiles(&shape);
    for batches in 1..=tiles.div_ceil(QUAD) {
        let batch = tiles.div_ceil(batches);
        // Batches of whole quads, unless there is one.
        shape.schedule.several.tiles = if batches == 1 { batch } else { batch.next_multiple_of(QUAD) };
        shape.schedule.stages = 0;
        let Some(free) = gpu.shared_budget(1).checked_sub(shape.token_bytes()) else { continue };
        let stages =
            (free / shape.stage_bytes()).min(rule.stages.unwrap_or(MAX_STAGES)) / WARPGROUPS * WARPGROUPS;
        if stages >= 2 * WARPGROUPS {
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

/// Estimated time of the CTA with the most tiles, in cycles.
fn time(shape: &GemvShape) -> u64 {
    let columns = u64::from(shape.input_layout().block_tokens) * 2;
    let quads = u64::from(segments(shape) * tiles(shape).div_ceil(QUAD));
    quads * u64::from(shape.cols / STEP) * (QUAD_STEP + COLUMN * columns)
}
