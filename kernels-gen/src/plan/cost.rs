//! Cost model: divides the work of each launch among the multiprocessors of a GPU ([`Gpu`]).
//!
//! A step reads every weight once, so its time is bounded by memory bandwidth. To reach the bound, enough loads must be
//! in flight at any time (Little's law: [`Gpu::bytes_in_flight`]), on every multiprocessor alike, and also
//! across the boundaries between launches. Hence one CTA per multiprocessor with an equal share of the bytes, and a
//! ring deep enough to keep loading while the CTA waits for its input. A rule of a [`Tuning`](super::Tuning) overrides
//! a choice; the remaining choices are adapted to it.

use bespoke_codegen::dsl::WARP;

use crate::kernels::argmax::ChooseShape;
use crate::kernels::attention::{AttentionShape, ChunkShape, KvType, QkNorm, Rope};
use crate::kernels::gemv::{GemvShape, Schedule, TokenSchedule};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::shape::rope::RopeTable;
use crate::shape::{Attention, ModelShape};
use crate::weights::TILE_ROWS;

use super::gpu::Gpu;
use super::label::LaunchRole;
use super::token_cost;
use super::tuning::Rule;
use super::warpgroup_cost;

/// Threads per CTA of elementwise kernels.
pub(super) const ELEMENTWISE: u32 = 128;

/// Maximum number of stages of a ring.
const STAGES: u32 = 6;

/// Maximum number of consumer warps per CTA.
const WARPS: u32 = 8;

/// Maximum number of consumer warps per CTA, if stages of [`WARPS`] warps are small.
const MAX_WARPS: u32 = 16;

/// Bytes of a stage below which its copy costs more than it moves: waiting for a stage and releasing it take as long for a
/// small stage as for a large one. Measured on an H200 with Qwen2.5-0.5B and 1.5B, whose stages have 5 to 13 KiB.
const SMALL_STAGE: u32 = 16 << 10;

/// Share of the weights per CTA, in stages, above which three stages instead of two are kept in flight.
const LONG_STREAM: u32 = 20;

/// Minimum number of tokens of f16 for which gate and up, and down, let the next launch start after their loads instead of at
/// once. Measured on an H200 with 64 tokens: a step of Qwen2.5-1.5B 2.8% faster, Qwen3-4B 1.4%, Llama-3.2-1B 0.5%, Llama-3.1-8B,
/// 3.2-3B and Qwen2.5-7B the same; with 32 tokens Llama-3.1-8B 1% faster and Qwen2.5-1.5B 1.7% slower.
const MIN_TOKENS_OF_LATE_TRIGGERS: u32 = 33;

/// Divides a stack of matrices: one CTA per multiprocessor, with a ring no deeper than the CTA's share of the weights.
///
/// Two CTAs of a launch on one multiprocessor, while another has none, would double the launch's time: each CTA
/// therefore takes more than half of the shared memory. Two stages in flight saturate the memory, or three if the
/// stream is long; more stages only delay other loads.
pub(super) fn gemv(gpu: &Gpu, mut shape: GemvShape, trigger: Trigger, rule: &Rule) -> GemvShape {
    let neighbours = Neighbours::of(gpu, &shape, rule);
    shape.schedule = first_schedule(gpu, &shape, trigger, rule, &neighbours);
    if neighbours.follows_attention && rule.resident.is_none() && holds_share_beside_next(gpu, &shape) {
        shape.schedule.resident = 2;
        let starts_late = 10 * shape.shared_tiles() > MAX_TENTHS_AT_START * gpu.multiprocessors;
        shape.schedule.trigger =
            rule.trigger.unwrap_or(if starts_late { Trigger::AfterWait } else { trigger });
    }
    if gpu.is_programmatic() && shape.schedule.resident == 1 {
        shape.schedule.reserve = gpu.shared_per_multiprocessor / 2;
    }
    if shape.tokens > 1 {
        return several_tokens(gpu, shape, rule);
    }
    one_token_warps(gpu, &mut shape, rule, &neighbours);
    one_token_stages(gpu, &mut shape, rule, &neighbours);
    shape
}

