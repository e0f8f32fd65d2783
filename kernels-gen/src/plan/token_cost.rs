//! Cost model of products of several tokens: divides the inputs into slices, the tiles into batches, and the tokens among
//! warps. Of the divisions that fit in shared memory, the one with the shortest estimated time (`token_time`) is taken.

use super::gpu::Gpu;
use super::token_time::{penalty_against_held, time, usual_warps, waits_decide};
use super::tuning::Rule;
use crate::kernels::gemv::{FEW, GemvShape, Output, TokenSchedule};
use crate::kernels::launching::CopyEngine;

/// Largest number of inputs of one or two tokens that each CTA quantises itself. With more, a launch that quantises them once costs less.
/// Measured on an H100: the down projections of Llama-3.1-8B and Qwen2.5-7B with 4 tokens (57,344 and 75,776 inputs) take 4 to 8 µs less
/// after such a launch, which takes 2.6 µs; with 2 tokens (28,672 and 37,888) not less. Steps of 2 tokens on an H200 are 4 to 11% slower
/// if all inputs are prepared (five models from Llama-3.2-1B to Llama-3.1-8B).
const OWN_INPUTS: u32 = 48 << 10;

/// The same limit for f16 inputs: `tokens/` multiplies them in any case. It concerns the first product of a step, attention's output, and
/// products after norms of blocks; the product before writes the inputs of the others. Measured before it did, steps of 2 tokens with
/// all inputs prepared, on an H200: Llama-3.1-8B (8,192 inputs in gate and up) 6.5% faster, Qwen2.5-7B (7,168) 7.7%, Qwen3-4B (5,120) the
/// same, Llama-3.2-1B (4,096) and Qwen2.5-1.5B (3,072) 6 and 3% slower.
const OWN_HALVES: u32 = 6 << 10;

/// The same limit for three or four tokens. Steps of 4 tokens with prepared inputs, at a depth of 128 on an H200, integers and f16 (as
/// with [`OWN_HALVES`]):
/// Llama-3.1-8B 4.6 and 6.0% faster, Qwen2.5-7B 5.2 and 3.1%, Qwen3-4B 18 and 10%, Llama-3.2-3B 8.5 and 3.7%, Llama-3.2-1B 9.6 and 4.8%,
/// Qwen2.5-1.5B 12 and 3.7%, Qwen3-0.6B (4,096 inputs) 14 and 0.4%; SmolLM2-135M (2,304) 6.1 and 12% slower. Steps of 3
/// tokens were not measured.
const OWN_OF_FEW: u32 = 3 << 10;

/// Another number of consumer warps to try; each has two stages of the ring. Steps of 8 tokens at a depth of
/// 128 on an H200, 14 warps against 8 or 12: Llama-3.1-8B 5.6% faster (f16 4%), Qwen2.5-7B 2.4% (2.9%), Qwen3-4B 1% (1%), but
/// Llama-3.2-1B, whose tiles have eight units, 3% slower. Steps of 4 tokens in f16: 2, 4.3, 0.5 and −1.3%. With 16 tokens the estimates,
/// before held sums, chose slices of 256 columns, with which the 8B is 9% slower; in the LM head slices of 512, 1 to 2% slower.
const MORE_WARPS: u32 = 14;

/// Number of consumer warps to try for held sums: with up to 8 tokens besides [`MORE_WARPS`], with 9 to 16 in groups of one warp. Steps of 8 tokens of
/// Llama-3.1-8B on an H200 with 16 warps in gate and up, against 14: f16 1% faster, integers 0.4% slower. Integer products with Q6_K
/// need more than the 96 registers that 16 warps leave a thread.
const HELD_WARPS: u32 = 16;

/// Largest number of tokens for which [`MORE_WARPS`] are tried.
const MORE_WARPS_TOKENS: u32 = 8;

/// Minimum number of columns from which [`is_faster_by_held_warps`].
const HELD_WARPS_COLUMNS: u32 = 1024;

/// Minimum number of columns of a product for which [`MORE_WARPS`] are tried: nine units.
const MORE_WARPS_COLUMNS: u32 = 9 * 256;

