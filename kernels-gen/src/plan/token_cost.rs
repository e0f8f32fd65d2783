//! Cost model of products of several tokens: divides the inputs into slices, the tiles into batches, and the tokens among
//! warps.
//!
//! The time of a CTA is estimated for each division that fits in shared memory, in cycles of a multiprocessor: the longest
//! of the times of its warps' instructions, of its loads from the L2 cache, and of its loads of weights from device memory,
//! and a part of the others, since they overlap incompletely. The constants are rough; they rank divisions of one product
//! ([`Constants`]).

use super::gpu::Gpu;
use super::tuning::Rule;
use crate::kernels::gemv::{FEW, GemvShape, Output, TokenSchedule};
use crate::weights::{Layout, WeightType};

/// Largest number of inputs of all tokens that each CTA quantises itself. With more, a launch that quantises them once costs
/// less. Measured on an H100: with 4 tokens, the down projections of Llama-3.1-8B (57,344 inputs) and Qwen2.5-7B (75,776) take 4
/// to 8 µs less after such a launch, which takes 2.6 µs; with 2 tokens (28,672 and 37,888) not less.
const HELD_INPUTS: u32 = 48 << 10;

/// Consumer warps, and buffers of slices, of a product of at most [`FEW`] tokens whose inputs are prepared because they exceed
/// [`HELD_INPUTS`]. Measured on an H100 with 4 tokens, at depths of 0, 128 and 1,024, against the division with the shortest
/// estimated time (12 warps, all inputs in one slice): steps of Llama-3.1-8B and Mistral-7B 2.6 to 3.3% faster, of Qwen2.5-7B
/// 0.6%. With 16 warps alone, in another run, the 8B 1.5 and 1.6%, the 7B −0.4 and −0.5%.
const WARPS_OF_FEW: u32 = 16;
const BUFFERS_OF_FEW: u32 = 3;

/// Another number of consumer warps to try ([`tries_more_warps`]); each has two stages of the ring. Steps of 8 tokens at a depth of
/// 128 on an H200, 14 warps against 8 or 12: Llama-3.1-8B 5.6% faster (f16 4%), Qwen2.5-7B 2.4% (2.9%), Qwen3-4B 1% (1%), but
/// Llama-3.2-1B, whose tiles have eight units, 3% slower. Steps of 4 tokens in f16: 2, 4.3, 0.5 and −1.3%. With 16 tokens the model
/// would choose slices of 256 columns, with which the 8B is 9% slower; in the LM head slices of 512, 1 to 2% slower.
const MORE_WARPS: u32 = 14;

/// Minimum number of columns of a product for which [`MORE_WARPS`] are tried: nine units.
const MORE_WARPS_COLUMNS: u32 = 9 * 256;

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
    l2_bytes: 26,
    exposed: [1, 0],
};

impl Constants {
    fn of(tokens: u32) -> &'static Constants {
        if tokens <= LATENCY_BOUND_TOKENS { &LATENCY_BOUND } else { &INSTRUCTION_BOUND }
    }
}

/// Schedulers of a multiprocessor, each of which issues an instruction per cycle.
const SCHEDULERS: u64 = 4;

/// Latency of device memory in cycles, as in [`Gpu::bytes_in_flight`].
const LATENCY: u64 = 1400;

/// Latency of the L2 cache in cycles when all multiprocessors load.
const L2_LATENCY: u64 = 1500;

/// Largest size of the ring of weights in bytes, unless its stages are larger, and its largest number of stages.
const RING: u32 = 112 * 1024;
const MAX_STAGES: u32 = 24;

/// Whether each CTA quantises all inputs, if they fit beside a ring of weights.
pub(super) fn holds_inputs(shape: &GemvShape) -> bool {
    shape.tokens <= FEW && shape.tokens * shape.cols <= HELD_INPUTS
}

