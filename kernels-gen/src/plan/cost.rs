//! How work is divided: a small model of a decode step on a target, in the target's constants ([`Machine`]).
//!
//! A step reads every weight once, so it takes as long as the memory needs for them, if the memory is never idle. That
//! asks for enough bytes on their way at any time (Little's law: [`Machine::bytes_in_flight`]), on every multiprocessor
//! alike, and across the seams between launches. Hence one CTA a multiprocessor with an equal share of the bytes, and a
//! ring deep enough to go on loading while the CTA waits for its input. Where measuring knows better, a rule of a
//! [`Tuning`](super::Tuning) takes the place of a choice, and the choices that it leaves are made to fit.

use bespoke_codegen::dsl::WARP;
use bespoke_codegen::ptx::Target;

use crate::kernels::argmax::ChooseShape;
use crate::kernels::attention::AttentionShape;
use crate::kernels::gemv::{GemvShape, Schedule};
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::shape::ModelShape;

use super::tuning::Rule;

/// Threads a CTA of elementwise kernels.
pub(super) const ELEMENTWISE: u32 = 128;

/// What a target's multiprocessors and memory can do, from which work is divided.
///
/// Sizes are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Counts of
/// multiprocessors and bandwidths are the data sheets' of the largest common part: A100 80GB, RTX 3090, RTX 4090, H200,
/// B200, RTX 5090.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_per_multiprocessor: u32,
    /// Shared memory that a CTA may have, in bytes.
    pub shared_per_cta: u32,
    /// Of device memory, in bytes a second.
    pub bandwidth: u64,
    /// Launches can start before the one ahead is over, and bulk copies exist.
    pub programmatic: bool,
}

/// Shared memory that the system takes of each CTA, in bytes (same table).
const SYSTEM_SHARED: u32 = 1024;

/// From a load to its data under full load, in nanoseconds, roughly.
const LATENCY: u64 = 800;

impl Machine {
    /// The target's constants.
    pub fn of(target: Target) -> Machine {
        let (threads, shared, gigabytes) = match target {
            Target::Sm80 => (2048, 164, 2039),
            Target::Sm86 => (1536, 100, 936),
            Target::Sm89 => (1536, 100, 1008),
            Target::Sm90 => (2048, 228, 4800),
            Target::Sm100 => (2048, 228, 8000),
            Target::Sm120 => (1536, 100, 1792),
        };
        Machine {
            multiprocessors: target.multiprocessors(),
            threads_per_multiprocessor: threads,
            shared_per_multiprocessor: shared * 1024,
            shared_per_cta: target.shared_memory_per_block(),
            bandwidth: gigabytes * 1_000_000_000,
            programmatic: target.has_programmatic_launch(),
        }
    }

    /// Bytes that a multiprocessor must have on their way for the memory never to be idle: its share of bandwidth times
    /// latency.
    pub fn bytes_in_flight(&self) -> u64 {
        self.bandwidth / u64::from(self.multiprocessors) * LATENCY / 1_000_000_000
    }

    /// CTAs of `threads` threads with `shared` bytes that fit a multiprocessor, registers aside.
    pub fn resident(&self, threads: u32, shared: u32) -> u32 {
        let by_threads = self.threads_per_multiprocessor / threads;
        by_threads.min(self.shared_per_multiprocessor / (shared + SYSTEM_SHARED))
    }

    /// Dynamic shared memory of a CTA such that `resident` fit a multiprocessor, in bytes; another KiB is left to
    /// barriers and small arrays.
    fn shared_budget(&self, resident: u32) -> u32 {
        let share = (self.shared_per_multiprocessor / resident).saturating_sub(SYSTEM_SHARED);
        share.min(self.shared_per_cta).saturating_sub(1024)
    }
}

/// Stages of a ring.
const STAGES: u32 = 6;

/// Warps that multiply.
const WARPS: u32 = 8;

/// Stages of a CTA's share from which on it takes more bytes in flight to keep up with the others.
const LONG: u32 = 20;

