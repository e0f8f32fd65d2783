//! Cost model: divides the work of each launch, from a target's constants ([`TargetProperties`]).
//!
//! A step reads every weight once, so its time is bounded by memory bandwidth. To reach the bound, enough loads must be
//! in flight at any time (Little's law: [`TargetProperties::bytes_in_flight`]), on every multiprocessor alike, and also
//! across the boundaries between launches. Hence one CTA per multiprocessor with an equal share of the bytes, and a
//! ring deep enough to keep loading while the CTA waits for its input. A rule of a [`Tuning`](super::Tuning) overrides
//! a choice; the remaining choices are adapted to it.

use bespoke_codegen::dsl::WARP;
use bespoke_codegen::ptx::Target;

use crate::kernels::argmax::ChooseShape;
use crate::kernels::attention::{AttentionShape, ChunkShape, KvType, QkNorm, Rope};
use crate::kernels::gemm::{GemmShape, Tiling};
use crate::kernels::gemv::FEW;
use crate::kernels::gemv::tokens::TokenSchedule;
use crate::kernels::gemv::{GemvShape, Schedule};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::shape::rope::RopeTable;
use crate::shape::{Attention, ModelShape};

use super::token_cost;
use super::tuning::Rule;

/// Threads per CTA of elementwise kernels.
pub(super) const ELEMENTWISE: u32 = 128;

/// Constants of a target: limits of its multiprocessors, and memory bandwidth.
///
/// Limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Numbers of
/// multiprocessors and bandwidths are from the data sheets of A100 80GB, RTX 3090, RTX 4090, H200, B200 and RTX 5090.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetProperties {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Maximum resident threads per multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_per_multiprocessor: u32,
    /// Maximum shared memory per CTA, in bytes.
    pub shared_per_cta: u32,
    /// Bandwidth of device memory, in bytes per second.
    pub bandwidth: u64,
    /// Whether the target has programmatic dependent launch, and bulk copies.
    pub programmatic: bool,
}

/// Shared memory that the system reserves per CTA, in bytes (same table).
const SYSTEM_SHARED: u32 = 1024;

/// Approximate latency of device memory under full load, in nanoseconds.
const LATENCY: u64 = 800;

impl TargetProperties {
    /// The constants of `target`.
    pub fn of(target: Target) -> TargetProperties {
        let (threads, shared, gigabytes) = match target {
            Target::Sm80 => (2048, 164, 2039),
            Target::Sm86 => (1536, 100, 936),
            Target::Sm89 => (1536, 100, 1008),
            Target::Sm90 => (2048, 228, 4800),
            Target::Sm100 => (2048, 228, 8000),
            Target::Sm120 => (1536, 100, 1792),
        };
        TargetProperties {
            multiprocessors: target.multiprocessors(),
            threads_per_multiprocessor: threads,
            shared_per_multiprocessor: shared * 1024,
            shared_per_cta: target.shared_memory_per_block(),
            bandwidth: gigabytes * 1_000_000_000,
            programmatic: target.has_programmatic_launch(),
        }
    }

    /// Bytes that a multiprocessor must have in flight to saturate memory: bandwidth per multiprocessor × latency.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bandwidth / u64::from(self.multiprocessors) * LATENCY / 1_000_000_000
    }

    /// Number of CTAs, with `threads` threads and `shared` bytes each, that are resident on a multiprocessor at once.
    /// Registers are ignored.
    pub fn resident(&self, threads: u32, shared: u32) -> u32 {
        let by_threads = self.threads_per_multiprocessor / threads;
        by_threads.min(self.shared_per_multiprocessor / (shared + SYSTEM_SHARED))
    }

    /// Dynamic shared memory per CTA, in bytes, such that `resident` CTAs fit a multiprocessor. One KiB is left for
    /// barriers and small arrays.
    pub(super) fn shared_budget(&self, resident: u32) -> u32 {
        let share = (self.shared_per_multiprocessor / resident).saturating_sub(SYSTEM_SHARED);
        share.min(self.shared_per_cta).saturating_sub(1024)
    }
}

/// Maximum number of stages of a ring.
const STAGES: u32 = 6;

/// Maximum number of consumer warps per CTA.
const WARPS: u32 = 8;

/// Share of the weights per CTA, in stages, above which three stages instead of two are kept in flight.
const LONG_STREAM: u32 = 20;