/// How a launch overlaps with those before and after it.
struct Neighbours {
    /// Whether attention comes before it, and its loads begin while attention runs.
    follows_attention: bool,
    /// Whether its CTAs leave room for another CTA on the multiprocessor.
    makes_room: bool,
}

impl Neighbours {
    fn of(gpu: &Gpu, shape: &GemvShape, rule: &Rule) -> Neighbours {
        let is_output = rule.role == LaunchRole::AttnOutput;
        let follows_attention = shape.tokens == 1 && is_output && gpu.is_programmatic();
        let makes_room = follows_attention && covers_most_multiprocessors(gpu, shape.shared_tiles());
        Neighbours { follows_attention, makes_room }
    }
}

/// Whether a rule leaves a number free or even, so that two groups of warps can share the work.
fn allows_two_groups(knob: Option<u32>) -> bool {
    knob.is_none_or(|number| number.is_multiple_of(2))
}

/// The schedule from which the others follow: CTAs, warps and their groups, and two stages.
fn first_schedule(
    gpu: &Gpu,
    shape: &GemvShape,
    trigger: Trigger,
    rule: &Rule,
    neighbours: &Neighbours,
) -> Schedule {
    let bulk = gpu.is_programmatic();
    let is_feed_forward = matches!(rule.role, LaunchRole::FfnGateUp | LaunchRole::FfnDown);
    let triggers_late = is_feed_forward && shape.is_f16() && shape.tokens >= MIN_TOKENS_OF_LATE_TRIGGERS;
    let trigger = if triggers_late { Trigger::AfterLoads } else { trigger };
    // Tiles of four units occupy four warps. Four more shorten the preparation of the inputs: one pass instead of two over
    // 2,048 columns.
    let has_four_units = has_units(shape, WARPS / 2);
    let (warps, groups) = match neighbours.makes_room {
        true if has_four_units => (WARPS, 1),
        true => (WARPS / 2, 1),
        false if allows_two_groups(rule.warps) && allows_two_groups(rule.stages) => (WARPS, 2),
        false => (WARPS, 1),
    };
    let groups = rule.groups.unwrap_or(groups);
    Schedule {
        grid: rule.grid.unwrap_or(gpu.multiprocessors.min(shape.shared_tiles())),
        warps: rule.warps.unwrap_or(warps.next_multiple_of(groups)),
        groups,
        stages: 2,
        in_flight: 2,
        resident: rule.resident.unwrap_or(if neighbours.makes_room { 2 } else { 1 }),
        reserve: 0,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: rule.trigger.unwrap_or(if bulk { trigger } else { Trigger::Never }),
        several: TokenSchedule::ONE,
    }
}

/// Divides a product of several tokens: in the loop of one token, where each CTA quantises all inputs; among warpgroups; or among
/// warps.
fn several_tokens(gpu: &Gpu, shape: GemvShape, rule: &Rule) -> GemvShape {
    let is_few = !shape.is_f16() && token_cost::quantises_own_inputs(&shape) && !rule.asks_for_slices();
    let few = is_few.then(|| divide_few(gpu, &shape, rule)).flatten();
    let divided = few.or_else(|| warpgroup_cost::divide(gpu, &shape, rule));
    match divided {
        Some(divided) if warpgroup_cost::may_be_slower(&divided, rule) => {
            let by_warps = token_cost::divide(gpu, shape, rule);
            if warpgroup_cost::is_slower(gpu, &divided, &by_warps) { by_warps } else { divided }
        }
        Some(divided) => divided,
        None => token_cost::divide(gpu, shape, rule),
    }
}