/// Divides a stack of matrices: one CTA a multiprocessor, with a ring of some stages, or as deep as its share of the
/// weights.
///
/// A second CTA of a launch on one multiprocessor, while another has none, would cost a launch twice its time, so that
/// a CTA takes more than half of the shared memory.
/// Two stages on their way saturate the memory, three where the stream is long; more only make others wait longer.
pub(super) fn gemv(machine: &Machine, mut shape: GemvShape, trigger: Trigger, rule: &Rule) -> GemvShape {
    let tiles: u32 = shape.layouts().iter().map(|layout| layout.tiles).max().unwrap_or(1);
    let pairs = shape.layouts().iter().all(|layout| layout.blocks.is_multiple_of(2));
    let bulk = machine.programmatic;
    let resident = rule.resident.unwrap_or(1);
    // Two groups, unless a rule has a number that two do not divide.
    let even = |knob: Option<u32>| knob.is_none_or(|number| number.is_multiple_of(2));
    let groups = rule.groups.unwrap_or(if even(rule.warps) && even(rule.stages) { 2 } else { 1 });
    shape.schedule = Schedule {
        grid: rule.grid.unwrap_or(machine.multiprocessors.min(tiles)),
        warps: rule.warps.unwrap_or(WARPS.next_multiple_of(groups)),
        depth: rule.depth.unwrap_or(if pairs { 2 } else { 1 }),
        groups,
        stages: 2,
        in_flight: 2,
        resident,
        reserve: 0,
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: rule.trigger.unwrap_or(if bulk { trigger } else { Trigger::Never }),
    };
    while rule.warps.is_none() && room(machine, &shape) < 2 {
        let half = shape.schedule.warps / 2;
        if half < 2 || !half.is_multiple_of(groups) {
            break;
        }
        shape.schedule.warps = half;
    }
    let needed = needed_stages(&shape);
    let stages = rule.stages.unwrap_or_else(|| {
        let most = room(machine, &shape).min(STAGES).min(needed.next_multiple_of(groups));
        let least = rule.in_flight.unwrap_or(2).next_multiple_of(groups);
        (most / groups * groups).max(least)
    });
    shape.schedule.stages = stages;
    let wanted = if needed > LONG { 3 } else { 2 };
    shape.schedule.in_flight = rule.in_flight.unwrap_or(wanted.min(stages));
    if bulk && resident == 1 {
        shape.schedule.reserve = machine.shared_per_multiprocessor / 2;
    }
    shape
}

/// Stages that a CTA's share of the weights fills, and one more: shares differ by a tile.
fn needed_stages(shape: &GemvShape) -> u32 {
    let bytes: u64 = shape.layouts().iter().map(|layout| layout.bytes).sum();
    (bytes / u64::from(shape.schedule.grid)).div_ceil(u64::from(shape.stage_bytes())) as u32 + 1
}

/// Stages that the shared memory has room for.
fn room(machine: &Machine, shape: &GemvShape) -> u32 {
    let stage = shape.stage_bytes();
    let fixed = shape.shared_bytes() - shape.schedule.stages * stage;
    machine.shared_budget(shape.schedule.resident).saturating_sub(fixed) / stage
}

/// Divides attention: enough runs of the context to give every multiprocessor a CTA.
pub(super) fn attention(machine: &Machine, shape: &ModelShape, rule: &Rule) -> AttentionShape {
    let (d, arch) = (&shape.dimensions, &shape.architecture);
    let group = d.heads / d.kv_heads;
    // A tensor core's operand has room for eight heads.
    let heads_per_block = (1..=8.min(group)).rev().find(|n| group.is_multiple_of(*n)).unwrap_or(1);
    let blocks = d.heads / heads_per_block;
    let bulk = machine.programmatic;
    AttentionShape {
        heads: d.heads,
        kv_heads: d.kv_heads,
        head_dim: d.head_dim,
        rotated: d.rotated,
        rope: arch.rope,
        qk_norm: arch.qk_norm.then_some(d.eps),
        heads_per_block,
        splits: rule.splits.unwrap_or((machine.multiprocessors / blocks).clamp(1, 64)),
        min_pages: rule.min_pages.unwrap_or(2),
        stages: rule.stages.unwrap_or(2),
        copy: if bulk { CopyEngine::Bulk } else { CopyEngine::Async },
        trigger: if bulk { Trigger::AtStart } else { Trigger::Never },
    }
}

/// Joins the candidates of the head's CTAs.
pub(super) fn choose(head: &GemvShape) -> ChooseShape {
    let candidates = head.schedule.grid;
    ChooseShape { candidates, threads: candidates.next_multiple_of(WARP) }
}
