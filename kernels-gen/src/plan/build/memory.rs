//! Memory that the launches of a step share: activations, tables, and the state of sequences.

use crate::kernels::attention::{AppendShape, AttentionShape, ROW_GROUP, SharesShape};
use crate::kernels::gemv::Arithmetic;
use crate::kernels::gemv::tokens::NextInputs;
use crate::kernels::state;
use crate::plan::builder::{Builder, View, f32s};
use crate::plan::{BufferKind, BufferName, LaunchRole, PlanParams, StepKind};

/// Buffers for norms between two products of f16, where the first product writes the operands of the second.
#[derive(Clone, Copy)]
pub(super) struct NormMemory {
    /// Factors of the previous norm: see [`GemvShape::stores_factors`](crate::kernels::gemv::GemvShape::stores_factors).
    pub factors: View,
    /// Sums of squares of the norms before feed-forward networks.
    pub of_feed_forward: View,
    /// Sums of squares of the norms before attention, and of the last norm.
    pub of_attention: View,
}

impl NormMemory {
    /// The sums of squares of the norm before a product.
    pub fn squares(&self, role: LaunchRole) -> View {
        if role == LaunchRole::FfnGateUp { self.of_feed_forward } else { self.of_attention }
    }

    /// The sums that a product clears: those of the model's next norm.
    pub fn next_squares(&self, role: LaunchRole) -> View {
        if role == LaunchRole::FfnGateUp { self.of_attention } else { self.of_feed_forward }
    }
}

/// Views of the activations, tables and state that the launches share.
pub(super) struct Memory {
    pub residual: View,
    /// In steps with products of f16: all but those of one row and prefill steps.
    pub norms: Option<NormMemory>,
    /// Residual stream of the prefill step before, in first-token steps.
    pub prompt_residual: Option<View>,
    pub qkv: View,
    pub partial: View,
    pub counters: View,
    /// Tables that assign rows and pages to the CTAs of attention, where work is divided by the lengths of the contexts: one for each
    /// shape.
    pub shares: Vec<(SharesShape, View)>,
    /// Prepared queries, in prefill steps.
    pub queries: Option<View>,
    pub attended: View,
    pub activated: View,
    pub logits: View,
    /// Output of a block before its norm, in models with norms after blocks.
    pub block_output: Option<View>,
    /// One for each of the shape's tables.
    pub rope_tables: Vec<View>,
    pub page_table: View,
    pub state: View,
    pub tokens: View,
    pub host_tokens: View,
}

impl Builder<'_> {
    /// Adds the buffers that launches share.
    pub(super) fn memory(&mut self) -> Memory {
        let shape = self.plan.shape.clone();
        let PlanParams { rows, outputs, slots, kind, .. } = self.plan.params;
        let d = &shape.dimensions;
        let layers = &shape.layers[self.first_layer()..];
        let attention: Vec<AttentionShape> =
            layers.iter().map(|layer| self.attention(&layer.attention)).collect();
        let most = |size: fn(&AttentionShape) -> u32| attention.iter().map(size).max().unwrap_or(0);
        let is_prefill = kind == StepKind::Prefill;
        let residual = if is_prefill { BufferName::PromptResidual } else { BufferName::Residual };
        let has_post_norms = shape.layers.iter().any(|layer| layer.attention.norms.after.is_some());
        let sequence = |words: u32| u64::from(slots) * f32s(words);
        let [pages, tokens] = [self.plan.params.slot_pages(), self.plan.params.slot_tokens()].map(sequence);
        Memory {
            residual: self.activation(residual, rows, d.hidden),
            // The rows of a sequence begin at a multiple of `ROW_GROUP`; prefill steps may have more rows than these.
            prompt_residual: (kind == StepKind::FirstToken)
                .then(|| self.activation(BufferName::PromptResidual, rows * ROW_GROUP, d.hidden)),
            qkv: self.activation(BufferName::Qkv, rows, d.q_width() + 2 * d.kv_width()),
            partial: self.activation(BufferName::AttentionPartial, 1, most(AttentionShape::workspace)),
            attended: self.activation(BufferName::Attended, rows, d.q_width()),
            activated: self.activation(BufferName::Activated, rows, d.ffn),
            logits: self.activation(BufferName::Logits, outputs.max(1), d.vocab),
            queries: is_prefill.then(|| self.queries(&attention)),
            norms: self.norm_memory(),
            block_output: has_post_norms.then(|| self.activation(BufferName::BlockOutput, rows, d.hidden)),
            counters: {
                let bytes = f32s(most(AttentionShape::counters));
                self.buffer(BufferName::AttentionCounters, bytes, BufferKind::Counters)
            },
            shares: self.share_tables(&attention),
            rope_tables: (0..shape.ropes.len())
                .map(|table| {
                    let name = BufferName::rope_table(table);
                    self.buffer(name, f32s(d.rotated), BufferKind::RopeTable { table })
                })
                .collect(),
            page_table: self.buffer(BufferName::PageTable, pages, BufferKind::PageTable),
            state: self.buffer(
                if is_prefill { BufferName::PromptState } else { BufferName::State },
                u64::from(rows) * f32s(state::WORDS),
                BufferKind::State,
            ),
            tokens: self.buffer(BufferName::Tokens, tokens, BufferKind::Tokens),
            host_tokens: self.buffer(BufferName::HostTokens, tokens, BufferKind::HostTokens),
        }
    }

    /// Adds an activation, f32 `[rows, elements]`.
    fn activation(&mut self, name: BufferName, rows: u32, elements: u32) -> View {
        self.buffer(name, u64::from(rows) * f32s(elements), BufferKind::Activation)
    }

    /// Adds the prepared queries of a prefill step: whole groups of 16 rows, two elements per word.
    fn queries(&mut self, attention: &[AttentionShape]) -> View {
        let tokens = self.plan.params.rows;
        let bytes = attention
            .iter()
            .map(|s| AppendShape::of(&AttentionShape { tokens, ..s.clone() }, true).query_bytes());
        self.buffer(BufferName::Queries, bytes.max().unwrap_or(0), BufferKind::Activation)
    }

    /// Adds the memory for the norms of f16 products, if the step has any.
    fn norm_memory(&mut self) -> Option<NormMemory> {
        let PlanParams { rows, kind, arithmetic, .. } = self.plan.params;
        if arithmetic != Arithmetic::F16 || rows == 1 || kind == StepKind::Prefill {
            return None;
        }
        let mut list =
            |name, of_token: u64| self.buffer(name, u64::from(rows) * of_token, BufferKind::Activation);
        Some(NormMemory {
            factors: list(BufferName::NormFactors, f32s(1)),
            of_feed_forward: list(BufferName::FeedForwardSquares, NextInputs::SQUARES_BYTES),
            of_attention: list(BufferName::AttentionSquares, NextInputs::SQUARES_BYTES),
        })
    }

    /// Adds tables of shares for the CTAs of attention, in one buffer: one table for each shape that needs one.
    fn share_tables(&mut self, attention: &[AttentionShape]) -> Vec<(SharesShape, View)> {
        let mut shapes = Vec::new();
        for shape in attention.iter().filter_map(SharesShape::of) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        if shapes.is_empty() {
            return Vec::new();
        }
        let bytes = shapes.iter().map(|shape| f32s(shape.words())).sum();
        let mut rest = self.buffer(BufferName::AttentionShares, bytes, BufferKind::Activation);
        let table = |shape: SharesShape| {
            let view = View { bytes: f32s(shape.words()), ..rest };
            rest.offset += view.bytes;
            (shape, view)
        };
        shapes.into_iter().map(table).collect()
    }
}