/// Divides a stack of matrices: one CTA per multiprocessor, with a ring no deeper than the CTA's share of the weights.
///
/// Two CTAs of a launch on one multiprocessor, while another has none, would double the launch's time: each CTA
/// therefore takes more than half of the shared memory. Two stages in flight saturate the memory, or three if the
/// stream is long; more stages only delay other loads.
pub(super) fn gemv(
    target: &TargetProperties,
    mut shape: GemvShape,
    trigger: Trigger,
    rule: &Rule,
) -> GemvShape {
    let tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    let bulk = target.programmatic;
    // Rules of warps and stages are measured with one token.
    let of_one_token =
        Rule { warps: None, groups: None, stages: None, in_flight: None, resident: None, ..rule.clone() };
    let rule = if shape.tokens > 1 { &of_one_token } else { rule };
    let resident = rule.resident.unwrap_or(1);
    // Two groups of warps, unless a rule sets an odd number of warps or stages.
    let even = |knob: Option<u32>| knob.is_none_or(|number| number.is_multiple_of(2));
    let groups = rule.groups.unwrap_or(if even(rule.warps) && even(rule.stages) { 2 } else { 1 });
    shape.schedule = Schedule {
        grid: rule.grid.unwrap_or(target.multiprocessors.min(tiles)),
        warps: rule.warps.unwrap_or(WARPS.next_multiple_of(groups)),
        groups,
        stages: 2,
        in_flight: 2,
        resident,
        reserve: 0,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: rule.trigger.unwrap_or(if bulk { trigger } else { Trigger::Never }),
        several: TokenSchedule::ONE,
    };
    if bulk && resident == 1 {
        shape.schedule.reserve = target.shared_per_multiprocessor / 2;
    }
    if shape.tokens > 1 {
        let few = (shape.tokens <= FEW).then(|| divide_few(target, &shape)).flatten();
        return few.unwrap_or_else(|| token_cost::divide(target, shape));
    }
    while rule.warps.is_none() && fitting_stages(target, &shape) < 2 {
        let half = shape.schedule.warps / 2;
        if half < 2 || !half.is_multiple_of(groups) {
            break;
        }
        shape.schedule.warps = half;
    }
    let needed = needed_stages(&shape);
    let stages = rule.stages.unwrap_or_else(|| {
        let fit = fitting_stages(target, &shape).min(STAGES).min(needed.next_multiple_of(groups));
        let least = rule.in_flight.unwrap_or(2).next_multiple_of(groups);
        (fit / groups * groups).max(least)
    });
    shape.schedule.stages = stages;
    let wanted = if needed > LONG_STREAM { 3 } else { 2 };
    shape.schedule.in_flight = rule.in_flight.unwrap_or(wanted.min(stages));
    shape
}

/// Warps of a CTA of a product of many tokens along rows and tokens, and the tokens of a warp, for prefill steps of few tokens and for
/// others.
const SMALL_STEP: ([u32; 2], u32) = ([2, 2], 32);
const LARGE_STEP: ([u32; 2], u32) = ([4, 2], 64);

/// Largest number of tokens with [`SMALL_STEP`].
const SMALL_STEP_TOKENS: u32 = 64;

/// Columns of a stage of inputs, and stages of weights and inputs: the first that fits.
const STAGES_OF_PRODUCTS: [(u32, [u32; 2]); 5] =
    [(128, [3, 3]), (128, [2, 3]), (128, [2, 2]), (64, [2, 2]), (32, [2, 2])];

/// Divides a product of many tokens.
pub(super) fn gemm(target: &TargetProperties, product: GemvShape) -> GemmShape {
    let copy = if target.programmatic { CopyEngine::Bulk } else { CopyEngine::Async };
    let (warps, warp_tokens) = if product.tokens <= SMALL_STEP_TOKENS { SMALL_STEP } else { LARGE_STEP };
    let budget = target.shared_budget(1);
    let mut shape =
        GemmShape { product, tiling: Tiling { warps, warp_tokens, stages: [2, 2], stage_cols: 32, copy } };
    // If nothing fits, the smallest; the plan's check reports its size.
    for (stage_cols, stages) in STAGES_OF_PRODUCTS {
        shape.tiling = Tiling { stage_cols, stages, ..shape.tiling };
        if shape.shared_bytes() <= budget {
            break;
        }
    }
    shape
}

