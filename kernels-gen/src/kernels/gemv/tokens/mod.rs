//! Products of several tokens with the same matrices, in slices of the columns: the weights are read and decoded once. A few
//! tokens are multiplied in the loop of one token (`few`) if they fit.
//!
//! The arithmetic of a token is that of a product of one token, so its outputs have the same bits; the parent module
//! describes the order of sums. Only the division of the work differs:
//!
//! - The inputs are in shared memory in the layout of `inputs`, which multiplies four tokens at a time. Up to a few
//!   tokens each CTA quantises all inputs. Beyond that, a launch of [`prepare()`] quantises them once, and a second producer
//!   warp streams them through a ring of *slices* of the columns.
//! - A CTA goes over its tiles in *batches*. For each slice of the columns it goes over all tiles of the batch. Sums of
//!   steps are in shared memory, and the epilogue starts after the last slice.
//! - A stage of the ring of weights has a *strip*: consecutive units of a tile in a slice. The groups of warps take the
//!   stages in turn, and a warp of a group multiplies one unit of the strip with a part of the tokens.
//! - Shared memory has the sums of all steps of a batch ([`TokenSchedule::holds`](super::TokenSchedule::holds)), or those of a
//!   slice, which are added to totals after the slice, between two barriers. If such a slice has one unit of each tile, a warp
//!   always has the same tiles and tokens, and adds to their totals without a barrier.

mod epilogue;
mod inputs;
mod prepare;
mod shape;
mod unit;
mod warpgroup;

use bespoke_codegen::prelude::*;

pub(crate) use inputs::store_unit;
pub use inputs::{InputForms, InputLayout};
pub use prepare::{PrepareShape, prepare};
pub(crate) use warpgroup::MAX_WARPGROUPS;

use super::decode::LaneMap;
use super::inputs::{UNIT, load_unit, sum_of_squares};
use super::operands::{CONSUMER_BARRIER, Operands};
use super::ring::RingProducer;
use super::shape::GemvShape;
use crate::weights::{Layout, WeightType};
use epilogue::TokenEpilogue;
use inputs::{GRANULE, GROUP};
use unit::{PairInputs, StepWeights};
use warpgroup::Turns;

/// The rings of a CTA, and its other mbarriers.
#[derive(Clone, Copy)]
pub(super) struct Rings {
    /// Strips of weights.
    weights: Pipeline,
    /// Slices of prepared inputs.
    inputs: Option<Pipeline>,
    /// Mbarriers of the warpgroups' turns.
    turns: Option<MbarrierArray>,
}

/// Places and initialises the rings. A CTA barrier must follow.
#[device]
pub(super) fn rings(s: &GemvShape) -> Rings {
    let ring = |stages, stage_bytes, warps: u32, at: u32| {
        let copy = s.schedule.copy.engine();
        let shape = PipelineShape { stages, stage_bytes, consumers: Consumers::Threads(warps * WARP), copy };
        Pipeline::new(shape, dynamic_shared().byte_add(at), mbarrier_array(shape.barriers()))
    };
    let weights = ring(s.schedule.stages, s.stage_bytes(), s.warps_per_stage(), 0);
    let inputs = s
        .is_prepared()
        .then(|| ring(s.schedule.several.buffers, s.slice_bytes(), s.schedule.warps, s.token_map().inputs));
    let turns = warpgroup::turn_barriers(s);
    if thread_index() == 0 {
        weights.init();
        if let Some(inputs) = inputs {
            inputs.init();
        }
        if let Some(turns) = turns {
            warpgroup::init_turns(turns, s);
        }
    }
    Rings { weights, inputs, turns }
}

