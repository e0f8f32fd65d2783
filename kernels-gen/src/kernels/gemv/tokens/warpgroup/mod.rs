//! Products of many tokens by warpgroups, with `wgmma` on Hopper's tensor cores: of types whose products are added up as integers
//! ([`WeightType::exact_groups`]), and of f16.
//!
//! The arithmetic is that of `unit`; only the division of the work among warps differs. A warpgroup has a *quad* of four
//! tiles, one for each warp, and all tokens of the CTA: it decodes the weights of a step into registers, operand A, and
//! multiplies them with operand B, the inputs in shared memory, which it does not load. A stage of the ring of weights has a
//! quad in a slice of the columns. A quad may have tiles of gate and of up ([`GemvShape::mixes_segments`]).
//!
//! The warpgroups take the stages in turn. So several slices of a quad are multiplied at a time, and their sums have to be added
//! in the order of columns: a warpgroup waits for its turn before it adds to the totals in shared memory, and then passes the
//! turn on. Mbarriers order the turns.
//!
//! Scale · code has up to 11 bits. A is bytes, so the scale is split: scale = 8·high + low, and high · code is multiplied first.
//! Scale · code of Q6_K has 16 bits: the upper byte is multiplied first ([`scaled_codes`](crate::kernels::gemv::scaled_codes)).
//!
//! Products of f16 need neither ([`half_step`](crate::kernels::gemv::half_step)). If the columns have two parts, the CTAs of a
//! cluster have the same tiles and tokens, and a part each; [`join_parts`](super::join_parts) adds their totals.

mod step;
mod turns;

use bespoke_codegen::prelude::*;

pub(super) use turns::{Turns, init_turns, turn_barriers};

use super::SliceRun;
use super::inputs::GRANULE;
use crate::kernels::gemv::decode::LaneMap;
use crate::kernels::gemv::product::Arithmetic;
use crate::kernels::gemv::ring::{RingProducer, policy};
use crate::kernels::gemv::schedule::QUAD;
use crate::kernels::gemv::shape::{GemvShape, SQUARES_GROUP};
use crate::weights::{Layout, WeightType};
use step::{Four, Step, StepSums};

/// Maximum number of consumer warpgroups of a CTA: more would have too few registers per thread.
pub(crate) const MAX_WARPGROUPS: u32 = 3;

/// Registers of each thread in a CTA of [`MAX_WARPGROUPS`] consumer warpgroups and a producer warpgroup, which gives registers to the
/// others (`setmaxnreg`).
pub(in crate::kernels::gemv) struct Registers {
    /// Registers of every thread at the start of the kernel.
    pub start: u32,
    /// Registers of a producer's thread after `setmaxnreg`.
    pub producer: u32,
    /// Registers of a consumer's thread after `setmaxnreg`. 3 · consumer + producer ≤ 4 · start.
    pub consumer: u32,
}

/// Integers use all 65,536 registers of a multiprocessor.
const OF_INTEGERS: Registers = Registers { start: 128, producer: 32, consumer: 160 };

/// 12,288 registers are left: three CTAs of `prepare` of the next product start while this one runs. Measured on an H200: 32
/// sequences 3 to 11% faster, 64 3 to 6%. Integers are 1 to 2% slower with 112 and 136.
const OF_HALVES: Registers = Registers { start: 104, producer: 32, consumer: 128 };

const _: () = {
    assert!(OF_INTEGERS.is_consistent() && OF_INTEGERS.left() == 0);
    // CTAs of `prepare` have four warps, and up to 32 registers a thread.
    assert!(OF_HALVES.is_consistent() && OF_HALVES.left() >= 3 * 4 * WARP * 32);
};

impl Registers {
    /// Threads of a CTA.
    const THREADS: u32 = (MAX_WARPGROUPS + 1) * QUAD * WARP;

    /// Whether the producers give as many registers as the consumers take.
    const fn is_consistent(&self) -> bool {
        MAX_WARPGROUPS * self.consumer + self.producer <= (MAX_WARPGROUPS + 1) * self.start
    }

    /// Registers of a multiprocessor that a CTA leaves.
    const fn left(&self) -> u32 {
        65536 - Registers::THREADS * self.start
    }
}

/// Columns of a step: those with one scale of the inputs.
const STEP: u32 = SQUARES_GROUP;

/// Granules of a step.
const GRANULES: u32 = STEP / GRANULE;

impl GemvShape {
    /// Whether warpgroups can multiply the matrices. Integers: sums are exact, and steps have 256 columns. f16: a unit of every
    /// matrix has 256 columns, which excludes F16 and BF16.
    pub fn supports_warpgroups(&self) -> bool {
        let is_exact = |ty: WeightType| ty.exact_groups() > 0 || ty.has_wide_integers();
        self.cols.is_multiple_of(STEP)
            && if self.is_f16() {
                self.layouts().iter().all(|layout| self.unit_cols(layout) == STEP)
            } else {
                self.segments.iter().all(|segment| is_exact(segment.ty))
            }
    }

