//! Matrix-vector products, y = W·x for the x of one token or several, fused with the operations around them: RMSNorm
//! before; bias, scale, soft cap, gated activation, the residual connection or the argmax after.
//!
//! One CTA runs per multiprocessor and has a contiguous share of the weight tiles. The producer warp streams the tiles
//! through a ring of stages in shared memory (`ring`), without waiting for earlier launches, because weights depend on
//! none. The consumer warps wait for the earlier launches, bring the input into shared memory (`inputs`) and multiply
//! (`blocks`), a block of 16 rows per warp at a time; consecutive blocks of a tile go to consecutive warps. The warps
//! write the sums of each step to shared memory, where `epilogue` reduces the sums to outputs.
//!
//! # Order of sums
//!
//! The bits of an output depend on the row of the matrix and the input alone: neither on the schedule, nor on the target, nor
//! on the number of tokens. `few` has the products of two to four tokens, and [`tokens`] those of more.
//!
//! - The row is divided into steps (`GemvShape::step`): one superblock of 256 columns, or one or two smaller blocks.
//!   The inputs of 256 columns have one scale. The sums of a row's steps are added in the order of columns.
//! - Q4_K and Q5_K: scale · code · input and min · input are added up as integers, without rounding, over a superblock (Q4_K)
//!   or half of one (Q5_K). These two sums, times d and -dmin, are added, then the halves; the scale of the inputs comes last.
//! - Q6_K: scale · code · high byte and scale · code · low byte of the inputs are added up as integers over a superblock. These two
//!   sums, times 256·d and d, are added (`scaled_codes`); the scale of the inputs comes last.
//! - Other types: a step has four chains of sums, one for each lane of a quad: chain t has chunks t, t + 4, … (half chunks for
//!   types with a scale every 16 columns). They are added as (c₀ + c₁) + (c₂ + c₃), and multiplied by the scale of the inputs.
//! - With [`Arithmetic::F16`], which has bits of its own, a step of any type is a chain of products of 16 columns of f16, from
//!   zero. It is multiplied by factors of the weights (`half_step`) and the power of two of the inputs. If the columns are
//!   in two parts, the steps of each part are summed by themselves, and then the two sums are added.
//! - The sum of squares of RMSNorm is made of sums over 256 columns, which are added in the order of columns.

mod blocks;
mod decode;
mod epilogue;
mod few;
mod half_step;
mod half_weights;
mod inputs;
mod layout;
mod operands;
mod product;
mod ring;
mod scaled_codes;
mod schedule;
mod shape;
pub mod tokens;

use bespoke_codegen::prelude::*;

pub use crate::kernels::activation::Activation;
use blocks::{BlockInputs, dot_step};
pub(crate) use decode::{LaneMap, e8m0_half, floats, look_up_pair};
use epilogue::{Epilogue, no_candidate, store_factors};
pub(crate) use epilogue::{bias, scaled};
use few::FewInputs;
pub(crate) use half_weights::{BlockDecoder, Pairs, down, has_long_runs};
use inputs::{Inputs, Source};
pub(crate) use inputs::{SCALED, UNIT, load_eight, load_unit};
use operands::{CONSUMER_BARRIER, Operands};
pub use product::{Arithmetic, Input, Output, Segment, UnknownArithmetic};
use ring::{RingProducer, TileRun, ring, stream};
pub(crate) use schedule::QUAD;
pub use schedule::{Schedule, TokenSchedule};
pub(crate) use shape::FEW;
use shape::{Cut, CutSegment};
pub use shape::{GemvShape, Offsets};

use crate::weights::{Layout, TILE_ROWS, WeightType};