/// Producer warp of the weights.
#[device]
pub(super) fn load_weights(operands: &Operands, rings: Rings, tiles: &[[Val<u32>; 2]], s: &GemvShape) {
    let (layouts, offsets) = (s.layouts(), s.offsets());
    let mut producer = RingProducer::new(rings.weights);
    for batch in s.batches() {
        let [mut first, end] = tiles[batch[0]];
        while first < end {
            let last = (first + s.schedule.several.tiles).min(end);
            let [mut slice, slices] = s.cta_slices();
            while slice < slices {
                for run in s.runs(&batch) {
                    let offsets: Vec<u64> = run.iter().map(|&segment| offsets.segments[segment]).collect();
                    let (layout, tiles) = (&layouts[run[0]], [first, last]);
                    if s.has_warpgroups() {
                        let weights = operands.w;
                        warpgroup::stream_slice(weights, &offsets, layout, tiles, slice, &mut producer, s);
                    } else {
                        let weights = operands.w.byte_add(offsets[0]);
                        stream_slice(weights, layout, tiles, slice, &mut producer, s);
                    }
                }
                slice += 1;
            }
            first = last;
        }
    }
    s.schedule.trigger.after_loads();
}

/// Number of units of a tile in slice `slice`.
fn units_in(slice: Val<u32>, layout: &Layout, s: &GemvShape) -> Val<u32> {
    let (units, most) = (s.units(layout), s.slice_units(layout));
    if units % most == 0 && units / most == s.slices() {
        return val(most);
    }
    let before = slice * most;
    (before.max(units) - before).min(most)
}

/// Streams a slice of the columns of some tiles of a segment.
#[device]
fn stream_slice(
    weights: Ptr<Global, u8>,
    layout: &Layout,
    tiles: [Val<u32>; 2],
    slice: Val<u32>,
    producer: &mut RingProducer,
    s: &GemvShape,
) {
    let unit_bytes = s.depth() * layout.ty.block_bytes();
    let bytes = units_in(slice, layout, s) * unit_bytes;
    let strip = s.strip() * unit_bytes;
    let mut from = weights.byte_add(mul_wide(tiles[0], layout.tile_bytes()));
    from = from.byte_add(slice * (s.slice_units(layout) * unit_bytes));
    let mut tile = tiles[0];
    while tile < tiles[1] {
        let mut at = val(0u32);
        while at < bytes {
            let size = (bytes - at).min(strip);
            producer.copy_stage(from.byte_add(at), size, &s.schedule);
            at += strip;
        }
        from = from.byte_add(layout.tile_bytes());
        tile += 1;
    }
    if !s.accumulates() {
        return;
    }
    // Each group of warps gets the same number of stages, so that a warp always has the same tiles.
    let mut stage = (tiles[1] - tiles[0]) * ((bytes + (strip - 1)) / strip) % s.schedule.groups;
    if stage > 0 {
        while stage < s.schedule.groups {
            producer.skip_stage(&s.schedule);
            stage += 1;
        }
    }
}

/// Producer warp of the prepared inputs: streams all slices for each batch of tiles, or once if there is a single slice.
#[device]
pub(super) fn load_inputs(operands: &Operands, rings: Rings, tiles: &[[Val<u32>; 2]], s: &GemvShape) {
    let (ring, layout) = (rings.inputs.expect("the inputs are prepared"), s.input_layout());
    let granules = s.schedule.several.slice / GRANULE;
    let mut x = operands.x.cast::<u8>();
    if s.schedule.several.blocks > 1 {
        x = x.byte_add(mul_wide(block_index_y(), layout.block_bytes()));
    }
    s.schedule.trigger.wait();
    let mut producer = ring.producer(lane());
    if s.slices() == 1 {
        let count = tiles.iter().fold(val(0u32), |count, tiles| count + (tiles[1] - tiles[0]));
        if count > 0 {
            producer.acquire(layout.block_bytes());
            producer.copy(0, x, layout.block_bytes(), None);
            producer.commit();
        }
        return;
    }
    for batch in s.batches() {
        let [mut first, end] = tiles[batch[0]];
        while first < end {
            let [slice, slices] = s.cta_slices();
            let mut granule = slice * granules;
            let last = (slices * granules).min(layout.granules);
            while granule < last {
                let bytes = (last - granule).min(granules) * layout.granule_bytes();
                producer.acquire(bytes);
                let from = x.byte_add(mul_wide(granule, layout.granule_bytes()));
                producer.copy(0, from, bytes, None);
                producer.commit();
                producer.advance();
                granule += granules;
            }
            first += s.schedule.several.tiles;
        }
    }
}

