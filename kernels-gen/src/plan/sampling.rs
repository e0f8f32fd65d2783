//! Launches that sample the next token.

use super::builder::{Builder, View, f32s};
use super::{BufferKind, BufferName, LaunchRole, PlanParams};
use crate::kernels::sample::{self, SampleShape};
use crate::spec::KernelSpec;

/// Buffers that sampling shares with the rest of a step.
pub(super) struct SharedBuffers {
    /// f32 `[vocab]`: logits of the next token.
    pub logits: View,
    /// u32: token ids by position.
    pub tokens: View,
    /// u32: token ids by position, copied for the host.
    pub host_tokens: View,
    /// u32: position and prompt length.
    pub state: View,
}

/// Divides sampling: keys are computed on all multiprocessors, one warp per group of 32 tokens; one CTA chooses the
/// token.
fn divide(multiprocessors: u32, tokens: u32, vocab: u32) -> SampleShape {
    let threads = 256;
    // A CTA counts its tokens in shared memory: 32 tokens of each thread need 32 KiB.
    let max_blocks = multiprocessors.max(vocab.div_ceil(32 * threads));
    SampleShape {
        tokens,
        vocab,
        blocks: vocab.div_ceil(4 * threads).clamp(1, max_blocks),
        threads,
        // Small vocabularies: fewer threads make barriers cheaper.
        choose_threads: (vocab / 32).next_power_of_two().clamp(128, 1024),
    }
}

/// Adds the launches of sampling, and the buffers between them.
pub(super) fn launches(builder: &mut Builder, shared: &SharedBuffers) {
    let (gpu, vocab) = (builder.plan.gpu, builder.plan.shape.dimensions.vocab);
    let PlanParams { outputs, slots, .. } = builder.plan.params;
    let shape = divide(gpu.multiprocessors, outputs, vocab);
    let of_rows = |elements: u32| u64::from(outputs) * f32s(elements);
    let of_slots = |elements: u32| u64::from(slots) * f32s(elements);
    let keys = builder.buffer(BufferName::SampleKeys, of_rows(shape.padded()), BufferKind::Activation);
    let tops = builder.buffer(BufferName::SampleTops, of_rows(shape.groups()), BufferKind::Activation);
    let sampling = builder.buffer(BufferName::Sampling, of_slots(sample::WORDS), BufferKind::Sampling);
    let bias = builder.buffer(BufferName::LogitBias, of_slots(vocab), BufferKind::LogitBias);
    let mask = builder.buffer(BufferName::TokenMask, of_slots(shape.groups()), BufferKind::TokenMask);
    let args = vec![
        shared.logits.read("logits"),
        bias.read("bias"),
        mask.read("mask"),
        shared.tokens.read("sequence"),
        sampling.read("sampling"),
        shared.state.read("state"),
        keys.write("keys"),
        tops.write("tops"),
    ];
    builder.launch(LaunchRole::SampleKeys, KernelSpec::SampleKeys(shape.clone()), args);
    let args = vec![
        keys.read("keys"),
        tops.read("tops"),
        sampling.read("sampling"),
        shared.tokens.read_write("sequence"),
        shared.host_tokens.write("finished"),
        shared.state.read_write("state"),
    ];
    builder.launch(LaunchRole::Choose, KernelSpec::ChooseSampled(shape), args);
}
