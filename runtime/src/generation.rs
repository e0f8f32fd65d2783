//! Text generation: what a [`Request`] asks for, and what comes of it: tokens with their text, and a [`Summary`] with the reason why
//! generation ended. A [scheduler](crate::scheduler) decodes requests; the crate's front page has an example.

mod answer;
mod grammar;
mod logprobs;
mod shift;
mod stop;

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{EngineError, SamplingParams};
use crate::speculation::{SourceCounts, Speculation, Synthetic};
#[cfg(doc)]
use crate::tokenizer::Tokenizer;
pub(crate) use answer::Answer;
pub(crate) use grammar::Guide;
pub use grammar::{Grammar, GrammarState, Next};
pub use logprobs::TokenLogprobs;

/// What to generate, and when to stop.
#[derive(Clone)]
pub struct Request<'a> {
    /// Token ids of the prompt; at least one.
    pub prompt: &'a [u32],
    /// Sampling parameters. An engine that was loaded for greedy decoding accepts only greedy parameters.
    pub sampling: SamplingParams,
    /// Largest number of tokens to generate.
    pub max_tokens: u32,
    /// What happens when the context is full. `None`: generation ends ([`FinishReason::ContextFull`]). `Some(n)`: the
    /// first `n` tokens and the newer half of the others stay, and generation continues as after a prompt of these
    /// tokens, with the same bits. `n` must be smaller than the context.
    pub keep: Option<u32>,
    /// Tokens that end generation, in any order: see [`Tokenizer::end_tokens`].
    pub stop_tokens: &'a [u32],
    /// Texts that end generation, also across the borders of tokens. Of the generated text only the part before the first
    /// one is returned. Text that may be the start of one is held back until later tokens decide. Needs a tokenizer; an
    /// empty string is ignored.
    pub stop_strings: &'a [String],
    /// Number of most likely tokens whose log-probabilities are returned with each token, besides the token's own; `None`
    /// for no log-probabilities. With them, the device waits for the host after each token.
    pub logprobs: Option<u32>,
    /// Language that the answer belongs to. Needs an engine that was loaded for sampling; with temperature 0 the most likely
    /// one of the tokens that may follow is chosen. The device waits for the host after each token that is chosen so.
    pub grammar: Option<&'a dyn Grammar>,
    /// Whether tokens are drafted, so that a step can choose several. It does not change the answer. Needs an engine with verify
    /// steps; without effect with a grammar.
    pub speculation: Speculation,
    /// Drafts of which a given share is right, in place of those of a draft model: for measurements.
    pub synthetic: Option<Arc<Synthetic>>,
}

impl<'a> Request<'a> {
    /// The sampling parameters, with a mask if there is a grammar.
    pub(crate) fn sampling_with_grammar(&self) -> SamplingParams {
        let masked = self.sampling.masked || self.grammar.is_some();
        SamplingParams { masked, ..self.sampling.clone() }
    }

    /// Creates a request for greedy decoding until the context is full.
    pub fn new(prompt: &'a [u32]) -> Request<'a> {
        Request {
            prompt,
            sampling: SamplingParams::default(),
            max_tokens: u32::MAX,
            keep: None,
            stop_tokens: &[],
            stop_strings: &[],
            logprobs: None,
            grammar: None,
            speculation: Speculation::default(),
            synthetic: None,
        }
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model chose one of the stop tokens.
    StopToken,
    /// The answer is complete: [`Request::grammar`] lets nothing follow.
    Complete,
    /// The text contains one of the stop strings.
    StopString,
    /// [`Request::max_tokens`] tokens were generated.
    MaxTokens,
    /// The KV cache is full.
    ContextFull,
    /// Every page of the KV cache is in use, by this and other sequences.
    OutOfPages,
    /// The caller stopped early, or the engine failed.
    Cancelled,
}

impl FinishReason {
    /// The reason as outputs spell it: `stop_token`, `max_tokens`, ...
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::StopToken => "stop_token",
            FinishReason::StopString => "stop_string",
            FinishReason::Complete => "complete",
            FinishReason::MaxTokens => "max_tokens",
            FinishReason::ContextFull => "context_full",
            FinishReason::OutOfPages => "out_of_pages",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The token's id.
    pub id: u32,
    /// Text that the token completes. Empty for a stop token, within a character of several tokens, while the text may be
    /// the start of a stop string, and without a tokenizer.
    pub text: String,
    /// Log-probabilities, if [`Request::logprobs`] asks for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// Summary of a generation that ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Every generated token, including a stop token and the tokens of a stop string.
    pub tokens: Vec<u32>,
    /// The whole text: the texts of all tokens, and `rest`.
    pub text: String,
    /// Text that no token returned: held back as the possible start of a stop string, and U+FFFD if the last character is
    /// incomplete.
    pub rest: String,
    /// Why generation ended.
    pub reason: FinishReason,
    /// Number of prompt tokens whose keys and values were in the cache already.
    pub reused: u32,
    /// Full pages of the prompt that had to be processed, if pages are shared.
    pub missed: MissedPages,
    /// Numbers of tokens that were drafted and accepted.
    pub drafts: SourceCounts,
    /// Number of times that the context was full and older tokens were dropped ([`Request::keep`]).
    pub shifts: u32,
    /// Tokens of the prompt and the answer, less those that were dropped when the context was full.
    pub context_used: u32,
    /// Time from the start to the first token.
    pub prompt_time: Duration,
    /// Time from the first token to the end.
    pub decode_time: Duration,
}

/// Full pages of a prompt whose keys and values were not in the cache, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedPages {
    /// Pages of a text that the cache has not had, as far as it remembers.
    pub new: u32,
    /// Pages that other sequences have displaced.
    pub evicted: u32,
    /// Pages with tokens that the model had chosen: their keys and values have the bits of decode steps.
    pub generated: u32,
}

impl AddAssign for MissedPages {
    fn add_assign(&mut self, more: MissedPages) {
        self.new += more.new;
        self.evicted += more.evicted;
        self.generated += more.generated;
    }
}

/// Number of tokens that can be generated after a prompt in a context. The last token needs no position in the cache,
/// because no token follows it.
///
/// # Errors
/// If the prompt is longer than the context.
pub fn room(prompt: usize, context: u32) -> Result<u32, EngineError> {
    match u64::from(context).checked_sub(prompt as u64) {
        Some(left) => Ok(u32::try_from(left + 1).unwrap_or(u32::MAX)),
        None => Err(EngineError::ContextFull { needed: prompt as u64, context }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_needs_no_position() {
        assert_eq!(room(3, 8).unwrap(), 6);
        assert_eq!(room(8, 8).unwrap(), 1);
        assert_eq!(room(0, u32::MAX).unwrap(), u32::MAX);
        let error = room(9, 8).unwrap_err();
        assert!(matches!(error, EngineError::ContextFull { needed: 9, context: 8 }), "{error}");
    }
}