/// Consumer warps: multiply, and write the outputs.
#[device]
pub(super) fn multiply(operands: &Operands, rings: Rings, tiles: &[[Val<u32>; 2]], s: &GemvShape) {
    let (shared, map, layouts) = (dynamic_shared::<u8>(), s.token_map(), s.layouts());
    if s.is_prepared() {
        s.schedule.trigger.wait();
    } else {
        fill(operands, s);
        named_barrier(CONSUMER_BARRIER, s.consumers());
    }
    let epilogue = TokenEpilogue::new(*operands, s).with_residual(tiles[0]);
    epilogue.compute_factors();
    let lane_map = LaneMap::new();
    let mut stage = rings.weights.consumer();
    let group = warp_index() / s.warps_per_stage();
    stage.advance_by(group);
    let mut next = group;
    let mut turns = Turns::new();
    // Without a ring of inputs, its consumer is not used.
    let mut inputs = rings.inputs.unwrap_or(rings.weights).consumer();
    for batch in s.batches() {
        let [mut first, end] = tiles[batch[0]];
        while first < end {
            let last = (first + s.schedule.several.tiles).min(end);
            let [first_slice, slices] = s.cta_slices();
            let mut slice = first_slice;
            while slice < slices {
                let mut from = shared.byte_add(map.inputs);
                if s.is_prepared() {
                    inputs.wait();
                    from = inputs.data();
                }
                let sums = if s.accumulates() { map.totals } else { map.partial };
                let mut partial = shared.byte_add(sums).cast::<f32>();
                for segments in s.runs(&batch) {
                    let run = SliceRun {
                        layout: &layouts[segments[0]],
                        segments: segments.len() as u32,
                        tiles: [first, last],
                        slice,
                        first_slice,
                        inputs: from,
                        turns: rings.turns,
                    };
                    if s.has_warpgroups() {
                        warpgroup::dot_slice(&run, partial, &lane_map, &mut stage, &mut turns, s);
                    } else {
                        dot_slice(&run, partial, &lane_map, &mut stage, &mut next, s);
                    }
                    partial = partial.at(s.schedule.several.tiles * s.stored_steps() * s.tile_sums());
                }
                if s.slices() > 1 {
                    inputs.release();
                    inputs.advance();
                }
                if s.adds_slices() {
                    named_barrier(CONSUMER_BARRIER, s.consumers());
                    for (place, &segment) in (0u32..).zip(&batch) {
                        epilogue.add_slice(place, &layouts[segment], last - first, slice);
                    }
                    named_barrier(CONSUMER_BARRIER, s.consumers());
                }
                slice += 1;
            }
            // The CTAs of a cluster have one batch, which `join_parts` ends.
            if s.cluster() == 1 {
                if !s.adds_slices() {
                    named_barrier(CONSUMER_BARRIER, s.consumers());
                }
                epilogue.finish(&batch, [first, last]);
                named_barrier(CONSUMER_BARRIER, s.consumers());
            }
            first = last;
        }
    }
    epilogue.end();
}

/// Adds the totals of the two CTAs of a cluster, each of a part of the columns, and writes the outputs, half of them in each CTA.
/// All threads call it.
#[device]
pub(super) fn join_parts(operands: &Operands, tiles: [Val<u32>; 2], s: &GemvShape) {
    cluster_barrier();
    if warp_index() < s.schedule.warps {
        TokenEpilogue::new(*operands, s).finish(&[0], tiles);
    }
    // A CTA must not end before the other one has read its totals.
    cluster_barrier();
}

/// A slice of the columns of some tiles of a segment, or of the same tiles of two segments ([`GemvShape::runs`]).
struct SliceRun<'a> {
    layout: &'a Layout,
    /// Number of segments.
    segments: u32,
    /// Half-open range of tiles of each segment.
    tiles: [Val<u32>; 2],
    /// Index of the slice.
    slice: Val<u32>,
    /// Index of the CTA's first slice.
    first_slice: Val<u32>,
    /// The inputs of the slice.
    inputs: Ptr<Shared, u8>,
    /// Mbarriers of the warpgroups' turns.
    turns: Option<MbarrierArray>,
}

