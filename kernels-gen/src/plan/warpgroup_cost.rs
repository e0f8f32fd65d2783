//! Cost model of products of several tokens by warpgroups.
//!
//! The time of a CTA is estimated for each division that fits, in cycles of a multiprocessor: the longest of the times of its
//! tensor cores, of its warps' instructions, of one warpgroup's steps, which follow each other, and of its loads from the L2
//! cache and from device memory. The constants are rough; they rank divisions of one product.

use bespoke_codegen::dsl::WARP;

use super::gpu::Gpu;
use super::token_cost::{L2_BYTES, LATENCY};
use crate::kernels::gemv::tokens::{GROUP, QUAD, TokenSchedule};
use crate::kernels::gemv::{GemvShape, Output};
use crate::kernels::launching::CopyEngine;
use crate::weights::{Layout, WeightType};

/// Columns of a step.
const STEP: u32 = 256;

/// Columns of operand B that tensor cores multiply with 64 rows of 32 bytes in a cycle: 4,096 products of bytes.
const COLUMNS_A_CYCLE: u64 = 2;

/// Fewest cycles of a product, however few its columns.
const PRODUCT: u64 = 16;

/// Cycles of a step of a warpgroup besides its instructions and products: waits for its products, which follow each other.
const WAITS: u64 = 800;

/// Cycles in which a team adds the sums of a step to the totals, besides those for each column, while others wait.
const TURN: u64 = 120;

/// Largest number of stages of the ring of weights.
const MAX_STAGES: u32 = 16;

/// Registers of a scheduler, of which a multiprocessor has four.
const REGISTERS: u32 = 16 * 1024;

/// Chooses the division of `shape` among warpgroups with the shortest estimated time, if one fits.
pub(super) fn divide(gpu: &Gpu, shape: &GemvShape) -> Option<GemvShape> {
    if !gpu.warpgroups || shape.schedule.copy != CopyEngine::Bulk || !shape.supports_warpgroups() {
        return None;
    }
    let mut best: Option<(u64, GemvShape)> = None;
    let env = std::env::var("BESPOKE_WG").unwrap_or_default();
    if env == "off" {
        return None;
    }
    if std::env::var("BESPOKE_WGX").is_ok() && shape.segments.iter().any(|x| x.ty.exact_groups() == 0) {
        return None;
    }
    let want: Vec<u32> = env.split(',').filter_map(|x| x.parse().ok()).collect();
    for trial in candidates(gpu, shape) {
        let v = &trial.schedule.several;
        let have = [v.warpgroups, v.parts, v.blocks, v.slice, v.buffers];
        if want.iter().zip(have).any(|(w, h)| *w != 0 && *w != h) {
            continue;
        }
        let time = time(gpu, &trial);
        if best.as_ref().is_none_or(|(best, _)| time < *best) {
            best = Some((time, trial));
        }
    }
    best.map(|(_, shape)| shape)
}

/// The divisions that fit in registers and shared memory.
fn candidates(gpu: &Gpu, shape: &GemvShape) -> Vec<GemvShape> {
    let most_tiles = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    let mut found = Vec::new();
    for (warpgroups, parts) in [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (3, 1)] {
        for blocks in [1, 2, 4] {
            let tokens = shape.tokens.div_ceil(blocks);
            // An argmax has one CTA for each share of the rows; a part has whole groups of tokens.
            let is_divided = blocks == 1 || shape.output != Output::Argmax && tokens >= 2 * GROUP;
            if !is_divided || tokens < parts * GROUP || gpu.multiprocessors < blocks {
                continue;
            }
            for slice in [STEP, 2 * STEP, 4 * STEP] {
                if !shape.cols.is_multiple_of(slice) {
                    continue;
                }
                for buffers in [2, 3, 4, 6] {
                    let mut trial = shape.clone();
                    trial.schedule.grid = (gpu.multiprocessors / blocks).min(most_tiles);
                    trial.schedule.warps = warpgroups * QUAD;
                    trial.schedule.groups = warpgroups / parts;
                    let several =
                        TokenSchedule { prepared: true, slice, buffers, parts, tiles: 1, warpgroups, blocks };
                    trial.schedule.several = several;
                    if slice == shape.cols {
                        trial.schedule.several.buffers = 1;
                    }
                    if needed_registers(&trial) <= registers(&trial)
                        && let Some(trial) = fit(gpu, trial)
                    {
                        found.push(trial);
                    }
                }
            }
        }
    }
    found
}