/// Divides a product of a few tokens, if a ring fits beside their inputs: as a product of one token, or into more warps with
/// smaller stages if that makes a larger ring.
fn divide_few(target: &TargetProperties, shape: &GemvShape) -> Option<GemvShape> {
    let mut best: Option<GemvShape> = None;
    for (warps, groups) in [(WARPS, 2), (WARPS * 3 / 2, 4)] {
        let mut trial = shape.clone();
        (trial.schedule.warps, trial.schedule.groups) = (warps, groups);
        let units = warps / groups;
        let needed = needed_stages(&trial);
        let wanted = (STAGES * (WARPS / 2) / units).min(needed.next_multiple_of(groups));
        let fitting = fitting_stages(target, &trial);
        let stages = fitting.min(wanted) / groups * groups;
        if stages > 0 && best.as_ref().is_none_or(|best| best.ring_units() < stages * units) {
            let in_flight = if needed * units > LONG_STREAM * (WARPS / 2) { 3 } else { 2 };
            trial.schedule.stages = stages;
            trial.schedule.in_flight = (in_flight * (WARPS / 2)).div_ceil(units).min(stages);
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

/// Number of stages that fit in the shared memory of a CTA.
fn fitting_stages(target: &TargetProperties, shape: &GemvShape) -> u32 {
    let stage = shape.stage_bytes();
    let fixed = shape.shared_bytes() - shape.schedule.stages * stage;
    target.shared_budget(shape.schedule.resident).saturating_sub(fixed) / stage
}

/// Divides attention of a step with `tokens` rows: enough splits of the context to give every multiprocessor a CTA with one
/// row. The splits of a row do not depend on the number of rows, because they decide the bits of its result.
pub(super) fn attention(
    target: &TargetProperties,
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
    let bulk = target.programmatic;
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
        splits: (target.multiprocessors / blocks).clamp(1, 64),
        run_blocks: 1,
        min_pages: rule.min_pages.unwrap_or(2),
        stages: 2,
        stage_tiles: AttentionShape::PAGE_TILES,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: if bulk { Trigger::AtStart } else { Trigger::Never },
    };
    divided_attention(target, attention, rule)
}

/// Most warps of a CTA of attention in prefill steps.
const CHUNK_WARPS: u32 = 8;

/// Most stages of the ring of such a CTA.
const CHUNK_STAGES: u32 = 4;

/// Divides attention of a prefill step with `rows` rows, from that of a step with one row: a warp for each query head of a
/// CTA and 16 rows. As many warps as possible share the pages that a CTA loads.
pub(super) fn chunk(target: &TargetProperties, one: AttentionShape, rows: u32) -> ChunkShape {
    let (most, group) = (CHUNK_WARPS, one.group());
    let divisors = (1..=most.min(group)).filter(|n| group.is_multiple_of(*n));
    let heads_per_block = divisors.max_by_key(|heads| (most / heads * heads, *heads)).unwrap_or(1);
    let attention = AttentionShape {
        tokens: rows,
        heads_per_block,
        splits: 1,
        run_blocks: 1,
        min_pages: 1,
        stage_tiles: AttentionShape::PAGE_TILES,
        ..one
    };
    let mut shape = ChunkShape { attention, row_groups: most / heads_per_block };
    let fitting = target.shared_budget(1) / shape.attention.stage_bytes();
    shape.attention.stages = fitting.clamp(1, CHUNK_STAGES);
    shape
}

/// CTAs of attention per multiprocessor in a step with several rows, if the context has enough splits.
const CTAS_OF_ROWS: u32 = 8;

/// Chooses the splits of the context, their CTAs and the stages of the ring: no more splits than a window can fill, and stages of
/// whole pages, unless two do not fit in shared memory.
fn divided_attention(target: &TargetProperties, mut shape: AttentionShape, rule: &Rule) -> AttentionShape {
    let filled = shape.window_pages().map_or(u32::MAX, |pages| pages.div_ceil(shape.min_pages));
    shape.splits = rule.splits.unwrap_or(shape.splits.min(filled));
    // CTAs without pages are not free, and one with many runs is the last to end.
    let blocks = shape.heads / shape.heads_per_block * shape.tokens;
    shape.run_blocks = match shape.tokens {
        1 => shape.splits,
        _ => (CTAS_OF_ROWS * target.multiprocessors / blocks).clamp(1, shape.splits),
    };
    let fixed = shape.shared_bytes() - shape.stages * shape.stage_bytes();
    let budget = target.shared_budget(1).saturating_sub(fixed);
    let whole_pages = 2 * shape.stage_bytes();
    while shape.stage_tiles > 1 && 2 * shape.stage_bytes() > budget {
        shape.stage_tiles /= 2;
    }
    // As many bytes in flight as with two whole pages, if they fit.
    let fitting = budget.min(whole_pages) / shape.stage_bytes();
    shape.stages = rule.stages.unwrap_or(fitting.max(2));
    shape
}

/// Geometry of the greedy choice: one thread per CTA of the output projection, which gives one candidate.
pub(super) fn choose(head: &GemvShape) -> ChooseShape {
    let candidates = head.schedule.grid;
    ChooseShape { tokens: head.tokens, candidates, threads: candidates.next_multiple_of(WARP) }
}