/// Multiplies this warp's units of a slice, and stores their sums in `partial`; see [`TokenMap`](shape::TokenMap). If the product
/// accumulates ([`GemvShape::accumulates`]), adds them to the sums of the earlier slices there.
///
/// The groups of warps take the stages in turn. `stage` is that of the warp's group, and `next` its index among those of the
/// slice; on return, its index among those of the next slice.
#[device]
fn dot_slice(
    run: &SliceRun<'_>,
    partial: Ptr<Shared, f32>,
    lane_map: &LaneMap,
    stage: &mut Consumer,
    next: &mut Val<u32>,
    s: &GemvShape,
) {
    let (layout, groups) = (run.layout, s.schedule.groups);
    let (ty, input_layout) = (layout.ty, s.input_layout());
    let unit_bytes = s.depth() * ty.block_bytes();
    let units = units_in(run.slice, layout, s);
    let (within, strip) = (warp_index() % s.warps_per_stage(), s.strip());
    let (own, part) = (within % strip, within / strip);
    // Groups of tokens per part, rounded up.
    let per_part = input_layout.groups().div_ceil(s.schedule.several.parts);
    let strips = (units + (strip - 1)) / strip;
    let stages = (run.tiles[1] - run.tiles[0]) * strips;
    let mut end = stages;
    if s.accumulates() {
        // The last stages may be empty.
        end = (stages + (groups - 1)) / groups * groups;
    }
    let mut index = *next;
    // The number of strips, at least one, is a run-time value if the last slice is shorter. Division by it is slow, so it is done
    // once a slice.
    let [mut tile, mut strip_index] = [index / strips, index % strips];
    let [tile_step, strip_step] = [val(groups) / strips, val(groups) % strips];
    while index < end {
        stage.wait();
        let unit = strip_index * strip + own;
        if (index < stages) & (unit < units) {
            let block = stage.data().byte_add(own * unit_bytes);
            let sums = partial.at(tile * (s.stored_steps() * s.tile_sums())).at(lane());
            let steps = s.unit_steps(ty);
            for step in 0..steps {
                let blocks = s.step(ty);
                let weights = StepWeights::load(
                    block.byte_add(step * blocks * ty.block_bytes()),
                    ty,
                    blocks,
                    s.arithmetic,
                    lane_map,
                );
                // The weights are in registers.
                if step + 1 == steps {
                    stage.release();
                }
                let column = unit * s.unit_cols(layout) + step * blocks * ty.block_cols();
                let records = run.inputs.byte_add(column / GRANULE * input_layout.granule_bytes());
                let (mut is_first, mut sums) = ((run.slice == 0) & (step == 0), sums);
                if !s.accumulates() {
                    let mut first = unit;
                    if s.schedule.several.holds {
                        first += run.slice * s.slice_units(layout);
                    }
                    sums = sums.at((first * s.unit_steps(ty) + step) * s.tile_sums());
                } else if s.column_parts() > 1 {
                    let (at, second) = (run.slice * s.unit_steps(ty) + step, s.first_part(layout));
                    is_first = (at == 0) | (at == second);
                    sums = sums.at(select(at < second, 0u32, s.totals()));
                }
                let operand = Operand { weights: &weights, ty, records, column: column % GRANULE };
                let first = part * per_part;
                multiply_groups(&operand, [first, first + per_part], sums, is_first, lane_map, s);
            }
        } else {
            stage.release();
        }
        stage.advance_by(groups);
        index += groups;
        tile += tile_step;
        strip_index += strip_step;
        if strip_index >= strips {
            strip_index -= strips;
            tile += 1;
        }
    }
    *next = index - end;
}

/// The weights of a step, and the inputs that they are multiplied with.
struct Operand<'a> {
    weights: &'a StepWeights,
    ty: WeightType,
    /// Records of the step's first granule.
    records: Ptr<Shared, u8>,
    /// First column of the step in its first granule.
    column: Val<u32>,
}