/// Registers that a thread may have: the warps are divided among the schedulers.
fn registers(shape: &GemvShape) -> u32 {
    let warps = (shape.threads() / WARP).div_ceil(4);
    REGISTERS / (warps * WARP) / 8 * 8
}

/// Registers of a thread that a product needs: sums, results and operands.
fn needed_registers(shape: &GemvShape) -> u32 {
    let columns = columns(shape) as u32;
    let of_type = |ty: WeightType| {
        if ty.exact_groups() > 0 { 76 + columns * 3 / 4 } else { 60 + columns * 5 / 4 }
    };
    shape.segments.iter().map(|segment| of_type(segment.ty)).max().unwrap_or(0)
}

/// Columns of operand B of a warpgroup.
fn columns(shape: &GemvShape) -> u64 {
    u64::from(2 * GROUP * shape.cta_groups() / shape.schedule.several.parts)
}

/// Tiles of each segment that a CTA has at most.
fn tiles(shape: &GemvShape) -> u32 {
    let segments = if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 };
    shape.most_tiles().div_ceil(segments).max(1)
}

/// Chooses the tiles of a batch and the stages that fit in shared memory: the largest batch with two stages for each group.
fn fit(gpu: &Gpu, mut shape: GemvShape) -> Option<GemvShape> {
    let budget = gpu.shared_budget(1);
    let tiles = tiles(&shape);
    let least = 2 * shape.schedule.groups;
    for batches in 1..=tiles.div_ceil(QUAD) {
        let batch = tiles.div_ceil(batches);
        // Batches of whole quads, unless there is one.
        shape.schedule.several.tiles = if batches == 1 { batch } else { batch.next_multiple_of(QUAD) };
        shape.schedule.stages = 0;
        let Some(free) = budget.checked_sub(shape.token_bytes()) else { continue };
        let stages =
            (free / shape.stage_bytes()).min(MAX_STAGES) / shape.schedule.groups * shape.schedule.groups;
        if stages >= least {
            (shape.schedule.stages, shape.schedule.in_flight) = (stages, stages);
            return Some(shape);
        }
    }
    None
}

/// Estimated time of the CTA with the most tiles, in cycles.
fn time(gpu: &Gpu, shape: &GemvShape) -> u64 {
    let (schedule, several) = (&shape.schedule, &shape.schedule.several);
    let segments = if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 };
    let tiles = tiles(shape);
    let batches = u64::from(tiles.div_ceil(several.tiles));
    let steps = u64::from(shape.cols / STEP);
    let quads = u64::from(segments * tiles.div_ceil(QUAD));
    let columns = columns(shape);
    let (mut tensor, mut issue) = (0, 0);
    for segment in &shape.segments {
        let (products, instructions) = work(segment.ty, columns);
        tensor = tensor.max(products * (columns / COLUMNS_A_CYCLE).max(PRODUCT));
        issue = issue.max(instructions);
    }
    let items = quads * steps * u64::from(several.parts);
    let in_turn = ((tensor + issue + WAITS) / u64::from(schedule.groups)).max(TURN + columns * 3 / 2);
    let in_turn = quads * steps * in_turn;
    // Each team has a slice of its own, if it has a quad of each.
    let busy = u64::from(schedule.groups).min(quads * u64::from(several.buffers.max(2) - 1));
    let in_turn = in_turn * u64::from(schedule.groups) / busy;
    let inputs = batches * u64::from(shape.input_layout().granule_bytes()) * 2 * steps;
    let tile_bytes = shape.layouts().iter().map(Layout::tile_bytes).max().unwrap_or(0);
    let weights = u64::from(tiles * segments) * u64::from(tile_bytes);
    let loads = (inputs + weights) / L2_BYTES;
    let in_flight = u64::from(schedule.stages * shape.stage_bytes()) / 2;
    let blocks = u64::from(several.blocks);
    let memory = weights * LATENCY / (in_flight.clamp(1, gpu.bytes_in_flight() * blocks));
    let compute = (items * tensor).max(items * issue).max(in_turn);
    compute.max(loads).max(memory) + compute.min(loads) / 4 + compute.min(memory) / 8
}

/// Products of a step, and instructions of a warp.
fn work(ty: WeightType, columns: u64) -> (u64, u64) {
    if ty.exact_groups() > 0 {
        (17, 260 + columns * 7 / 2)
    } else if ty.has_half_chunks() {
        (16, 300 + columns * 27 / 2)
    } else {
        (8, 200 + columns * 15 / 2)
    }
}
