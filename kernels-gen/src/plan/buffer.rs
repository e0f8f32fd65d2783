//! Buffers of a plan.

use serde::{Deserialize, Serialize};

use super::Part;

/// Name of a buffer that a plan has at most once. Buffers of weights are named after tensors and launches, those of
/// the KV cache after layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferName {
    /// f32 `[rows, hidden]`: the residual stream.
    Residual,
    /// f32 `[rows of a prefill step, hidden]`: the residual stream of a prefill step. A first-token step reads it.
    PromptResidual,
    /// Inputs of a product of many rows, in the order in which it reads them: see [`crate::kernels::gemv::tokens`].
    Prepared,
    /// As `Prepared`: a product of f16 that writes the inputs of the next one reads its own from one of the two, and writes to the
    /// other.
    SecondPrepared,
    /// f32 `[rows]`: factors of a norm, for the products of f16 that write the inputs of the next norm.
    NormFactors,
    /// u64: sums of the squares of the inputs of the norm before a feed-forward network, for the same products.
    FeedForwardSquares,
    /// The same of the norms before attention, and of the last norm.
    AttentionSquares,
    /// f32 `[rows, q_width + 2 · kv_width]`: queries, keys and values as projected.
    Qkv,
    /// f32: partial results of attention's splits of the context.
    AttentionPartial,
    /// u32: number of CTAs of attention that have finished, for each row and block of query heads.
    AttentionCounters,
    /// u32: the row and the runs of pages of each CTA of attention, see [`crate::kernels::attention::attention_shares`].
    AttentionShares,
    /// f16: queries as attention of prefill steps reads them.
    Queries,
    /// f32 `[rows, q_width]`: attention's output.
    Attended,
    /// f32 `[rows, ffn]`: output of the feed-forward network's activation.
    Activated,
    /// f32 `[outputs, vocab]`: logits of the next tokens.
    Logits,
    /// f32: the largest logit of each CTA of the LM head.
    BestValues,
    /// u32: the token of each logit in `BestValues`.
    BestTokens,
    /// f32 `[rows, hidden]`: a block's output before its norm, in models with norms after blocks.
    BlockOutput,
    /// f32: RoPE's frequencies.
    RopeTable,
    /// f32: RoPE's frequencies of the other layers, in models with two tables.
    SecondRopeTable,
    /// u32: physical pages of the KV cache.
    PageTable,
    /// u32: the rows' records, see [`crate::kernels::state`].
    State,
    /// u32: the records of the rows of a prefill step. They are not those of other steps, so that the host can write the records
    /// of a prefill step and of the first-token step after it at once.
    PromptState,
    /// u32: token ids by position.
    Tokens,
    /// u32: token ids by position, copied for the host.
    HostTokens,
    /// u32: the sort key of the logit of each token, for sampling.
    SampleKeys,
    /// u32: the largest sort key of each group of 32 tokens of the vocabulary.
    SampleTops,
    /// Sampling parameters.
    Sampling,
    /// f32 `[slots, vocab]`: the logit bias of each token.
    LogitBias,
    /// u32: a bit for each token that may be chosen.
    TokenMask,
}

impl BufferName {
    /// The name in a plan's data.
    pub fn as_str(self) -> &'static str {
        match self {
            BufferName::Residual => "residual",
            BufferName::PromptResidual => "prompt_residual",
            BufferName::Prepared => "prepared",
            BufferName::SecondPrepared => "prepared_2",
            BufferName::NormFactors => "norm_factors",
            BufferName::FeedForwardSquares => "feed_forward_squares",
            BufferName::AttentionSquares => "attention_squares",
            BufferName::Qkv => "qkv",
            BufferName::AttentionPartial => "attention_partial",
            BufferName::AttentionCounters => "attention_counters",
            BufferName::AttentionShares => "attention_shares",
            BufferName::Queries => "queries",
            BufferName::Attended => "attended",
            BufferName::Activated => "activated",
            BufferName::Logits => "logits",
            BufferName::BestValues => "best_values",
            BufferName::BestTokens => "best_tokens",
            BufferName::BlockOutput => "block_output",
            BufferName::RopeTable => "rope_table",
            BufferName::SecondRopeTable => "rope_table_2",
            BufferName::PageTable => "page_table",
            BufferName::State => "state",
            BufferName::PromptState => "prompt_state",
            BufferName::Tokens => "tokens",
            BufferName::HostTokens => "finished",
            BufferName::SampleKeys => "sample_keys",
            BufferName::SampleTops => "sample_tops",
            BufferName::Sampling => "sampling",
            BufferName::LogitBias => "logit_bias",
            BufferName::TokenMask => "token_mask",
        }
    }
}

impl BufferName {
    /// The name of a table of RoPE's frequencies.
    ///
    /// # Panics
    /// If `table` is above 1: layers with and without a window have one table each.
    pub(super) fn rope_table(table: usize) -> BufferName {
        [BufferName::RopeTable, BufferName::SecondRopeTable][table]
    }
}

impl From<BufferName> for String {
    fn from(name: BufferName) -> String {
        name.as_str().to_owned()
    }
}

/// Content of a buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BufferKind {
    /// Tensors of the model, uploaded at load.
    Weights {
        /// The tensors, with their offsets in the buffer.
        parts: Vec<Part>,
    },
    /// RoPE's frequencies, computed at load (see [`crate::shape::rope_table`]).
    RopeTable {
        /// Index in [`crate::shape::ModelShape::ropes`].
        table: usize,
    },
    /// Written and read within one step; reused from layer to layer.
    Activation,
    /// Counters, which are zero between launches.
    Counters,
    /// Pool of pages of keys or values; persists between steps. Zero at first: see [`crate::kernels::attention`].
    KvCache,
    /// Physical pages of each sequence's pages of the KV cache, written by the host.
    PageTable,
    /// Position and prompt length: see [`crate::kernels::state`].
    State,
    /// Parameters of sampling, in plans that sample: see [`crate::kernels::sample`].
    Sampling,
    /// f32 `[vocab]`, in plans that sample: the bias added to each logit. Read only if the parameters of sampling say so;
    /// needs no content otherwise.
    LogitBias,
    /// u32 `[vocab / 32]`, in plans that sample: a bit for each token that may be chosen. Read as the bias is.
    TokenMask,
    /// Token ids by position: the prompt, then the chosen tokens.
    Tokens,
    /// Token ids by position, copied to memory that the host reads while kernels run.
    #[serde(rename = "finished")]
    HostTokens,
}

/// A named range of device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Name, unique in the plan.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Content of the buffer.
    #[serde(flatten)]
    pub kind: BufferKind,
}