/// Largest number of groups of tokens whose products overlap.
const GROUPS_AT_ONCE: u32 = 4;

/// Multiplies a step with a range of groups of tokens, and stores the sums, f32 `[group][row][token]`, or adds them to those
/// there if the product accumulates and this is not the row's first step.
#[device]
fn multiply_groups(
    operand: &Operand<'_>,
    [first, end]: [Val<u32>; 2],
    to: Ptr<Shared, f32>,
    is_first: Val<bool>,
    lane_map: &LaneMap,
    s: &GemvShape,
) {
    let layout = s.input_layout();
    let per_part = layout.groups().div_ceil(s.schedule.several.parts);
    let whole = layout.groups().is_multiple_of(per_part);
    let at_once = match whole {
        true => 1 << per_part.trailing_zeros().min(GROUPS_AT_ONCE.ilog2()),
        false => 1,
    };
    let end = end.min(layout.groups());
    let mut group = first;
    while group < end {
        let record = |next: u32| operand.records.byte_add((group + next) * layout.record_bytes());
        let sums: Vec<_> = if s.has_halves() {
            let second = if at_once > 1 { layout.record_bytes() } else { 0 };
            let scales = operand.records.byte_add(layout.half_scales()).cast::<f32>().at(group * GROUP);
            let pair = |first: u32| {
                let inputs = PairInputs { record: record(first), second, scales: scales.at(first * GROUP) };
                operand.weights.dot_pair(operand.ty, &inputs, operand.column, &layout, lane_map)
            };
            (0..at_once).step_by(2).flat_map(pair).take(at_once as usize).collect()
        } else {
            let of_group =
                |next| operand.weights.dot(operand.ty, record(next), operand.column, &layout, lane_map);
            (0..at_once).map(of_group).collect()
        };
        for (next, sums) in (0..at_once).zip(sums) {
            let to = to.at((group + next) * 64);
            for (place, sum) in [to, to.at(32)].into_iter().zip(sums) {
                let mut sum = sum;
                if s.accumulates() {
                    if !is_first {
                        sum = place.load() + sum;
                    }
                }
                place.store(sum);
            }
        }
        group += at_once;
    }
}

/// Loads the inputs of all tokens, and writes them to shared memory with the sums of squares. A barrier among the consumer
/// warps must follow.
#[device]
fn fill(operands: &Operands, s: &GemvShape) {
    let (shared, map, layout) = (dynamic_shared::<u8>(), s.token_map(), s.input_layout());
    let passes = layout.units().div_ceil(s.consumers());
    let unit = |pass: u32| thread_index() + pass * s.consumers();
    let mut norm = Vec::new();
    if s.normed() {
        let weights = operands.w.byte_add(s.offsets().norm).cast();
        for pass in 0..passes {
            norm.push(load_unit(weights, unit(pass), s.cols));
        }
    }
    s.schedule.trigger.wait();
    let tokens = layout.padded_tokens();
    let all: Vec<(u32, u32)> = (0..passes * tokens).map(|i| (i / tokens, i % tokens)).collect();
    for some in all.chunks(UNITS_IN_FLIGHT) {
        let mut loaded = Vec::new();
        for &(pass, token) in some {
            loaded.push(if token < s.tokens {
                load_unit(operands.x.at(token * s.cols), unit(pass), s.cols)
            } else {
                vec![val(0.0f32); UNIT as usize]
            });
        }
        for (&(pass, token), values) in some.iter().zip(loaded) {
            let mut values = values;
            if s.normed() {
                let sum = sum_of_squares(&values);
                let group = unit(pass) / WARP;
                if (lane() == 0) & (group < layout.squares()) {
                    let squares = shared.byte_add(map.squares).cast::<f32>();
                    squares.at(group + token * layout.squares()).store(sum);
                }
                values = values.iter().zip(&norm[pass as usize]).map(|(&value, &n)| value * n).collect();
            }
            store_unit(&values, unit(pass), val(token), shared.byte_add(map.inputs), &layout);
        }
    }
}

/// Number of units of eight inputs that a thread loads at once.
const UNITS_IN_FLIGHT: usize = 8;