/// Chooses the warps, their groups, and the units of a stage.
fn one_token_warps(gpu: &Gpu, shape: &mut GemvShape, rule: &Rule, neighbours: &Neighbours) {
    let is_free = rule.warps.is_none() && rule.groups.is_none() && allows_two_groups(rule.stages);
    if is_free && !neighbours.makes_room {
        match warps_and_groups(gpu, shape, rule.role).filter(|_| gpu.is_programmatic()) {
            Some(faster) => *shape = faster,
            None => enlarge_stages(shape),
        }
    }
    let groups = shape.schedule.groups;
    while rule.warps.is_none() && fitting_stages(gpu, shape) < 2 {
        let half = shape.schedule.warps / 2;
        if half < 2 || !half.is_multiple_of(groups) {
            break;
        }
        shape.schedule.warps = half;
    }
}

/// Chooses the number of stages, and how many of them are in flight.
fn one_token_stages(gpu: &Gpu, shape: &mut GemvShape, rule: &Rule, neighbours: &Neighbours) {
    let groups = shape.schedule.groups;
    let needed = needed_stages(shape);
    let stages = rule.stages.unwrap_or_else(|| {
        let fit = fitting_stages(gpu, shape).min(STAGES).min(needed.next_multiple_of(groups));
        let least = rule.in_flight.unwrap_or(2).next_multiple_of(groups);
        (fit / groups * groups).max(least)
    });
    shape.schedule.stages = stages;
    let wanted = match shape.schedule.trigger {
        // More loads in flight would delay attention. Measured on an H100, one stage instead of two, at depths of 0 and 512:
        // tokens/s of Llama-3.1-8B 0 and +1.6%, Qwen3-8B +0.4 and +1.4%, Qwen2.5-7B 0 and +0.6%.
        Trigger::AfterWait if neighbours.follows_attention => 1,
        _ if needed > LONG_STREAM => 3,
        _ => 2,
    };
    shape.schedule.in_flight = rule.in_flight.unwrap_or(wanted.min(stages));
}

/// Whether all tiles have `units` units.
fn has_units(shape: &GemvShape, units: u32) -> bool {
    shape.layouts().iter().all(|layout| shape.units(layout) == units)
}

/// Whether a launch with a tile per CTA has CTAs for 70 to 100% of the multiprocessors. If such a launch leaves room for
/// another CTA beside its own, the next launch's loads begin while this launch waits for its input, and few multiprocessors
/// get two of its CTAs. This pays where the launch's own loads are few: after attention, with its small output projection.
/// Measured on an H200: 2 % of a token of Llama-3.2-1B (128 tiles) and 1 to 4 % of Qwen2.5-1.5B (96); with 56 to 64 tiles, a
/// loss of 1 to 13 %.
fn covers_most_multiprocessors(gpu: &Gpu, tiles: u32) -> bool {
    let most = gpu.multiprocessors;
    (7 * most..=10 * most).contains(&(10 * tiles))
}

/// Largest number of tiles of the output projection per multiprocessor, in tenths, for which gate and up may start at once. With
/// more tiles they start after the output projection's wait, because their loads delay attention. Measured on an H100, at once
/// against later: Qwen3-4B (160 tiles) and Llama-3.2-3B (192) 1 to 4% faster, Qwen2.5-7B (224) the same, Llama-3.1-8B (256) 0.5
/// to 2.5% slower.
const MAX_TENTHS_AT_START: u32 = 15;