/// y[r] = cap(scale · (Σ_c W[r, c]·x[c] + bias[r])), followed by the epilogue that the shape names; see [`Output`].
///
/// `w` holds the matrices as [`GemvShape`] describes, `x` is f32 `[tokens][cols]`, `y` f32 `[tokens][outputs]`; with
/// [`Output::Residual`], `y` is read and written. If [`GemvShape::prepare`] is not `None`, `x` is the output of that launch; with
/// [`GemvShape::received`], it is the `next_inputs` of the product before. Quantised weights are multiplied with x rounded to integers of
/// 14 or 16 bits, one scale per 256 columns (see `inputs`), or all weights with x rounded to f16 ([`GemvShape::arithmetic`]).
///
/// With [`Output::Argmax`], `values[token][cta]` (f32) and `rows[token][cta]` (u32) are the largest output of each CTA and
/// the row of that output; among equal outputs, the smallest row. An output that is NaN or infinite counts as +∞, so that the
/// choice sees it. A CTA without rows writes -∞ and row 0.
///
/// Products of f16 may pass their outputs on as the inputs of the next product (`tokens/next`):
///
/// | parameter | present with | contents |
/// | --- | --- | --- |
/// | `y` | all but [`GemvShape::next`] without a norm | outputs |
/// | `squares` | [`GemvShape::received`] and a norm | the sums of squares of x, u64, [`SQUARES_BYTES`](tokens::NextInputs::SQUARES_BYTES) a token |
/// | `factors` | [`GemvShape::stores_factors`] | f32 `[tokens]`: gets the factors of this product's norm |
/// | `factors` | [`GemvShape::next`] with a norm | f32 `[tokens]`: the factors of the previous norm |
/// | `next_norm` | [`GemvShape::next`] with a norm | f32 `[outputs]`: its weights |
/// | `next_squares` | [`GemvShape::stores_factors`] | as `squares`, of the next norm: set to zero |
/// | `next_squares` | [`GemvShape::next`] with a norm | as `squares`, of the next norm: added to |
/// | `next_inputs` | [`GemvShape::next`] | gets the inputs of the next product, [`bytes`](tokens::NextInputs::bytes) bytes in its [`InputLayout`](tokens::InputLayout) |
#[kernel(threads = s.threads(), min_blocks = s.schedule.resident, max_registers = s.max_registers(), cluster = s.cluster())]
pub fn gemv(
    w: Ptr<Global, u8>,
    x: Ptr<Global, f32>,
    #[present(s.stores_outputs())] y: Option<Ptr<Global, f32>>,
    #[present(s.output == Output::Argmax)] values: Option<Ptr<Global, f32>>,
    #[present(s.output == Output::Argmax)] rows: Option<Ptr<Global, u32>>,
    #[present(s.received && s.normed())] squares: Option<Ptr<Global, u64>>,
    #[present(s.stores_factors || s.next_is_normed())] factors: Option<Ptr<Global, f32>>,
    #[present(s.next_is_normed())] next_norm: Option<Ptr<Global, f32>>,
    #[present(s.stores_factors || s.next_is_normed())] next_squares: Option<Ptr<Global, u64>>,
    #[present(s.next.is_some())] next_inputs: Option<Ptr<Global, u8>>,
    s: &GemvShape,
) {
    let norm = next_norm.zip(factors).map(|(weights, factors)| operands::NextNorm { weights, factors });
    let next = next_inputs.map(|inputs| operands::NextOperands { inputs, norm });
    let best = values.zip(rows);
    let operands = Operands { w, x, y, best, squares, factors, next_squares, next };
    s.schedule.trigger.at_start();
    if s.is_sliced() {
        sliced(&operands, s);
    } else {
        whole(&operands, s);
    }
}

/// The product of one token or a few, whose whole inputs are in shared memory.
#[device]
fn whole(operands: &Operands, s: &GemvShape) {
    let ring = ring(s);
    barrier();
    let layouts = s.layouts();
    if warp_index() == s.schedule.warps {
        if s.schedule.copy.takes_lane() {
            load(operands, ring, &layouts, s);
        }
    } else {
        multiply(operands, ring, &layouts, s);
    }
}

/// The product of several tokens, in slices of the columns.
#[device]
fn sliced(operands: &Operands, s: &GemvShape) {
    let rings = tokens::rings(s);
    barrier();
    let tiles = tiles(s);
    if warp_index() >= s.schedule.warps {
        if let Some(registers) = s.registers() {
            decrease_registers(registers.producer);
        }
        if s.schedule.copy.takes_lane() {
            if s.is_prepared() {
                if warp_index() == s.schedule.warps {
                    tokens::load_weights(operands, rings, &tiles, s);
                } else if warp_index() == s.schedule.warps + 1 {
                    tokens::load_inputs(operands, rings, &tiles, s);
                }
            } else {
                tokens::load_weights(operands, rings, &tiles, s);
            }
        }
    } else {
        if let Some(registers) = s.registers() {
            increase_registers(registers.consumer);
        }
        tokens::multiply(operands, rings, &tiles, s);
    }
    if s.cluster() > 1 {
        tokens::join_parts(operands, tiles[0], s);
    }
}

/// This CTA's tiles of each segment, as half-open ranges.
#[device]
fn tiles(s: &GemvShape) -> Vec<[Val<u32>; 2]> {
    let cut = s.cut();
    // The CTAs of a cluster have the same tiles.
    let share = if s.cluster() > 1 { block_index() / s.cluster() } else { block_index() };
    let (start, end) = (boundary(share, &cut), boundary(share + 1, &cut));
    let mut out = Vec::new();
    for segment in &cut.segments {
        out.push([tiles_before(start, segment), tiles_before(end, segment)]);
    }
    out
}

