//! Interface of an engine for the scheduler.

use std::time::Duration;

use bespoke_kernels::plan::Sampling;

use crate::engine::{EngineError, NonFiniteLogits, SamplingParams, check_prompt};
use crate::generation::{Request, room};

/// Number of positions in a page.
pub const PAGE: u32 = bespoke_kernels::kernels::attention::PAGE;

/// Alignment of sequences in a prefill step: the index of a sequence's first row is a multiple of this number.
pub const ROW_GROUP: u32 = bespoke_kernels::kernels::attention::ROW_GROUP;

/// Sizes of an engine. They do not change while a scheduler uses the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of slots: sequences that run at the same time.
    pub slots: u32,
    /// Number of pages in the pool; a page's id is below this number.
    pub pages: u32,
    /// Positions of a sequence: tokens whose keys and values a slot can refer to.
    pub context: u32,
    /// Number of tokens in the vocabulary.
    pub vocab: u32,
    /// Whether steps can sample; otherwise only greedy parameters are accepted.
    pub sampling: bool,
    /// Numbers of rows of the engine's decode steps, ascending; not empty.
    pub decode: Vec<u32>,
    /// Numbers of rows of verify steps, ascending; none if the engine has no such steps, so that nothing is drafted.
    pub verify: Vec<u32>,
    /// Numbers of rows of prefill steps, ascending; not empty.
    pub prefill: Vec<u32>,
}

impl Limits {
    /// Checks that a request can be decoded, whatever else runs.
    ///
    /// # Errors
    /// If the prompt is empty, has a token outside the vocabulary, or is longer than the context or the whole page pool;
    /// or a sampling parameter is out of range.
    pub fn check(&self, request: &Request<'_>) -> Result<(), EngineError> {
        let Limits { vocab, context, pages, sampling, .. } = *self;
        check_prompt(request.prompt, vocab)?;
        request.sampling.check(vocab)?;
        if !sampling && request.sampling_with_grammar().launches() != Sampling::Greedy {
            return Err(EngineError::OnlyGreedy);
        }
        room(request.prompt.len(), context)?;
        let prompt = request.prompt.len() as u32;
        match prompt.div_ceil(PAGE) {
            needed if needed > pages => Err(EngineError::PoolTooSmall { prompt, needed, pages }),
            _ => Ok(()),
        }
    }
}

/// A row of a step: one token of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Slot of the sequence.
    pub slot: u32,
    /// Position of the row's token.
    pub position: u32,
    /// Number of the sequence's first tokens that [`Steps::start`] and [`Steps::give_tokens`] wrote: none of them is
    /// chosen.
    pub given: u32,
    /// Whether the next token is chosen after this row, or taken from those that are given.
    pub chooses: bool,
}

/// Drafted tokens of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Slot of the sequence.
    pub slot: u32,
    /// Position of the first drafted token: one more than that of the sequence's first row in the step.
    pub position: u32,
    /// The tokens, at least one.
    pub tokens: Vec<u32>,
}

/// An entry of a slot's page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// The slot.
    pub slot: u32,
    /// Index of the entry: the position of the page's first token / [`PAGE`].
    pub index: u32,
    /// Page of the pool.
    pub page: u32,
}

/// Steps of an engine over its slots and its page pool.
///
/// Calls take effect in the order in which they are made, as in a CUDA stream: an enqueued step sees all earlier calls
/// and none of the later ones. [`Steps::decode_again`], [`Steps::token`] and [`Steps::busy`] do not wait for earlier
/// steps; the others may.
///
/// An error of a method other than [`Steps::token`] means that the engine has lost all sequences; the scheduler then calls
/// [`Steps::reset`] before it uses the engine again.
pub trait Steps {
    /// Sizes of the engine.
    fn limits(&self) -> &Limits;

    /// Starts a sequence in a slot: writes its first tokens, at positions 0 to `tokens.len() - 1`, and its sampling
    /// parameters, and marks the tokens at all other positions as not written. No step in flight has a row of the slot.
    fn start(&mut self, slot: u32, tokens: &[u32], sampling: &SamplingParams) -> Result<(), EngineError>;