/// Largest size of the ring of weights in bytes, unless its stages are larger. Other limits were not measured.
const RING: u32 = 112 * 1024;

/// Largest number of stages of the ring. With [`MORE_WARPS`] or [`HELD_WARPS`] groups of one warp it is two for each. Other limits were not
/// measured.
const MAX_STAGES: u32 = 24;

/// Whether each CTA quantises all inputs itself, if they fit beside a ring of weights.
pub(super) fn quantises_own_inputs(shape: &GemvShape) -> bool {
    let most = match shape.tokens {
        ..=2 if shape.is_f16() => OWN_HALVES,
        ..=2 => OWN_INPUTS,
        _ => OWN_OF_FEW,
    };
    !shape.received && shape.tokens <= FEW && shape.tokens * shape.cols <= most
}

/// Chooses groups of warps, stages and [`TokenSchedule`] for `shape`, whose other choices are made.
pub(super) fn divide(gpu: &Gpu, mut shape: GemvShape, rule: &Rule) -> GemvShape {
    let own = if quantises_own_inputs(&shape) { best(gpu, &shape, rule, Inputs::OfCta) } else { None };
    let found = own.or_else(|| best(gpu, &shape, rule, Inputs::Prepared));
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

/// Estimated time of a division of a product of several tokens by warps, in cycles.
pub(super) fn estimate(gpu: &Gpu, shape: &GemvShape) -> u64 {
    let schedule = &shape.schedule;
    time(gpu, shape, tiles(shape), schedule.warps / schedule.several.parts / schedule.groups)
}

/// Largest number of tiles of a CTA; of gate and up, that of each.
pub(super) fn tiles(shape: &GemvShape) -> u32 {
    let segments = if matches!(shape.output, Output::Glu(_)) { 2 } else { 1 };
    shape.most_tiles().div_ceil(segments).max(1)
}

/// How a division's CTAs get their inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inputs {
    /// Each CTA quantises them, and holds them in shared memory.
    OfCta,
    /// Prepared by an earlier launch.
    Prepared,
}