/// Position at which CTA `cta`'s part starts on the line of tiles; see [`Cut`].
#[device]
fn boundary(cta: Val<u32>, cut: &Cut) -> Val<u32> {
    if u64::from(cut.total) * u64::from(cut.grid) <= u64::from(u32::MAX) {
        cta * cut.total / cut.grid
    } else {
        (cta.cast::<u64>() * u64::from(cut.total) / u64::from(cut.grid)).cast::<u32>()
    }
}

/// Number of the segment's tiles that begin before position `boundary` on the line of tiles; see [`Cut`].
#[device]
fn tiles_before(boundary: Val<u32>, segment: &CutSegment) -> Val<u32> {
    let along = if segment.start == 0 { boundary } else { boundary.max(segment.start) - segment.start };
    let length = segment.tile_length;
    let tiles = if length == 1 { along } else { (along + (length - 1)) / length };
    tiles.min(segment.tiles)
}

/// Producer warp: streams the CTA's tiles.
#[device]
fn load(operands: &Operands, ring: Pipeline, layouts: &[Layout], s: &GemvShape) {
    let offsets = s.offsets();
    let mut producer = RingProducer::new(ring);
    let tiles = tiles(s);
    let weights: Vec<_> = offsets.segments.iter().map(|&offset| operands.w.byte_add(offset)).collect();
    if s.batched() {
        let [mut first, end] = tiles[0];
        while first < end {
            let last = (first + s.batch()).min(end);
            for (layout, &weights) in layouts.iter().zip(&weights) {
                stream(&TileRun { layout, weights, tiles: [first, last] }, &mut producer, s);
            }
            first = last;
        }
    } else {
        for ((layout, tiles), weights) in layouts.iter().zip(tiles).zip(weights) {
            stream(&TileRun { layout, weights, tiles }, &mut producer, s);
        }
    }
    s.schedule.trigger.after_loads();
}

/// Consumer warps: load the input, multiply, and write the outputs.
#[device]
fn multiply(operands: &Operands, ring: Pipeline, layouts: &[Layout], s: &GemvShape) {
    let shared = dynamic_shared::<u8>();
    let map = s.shared_map();
    let tiles = tiles(s);
    let inputs = Inputs::new(0, s);
    // Work that does not depend on the inputs comes before the wait for them.
    let partial = shared.byte_add(map.partial).cast::<f32>();
    let lane_map = LaneMap::new();
    let few = s.is_few().then(|| FewInputs::new(&lane_map, s));
    let multiplier = Multiplier { inputs: &inputs, few: few.as_ref(), lane_map: &lane_map, s };
    let epilogue = prologue(operands, &tiles, &inputs, s);
    named_barrier(CONSUMER_BARRIER, s.consumers());

    let mut stage = ring.consumer();
    let mut best = no_candidate();
    if s.batched() {
        let [mut first, end] = tiles[0];
        while first < end {
            let last = (first + s.batch()).min(end);
            let mut before = val(0u32);
            for layout in layouts {
                dot_run(layout, [first, last], partial.at(before), &multiplier, &mut stage);
                before += (last - first) * (s.steps(layout) * s.step_sums());
            }
            store_factors(s);
            named_barrier(CONSUMER_BARRIER, s.consumers());
            epilogue.finish(&vec![[first, last]; layouts.len()], &mut best);
            named_barrier(CONSUMER_BARRIER, s.consumers());
            first = last;
        }
    } else {
        let mut before = val(0u32);
        for (layout, &tiles) in layouts.iter().zip(&tiles) {
            dot_run(layout, tiles, partial.at(before), &multiplier, &mut stage);
            before += (tiles[1] - tiles[0]) * (s.steps(layout) * s.step_sums());
        }
        store_factors(s);
        named_barrier(CONSUMER_BARRIER, s.consumers());
        epilogue.finish(&tiles, &mut best);
    }
    epilogue.end(best);
}

/// Loads constants, waits for earlier launches, and brings the input into shared memory.
fn prologue<'a>(
    operands: &Operands,
    tiles: &[[Val<u32>; 2]],
    inputs: &Inputs,
    s: &'a GemvShape,
) -> Epilogue<'a> {
    let mut epilogue = Epilogue::new(*operands, tiles, s);
    let norm = if s.normed() {
        inputs::norm_weights(operands.w.byte_add(s.offsets().norm).cast(), s)
    } else {
        Vec::new()
    };
    let source = Source::new(operands.x, s);
    s.schedule.trigger.wait();
    epilogue.load_residual();
    if s.is_few() {
        inputs::fill_tokens(&source, &norm, s);
    } else {
        inputs::fill(&source, &norm, inputs, s);
    }
    epilogue
}

