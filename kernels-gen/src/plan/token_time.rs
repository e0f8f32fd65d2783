//! Estimated times of products of several tokens, in cycles of a multiprocessor.
//!
//! The time of a CTA is the longest of the times of its warps' instructions, of its loads from the L2 cache, and of its loads of
//! weights from device memory, and a part of the others, since they overlap incompletely. The constants are rough; they rank
//! divisions of one product ([`Constants`]).

use super::gpu::Gpu;
use crate::kernels::gemv::{GemvShape, Output};
use crate::weights::{Layout, WeightType};

/// Constants of the model, in cycles.
struct Constants {
    /// Numbers of consumer warps per CTA to try; of those with equal times, the first wins. With 16, a launch of a few tokens
    /// is faster by itself, but a step is slower on an H100, probably because too few registers are left for the next launch to
    /// start early.
    warps: &'static [u32],
    /// Fourths of a cycle by which a scheduler's time grows when a warp decodes 32 columns of a tile, and when it multiplies them
    /// with four tokens, for types whose scaled products are added up as integers.
    exact: [u64; 2],
    /// The same for Q6_K: not from times or machine code, but estimated from the operations in the source, or, with few tokens,
    /// the numbers of `other`.
    wide: [u64; 2],
    /// The same for other types.
    other: [u64; 2],
    /// The same for products of f16. Of a Q4_K superblock, a warp decodes 16 rows with about 230 instructions and multiplies them with
    /// eight tokens with 60 (machine code for sm_90).
    halves: [u64; 2],
    /// Time of a stage besides its instructions: a warp waits for weights, decodes them, and multiplies the first
    /// group.
    stage: u64,
    /// Time until the first stage arrives, per KiB of the stage; no warp of its group can start earlier.
    first_stage: u64,
    /// Time of a slice's barriers.
    slice: u64,
    /// Time of a slice if warps add to totals of their own, without barriers: the wait for the slice's inputs.
    accumulated_slice: u64,
    /// Time of a slice if the sums of all steps are held: the wait for the slice's inputs. Fitted to the order of some 20 divisions of
    /// products of Llama-3.1-8B with 8 tokens on an H200.
    held_slice: u64,
    /// Time from the last slice of a batch to the first of the next: all warps wait for the slowest, and write the outputs. Fitted as
    /// [`Constants::held_slice`]; steps of Qwen2.5-7B are 4.7% faster with gate and up in one batch than in two.
    batch: u64,
    /// Bytes per cycle that a multiprocessor loads from the L2 cache when all do.
    l2_bytes: u64,
    /// Part of the shorter of two overlapping times that is added to the longer one, in fourths: for instructions and L2 loads,
    /// and for instructions and loads of weights. More than 4 where the instruction time includes waits.
    exposed: [u64; 2],
}

/// Largest number of tokens of a product that is [`LATENCY_BOUND`].
const LATENCY_BOUND_TOKENS: u32 = 16;

/// With few tokens, waits decide: a warp's instructions run beside the waits of others. The constants fit the times of 321 launches
/// with 8 and 12 warps on an H100 (Llama-3.1-8B with 4 to 64 tokens, Qwen2.5-7B with 4 and Llama-3.2-1B with 8). With 32 and 64
/// tokens steps were slower than with [`INSTRUCTION_BOUND`].
const LATENCY_BOUND: Constants = Constants {
    warps: &[8, 12],
    exact: [20, 5],
    wide: [40, 11],
    other: [40, 11],
    halves: [30, 2],
    stage: 310,
    first_stage: 93,
    slice: 600,
    accumulated_slice: 100,
    held_slice: 350,
    batch: 1500,
    l2_bytes: 32,
    exposed: [0, 6],
};