/// A division with its estimated time, in cycles.
#[derive(Clone, Copy)]
struct Estimate {
    candidate: Candidate,
    /// Comparable only among divisions of the same kind: all with held sums, or all without.
    time: u64,
    /// Added to the time when the best division of each kind is compared with the other.
    penalty: u64,
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
fn best(gpu: &Gpu, shape: &GemvShape, rule: &Rule, inputs: Inputs) -> Option<Candidate> {
    let groups_of_tokens = shape.input_layout().groups();
    let tiles = tiles(shape);
    // f16 is multiplied with two groups at once.
    let most_parts = if shape.is_f16() { groups_of_tokens.div_ceil(2) } else { groups_of_tokens };
    // The best division without and with held sums.
    let mut found: [Option<Estimate>; 2] = [None; 2];
    let mut trial = shape.clone();
    for warps in numbers_of_warps(shape, rule, inputs) {
        trial.schedule.warps = warps;
        for slices in slices(shape, rule, inputs) {
            for batch in batches(tiles, rule) {
                let is_for_held = warps == HELD_WARPS && rule.warps.is_none();
                trial.schedule.several = TokenSchedule { tiles: batch, ..slices };
                trial.schedule.stages = 0;
                let fits = trial.token_bytes() <= gpu.shared_budget(shape.schedule.resident);
                if is_for_held && !slices.holds || !fits {
                    continue;
                }
                for parts in divisors(warps).filter(|&parts| parts <= most_parts) {
                    // Of equal times, that with the fewest stages and copies wins.
                    for strip in divisors(warps / parts).collect::<Vec<_>>().into_iter().rev() {
                        let several = TokenSchedule { parts, tiles: batch, ..slices };
                        let groups = warps / parts / strip;
                        (trial.schedule.several, trial.schedule.groups) = (several, groups);
                        let Some(stages) = stages(gpu, &mut trial, rule) else { continue };
                        (trial.schedule.stages, trial.schedule.in_flight) = (stages, stages);
                        let is_tried = !is_for_held || shape.tokens <= MORE_WARPS_TOKENS || groups == warps;
                        if !is_tried || !rule.allows(&trial) {
                            continue;
                        }
                        let mut time = time(gpu, &trial, tiles, strip);
                        if is_for_held && is_faster_by_held_warps(shape) {
                            time -= time / 14;
                        }
                        let found = &mut found[usize::from(several.holds)];
                        if found.is_none_or(|best| time < best.time) {
                            let candidate = Candidate { warps, groups, stages, several };
                            *found =
                                Some(Estimate { candidate, time, penalty: penalty_against_held(&trial) });
                        }
                    }
                }
            }
        }
    }
    let best = found.into_iter().flatten().min_by_key(|best| best.time + best.penalty);
    best.map(|best| best.candidate)
}

/// The divisors of `n` that are powers of two.
fn divisors(n: u32) -> impl Iterator<Item = u32> {
    (0..=n.ilog2()).map(|power| 1 << power).filter(move |it| n.is_multiple_of(*it))
}

/// Numbers of consumer warps to try: that of the rule, or the usual ones and that of `shape`.
fn numbers_of_warps(shape: &GemvShape, rule: &Rule, inputs: Inputs) -> Vec<u32> {
    let (own, usual) = (shape.schedule.warps, usual_warps(shape.tokens));
    match rule.warps {
        Some(_) => vec![own],
        None => {
            let own = (!usual.contains(&own)).then_some(own);
            let is_wide = shape.segments.iter().any(|segment| segment.ty.has_wide_integers());
            // On sm_80, ptxas spills with 96 registers in integer products of 16 tokens.
            let fits = shape.tokens <= MORE_WARPS_TOKENS || shape.schedule.copy == CopyEngine::Bulk;
            let has_registers = shape.is_f16() || !is_wide && fits;
            let more: &[u32] = match shape.tokens {
                _ if inputs == Inputs::OfCta || shape.output == Output::Argmax => &[],
                ..=MORE_WARPS_TOKENS if shape.cols < MORE_WARPS_COLUMNS => &[],
                ..=MORE_WARPS_TOKENS if has_registers => &[MORE_WARPS, HELD_WARPS],
                ..=MORE_WARPS_TOKENS => &[MORE_WARPS],
                tokens if has_registers && waits_decide(tokens) => &[HELD_WARPS],
                _ => &[],
            };
            usual.iter().copied().chain(own).chain(more.iter().copied()).collect()
        }
    }
}

/// Whether the estimated time of a product with [`HELD_WARPS`] is a fourteenth too long: of the down projection and attention's output,
/// with 9 to 16 tokens. Steps of 16 tokens on an H200, integers and f16, with 16 warps in down against what the estimates alone choose: Qwen2.5-1.5B
/// 5.3 and 1.5% faster, Llama-3.2-3B 3.5 and 0.3%, Qwen3-4B 2.6 and 0.7%, Qwen3-0.6B 2 and 2.7%, Llama-3.2-1B 1.5 and 4.3%; in
/// attention's output 3B 2.5 and 0.3%, 1B −0.1 and 1.7%, 0.6B 0 and 2.3%, and of SmolLM2-135M, with 576 columns, 1.3 and 0.6% slower.
/// In QKV 2.1% faster to 1.9% slower, in gate and up 0.4% faster to 0.9% slower.
fn is_faster_by_held_warps(shape: &GemvShape) -> bool {
    let has_units = shape.cols >= HELD_WARPS_COLUMNS;
    shape.tokens > MORE_WARPS_TOKENS && shape.output == Output::Residual && has_units
}

/// Largest number of slices to try where the sums of all steps are held.
const MOST_HELD_SLICES: u32 = 16;

/// The divisions of the columns into slices, and the numbers of their buffers.
fn slices(shape: &GemvShape, rule: &Rule, inputs: Inputs) -> Vec<TokenSchedule> {
    if inputs == Inputs::OfCta {
        return vec![TokenSchedule { buffers: 0, ..TokenSchedule::ONE }];
    }
    let (least, columns) = (shape.least_slice(), shape.input_layout().granules * 128);
    let units = columns.div_ceil(least);
    let of_size = |slice: u32| {
        // A single slice needs one buffer.
        let buffers: &[u32] = if slice >= columns { &[1] } else { &[2, 3, 4, 6, 1] };
        let several = TokenSchedule { prepared: true, slice, ..TokenSchedule::ONE };
        buffers.iter().map(move |&buffers| TokenSchedule { buffers, ..several })
    };
    let given = rule.slice.filter(|slice| slice.is_multiple_of(least));
    let with_given = |mut sizes: Vec<u32>| {
        sizes.extend(given.filter(|slice| !sizes.contains(slice)));
        sizes
    };
    let powers = (0..=units.next_power_of_two().ilog2()).map(|power| least << power);
    let mut found: Vec<TokenSchedule> = with_given(powers.collect()).into_iter().flat_map(of_size).collect();
    // Held sums were not measured with more tokens or in the LM head; a rule may ask for them.
    let is_measured = waits_decide(shape.tokens) && shape.output != Output::Argmax;
    if is_measured || rule.holds == Some(1) {
        let mut sizes: Vec<u32> =
            (2..=units.min(MOST_HELD_SLICES)).map(|count| units.div_ceil(count) * least).collect();
        sizes.dedup();
        let sizes = with_given(sizes).into_iter().filter(|&slice| slice < columns);
        let held = sizes.flat_map(of_size).map(|it| TokenSchedule { holds: true, ..it });
        found.extend(held.filter(|it| it.buffers > 1 || rule.buffers == Some(1)));
    }
    found
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
    let most = if [MORE_WARPS, HELD_WARPS].contains(&groups) { 2 * groups } else { MAX_STAGES };
    let stages = fit.min(rule.stages.unwrap_or(most)) / groups * groups;
    (stages > 0).then_some(stages)
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;

    use super::*;
    use crate::plan::{LaunchRole, Plan, PlanParams, Rule, cost};
    use crate::shape::builtin;
    use crate::spec::KernelSpec;
    use crate::weights::WeightType;

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

    /// The sums of all 14 tiles are held, in one batch, beside a ring with two stages for each of 16 warps.
    #[test]
    fn gate_and_up_of_8_tokens_hold_their_sums() {
        let is_gate_and_up = |product: &&GemvShape| product.rows() == 2 * 14336 && product.cols == 4096;
        let product = products(Target::Sm90).into_iter().find(|product| is_gate_and_up(&product));
        let KernelSpec::Gemv(divided) = divided(Target::Sm90, &product.expect("Llama-3.1-8B"), 8) else {
            panic!("a product")
        };
        let TokenSchedule { tiles, slice, holds, .. } = divided.schedule.several;
        assert_eq!((divided.schedule.warps, divided.schedule.stages, tiles, slice), (16, 32, 7, 1024));
        assert!(holds);
    }

    /// With 16 tokens, 16 groups of one warp in the down projections of Q4_K, on Hopper; slices of one unit, whose sums a warp adds
    /// to totals, nowhere in gate and up.
    #[test]
    fn products_of_16_tokens_hold_their_sums() {
        for target in [Target::Sm80, Target::Sm90] {
            let [gate_and_up, down] = [(2 * 9728, 2560), (2560, 9728)].map(|(rows, cols)| {
                let is_it = |product: &GemvShape| product.rows() == rows && product.cols == cols;
                let mut product = products(target).into_iter().find(is_it).expect("Qwen3-4B");
                // Down is of Q6_K in the first layer.
                product.segments.iter_mut().for_each(|segment| segment.ty = WeightType::Q4_K);
                match divided(target, &product, 16) {
                    KernelSpec::Gemv(divided) => divided.schedule,
                    _ => panic!("a product"),
                }
            });
            assert!(gate_and_up.several.holds && down.several.holds, "{target}");
            let is_hopper = target == Target::Sm90;
            assert_eq!([down.warps, down.groups] == [16, 16], is_hopper, "{target}: {down:?}");
        }
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