/// Whether an output projection with one to two tiles per CTA needs little shared memory: room for all weights of a CTA, and
/// beside it a CTA of the next launch with a ring of [`STAGES`] stages of the same size. Such a CTA does not reserve half of the
/// multiprocessor's shared memory: two of them fit on a multiprocessor without a CTA of attention, and the next launch's loads
/// begin earlier if its ring is no larger. Measured on an H100, against a reserve: Llama-3.2-3B +6 to 8%, Qwen3-4B +3 to 4%,
/// Qwen2.5-7B +1%, Llama-3.1-8B 0 to +0.5%.
fn holds_share_beside_next(gpu: &Gpu, shape: &GemvShape) -> bool {
    let tiles = shape.shared_tiles();
    let stage = shape.stage_bytes();
    let fixed = shape.shared_bytes() - shape.schedule.stages * stage;
    let most = gpu.multiprocessors;
    // The next launch has more outputs, whose sums take up to twice as much room as everything but the ring takes here.
    let needed = 3 * fixed + (needed_stages(shape) - 1 + STAGES) * stage;
    (most + 1..=2 * most).contains(&tiles) && needed <= gpu.shared_per_multiprocessor
}

/// The product with the warps and groups of [`by_units_of_tile`] or [`tile_at_once`]. `None` if neither applies, or if the ring does not
/// fit: it needs two stages, and one for each group.
fn warps_and_groups(gpu: &Gpu, shape: &GemvShape, role: LaunchRole) -> Option<GemvShape> {
    let faster = match role {
        LaunchRole::AttnOutput | LaunchRole::FfnDown => tile_at_once(gpu, shape, role),
        _ => by_units_of_tile(gpu, shape, role),
    };
    let mut shape = shape.clone();
    (shape.schedule.warps, shape.schedule.groups) = faster?;
    (fitting_stages(gpu, &shape) >= shape.schedule.groups.max(2)).then_some(shape)
}

/// Warps and groups of an output or down projection with one tile per CTA.
///
/// If there are tiles for most multiprocessors, down has [`MAX_WARPS`] in four groups, with stages as large as those of [`WARPS`] warps in
/// two. Measured on an H100: Llama-3.2-1B and TinyLlama-1.1B up to 1% faster. With more tiles per CTA, Llama-3.2-3B, Qwen3-4B,
/// Qwen2.5-7B and Llama-3.1-8B were 1 to 5% slower.
///
/// Otherwise one group takes the tile in one stage, if it has units for the warps: in Qwen3-0.6B four in the output projection and six
/// in down. Measured on an H100, together with its QKV ([`by_units_of_tile`]): 2 to 4% faster.
fn tile_at_once(gpu: &Gpu, shape: &GemvShape, role: LaunchRole) -> Option<(u32, u32)> {
    let tiles = shape.shared_tiles();
    if covers_most_multiprocessors(gpu, tiles) {
        let is_large = shape.stage_bytes() >= SMALL_STAGE;
        return (role == LaunchRole::FfnDown && is_large).then_some((MAX_WARPS, 4));
    }
    match role {
        _ if tiles > gpu.multiprocessors => None,
        LaunchRole::AttnOutput if has_units(shape, 4) => Some((WARPS / 2, 1)),
        LaunchRole::FfnDown if (5..=8).any(|units| has_units(shape, units)) => Some((WARPS, 1)),
        _ => None,
    }
}