/// With many tokens, instructions decide: their numbers are from the machine code for sm_90 (`bespoke inspect --stage sass`),
/// rounded up so that the order of divisions is that of times on an H200. `l2_bytes` is from times of a down projection.
const INSTRUCTION_BOUND: Constants = Constants {
    warps: &[8],
    exact: [64, 36],
    wide: [96, 48],
    other: [128, 68],
    halves: [120, 6],
    stage: 500,
    first_stage: 0,
    slice: 800,
    accumulated_slice: 200,
    // With so many tokens, only tuning rules ask for held sums. These two are not fitted.
    held_slice: 0,
    batch: 0,
    l2_bytes: 26,
    exposed: [1, 0],
};

impl Constants {
    fn of(tokens: u32) -> &'static Constants {
        if waits_decide(tokens) { &LATENCY_BOUND } else { &INSTRUCTION_BOUND }
    }
}

/// Schedulers of a multiprocessor, each of which issues an instruction per cycle.
const SCHEDULERS: u64 = 4;

/// Latency of device memory in cycles, as in [`Gpu::bytes_in_flight`].
const LATENCY: u64 = 1400;

/// Latency of the L2 cache in cycles when all multiprocessors load.
const L2_LATENCY: u64 = 1500;

/// Numbers of consumer warps per CTA to try; of those with equal times, the first wins.
pub(super) fn usual_warps(tokens: u32) -> &'static [u32] {
    Constants::of(tokens).warps
}

/// Whether waits rather than instructions decide the time of a product of `tokens` tokens.
pub(super) fn waits_decide(tokens: u32) -> bool {
    tokens <= LATENCY_BOUND_TOKENS
}

/// Penalty of a slice against held sums, for each eight tokens: for its barriers and the additions between them, or for totals that a
/// warp adds to itself. Fitted to the choices that were faster. Without barriers and additions (results are wrong) gate and up of
/// Llama-3.1-8B with 8 tokens, two slices, take 1 µs less on an H200, down, four slices, 0.7 to 2.8 µs: 300 to 1,400 cycles a slice, of
/// which [`Constants::slice`] has 600. With 16 tokens of f16 held sums are 4% of a step faster than four slices in gate and up of the 8B, and
/// with integers 15% faster than ten slices of one unit in those of Qwen3-4B.
const SLICE_OF_EIGHT: u64 = 1600;

/// Penalty of a division that does not hold all sums against one that does, in cycles: for barriers after each slice, or with one
/// slice for the wait until all inputs have arrived. Divisions without held sums are ranked among each other by [`time`] alone. Zero if
/// sums are held.
///
/// Fitted on an H200: in steps of 8 tokens of Qwen3-4B held sums are 4.4% faster than one slice in gate and up, and 1.3% in QKV; in
/// those of Llama-3.2-1B and Qwen2.5-1.5B −1.5 to 0.7%, so the wait for one slice counts from two tiles a CTA on, two fifths of it.
pub(super) fn penalty_against_held(shape: &GemvShape) -> u64 {
    match shape.slices() {
        1 if shape.is_prepared() && shape.most_tiles() > 1 => {
            u64::from(shape.slice_bytes()) / Constants::of(shape.tokens).l2_bytes * 2 / 5
        }
        slices if slices > 1 && !shape.schedule.several.holds => {
            u64::from(slices) * u64::from(shape.tokens.div_ceil(8)) * SLICE_OF_EIGHT
        }
        _ => 0,
    }
}