    /// Writes tokens of a slot's sequence, the first one at `position`. No step in flight chooses one of them.
    fn give_tokens(&mut self, slot: u32, position: u32, tokens: &[u32]) -> Result<(), EngineError>;

    /// Discards `count` tokens of a slot from `position` on that steps have chosen, so that later rows choose them anew. No step
    /// in flight has a row of the slot; the next one is at `position - 1` or later, over tokens that are given again.
    fn discard(&mut self, slot: u32, position: u32, count: u32) -> Result<(), EngineError>;

    /// Writes which tokens slots may choose, if their sampling parameters ask for a mask: bit i of word w is that of token
    /// 32w + i, and tokens past the last word are not allowed. No step in flight chooses a token of these slots.
    fn set_masks(&mut self, masks: &[(u32, Vec<u32>)]) -> Result<(), EngineError>;

    /// Writes page table entries. No step in flight reads them.
    fn set_pages(&mut self, entries: &[PageEntry]) -> Result<(), EngineError>;

    /// Zeroes the keys and values of pages in all layers, because they may not be finite. No step in flight reads them.
    fn clear_pages(&mut self, pages: &[u32]) -> Result<(), EngineError>;

    /// Enqueues a prefill step of the smallest size that holds the rows, which are in the order of sequences and positions;
    /// those of each sequence take up whole groups of [`ROW_GROUP`]. The last row of a sequence may choose: then a first-token
    /// step follows for these rows. A row may read pages that other rows of
    /// the step write, of its own sequence and of sequences with the same prefix.
    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError>;

    /// Enqueues a decode step of the smallest size that holds the rows, after their records are written. Every row
    /// chooses, and no two rows have the same slot.
    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError>;

    /// Enqueues a verify step of the smallest size that holds the rows, after the drafts and the records are written. Every row
    /// chooses. The rows of a slot are consecutive, in the list and in position; the tokens of all but the first one are given
    /// or drafted. A token that is chosen takes the place of the drafted one once the step is complete. No step in flight has
    /// a row of a slot with a draft.
    ///
    /// After this step the next row of a slot with a draft may be at any position that the step has chosen a token for: the
    /// tokens after it then count as not written.
    fn verify(&mut self, rows: &[StepRow], drafts: &[Draft]) -> Result<(), EngineError>;

    /// Enqueues the step that follows the last step: a decode step with the same rows, each at the next position. The
    /// records are those that the device has advanced. The last call that enqueued a step was [`Steps::decode`] or this.
    fn decode_again(&mut self) -> Result<(), EngineError>;

    /// Token of a slot at a position; `None` if the device has not written it yet. Does not block. Once the tokens of all
    /// rows of a step that choose are there, this step and all earlier ones are complete.
    ///
    /// # Errors
    /// [`EngineError::NonFinite`] if the logits from which the token would be chosen are not finite: this concerns the
    /// slot's sequence only. Any other error concerns the engine.
    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError>;

    /// The error of logits that are not finite, as [`Steps::token`] returned it for a slot, with the launch that overflowed, if
    /// the engine can tell. Waits until earlier steps are complete; a decode step with records must follow before
    /// [`Steps::decode_again`], and the logits of the last step are lost.
    ///
    /// # Errors
    /// If the device fails.
    fn explain(&mut self, _slot: u32, error: NonFiniteLogits) -> Result<NonFiniteLogits, EngineError> {
        Ok(error)
    }

    /// Logits `f32 [vocab]` of row number `row` among those of the last step that choose. Waits until the step is complete. They may
    /// contain NaN and infinities: [`Steps::token`] of the row's token is an error then.
    fn logits(&mut self, row: u32) -> Result<Vec<f32>, EngineError>;

    /// Whether an enqueued step is not complete, after the caller has waited for `waited` for one of the `steps` oldest of them.
    /// Does not block.
    ///
    /// # Errors
    /// If a kernel faulted, or the device counts as hung: `waited` is longer than so many steps may take.
    fn busy(&self, waited: Duration, steps: u32) -> Result<bool, EngineError>;

    /// Makes the engine usable after an error: waits for enqueued steps, clears what a failed step leaves behind, and
    /// zeroes the page pool.
    ///
    /// # Errors
    /// If the device does not recover.
    fn reset(&mut self) -> Result<(), EngineError>;
}