/// Warps and groups of QKV, gate and up by the units of their tiles. `None` if [`WARPS`] warps in two groups are as fast.
///
/// A stage has a unit for each warp of a group. If a tile has 5 to 7 units and there are two groups of four warps, every second stage is
/// partly empty; a single group has no such stages. Measured with one token, against [`WARPS`] warps in two groups:
///
/// | units a tile | warps, groups | result |
/// | --- | --- | --- |
/// | 4 | 16, 2 | H200: Llama-3.2-1B +4%, TinyLlama-1.1B 0 |
/// | 5, gate and up | 10, 2 | H100: Qwen3-4B +2 to 3%; 10 warps in one group are 0.2 to 2.3% slower than that |
/// | 5, gate and up | 8, 1 | H100: Qwen3-4B 0.2 to 1.8% faster than with 10 warps in two groups; used |
/// | 6, gate and up | 12, 2 | H100: Llama-3.2-3B +4% |
/// | 7, gate and up | 7, 1 | H100: Qwen2.5-7B +1%; with 14 warps in two groups +0.5% |
/// | 8 | 8, 1 or 16, 2 | H100: Llama-3.1-8B 0; not used |
///
/// QKV has 4 warps if its tiles are few: one group of four, or two groups of two. Measured on an H100, tokens/s:
///
/// | units a tile | tiles per multiprocessor | result |
/// | --- | --- | --- |
/// | 4 | 1.5 | Llama-3.2-1B: one group 1 to 2% faster than 16 warps, with the output projection in eight; two groups 1 to 2% faster than one |
/// | 4 | 1.2 | TinyLlama-1.1B: one group 1 to 2% faster than 16 warps, with the same; two groups 0 to 2.5% slower than one |
/// | 2 | 1.9 | Qwen3-0.6B: two groups 0.3 to 3% faster than [`WARPS`] warps |
/// | 2 | 0.5 | Qwen2.5-0.5B, SmolLM2-135M: two groups, and the next launch after the loads, 0.6 to 2% slower; not used |
///
/// Not used for gate and up of fewer than four units (Qwen2.5-1.5B and Qwen3-0.6B were slower), nor for 5 to 7 units of small stages
/// (Qwen2.5-0.5B).
fn by_units_of_tile(gpu: &Gpu, shape: &GemvShape, role: LaunchRole) -> Option<(u32, u32)> {
    let units = [2, 4, 5, 6, 7].into_iter().find(|&units| has_units(shape, units))?;
    let has_tenths = |most: u32| 10 * shape.shared_tiles() <= most * gpu.multiprocessors;
    let is_between_one_and_two = has_tenths(20) && !has_tenths(10);
    let is_large = shape.stage_bytes() >= SMALL_STAGE;
    match (role, units) {
        (LaunchRole::AttnQkv, 2) if is_between_one_and_two => Some((WARPS / 2, 2)),
        (LaunchRole::AttnQkv, 4) if has_tenths(MAX_TENTHS_OF_ONE_GROUP) => Some((WARPS / 2, 1)),
        (LaunchRole::AttnQkv, 4) if has_tenths(MAX_TENTHS_OF_FEW_WARPS) => Some((WARPS / 2, 2)),
        (LaunchRole::AttnQkv | LaunchRole::FfnGateUp, 4) => Some((MAX_WARPS, 2)),
        (LaunchRole::FfnGateUp, 5) if is_large => Some((WARPS, 1)),
        (LaunchRole::FfnGateUp, 6) if is_large => Some((2 * units, 2)),
        (LaunchRole::FfnGateUp, 7) if is_large => Some((units, 1)),
        _ => None,
    }
}

/// Largest numbers of tiles of QKV per multiprocessor, in tenths, for 4 warps in one group, and for 4 warps.
const MAX_TENTHS_OF_ONE_GROUP: u32 = 13;
const MAX_TENTHS_OF_FEW_WARPS: u32 = 15;

/// Enlarges stages that are small: more warps take part in each, as long as a CTA's share has a unit for each of them; then
/// one group of warps takes all stages.
fn enlarge_stages(shape: &mut GemvShape) {
    let unit_bytes = shape.stage_bytes() * shape.schedule.groups / shape.schedule.warps;
    let bytes: u64 = shape.layouts().iter().map(|layout| layout.bytes).sum();
    let share = bytes / (u64::from(shape.schedule.grid) * u64::from(unit_bytes));
    while shape.stage_bytes() < SMALL_STAGE {
        let schedule = &mut shape.schedule;
        if schedule.warps < MAX_WARPS && u64::from(2 * schedule.warps) <= share {
            schedule.warps *= 2;
        } else if schedule.groups > 1 {
            schedule.groups = 1;
        } else {
            break;
        }
    }
}

