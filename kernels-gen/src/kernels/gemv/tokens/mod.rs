//! Products of several tokens with the same matrices, in slices of the columns: the weights are read and decoded once. A few
//! tokens are multiplied in the loop of one token (`few`) if they fit.
//!
//! The arithmetic of a token is that of a product of one token, so its outputs have the same bits; the parent module
//! describes the order of sums. Only the division of the work differs:
//!
//! - The inputs are in shared memory in the layout of `inputs`, which multiplies four tokens at a time. Up to a few
//!   tokens each CTA quantises all inputs. Beyond that, they are quantised once, by a launch of [`prepare()`], attention or the product
//!   before, and a second producer warp streams them through a ring of *slices* of the columns.
//! - A CTA goes over its tiles in *batches*. For each slice of the columns it goes over all tiles of the batch. Sums of
//!   steps are in shared memory, and the epilogue starts after the last slice.
//! - A stage of the ring of weights has a *strip*: consecutive units of a tile in a slice. The groups of warps take the
//!   stages in turn, and a warp of a group multiplies one unit of the strip with a part of the tokens.
//! - Shared memory has the sums of all steps of a batch ([`TokenSchedule::holds`](super::TokenSchedule::holds)), or those of a
//!   slice, which are added to totals after the slice, between two barriers. If such a slice has one unit of each tile, a warp
//!   always has the same tiles and tokens, and adds to their totals without a barrier.

mod epilogue;
mod fill;
mod inputs;
mod load;
mod next;
mod outputs;
mod prepare;
mod shape;
mod unit;
mod warpgroup;

use bespoke_codegen::prelude::*;

pub use super::layout::{InputForms, InputLayout, NextInputs};
pub(crate) use inputs::store_unit;
pub(super) use load::{load_inputs, load_weights};
pub use prepare::{PrepareShape, prepare};
pub(crate) use warpgroup::MAX_WARPGROUPS;

use super::decode::LaneMap;
use super::operands::{CONSUMER_BARRIER, Operands};
use super::shape::GemvShape;
use crate::weights::{Layout, WeightType};
use epilogue::TokenEpilogue;
use inputs::{GRANULE, GROUP};
use load::units_in;
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

/// Consumer warps: multiply, and write the outputs.
#[device]
pub(super) fn multiply(operands: &Operands, rings: Rings, tiles: &[[Val<u32>; 2]], s: &GemvShape) {
    let (shared, map, layouts) = (dynamic_shared::<u8>(), s.token_map(), s.layouts());
    next::prefetch_norm(tiles[0], operands);
    if s.is_prepared() {
        s.schedule.trigger.wait();
    } else {
        fill::fill(operands, s);
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
    let epilogue = TokenEpilogue::new(*operands, s);
    cluster_barrier();
    if warp_index() < s.schedule.warps {
        if let Some(registers) = s.registers() {
            // The threads have them already, but ptxas takes the producers' number for that of all threads after the branch.
            increase_registers(registers.consumer);
        }
        epilogue.add_other_part(tiles);
        if s.registers().is_some() {
            // Between two `setmaxnreg` of a warpgroup.
            named_barrier(CONSUMER_BARRIER, s.consumers());
        }
    }
    // A CTA must not end before the other one has read its totals. The arrival waits for earlier stores, so it comes before those of
    // the outputs.
    arrive_at_cluster_barrier();
    if warp_index() < s.schedule.warps {
        if let Some(registers) = s.registers() {
            increase_registers(registers.consumer);
        }
        epilogue.finish(&[0], tiles);
    }
    wait_at_cluster_barrier();
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
        let sums: Vec<_> = if s.is_f16() {
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
