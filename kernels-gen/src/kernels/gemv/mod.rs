//! y = W·x for one token: the matrix-vector products that a decoder spends its time on, with what comes before
//! (RMSNorm) and after them (bias, SwiGLU, the residual connection, the search for the largest).
//!
//! A CTA a multiprocessor. One warp streams the CTA's tiles of weights through a `ring` in shared memory; it does
//! not wait for the launches before this one, because weights depend on nothing. The other warps wait, bring the
//! input into shared memory (`inputs`) and multiply (`blocks`), each a block of 16 rows at a time; consecutive
//! blocks of a tile go to consecutive warps. A tile's partial sums meet in shared memory and become outputs in
//! `epilogue`. All sums are taken in an order that depends on the shape alone.

mod blocks;
mod epilogue;
mod inputs;
mod ring;
mod shape;

use bespoke_codegen::prelude::*;

pub(crate) use blocks::floats;
use blocks::{Place, Right, dot_block};
use epilogue::{Epilogue, nothing};
use inputs::Inputs;
use ring::{Run, feeder, ring, stream};
use shape::{Cut, CutSegment};
pub use shape::{GemvShape, Input, Offsets, Output, Schedule, Segment};

use crate::weights::{Layout, TILE_ROWS, WeightType};

/// The barrier of the warps that multiply.
const CONSUMERS: u8 = 1;

/// Where a launch's data lies.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    w: Ptr<Global, u8>,
    x: Ptr<Global, f32>,
    y: Ptr<Global, f32>,
    /// Values and rows of each CTA's largest output.
    best: Option<(Ptr<Global, f32>, Ptr<Global, u32>)>,
}

/// y[r] = Σ_c W[r, c]·x[c] + bias[r], or what the shape makes of it.
///
/// `w` is the stack of [`GemvShape`], `x` f32 `[cols]`, `y` f32 `[outputs]`; a residual's `y` is read and written. For
/// quantised weights x is taken as 16-bit integers with a scale for each 32 (see `inputs`).
#[kernel(threads = s.threads(), min_blocks = s.schedule.resident)]
pub fn gemv(w: Ptr<Global, u8>, x: Ptr<Global, f32>, y: Ptr<Global, f32>, s: &GemvShape) {
    body(Operands { w, x, y, best: None }, s);
}

/// As [`gemv`], and `values[cta]`, `rows[cta]` are the largest output of each CTA and its row; of equal ones the
/// smallest row. A NaN is never the largest; a CTA of nothing else gives -∞ and row 0.
#[kernel(threads = s.threads(), min_blocks = s.schedule.resident)]
pub fn gemv_argmax(
    w: Ptr<Global, u8>,
    x: Ptr<Global, f32>,
    y: Ptr<Global, f32>,
    values: Ptr<Global, f32>,
    rows: Ptr<Global, u32>,
    s: &GemvShape,
) {
    body(Operands { w, x, y, best: Some((values, rows)) }, s);
}

#[device]
fn body(operands: Operands, s: &GemvShape) {
    s.schedule.trigger.at_start();
    let ring = ring(s);
    barrier();
    let layouts = s.layouts();
    if warp_index() == s.schedule.warps {
        if s.schedule.copy.takes_lane() {
            load(&operands, ring, &layouts, s);
        }
    } else {
        multiply(&operands, ring, &layouts, s);
    }
}

/// The tiles of each segment that this CTA has.
#[device]
fn tiles(s: &GemvShape) -> Vec<[Val<u32>; 2]> {
    let cut = s.cut();
    let (start, end) = (boundary(block_index(), &cut), boundary(block_index() + 1, &cut));
    let mut out = Vec::new();
    for segment in &cut.segments {
        out.push([tiles_before(start, segment), tiles_before(end, segment)]);
    }
    out
}