/// Chooses groups of warps, stages and [`TokenSchedule`] for `shape`, whose other choices are made.
pub(super) fn divide(gpu: &Gpu, mut shape: GemvShape, rule: &Rule) -> GemvShape {
    let best = |inputs: PreparedInputs| best(gpu, &shape, rule, inputs);
    let found = match (shape.tokens <= FEW, holds_inputs(&shape)) {
        (_, true) => best(PreparedInputs::None),
        (true, false) => best(PreparedInputs::OfFew),
        (false, false) => None,
    };
    let found = found.or_else(|| best(PreparedInputs::OfAny));
    // If nothing fits, the smallest division; the plan's check reports its size, or the knob of the rule that it lacks.
    let least = || Candidate {
        warps: shape.schedule.warps,
        groups: 1,
        stages: 2,
        several: TokenSchedule {
            prepared: true,
            slice: shape.least_slice(),
            buffers: 1,
            tiles: 1,
            ..TokenSchedule::ONE
        },
    };
    let Candidate { warps, groups, stages, several } = found.unwrap_or_else(least);
    shape.schedule.warps = warps;
    shape.schedule.groups = groups;
    shape.schedule.stages = stages;
    shape.schedule.in_flight = stages;
    shape.schedule.several = several;
    shape
}

/// How a division's CTAs get their inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreparedInputs {
    /// Each CTA quantises them.
    None,
    /// Prepared, with the warps and buffers of few tokens.
    OfFew,
    /// Prepared.
    OfAny,
}

/// A division of a product.
#[derive(Clone, Copy)]
struct Candidate {
    warps: u32,
    groups: u32,
    stages: u32,
    several: TokenSchedule,
}

/// The division with the shortest estimated time among those that the rule allows and that fit in shared memory.
fn best(gpu: &Gpu, shape: &GemvShape, rule: &Rule, inputs: PreparedInputs) -> Option<Candidate> {
    let groups_of_tokens = shape.input_layout().groups();
    let tiles =
        if matches!(shape.output, Output::Glu(_)) { shape.most_tiles() / 2 } else { shape.most_tiles() };
    let tiles = tiles.max(1);
    // f16 is multiplied with two groups at once.
    let most_parts = if shape.has_halves() { groups_of_tokens.div_ceil(2) } else { groups_of_tokens };
    let mut found: Option<(u64, Candidate)> = None;
    let mut trial = shape.clone();
    for warps in numbers_of_warps(shape, rule, inputs) {
        trial.schedule.warps = warps;
        for slices in slices(shape, inputs) {
            for batch in batches(tiles, rule) {
                for parts in divisors(warps).filter(|&parts| parts <= most_parts) {
                    // Of equal times, that with the fewest stages and copies wins.
                    for strip in divisors(warps / parts).collect::<Vec<_>>().into_iter().rev() {
                        let several = TokenSchedule { parts, tiles: batch, ..slices };
                        let groups = warps / parts / strip;
                        (trial.schedule.several, trial.schedule.groups) = (several, groups);
                        let Some(stages) = stages(gpu, &mut trial, rule) else { continue };
                        (trial.schedule.stages, trial.schedule.in_flight) = (stages, stages);
                        if !rule.allows(&trial) {
                            continue;
                        }
                        let time = time(gpu, &trial, tiles, strip);
                        if found.is_none_or(|(best, _)| time < best) {
                            found = Some((time, Candidate { warps, groups, stages, several }));
                        }
                    }
                }
            }
        }
    }
    found.map(|(_, candidate)| candidate)
}

/// The divisors of `n` that are powers of two.
fn divisors(n: u32) -> impl Iterator<Item = u32> {
    (0..=n.ilog2()).map(|power| 1 << power).filter(move |it| n.is_multiple_of(*it))
}

/// Numbers of consumer warps to try: that of the rule, or the usual ones and that of `shape`.
fn numbers_of_warps(shape: &GemvShape, rule: &Rule, inputs: PreparedInputs) -> Vec<u32> {
    let (own, usual) = (shape.schedule.warps, Constants::of(shape.tokens).warps);
    match rule.warps {
        Some(_) => vec![own],
        None if inputs == PreparedInputs::OfFew => vec![WARPS_OF_FEW],
        None => {
            let own = (!usual.contains(&own)).then_some(own);
            let more = tries_more_warps(shape).then_some(MORE_WARPS);
            usual.iter().copied().chain(own).chain(more).collect()
        }
    }
}

/// Whether [`MORE_WARPS`] are tried: where that was measured to be faster. Engines have steps of 2, 4, 8 and more rows; two rows
/// were not measured.
fn tries_more_warps(shape: &GemvShape) -> bool {
    let fewest = if shape.has_halves() { FEW } else { FEW + 1 };
    (fewest..=8).contains(&shape.tokens) && shape.cols >= MORE_WARPS_COLUMNS && shape.output != Output::Argmax
}