/// Context of a consumer warp's products: the inputs of one token or of a few, the lane's position in fragments, and the
/// shape.
struct Multiplier<'a> {
    inputs: &'a Inputs,
    few: Option<&'a FewInputs<'a>>,
    lane_map: &'a LaneMap,
    s: &'a GemvShape,
}

/// Multiplies the units of a run of tiles that are this warp's: one unit per stage of the warp's group. Writes the
/// partial sums to `partial`, f32 `[tile][step][16]`, or with a few tokens `[tile][step][16][token]`.
#[device]
fn dot_run(
    layout: &Layout,
    tiles: [Val<u32>; 2],
    partial: Ptr<Shared, f32>,
    multiplier: &Multiplier<'_>,
    stage: &mut Consumer,
) {
    let s = multiplier.s;
    let schedule = &s.schedule;
    let (warps, groups) = (schedule.warps, schedule.groups);
    let unit_bytes = s.depth() * layout.ty.block_bytes();
    let units_per_tile = s.units(layout);
    let units = (tiles[1] - tiles[0]) * units_per_tile;
    let units_per_stage = schedule.units_per_stage();
    let end = if schedule.pads(units_per_tile) { ring::rounds(s, layout, tiles) * warps } else { units };
    // A group of warps must wait for every phase of its stages, because a phase is identified by parity alone.
    assert!(schedule.stages.is_multiple_of(groups), "{} stages for {groups} groups", schedule.stages);
    // If a tile has exactly one unit per warp, a warp multiplies with the same inputs in every tile.
    let holds = units_per_tile == warps && s.fits_inputs_in_registers();
    let held_inputs =
        (holds && multiplier.few.is_none()).then(|| inputs_of_unit(layout.ty, warp_index(), multiplier));
    let few_held = multiplier.few.filter(|_| holds).map(|few| few.load_unit(layout.ty, warp_index()));
    let mut unit = warp_index();
    let mut streamed = val(0u32);
    let mut stage_group = val(0u32);
    while streamed < end {
        if stage_group == warp_index() / units_per_stage {
            stage.wait();
            if unit < units {
                let block = stage.data().byte_add(warp_index() % units_per_stage * unit_bytes);
                let within_tile = unit % units_per_tile;
                let to = partial.at(unit * (s.unit_steps(layout.ty) * s.step_sums()));
                if let Some(few) = multiplier.few {
                    few.dot_unit(block, layout.ty, within_tile, few_held.as_deref(), to);
                } else {
                    let sums = dot_unit(block, layout.ty, within_tile, held_inputs.as_deref(), multiplier);
                    store_partials(&sums, to, multiplier.lane_map);
                }
            }
            stage.release();
            unit += warps;
        }
        stage.advance();
        streamed += units_per_stage;
        if groups > 1 {
            stage_group = select(stage_group == groups - 1, 0u32, stage_group + 1);
        }
    }
}

/// Loads the inputs of unit `unit` of a tile.
fn inputs_of_unit(ty: WeightType, unit: Val<u32>, multiplier: &Multiplier<'_>) -> Vec<BlockInputs> {
    let depth = multiplier.s.depth();
    let one = |i: u32| BlockInputs::load(ty, unit * depth + i, multiplier.inputs, multiplier.lane_map);
    (0..depth).map(one).collect()
}

/// The sums of the steps of unit `unit` of a tile, at `block`: those of row g + 8t in lane 4g + t, for t < 2. Loads the
/// inputs unless `held_inputs` has them in registers.
fn dot_unit(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    unit: Val<u32>,
    held_inputs: Option<&[BlockInputs]>,
    multiplier: &Multiplier<'_>,
) -> Vec<Val<f32>> {
    let loaded;
    let inputs = match held_inputs {
        Some(inputs) => inputs,
        None => {
            loaded = inputs_of_unit(ty, unit, multiplier);
            &loaded
        }
    };
    let step = multiplier.s.step(ty) as usize;
    let blocks: Vec<_> = (0..inputs.len() as u32).map(|i| block.byte_add(i * ty.block_bytes())).collect();
    let steps = blocks.chunks(step).zip(inputs.chunks(step));
    steps.map(|(blocks, inputs)| dot_step(blocks, ty, inputs, multiplier.lane_map)).collect()
}

/// Stores the 16 sums of each step of a unit for the epilogue.
#[device]
fn store_partials(steps: &[Val<f32>], to: Ptr<Shared, f32>, map: &LaneMap) {
    let at = to.at(map.group + map.quarter * 8);
    if map.quarter < 2 {
        for (step, &sum) in (0u32..).zip(steps) {
            at.at(step * TILE_ROWS).store(sum);
        }
    }
}