#[device]
fn boundary(cta: Val<u32>, cut: &Cut) -> Val<u32> {
    if u64::from(cut.total) * u64::from(cut.grid) <= u64::from(u32::MAX) {
        cta * cut.total / cut.grid
    } else {
        (cta.cast::<u64>() * u64::from(cut.total) / u64::from(cut.grid)).cast::<u32>()
    }
}

#[device]
fn tiles_before(boundary: Val<u32>, segment: &CutSegment) -> Val<u32> {
    let along = if segment.base == 0 { boundary } else { boundary.max(segment.base) - segment.base };
    let tiles = if segment.weight == 1 { along } else { (along + (segment.weight - 1)) / segment.weight };
    tiles.min(segment.tiles)
}

/// The loading warp.
#[device]
fn load(operands: &Operands, ring: Pipeline, layouts: &[Layout], s: &GemvShape) {
    let offsets = s.offsets();
    let mut feeder = feeder(ring);
    for ((layout, tiles), &offset) in layouts.iter().zip(tiles(s)).zip(&offsets.segments) {
        let weights = operands.w.bytes(offset);
        if s.batched() {
            let mut first = tiles[0];
            while first < tiles[1] {
                let last = (first + s.batch()).min(tiles[1]);
                let run = Run { layout, weights, tiles: [first, last] };
                stream(&run, &mut feeder, &s.schedule);
                first = last;
            }
        } else {
            stream(&Run { layout, weights, tiles }, &mut feeder, &s.schedule);
        }
    }
}

/// The other warps.
#[device]
fn multiply(operands: &Operands, ring: Pipeline, layouts: &[Layout], s: &GemvShape) {
    let shared = dynamic_shared::<u8>();
    let map = s.shared_map();
    let tiles = tiles(s);
    let inputs = Inputs::at(shared.bytes(map.inputs), s);
    let (epilogue, squares) = prepare(operands, &tiles, &inputs, s);
    if s.normed() {
        let sum = warp_sum(squares);
        if lane() == 0 {
            shared.bytes(map.squares).cast::<f32>().at(warp_index()).store(sum);
        }
    }
    named_barrier(CONSUMERS, s.consumers());

    let partial = shared.bytes(map.partial).cast::<f32>();
    let place = Place::new();
    let multiplier = Multiplier { inputs: &inputs, place: &place, s };
    let mut stage = ring.consumer();
    let mut best = nothing();
    if s.batched() {
        let mut first = tiles[0][0];
        while first < tiles[0][1] {
            let last = (first + s.batch()).min(tiles[0][1]);
            dot_run(&layouts[0], [first, last], partial, &multiplier, &mut stage);
            named_barrier(CONSUMERS, s.consumers());
            epilogue.finish(&[[first, last]], &mut best);
            named_barrier(CONSUMERS, s.consumers());
            first = last;
        }
    } else {
        let mut before = val(0u32);
        for (layout, &tiles) in layouts.iter().zip(&tiles) {
            dot_run(layout, tiles, partial.at(before), &multiplier, &mut stage);
            before += (tiles[1] - tiles[0]) * (s.schedule.warps * TILE_ROWS);
        }
        named_barrier(CONSUMERS, s.consumers());
        epilogue.finish(&tiles, &mut best);
    }
    epilogue.end(best);
}

/// Loads what is constant, waits for the launches before this one, and brings the input into shared memory. Also
/// gives this thread's part of the input's sum of squares.
fn prepare<'a>(
    operands: &Operands,
    tiles: &[[Val<u32>; 2]],
    inputs: &Inputs,
    s: &'a GemvShape,
) -> (Epilogue<'a>, Val<f32>) {
    let mut epilogue = Epilogue::new(*operands, tiles, s);
    let norm = if s.normed() {
        inputs::norm_weights(operands.w.bytes(s.offsets().norm).cast(), s)
    } else {
        Vec::new()
    };
    s.schedule.trigger.wait();
    epilogue.load_residual();
    let squares = inputs::fill(operands.x, &norm, inputs, s);
    (epilogue, squares)
}