    /// Registers for each thread, with [`MAX_WARPGROUPS`]; `None` with fewer, where producers keep their registers (no `setmaxnreg`).
    pub(in crate::kernels::gemv) fn registers(&self) -> Option<Registers> {
        let has_all = self.has_warpgroups() && self.schedule.several.warpgroups == MAX_WARPGROUPS;
        has_all.then_some(match self.arithmetic {
            Arithmetic::Integers => OF_INTEGERS,
            Arithmetic::F16 => OF_HALVES,
        })
    }

    /// Maximum number of registers per thread at the start; 255 is no limit.
    pub(in crate::kernels::gemv) fn max_registers(&self) -> u32 {
        self.registers().map_or(255, |registers| registers.start)
    }

    /// Whether several warpgroups add to the totals in turn.
    pub(crate) fn has_turns(&self) -> bool {
        self.has_warpgroups() && self.schedule.groups > 1
    }
}

/// Producer warp: streams a slice of the columns of some tiles of each segment of a run, a quad a stage. The segments begin at
/// `offsets` in the weights.
#[device]
pub(super) fn stream_slice(
    weights: Ptr<Global, u8>,
    offsets: &[u64],
    layout: &Layout,
    tiles: [Val<u32>; 2],
    slice: Val<u32>,
    producer: &mut RingProducer,
    s: &GemvShape,
) {
    let bytes = s.slice_units(layout) * s.depth() * layout.ty.block_bytes();
    // CTAs with other tokens read the same weights.
    let policy = if s.schedule.several.blocks > 1 { None } else { policy(&s.schedule) };
    let weights = weights.byte_add(mul_wide(tiles[0], layout.tile_bytes())).byte_add(slice * bytes);
    let count = tiles[1] - tiles[0];
    let all = count * offsets.len() as u32;
    let mut place = val(0u32);
    while place < all {
        let address = |index: u32| {
            let tile = place + index;
            let tile_bytes = |tile: Val<u32>| mul_wide(tile, layout.tile_bytes());
            match *offsets {
                [first, second] => {
                    // A quad may have tiles of both segments.
                    let is_first = tile < count;
                    let tile = select(is_first, tile, tile - count);
                    weights.byte_add(tile_bytes(tile) + select(is_first, first, second))
                }
                _ => weights.byte_add(offsets[0]).byte_add(tile_bytes(tile)),
            }
        };
        let from: Vec<_> = (0..QUAD).map(address).collect();
        producer.copy_some(&from, bytes, (all - place).min(QUAD), policy, &s.schedule);
        place += QUAD;
    }
}

/// Multiplies this warpgroup's quads of a slice, and adds the sums of steps to the totals, f32
/// `[tile][pair of groups of tokens][lane][4]`. `stage` is that of the warpgroup.
#[device]
pub(super) fn dot_slice(
    run: &SliceRun<'_>,
    totals: Ptr<Shared, f32>,
    lane_map: &LaneMap,
    stage: &mut Consumer,
    turns: &mut Turns,
    s: &GemvShape,
) {
    let (layout, groups) = (run.layout, s.schedule.groups);
    let (units, unit_bytes) = (s.slice_units(layout), s.depth() * layout.ty.block_bytes());
    let warp = warp_index() % QUAD;
    let granule_bytes = s.input_layout().granule_bytes();
    let count = run.tiles[1] - run.tiles[0];
    let tiles = count * run.segments;
    let quads = (tiles + (QUAD - 1)) / QUAD;
    let mut quad = turns.until_own;
    while quad < quads {
        stage.wait();
        // A warp without a tile multiplies that of the first warp, and stores nothing.
        let tile = quad * QUAD + warp;
        let slot = select(tile < tiles, warp, 0u32);
        let mut place = tile;
        if run.segments > 1 {
            // The totals of each segment have room for as many tiles.
            place = select(tile < count, tile, tile - count + s.schedule.several.tiles);
        }
        let to = totals.at(place * s.tile_sums()).at(lane() * 4);
        let mut unit = val(0u32);
        while unit < units {
            let block = stage.data().byte_add((slot * units + unit) * unit_bytes);
            let record = run.inputs.byte_add(unit * (GRANULES * granule_bytes));
            let step = Step { block, ty: layout.ty, record, map: lane_map, s };
            let sums = step.sums();
            if let Some(barriers) = run.turns {
                if unit == 0 {
                    turns.wait(barriers);
                }
            }
            if tile < tiles {
                add_to_totals(&sums, to, (run.slice == run.first_slice) & (unit == 0));
            }
            unit += 1;
        }
        if let Some(barriers) = run.turns {
            turns.pass(barriers, s);
        }
        stage.release();
        stage.advance_by(groups);
        quad += groups;
    }
    turns.until_own = quad - quads;
}

/// Adds the sums of a step to this lane's totals at `to`, or stores those of the first step.
#[device]
fn add_to_totals(step: &StepSums, to: Ptr<Shared, f32>, is_first: Val<bool>) {
    let places = || (0u32..).map(|pair| to.at(pair * (4 * WARP)));
    if is_first {
        for (pair, place) in places().take(step.sums.len()).enumerate() {
            place.store_vector(step.alone(pair));
        }
    } else {
        let before: Vec<Four> = places().take(step.sums.len()).map(|place| place.load_vector()).collect();
        for (pair, (place, before)) in places().zip(before).enumerate() {
            place.store_vector(step.added_to(pair, before));
        }
    }
}
