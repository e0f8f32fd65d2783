//! The launches that draw the next token.

use bespoke_codegen::ptx::Target;

use super::BufferKind;
use super::build::{Builder, View, f32s};
use crate::kernels::sample::{self, SampleShape};
use crate::spec::KernelSpec;

/// What the launches share with the rest of a step.
pub(super) struct Ends {
    /// f32 `[vocab]`.
    pub logits: View,
    /// Tokens by position.
    pub tokens: View,
    /// The same, for the host.
    pub finished: View,
    /// Position and prompt length.
    pub state: View,
}

/// Divides sampling: a warp a group of tokens at a time, over all multiprocessors; then one CTA.
fn divide(target: Target, vocab: u32) -> SampleShape {
    let threads = 256;
    // A CTA marks its tokens in shared memory: 32 of each thread's fill 32 KiB.
    let most = target.multiprocessors().max(vocab.div_ceil(32 * threads));
    SampleShape {
        vocab,
        blocks: vocab.div_ceil(4 * threads).clamp(1, most),
        threads,
        // Where there is little to do, fewer threads have to wait for one another.
        choose_threads: (vocab / 32).next_power_of_two().clamp(128, 1024),
    }
}

/// Adds the launches and their buffers.
pub(super) fn launches(builder: &mut Builder, ends: &Ends) {
    let (target, vocab) = (builder.plan.target, builder.plan.shape.dimensions.vocab);
    let shape = divide(target, vocab);
    let keys = builder.buffer("sample_keys", f32s(shape.padded()), BufferKind::Activation);
    let tops = builder.buffer("sample_tops", f32s(shape.groups()), BufferKind::Activation);
    let sampling = builder.buffer("sampling", f32s(sample::WORDS), BufferKind::Sampling);
    let args = vec![
        ends.logits.read("logits"),
        ends.tokens.read("sequence"),
        sampling.read("sampling"),
        ends.state.read("state"),
        keys.write("keys"),
        tops.write("tops"),
    ];
    builder.launch("sample_keys", KernelSpec::SampleKeys(shape.clone()), args);
    let args = vec![
        keys.read("keys"),
        tops.read("tops"),
        sampling.read("sampling"),
        ends.tokens.read_write("sequence"),
        ends.finished.write("finished"),
        ends.state.read_write("state"),
    ];
    builder.launch("choose", KernelSpec::ChooseSampled(shape), args);
}
