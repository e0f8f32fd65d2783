//! How work is divided: CTA sizes, rows a warp, splits, from the target's constants.

use bespoke_codegen::dsl::WARP;
use bespoke_codegen::ptx::Target;

use crate::kernels::argmax::ChooseShape;
use crate::kernels::attention::AttentionShape;
use crate::kernels::gemv::{CopyEngine, GemvShape, Schedule, Trigger};
use crate::shape::ModelShape;

/// Threads a CTA of elementwise kernels.
pub(super) const ELEMENTWISE: u32 = 128;

/// Divides a stack of matrices: one CTA a multiprocessor with a ring as deep as its share of the weights, or as its
/// share of shared memory.
///
/// Two CTAs fit a multiprocessor, this launch's and the next one's, which fills its ring while this one ends. Two
/// stages on their way saturate the memory; more only make others wait longer.
pub(super) fn gemv(target: Target, mut shape: GemvShape, trigger: Trigger) -> GemvShape {
    let tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    let bulk = target.has_programmatic_launch();
    shape.schedule = Schedule {
        grid: target.multiprocessors().min(tiles),
        warps: 8,
        depth: if shape.layouts().iter().all(|layout| layout.blocks % 2 == 0) { 2 } else { 1 },
        groups: 2,
        stages: 2,
        in_flight: 2,
        resident: 1,
        reserve: if bulk { shared_budget(target) + 2048 } else { 0 },
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: if bulk { trigger } else { Trigger::Never },
    };
    let fixed = GemvShape { schedule: Schedule { reserve: 0, ..shape.schedule }, ..shape.clone() }.shared_bytes() - 2 * shape.stage_bytes();
    let room = (target.shared_memory_per_block().saturating_sub(fixed) / shape.stage_bytes()).min(shared_budget(target) / shape.stage_bytes());
    let share: u64 = shape.layouts().iter().map(|layout| layout.bytes).sum::<u64>() / u64::from(shape.schedule.grid);
    let needed = share.div_ceil(u64::from(shape.stage_bytes())) as u32 + 1;
    let groups = shape.schedule.groups;
    if needed > 20 { shape.schedule.in_flight = 3; }
    shape.schedule.stages = (room / groups * groups).min(needed.next_multiple_of(groups)).max(2);
    shape
}

/// Shared memory of a CTA such that two fit a multiprocessor, in bytes (CUDA Programming Guide, "Technical
/// Specifications per Compute Capability"; a CTA takes 1 KiB more than it asks for).
fn shared_budget(target: Target) -> u32 {
    let per_multiprocessor = match target {
        Target::Sm80 => 164,
        Target::Sm86 | Target::Sm89 | Target::Sm120 => 100,
        Target::Sm90 | Target::Sm100 => 228,
    };
    (per_multiprocessor / 2 - 2) * 1024
}

/// Divides attention: enough runs of the context to give every multiprocessor a CTA.
pub(super) fn attention(target: Target, shape: &ModelShape) -> AttentionShape {
    let (d, arch) = (&shape.dimensions, &shape.architecture);
    let group = d.heads / d.kv_heads;
    // A tensor core's operand has room for eight heads.
    let heads_per_block = (1..=8.min(group)).rev().find(|n| group.is_multiple_of(*n)).unwrap_or(1);
    let blocks = d.heads / heads_per_block;
    let bulk = target.has_programmatic_launch();
    AttentionShape {
        heads: d.heads,
        kv_heads: d.kv_heads,
        head_dim: d.head_dim,
        rotated: d.rotated,
        rope: arch.rope,
        qk_norm: arch.qk_norm.then_some(d.eps),
        heads_per_block,
        splits: (target.multiprocessors() / blocks).clamp(1, 64),
        min_pages: 2,
        stages: 2,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: if bulk { Trigger::AtStart } else { Trigger::Never },
    }
}

/// Joins the candidates of the head's CTAs.
pub(super) fn choose(head: &GemvShape) -> ChooseShape {
    let candidates = head.schedule.grid;
    ChooseShape { candidates, threads: candidates.next_multiple_of(WARP) }
}