/// The divisions of the columns into slices, and the numbers of their buffers.
fn slices(shape: &GemvShape, inputs: PreparedInputs) -> Vec<TokenSchedule> {
    if inputs == PreparedInputs::None {
        return vec![TokenSchedule { buffers: 0, ..TokenSchedule::ONE }];
    }
    let (least, columns) = (shape.least_slice(), shape.input_layout().granules * 128);
    let powers = 0..=columns.div_ceil(least).next_power_of_two().ilog2();
    let of_size = |slice: u32| {
        let buffers: &[u32] = match (inputs == PreparedInputs::OfFew, slice >= columns) {
            (true, true) => &[],
            (true, false) => &[BUFFERS_OF_FEW],
            // A single slice needs one buffer.
            (false, true) => &[1],
            (false, false) => &[2, 3, 4, 6, 1],
        };
        let several = TokenSchedule { prepared: true, slice, ..TokenSchedule::ONE };
        buffers.iter().map(move |&buffers| TokenSchedule { buffers, ..several })
    };
    powers.flat_map(|power| of_size(least << power)).collect()
}

/// Sizes of batches of a CTA's tiles: all tiles, a half, a fourth and so on, or the size of the rule.
fn batches(tiles: u32, rule: &Rule) -> impl Iterator<Item = u32> {
    let given = rule.tiles.filter(|&given| given <= tiles);
    let powers = 0..=if given.is_some() { 0 } else { tiles.next_power_of_two().ilog2() };
    powers.map(move |power| given.unwrap_or(tiles.div_ceil(1 << power)))
}

/// Number of stages of the ring of weights that fit beside the inputs and the sums: enough for the bytes in flight, at
/// least one for each group; or fewer by the rule.
fn stages(gpu: &Gpu, shape: &mut GemvShape, rule: &Rule) -> Option<u32> {
    let groups = shape.schedule.groups;
    shape.schedule.stages = 0;
    let fixed = shape.token_bytes();
    let free = gpu.shared_budget(shape.schedule.resident).checked_sub(fixed)?;
    let fit = free.min(RING.max(groups * shape.stage_bytes())) / shape.stage_bytes();
    let most = if groups == MORE_WARPS { 2 * groups } else { MAX_STAGES };
    let stages = fit.min(rule.stages.unwrap_or(most)) / groups * groups;
    (stages > 0).then_some(stages)
}

