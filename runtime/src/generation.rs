//! Text generation: prompt tokens in, tokens with their text out, and the reason why generation ended.
//!
//! [`Generation`] is an iterator over the tokens of a [`Request`]. The crate's front page has an example.

mod logprobs;
mod shift;
mod stop;

use std::time::{Duration, Instant};

use crate::engine::{Engine, EngineError, OnPromptToken, SamplingParams};
use crate::tokenizer::{DecodeStream, Tokenizer};
pub use logprobs::TokenLogprobs;
use shift::Shift;
use stop::{Released, StopStrings};

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
    /// Callback with the position of each prompt token except the first, called once the token is processed; tokens that
    /// the cache holds already are left out. A break cancels the generation.
    pub on_prompt_token: Option<&'a OnPromptToken<'a>>,
}

impl<'a> Request<'a> {
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
            on_prompt_token: None,
        }
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model chose one of the stop tokens.
    StopToken,
    /// The text contains one of the stop strings.
    StopString,
    /// [`Request::max_tokens`] tokens were generated.
    MaxTokens,
    /// The KV cache is full.
    ContextFull,
    /// The caller stopped early, or the engine failed.
    Cancelled,
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
    /// Number of times that the context was full and older tokens were dropped ([`Request::keep`]).
    pub shifts: u32,
    /// Time from the start to the first token.
    pub prompt_time: Duration,
    /// Time from the first token to the end.
    pub decode_time: Duration,
}

/// A generation under way: an iterator over its tokens.
///
/// A generation that is dropped early leaves at most [`MAX_STEPS_AHEAD`](crate::engine::MAX_STEPS_AHEAD) steps on the
/// device; the next generation starts after these steps.
pub struct Generation<'a> {
    engine: &'a mut Engine,
    stop_tokens: &'a [u32],
    logprobs: Option<u32>,
    on_prompt_token: Option<&'a OnPromptToken<'a>>,
    stream: Option<DecodeStream<'a>>,
    stop_strings: StopStrings,
    tokens: Vec<u32>,
    text: String,
    shift: Option<Shift>,
    /// Number of tokens after which generation ends, and the reason for ending there.
    limit: (u32, FinishReason),
    reason: Option<FinishReason>,
    reused: u32,
    start: Instant,
    first_token: Option<Instant>,
}

impl<'a> Generation<'a> {
    /// Starts a sequence with the request's prompt. Without a tokenizer, tokens have no text.
    ///
    /// If the prompt begins with the tokens of the engine's last sequence, their keys and values are reused
    /// ([`Engine::start_from_cache`]).
    pub fn start(
        engine: &'a mut Engine,
        tokenizer: Option<&'a Tokenizer>,
        request: &Request<'a>,
    ) -> Result<Generation<'a>, EngineError> {
        let room = room(request.prompt.len(), engine.plan().params.context)?;
        let limit = if request.max_tokens > room {
            (room, FinishReason::ContextFull)
        } else {
            (request.max_tokens, FinishReason::MaxTokens)
        };
        let shift = match request.keep {
            Some(keep) => {
                let context = engine.plan().params.context;
                Some(Shift::new(keep, request.prompt, request.max_tokens, context)?)
            }
            None => None,
        };
        let start = Instant::now();
        engine.set_sampling(&request.sampling)?;
        let reused = engine.start_from_cache(request.prompt)?;
        Ok(Generation {
            engine,
            stop_tokens: request.stop_tokens,
            logprobs: request.logprobs,
            on_prompt_token: request.on_prompt_token,
            stream: tokenizer.map(Tokenizer::decode_stream),
            stop_strings: StopStrings::new(request.stop_strings),
            tokens: Vec::new(),
            text: String::new(),
            shift,
            limit,
            reason: None,
            reused,
            start,
            first_token: None,
        })
    }

    /// Ends the generation, and returns the tokens, the text, the reason and the times.
    pub fn finish(mut self) -> Summary {
        let first_token = self.first_token.unwrap_or(self.start);
        let reached_limit = self.tokens_left() == 0;
        let reason = self.reason.or(reached_limit.then_some(self.limit.1));
        let mut rest = String::new();
        if reason != Some(FinishReason::StopString) {
            let Released { text, stopped } =
                self.stop_strings.push(&self.stream.map_or(String::new(), DecodeStream::finish));
            rest = text;
            if !stopped {
                rest += &self.stop_strings.finish();
            }
            self.text += &rest;
        }
        Summary {
            tokens: self.tokens,
            text: self.text,
            rest,
            reason: reason.unwrap_or(FinishReason::Cancelled),
            reused: self.reused,
            shifts: self.shift.map_or(0, |shift| shift.count),
            prompt_time: first_token - self.start,
            decode_time: first_token.elapsed(),
        }
    }

    /// Ends the generation at the caller's wish: [`FinishReason::Cancelled`], unless a stop token or a stop string came
    /// first.
    pub fn cancel(mut self) -> Summary {
        self.reason.get_or_insert(FinishReason::Cancelled);
        self.finish()
    }

    fn tokens_left(&self) -> u32 {
        self.limit.0.saturating_sub(self.tokens.len() as u32)
    }

    /// Decodes until the next token is chosen; `None` if the callback cancels within the prompt. With log-probabilities
    /// no step may follow the token's, since a step overwrites the logits.
    fn choose(&mut self) -> Option<Result<u32, EngineError>> {
        let ahead = if self.logprobs.is_some() { 1 } else { self.tokens_left() };
        match self.engine.generate_with_progress(ahead, self.on_prompt_token) {
            Ok(mut tokens) => tokens.next(),
            Err(error) => Some(Err(error)),
        }
    }

    /// Adds a chosen token to the sequence, and returns it with its text and log-probabilities.
    fn accept(&mut self, id: u32) -> Result<Token, EngineError> {
        let logprobs = match self.logprobs {
            Some(count) => Some(TokenLogprobs::of(&self.engine.logits()?, id, count)),
            None => None,
        };
        self.first_token.get_or_insert_with(Instant::now);
        self.tokens.push(id);
        if let Some(shift) = &mut self.shift {
            shift.push(id);
        }
        let mut released = Released::default();
        if self.stop_tokens.contains(&id) {
            self.reason = Some(FinishReason::StopToken);
        } else if let Some(stream) = &mut self.stream {
            released = self.stop_strings.push(stream.push(id));
            if released.stopped {
                self.reason = Some(FinishReason::StopString);
            }
        }
        self.text += &released.text;
        Ok(Token { id, text: released.text, logprobs })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reason.is_some() {
            return None;
        }
        let token = match self.tokens_left() {
            0 => match self.shift_context() {
                Ok(true) => self.choose(),
                Ok(false) => return None,
                Err(error) => Some(Err(error)),
            },
            _ => self.choose(),
        };
        let token = token.map(|id| self.accept(id?));
        if !matches!(token, Some(Ok(_))) {
            self.reason = Some(FinishReason::Cancelled);
        }
        token
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