/// What a multiplying warp works with.
struct Multiplier<'a> {
    inputs: &'a Inputs,
    place: &'a Place,
    s: &'a GemvShape,
}

/// This warp's share of a run of tiles: of every stage one block. `partial` gets f32 `[tile][warp][16]`.
#[device]
fn dot_run(
    layout: &Layout,
    tiles: [Val<u32>; 2],
    partial: Ptr<Shared, f32>,
    multiplier: &Multiplier<'_>,
    stage: &mut Consumer,
) {
    let schedule = &multiplier.s.schedule;
    let (warps, depth, groups) = (schedule.warps, schedule.depth, schedule.groups);
    // A warp takes `depth` blocks at a time, which are of one tile.
    let units_of_tile = layout.blocks / depth;
    let units = (tiles[1] - tiles[0]) * units_of_tile;
    let in_group = schedule.units();
    let end =
        if schedule.pads(layout.blocks) { ring::rounds(schedule, layout, tiles) * warps } else { units };
    // A group must see every phase of its stages: of a phase that it has not waited for it knows the parity only.
    assert!(schedule.stages.is_multiple_of(groups), "{} stages for {groups} groups", schedule.stages);
    // Where a tile has a unit for each warp, it is always the same.
    let always = (units_of_tile == warps && schedule.holds())
        .then(|| right_of_unit(layout.ty, warp_index(), multiplier));
    let mut sums = [val(0.0f32); 2];
    let mut tile = warp_index() / units_of_tile;
    let mut mine = warp_index();
    let mut first = val(0u32);
    let mut turn = val(0u32);
    while first < end {
        if turn == warp_index() / in_group {
            stage.wait();
            if mine < units {
                let now = mine / units_of_tile;
                if now != tile {
                    keep(&sums, partial.at((tile * warps + warp_index()) * TILE_ROWS));
                    sums = [val(0.0f32); 2];
                    tile = now;
                }
                let block = stage.data().bytes(warp_index() % in_group * (depth * layout.ty.block_bytes()));
                let unit = mine - now * units_of_tile;
                dot_unit(block, layout.ty, unit, always.as_deref(), multiplier, &mut sums);
            }
            stage.release();
            mine += warps;
        }
        stage.advance();
        first += in_group;
        if groups > 1 {
            turn = select(turn == groups - 1, 0u32, turn + 1);
        }
    }
    if warp_index() < units {
        keep(&sums, partial.at((tile * warps + warp_index()) * TILE_ROWS));
    }
}

/// What the blocks of a unit are multiplied with.
fn right_of_unit(ty: WeightType, unit: Val<u32>, multiplier: &Multiplier<'_>) -> Vec<Right> {
    let depth = multiplier.s.schedule.depth;
    let one = |i: u32| Right::load(ty, unit * depth + i, multiplier.inputs, multiplier.place);
    (0..depth).map(one).collect()
}

/// Adds the products of a unit's blocks, with `right` if that is at hand.
fn dot_unit(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    unit: Val<u32>,
    right: Option<&[Right]>,
    multiplier: &Multiplier<'_>,
    sums: &mut [Val<f32>; 2],
) {
    let loaded;
    let right = match right {
        Some(right) => right,
        None => {
            loaded = right_of_unit(ty, unit, multiplier);
            &loaded
        }
    };
    for (i, right) in (0u32..).zip(right) {
        dot_block(block.bytes(i * ty.block_bytes()), ty, right, multiplier.place, sums);
    }
}

/// Adds up the four lanes of a row and puts the sums of a tile's rows where the epilogue finds them.
#[device]
fn keep(sums: &[Val<f32>; 2], to: Ptr<Shared, f32>) {
    let total = sums.map(|sum| {
        let pair = sum + shuffle_xor(sum, 1);
        pair + shuffle_xor(pair, 2)
    });
    let (quarter, group) = (lane() & 3, lane() >> 2);
    if quarter < 2 {
        to.at(group + quarter * 8).store(select(quarter == 0, total[0], total[1]));
    }
}