/// Estimated time of the CTA with the most tiles, in cycles of a multiprocessor.
fn time(gpu: &Gpu, shape: &GemvShape, tiles: u32, strip: u32) -> u64 {
    let (schedule, several) = (&shape.schedule, &shape.schedule.several);
    let layout = shape.input_layout();
    let segments = if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 };
    let columns = layout.granules * 128;
    let slice = if several.prepared { several.slice.min(columns) } else { columns };
    let slices = u64::from(columns.div_ceil(slice));
    let batches = tiles.div_ceil(several.tiles);
    let unit = shape.layouts().iter().map(|layout: &Layout| shape.depth() * layout.ty.block_cols()).max();
    let unit = unit.unwrap_or(128);
    let chunks = u64::from(unit.div_ceil(32));
    let strips = (slice / unit).max(1).div_ceil(strip);
    let groups_of_tokens = u64::from(layout.groups().div_ceil(several.parts));
    let constants = Constants::of(shape.tokens);
    let layouts = shape.layouts();
    let of_type = |ty: WeightType| match (ty.exact_groups() > 0, ty.has_wide_integers()) {
        _ if shape.has_halves() => constants.halves,
        (true, _) => constants.exact,
        (_, true) => constants.wide,
        _ => constants.other,
    };
    let slowest = layouts.iter().map(|layout| of_type(layout.ty)).max();
    let [decode, multiply] = slowest.unwrap_or(constants.other);
    let instructions = u64::from(schedule.warps) * chunks * (decode + multiply * groups_of_tokens);
    let item = constants.stage + instructions / (4 * SCHEDULERS);
    let rounds = |tiles: u32| u64::from((tiles * segments * strips).div_ceil(schedule.groups));
    let last = tiles - (batches - 1) * several.tiles;
    let rounds = u64::from(batches - 1) * rounds(several.tiles) + rounds(last);
    let of_slice = if shape.accumulates() { constants.accumulated_slice } else { constants.slice };
    let compute = slices * (rounds * item + u64::from(batches) * of_slice);
    let tile_bytes = shape.layouts().iter().map(Layout::tile_bytes).max().unwrap_or(0);
    let weight_bytes = u64::from(tiles * segments) * u64::from(tile_bytes);
    let passes = if slices == 1 { 1 } else { u64::from(batches) };
    let (load, first) = match several.prepared {
        false => (0, 0),
        true => {
            // Slices that are being multiplied are not in flight.
            let in_flight = u64::from((several.buffers.max(2) - 1) * shape.slice_bytes()).max(1);
            let inputs = passes * u64::from(layout.bytes());
            let wait = if slices == 1 { 0 } else { inputs * L2_LATENCY / in_flight };
            (
                ((inputs + weight_bytes) / constants.l2_bytes).max(wait),
                u64::from(shape.slice_bytes()) / constants.l2_bytes,
            )
        }
    };
    // Stages that are being multiplied are not in flight.
    let stages = 2 * schedule.stages - schedule.groups;
    let in_flight = (u64::from(stages * shape.stage_bytes()) / 2).clamp(1, gpu.bytes_in_flight());
    let weights = weight_bytes * LATENCY / in_flight;
    // With one stage per group, a group waits for each of its stages; with one buffer, all wait for each slice.
    let waits = if schedule.stages < 2 * schedule.groups { weights.min(compute) / 2 } else { 0 };
    let waits = waits + if slices > 1 && several.buffers < 2 { load.min(compute) } else { 0 };
    let first_stage = u64::from(shape.stage_bytes()) * constants.first_stage / 1024;
    let [of_load, of_weights] = constants.exposed;
    let exposed = (compute.min(load) * of_load + compute.min(weights) * of_weights) / 4;
    (first + compute).max(load + item).max(weights) + waits + first_stage + exposed
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;

    use super::*;
    use crate::plan::{LaunchRole, Plan, PlanParams, Rule, cost};
    use crate::shape::builtin;
    use crate::spec::KernelSpec;

    /// The products of the built-in shapes with one token.
    fn products(target: Target) -> Vec<GemvShape> {
        let mut products: Vec<GemvShape> = Vec::new();
        for mut shape in builtin().iter().flat_map(|file| file.shapes().expect("valid")) {
            // The kernels of the first and last layers are those of all.
            let last = shape.layers.len() - 1;
            shape.layers = vec![shape.layers[0].clone(), shape.layers[last].clone()];
            shape.dimensions.layers = 2;
            let plan = Plan::new(&shape, target, PlanParams::single(64)).expect("a plan");
            for kernel in plan.kernels {
                if let KernelSpec::Gemv(product) = kernel.spec
                    && !products.contains(&product)
                {
                    products.push(product);
                }
            }
        }
        products
    }

    /// Divides a product of `tokens` tokens without rules.
    fn divided(target: Target, product: &GemvShape, tokens: u32) -> KernelSpec {
        let (product, trigger) = (product.clone(), product.schedule.trigger);
        let rule = Rule::empty(LaunchRole::FfnDown);
        let gpu = Gpu::typical(target);
        KernelSpec::Gemv(cost::gemv(&gpu, GemvShape { tokens, ..product }, trigger, &rule))
    }

    /// 14 tiles of 16 units: with eight units a slice, 14 warps have eight rounds each, and one batch has all tiles.
    #[test]
    fn gate_and_up_of_8_tokens_are_one_batch_of_14_warps() {
        let is_gate_and_up = |product: &&GemvShape| product.rows() == 2 * 14336 && product.cols == 4096;
        let product = products(Target::Sm90).into_iter().find(|product| is_gate_and_up(&product));
        let KernelSpec::Gemv(divided) = divided(Target::Sm90, &product.expect("Llama-3.1-8B"), 8) else {
            panic!("a product")
        };
        let TokenSchedule { tiles, slice, .. } = divided.schedule.several;
        assert_eq!((divided.schedule.warps, divided.schedule.stages, tiles, slice), (14, 28, 7, 2048));
    }

    #[test]
    fn products_of_several_tokens_fit_in_shared_memory() {
        for target in Target::ALL {
            for product in products(target) {
                for tokens in [2, 4, 8, 16, 32, 64] {
                    let spec = divided(target, &product, tokens);
                    spec.check().unwrap_or_else(|error| panic!("{}: {error}", spec.name()));
                    let bytes = spec.geometry().dynamic_shared + spec.static_shared();
                    let most = target.shared_memory_per_block();
                    assert!(bytes <= most, "{} on {target}: {bytes} of {most} bytes", spec.name());
                }
            }
        }
    }
}