/// Divides a product of a few tokens, if a ring fits beside their inputs: as a product of one token, or into more warps with
/// smaller stages if that makes a larger ring.
fn divide_few(gpu: &Gpu, shape: &GemvShape, rule: &Rule) -> Option<GemvShape> {
    let mut best: Option<GemvShape> = None;
    for (warps, groups) in [(WARPS, 2), (WARPS * 3 / 2, 4)] {
        let (warps, groups) = (rule.warps.unwrap_or(warps), rule.groups.unwrap_or(groups));
        if !warps.is_multiple_of(groups) {
            continue;
        }
        let mut trial = shape.clone();
        (trial.schedule.warps, trial.schedule.groups) = (warps, groups);
        let units = warps / groups;
        let needed = needed_stages(&trial);
        let wanted = (STAGES * (WARPS / 2) / units).min(needed.next_multiple_of(groups));
        let fitting = fitting_stages(gpu, &trial);
        let stages = rule.stages.unwrap_or(wanted).min(fitting) / groups * groups;
        if stages > 0 && best.as_ref().is_none_or(|best| best.ring_units() < stages * units) {
            let in_flight = if needed * units > LONG_STREAM * (WARPS / 2) { 3 } else { 2 };
            trial.schedule.stages = stages;
            let in_flight = (in_flight * (WARPS / 2)).div_ceil(units).min(stages);
            trial.schedule.in_flight = rule.in_flight.unwrap_or(in_flight);
            best = Some(trial);
        }
        if fitting >= wanted {
            break;
        }
    }
    best
}

/// Number of stages that a CTA's share of the weights fills, plus one because shares differ by up to a tile.
fn needed_stages(shape: &GemvShape) -> u32 {
    let bytes: u64 = shape.layouts().iter().map(|layout| layout.bytes).sum();
    (bytes / u64::from(shape.schedule.grid)).div_ceil(u64::from(shape.stage_bytes())) as u32 + 1
}

/// Number of stages that fit in the shared memory of a CTA, beside memory that is reserved ([`Schedule::reserve`]) and not used. So a
/// product with a reserve may have a shorter ring than would fit. Measured on an H200 with as many stages as fit: gate and up of
/// Llama-3.2-1B with 6 instead of 4 stages of 36 KiB make a step 5% slower, probably because their CTAs do not fit on a multiprocessor
/// beside those of attention's output; of Qwen2.5-7B with 6 instead of 5 0.2% faster.
fn fitting_stages(gpu: &Gpu, shape: &GemvShape) -> u32 {
    let stage = shape.stage_bytes();
    let fixed = shape.shared_bytes() - shape.schedule.stages * stage;
    gpu.shared_budget(shape.schedule.resident).saturating_sub(fixed) / stage
}

/// Number of CTAs into which attention of one row can be divided: about as many as the largest GPUs have multiprocessors.
const SPLIT_BLOCKS: u32 = 128;

/// Largest number of splits of a row's context: CTAs without pages cost time, and so does joining the splits. Measured on an H100,
/// tokens/s with 32 splits against 64: Qwen2.5-1.5B, which has two KV heads, +1.4 to +2.5% up to 2,048 positions, +5% at 4,096,
/// +11% at 12,000 and +4% at 24,000; Qwen2.5-0.5B −0.7 to +4.5%. With 16 against 32: −1.7 to +0.9% and −13 to +0.9%.
const MAX_SPLITS: u32 = 32;