/// Estimated time of the CTA with the most tiles, in cycles of a multiprocessor.
pub(super) fn time(gpu: &Gpu, shape: &GemvShape, tiles: u32, strip: u32) -> u64 {
    let (schedule, several) = (&shape.schedule, &shape.schedule.several);
    let layout = shape.input_layout();
    let segments = if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 };
    let columns = layout.granules * 128;
    let slice = if several.prepared { several.slice.min(columns) } else { columns };
    let slices = u64::from(columns.div_ceil(slice));
    let batches = tiles.div_ceil(several.tiles);
    let (layouts, depth) = (shape.layouts(), shape.depth());
    let (slice_bytes, stage_bytes) = (u64::from(shape.slice_bytes()), u64::from(shape.stage_bytes()));
    let unit = layouts.iter().map(|layout| depth * layout.ty.block_cols()).max().unwrap_or(128);
    let chunks = u64::from(unit.div_ceil(32));
    let strips = (slice / unit).max(1).div_ceil(strip);
    let groups_of_tokens = u64::from(layout.groups().div_ceil(several.parts));
    let constants = Constants::of(shape.tokens);
    let of_type = |ty: WeightType| match (ty.exact_groups() > 0, ty.has_wide_integers()) {
        _ if shape.is_f16() => constants.halves,
        (true, _) => constants.exact,
        (_, true) => constants.wide,
        _ => constants.other,
    };
    let slowest = layouts.iter().map(|layout| of_type(layout.ty)).max();
    let [decode, multiply] = slowest.unwrap_or(constants.other);
    let instructions = u64::from(schedule.warps) * chunks * (decode + multiply * groups_of_tokens);
    let item = constants.stage + instructions / (4 * SCHEDULERS);
    let rounds = |tiles: u32| {
        let (stages, groups) = (u64::from(tiles * segments * strips), u64::from(schedule.groups));
        let by_slice = slices * stages.div_ceil(groups);
        // Without barriers, a warp is ahead of others by at most as many slices as there are buffers.
        let ahead = if several.holds { by_slice - (slices * stages).div_ceil(groups) } else { 0 };
        by_slice - ahead + ahead / u64::from(several.buffers.max(1))
    };
    let last = tiles - (batches - 1) * several.tiles;
    let rounds = u64::from(batches - 1) * rounds(several.tiles) + rounds(last);
    let of_slice = match several.holds {
        true => constants.held_slice,
        false if shape.accumulates() => constants.accumulated_slice,
        false => constants.slice,
    };
    // The other constants were fitted without the time between batches where CTAs quantise the inputs themselves, and in the LM head.
    let counts_batches = several.prepared && shape.output != Output::Argmax;
    let between_batches = if counts_batches { u64::from(batches - 1) * constants.batch } else { 0 };
    let compute = rounds * item + slices * u64::from(batches) * of_slice + between_batches;
    let tile_bytes = layouts.iter().map(Layout::tile_bytes).max().unwrap_or(0);
    let weight_bytes = u64::from(tiles * segments) * u64::from(tile_bytes);
    let passes = if slices == 1 { 1 } else { u64::from(batches) };
    let (load, first, of_inputs) = match several.prepared {
        false => (0, 0, 0),
        true => {
            // Slices that are being multiplied are not in flight.
            let in_flight = (u64::from(several.buffers.max(2) - 1) * slice_bytes).max(1);
            let inputs = passes * u64::from(layout.bytes());
            let wait = if slices == 1 { 0 } else { inputs * L2_LATENCY / in_flight };
            let first = slice_bytes / constants.l2_bytes;
            let load = ((inputs + weight_bytes) / constants.l2_bytes).max(wait);
            (load, first, if several.holds { first + wait / 4 } else { 0 })
        }
    };
    // Stages that are being multiplied are not in flight, by the fit without held sums. With these, times fit better if all stages
    // count, and if the time of the first slice and a fourth of the wait for inputs are added.
    let stages = 2 * schedule.stages - if several.holds { 0 } else { schedule.groups };
    let in_flight = (u64::from(stages) * stage_bytes / 2).clamp(1, gpu.bytes_in_flight());
    let weights = weight_bytes * LATENCY / in_flight;
    // With one stage per group, a group waits for each of its stages; with one buffer, all wait for each slice.
    let of_groups = weights.min(compute) / if several.holds { 3 } else { 2 };
    let waits = if schedule.stages < 2 * schedule.groups { of_groups } else { 0 };
    let waits = waits + if slices > 1 && several.buffers < 2 { load.min(compute) } else { 0 };
    let first_stage = stage_bytes * constants.first_stage / 1024;
    let [of_load, of_weights] = constants.exposed;
    let exposed = (compute.min(load) * of_load + compute.min(weights) * of_weights) / 4;
    (first + compute).max(load + item).max(weights) + waits + first_stage + exposed + of_inputs
}
