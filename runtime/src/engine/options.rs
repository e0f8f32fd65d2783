//! Options for loading and running a model.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::Tuning;

use super::SamplingParams;

/// Options for loading and running a model.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Largest number of positions of a sequence. The default is the model's context, at most [`DEFAULT_CONTEXT`].
    pub context: Option<u32>,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Whether to launch kernels one by one instead of replaying a graph.
    pub eager: bool,
    /// Whether to fail if a kernel is not built in, instead of compiling the kernel.
    pub no_jit: bool,
    /// Number of multiprocessors among which work is divided. The default is that of the device; a smaller one leaves
    /// multiprocessors unused.
    pub multiprocessors: Option<NonZeroU32>,
    /// Tuning rules that override the cost model.
    pub tuning: Tuning,
    /// Path of the model's file, for messages.
    pub path: PathBuf,
    /// Number of slots: sequences that run at the same time; 0 counts as 1. More than one are for
    /// [`Slots`](super::Slots).
    pub parallel: u32,
    /// Whether prompts are processed in prefill steps, whose kernels are loaded when they are first needed; the default.
    /// Logits have other bits than without. A model that has no prefill steps is decoded without them, with a warning.
    /// [`Engine::step`](super::Engine::step) processes one token in any case.
    pub prefill: bool,
    /// Largest number of drafted tokens of a sequence in a step; 0, the default, for an engine without verify steps.
    pub drafts: u32,
    /// Bytes of the KV cache. The default is the whole context of every slot, or with several slots as much of it as the
    /// free memory allows.
    pub kv_memory: Option<u64>,
    /// With several slots and without `kv_memory`: the KV cache takes at most 1/`kv_share` of the free memory (0 counts as 1),
    /// but has at least the pages of one slot's whole context.
    pub kv_share: u32,
    /// Initial sampling parameters, which decide whether the plan can sample or only decode greedily.
    pub sampling: SamplingParams,
    /// Operands of the products of the decode, verify and first-token steps of [`Slots`](super::Slots); the steps of one row of
    /// [`Engine`](super::Engine) itself always multiply integers.
    pub arithmetic: Arithmetic,
    /// Time after which a step that is not complete counts as hung. The default is [`STEP_LIMIT`].
    pub step_limit: Option<Duration>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            context: None,
            kv: KvType::default(),
            eager: false,
            no_jit: false,
            multiprocessors: None,
            tuning: Tuning::default(),
            path: PathBuf::new(),
            parallel: 1,
            prefill: true,
            drafts: 0,
            kv_memory: None,
            kv_share: 1,
            sampling: SamplingParams::default(),
            arithmetic: Arithmetic::default(),
            step_limit: None,
        }
    }
}

/// Default time after which a step that is not complete counts as hung: a step of the largest models takes less than a
/// second.
pub const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Largest default number of positions in the KV cache.
pub const DEFAULT_CONTEXT: u32 = 4096;