/// Divides attention of a step with `tokens` rows. The splits of a row decide the bits of its result, so they depend on the
/// model alone, neither on the number of rows nor on the GPU.
pub(super) fn attention(
    gpu: &Gpu,
    shape: &ModelShape,
    layer: &Attention,
    kv: KvType,
    tokens: u32,
    rule: &Rule,
) -> AttentionShape {
    let d = &shape.dimensions;
    let rope = |table: usize| {
        let RopeTable { kind, magnitude, .. } = shape.ropes[table];
        Rope { kind, rotated: d.rotated, magnitude }
    };
    let group = d.heads / d.kv_heads;
    // The operand of attention's matrix products has rows for eight heads.
    let heads_per_block = (1..=8.min(group)).rev().find(|n| group.is_multiple_of(*n)).unwrap_or(1);
    let blocks = d.heads / heads_per_block;
    let bulk = gpu.is_programmatic();
    let attention = AttentionShape {
        tokens,
        heads: d.heads,
        kv_heads: d.kv_heads,
        head_dim: d.head_dim,
        rope: layer.rope.map(rope),
        qk_norm: layer.qk_norm.map(|norm| QkNorm { eps: d.eps, span: norm.span }),
        window: layer.window,
        scale: layer.scale,
        softcap: layer.softcap,
        kv,
        heads_per_block,
        splits: (SPLIT_BLOCKS / blocks).clamp(1, MAX_SPLITS),
        run_blocks: 1,
        at_once: None,
        min_pages: rule.min_pages.unwrap_or(2),
        stages: 2,
        stage_tiles: AttentionShape::PAGE_TILES,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: if bulk { Trigger::AtStart } else { Trigger::Never },
        appended: false,
        output_layout: None,
    };
    let output_tiles = d.hidden.div_ceil(TILE_ROWS);
    let stays_alone =
        bulk && tokens == 1 && 10 * output_tiles >= MIN_TENTHS_TO_STAY_ALONE * gpu.multiprocessors;
    let most_stages = if stays_alone { MAX_STAGES } else { 2 };
    divided_attention(gpu, attention, most_stages, rule)
}

/// Largest number of stages of attention's ring in a step of one row. Five pages of f16 with 128 elements a head take 160 KiB, so a CTA of
/// the output projection does not fit on the same multiprocessor.
///
/// With two stages it fits, and the step is slower, probably because more launches load at the same time. Measured on an H100,
/// five stages against two, at depths of 0, 512, 4,096 and 12,000: Llama-3.2-3B +7, 9, 7 and 4%; Qwen2.5-7B +1, 2, 3 and 3%;
/// Llama-3.2-1B and TinyLlama-1.1B (64 elements) 0, +1 to 2, +2 to 3 and +1 to 3%; Llama-3.1-8B, Qwen3-8B, Qwen3-4B and
/// Qwen2.5-1.5B −0.5 to +2%.
const MAX_STAGES: u32 = 5;

/// Smallest number of tiles of the output projection per multiprocessor, in tenths, for [`MAX_STAGES`]. With fewer tiles the stages
/// are not needed, and cost Qwen3-0.6B and Qwen2.5-0.5B up to 2%.
const MIN_TENTHS_TO_STAY_ALONE: u32 = 7;

/// Maximum number of warps of a CTA of attention in prefill steps.
const CHUNK_WARPS: u32 = 8;

/// Maximum number of stages of the ring of a CTA of attention in prefill steps.
const CHUNK_STAGES: u32 = 4;

/// Divides attention of a prefill step with `rows` rows, from that of a step with one row: a warp for each query head of a
/// CTA and 16 rows. As many warps as possible share the pages that a CTA loads.
///
/// Warpgroups multiply if at least three quarters of their warps have a head.
pub(super) fn chunk(gpu: &Gpu, one: AttentionShape, rows: u32) -> ChunkShape {
    let mut attention = AttentionShape {
        tokens: rows,
        splits: 1,
        run_blocks: 1,
        at_once: None,
        min_pages: 1,
        stage_tiles: AttentionShape::PAGE_TILES,
        ..one
    };
    attention.stages = (gpu.shared_budget(1) / attention.stage_bytes()).clamp(1, CHUNK_STAGES);
    // A warpgroup holds a page while it waits for the next one.
    if gpu.warpgroups && attention.kv == KvType::F16 && attention.stages > 1 {
        let shape = fullest_chunk(&attention, true);
        if shape.fills_warpgroups() {
            return shape;
        }
    }
    fullest_chunk(&attention, false)
}

