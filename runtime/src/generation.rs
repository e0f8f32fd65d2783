//! Text generation: prompt tokens in, tokens with their text out, and the reason why generation ended.
//!
//! [`Generation`] is an iterator over the tokens of a [`Request`]. The crate's front page has an example.

use std::time::{Duration, Instant};

use crate::engine::{Engine, EngineError, SamplingParams};
use crate::tokenizer::{DecodeStream, Tokenizer};

/// What to generate, and when to stop.
#[derive(Clone)]
pub struct Request<'a> {
    /// Token ids of the prompt; at least one.
    pub prompt: &'a [u32],
    /// Sampling parameters. An engine that was loaded for greedy decoding accepts only greedy parameters.
    pub sampling: SamplingParams,
    /// Largest number of tokens to generate.
    pub max_tokens: u32,
    /// Tokens that end generation, in any order: see [`Tokenizer::end_tokens`].
    pub stop_tokens: &'a [u32],
    /// Callback with the position of each prompt token except the first, called once the token is processed.
    pub on_prompt_token: Option<&'a dyn Fn(u32)>,
}

impl<'a> Request<'a> {
    /// Creates a request for greedy decoding until the context is full.
    pub fn new(prompt: &'a [u32]) -> Request<'a> {
        Request {
            prompt,
            sampling: SamplingParams::default(),
            max_tokens: u32::MAX,
            stop_tokens: &[],
            on_prompt_token: None,
        }
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model chose one of the stop tokens.
    StopToken,
    /// [`Request::max_tokens`] tokens were generated.
    MaxTokens,
    /// The KV cache is full.
    ContextFull,
    /// The caller stopped early, or the engine failed.
    Cancelled,
}

/// A generated token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token's id.
    pub id: u32,
    /// Text that the token completes. Empty for a stop token, within a character of several tokens, and without a
    /// tokenizer.
    pub text: String,
}

/// Summary of a generation that ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Every generated token, the stop token included.
    pub tokens: Vec<u32>,
    /// Text that remains: U+FFFD if the last character is incomplete, else empty.
    pub rest: String,
    /// Why generation ended.
    pub reason: FinishReason,
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
    chosen: Box<dyn Iterator<Item = Result<u32, EngineError>> + 'a>,
    stop_tokens: &'a [u32],
    stream: Option<DecodeStream<'a>>,
    tokens: Vec<u32>,
    /// Number of tokens after which generation ends, and the reason for ending there.
    limit: (u32, FinishReason),
    reason: Option<FinishReason>,
    start: Instant,
    first_token: Option<Instant>,
}

impl<'a> Generation<'a> {
    /// Starts a sequence with the request's prompt. Without a tokenizer, tokens have no text.
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
        let start = Instant::now();
        engine.set_sampling(&request.sampling)?;
        engine.start(request.prompt)?;
        let chosen = Box::new(engine.generate_with_progress(limit.0, request.on_prompt_token)?);
        Ok(Generation {
            chosen,
            stop_tokens: request.stop_tokens,
            stream: tokenizer.map(Tokenizer::decode_stream),
            tokens: Vec::new(),
            limit,
            reason: None,
            start,
            first_token: None,
        })
    }

    /// Ends the generation, and returns the tokens, the remaining text, the reason and the times.
    pub fn finish(self) -> Summary {
        let first_token = self.first_token.unwrap_or(self.start);
        let reached_limit = self.tokens.len() as u64 >= u64::from(self.limit.0);
        let reason = self.reason.or(reached_limit.then_some(self.limit.1));
        Summary {
            tokens: self.tokens,
            rest: self.stream.map_or(String::new(), DecodeStream::finish),
            reason: reason.unwrap_or(FinishReason::Cancelled),
            prompt_time: first_token - self.start,
            decode_time: first_token.elapsed(),
        }
    }

    /// Ends the generation at the caller's wish: [`FinishReason::Cancelled`], unless a stop token came first.
    pub fn cancel(mut self) -> Summary {
        self.reason.get_or_insert(FinishReason::Cancelled);
        self.finish()
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reason.is_some() {
            return None;
        }
        let id = match self.chosen.next()? {
            Ok(id) => id,
            Err(error) => {
                self.reason = Some(FinishReason::Cancelled);
                return Some(Err(error));
            }
        };
        self.first_token.get_or_insert_with(Instant::now);
        self.tokens.push(id);
        let mut text = String::new();
        if self.stop_tokens.contains(&id) {
            self.reason = Some(FinishReason::StopToken);
        } else if let Some(stream) = &mut self.stream {
            text.push_str(stream.push(id));
        }
        Some(Ok(Token { id, text }))
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