/// The division of a key head's query heads among CTAs of attention that gives most warps a head.
fn fullest_chunk(attention: &AttentionShape, warpgroups: bool) -> ChunkShape {
    let group = attention.group();
    let divisors = (1..=CHUNK_WARPS.min(group)).filter(|heads| group.is_multiple_of(*heads));
    let shapes = divisors.map(|heads_per_block| {
        let attention = AttentionShape { heads_per_block, ..attention.clone() };
        let shape = ChunkShape { attention, row_groups: 1, warpgroups };
        ChunkShape { row_groups: CHUNK_WARPS / shape.warps_per_group(), ..shape }
    });
    shapes
        .max_by_key(|shape| (shape.warps_with_head(), shape.attention.heads_per_block))
        .expect("one head is a division")
}

/// CTAs of attention per multiprocessor in a step with several rows, if the contexts have enough splits.
const CTAS_OF_ROWS: u32 = 8;

/// Chooses the splits of the context, their CTAs and the stages of the ring: no more splits than a window can fill, and stages of
/// whole pages, unless two do not fit in shared memory.
fn divided_attention(gpu: &Gpu, mut shape: AttentionShape, most_stages: u32, rule: &Rule) -> AttentionShape {
    let filled = shape.window_pages().map_or(u32::MAX, |pages| pages.div_ceil(shape.min_pages));
    shape.splits = rule.splits.unwrap_or(shape.splits.min(filled));
    let fixed = shape.shared_bytes() - shape.stages * shape.stage_bytes();
    let budget = gpu.shared_budget(1).saturating_sub(fixed);
    let whole_pages = most_stages * shape.stage_bytes();
    while shape.stage_tiles > 1 && 2 * shape.stage_bytes() > budget {
        shape.stage_tiles /= 2;
    }
    // As many bytes in flight as with whole pages, if they fit.
    let fitting = budget.min(whole_pages) / shape.stage_bytes();
    shape.stages = rule.stages.unwrap_or(fitting.max(2));
    shape.run_blocks = split_blocks(gpu, &shape);
    let blocks = shape.heads / shape.heads_per_block;
    let at_once = (ctas_at_once(gpu, &shape) / blocks).max(1);
    if shape.tokens > 1 && shape.tokens * shape.run_blocks > at_once {
        shape.at_once = Some(at_once);
    }
    shape
}

/// CTAs of attention that run at once. Registers are for [`AttentionShape::min_blocks`] CTAs on a multiprocessor.
fn ctas_at_once(gpu: &Gpu, shape: &AttentionShape) -> u32 {
    let resident = gpu.resident(shape.threads(), shape.shared_bytes()).min(shape.min_blocks());
    gpu.multiprocessors * resident.max(1)
}

/// CTAs for each row and block of heads, on average. With one row, all CTAs run at once, and each has as many splits as the
/// others or one less. With several rows, a CTA with many runs is the last to end, but many CTAs of one run cost time too.
fn split_blocks(gpu: &Gpu, shape: &AttentionShape) -> u32 {
    let blocks = shape.heads / shape.heads_per_block * shape.tokens;
    if shape.tokens > 1 {
        return (CTAS_OF_ROWS * gpu.multiprocessors / blocks).clamp(1, shape.splits);
    }
    let resident = gpu.resident(shape.threads(), shape.shared_bytes()).max(1);
    let at_once = (gpu.multiprocessors * resident / blocks).clamp(1, shape.splits);
    shape.splits.div_ceil(shape.splits.div_ceil(at_once))
}

/// Geometry of the greedy choice: one thread per CTA of the LM head, which gives one candidate.
pub(super) fn choose(head: &GemvShape) -> ChooseShape {
    let candidates = head.schedule.grid;
    ChooseShape { tokens: head.tokens, candidates, threads: candidates.next_multiple_of(WARP) }
}
