//! The answer of one sequence: tokens and text so far, and whether a token ends it.

use std::time::Instant;

use super::shift::Shift;
use super::stop::{Released, StopStrings};
use super::{FinishReason, MissedPages, Request, Summary, Token, TokenLogprobs, room};
use crate::engine::EngineError;
use crate::speculation::SourceCounts;
use crate::tokenizer::{DecodeStream, Tokenizer};

/// Generated tokens of a sequence, with the conditions that end it.
pub(crate) struct Answer<'t> {
    stop_tokens: Vec<u32>,
    stream: Option<DecodeStream<'t>>,
    stop_strings: StopStrings,
    tokens: Vec<u32>,
    text: String,
    shift: Option<Shift>,
    /// Tokens of the prompt.
    prompt: u32,
    /// Positions of the context.
    context: u32,
    /// Number of tokens after which generation ends or the context shifts, and the reason for ending there.
    limit: (u32, FinishReason),
    reason: Option<FinishReason>,
    /// Number of prompt tokens whose keys and values were in the cache already.
    pub reused: u32,
    /// Full pages of the prompt that had to be processed.
    pub missed: MissedPages,
    /// Tokens that were drafted.
    pub drafts: SourceCounts,
    start: Instant,
    first_token: Option<Instant>,
}

impl<'t> Answer<'t> {
    /// The empty answer to a request, in a context of `context` positions. Without a tokenizer, tokens have no text.
    ///
    /// # Errors
    /// If the prompt is longer than the context, or more tokens shall be kept than it has room for.
    pub fn new(
        request: &Request<'_>,
        tokenizer: Option<&'t Tokenizer>,
        context: u32,
    ) -> Result<Answer<'t>, EngineError> {
        let limit = limit(request.max_tokens, room(request.prompt.len(), context)?);
        let shift = match request.keep {
            Some(keep) => Some(Shift::new(keep, request.prompt, request.max_tokens, context)?),
            None => None,
        };
        Ok(Answer {
            stop_tokens: request.stop_tokens.to_vec(),
            stream: tokenizer.map(Tokenizer::decode_stream),
            stop_strings: StopStrings::new(request.stop_strings),
            tokens: Vec::new(),
            text: String::new(),
            shift,
            prompt: request.prompt.len() as u32,
            context,
            limit,
            reason: None,
            reused: 0,
            missed: MissedPages::default(),
            drafts: SourceCounts::default(),
            start: Instant::now(),
            first_token: None,
        })
    }

    /// Number of tokens so far.
    pub fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    /// Number of tokens that can follow until generation ends or the context shifts.
    pub fn tokens_left(&self) -> u32 {
        self.limit.0.saturating_sub(self.len())
    }

    /// Whether a stop token, a stop string, the grammar or the caller ended generation.
    pub fn is_stopped(&self) -> bool {
        self.reason.is_some()
    }

    /// Ends generation for `reason`, unless it has ended.
    pub fn stop(&mut self, reason: FinishReason) {
        self.reason.get_or_insert(reason);
    }

    /// Adds a chosen token, and returns it with its text and log-probabilities.
    pub fn accept(&mut self, id: u32, logprobs: Option<TokenLogprobs>) -> Token {
        self.first_token.get_or_insert_with(Instant::now);
        self.tokens.push(id);
        if let Some(shift) = &mut self.shift {
            shift.push(id);
        }
        let mut released = Released::default();
        if self.stop_tokens.contains(&id) {
            self.stop(FinishReason::StopToken);
        } else if let Some(stream) = &mut self.stream {
            released = self.stop_strings.push(stream.push(id));
            if released.stopped {
                self.stop(FinishReason::StopString);
            }
        }
        self.text += &released.text;
        Token { id, text: released.text, logprobs }
    }

    /// Shifts the context if no tokens are left because it is full, and the request allows it. Returns the tokens that
    /// stay: generation continues as after a prompt of these tokens.
    ///
    /// # Errors
    /// If the tokens that stay are more than the context has room for.
    pub fn shift_context(&mut self) -> Result<Option<&[u32]>, EngineError> {
        if self.is_stopped() || self.tokens_left() > 0 || self.limit.1 != FinishReason::ContextFull {
            return Ok(None);
        }
        let (context, tokens) = (self.context, self.len());
        let Some(shift) = self.shift.as_mut() else { return Ok(None) };
        let kept = shift.apply();
        self.limit = limit(shift.max_tokens, tokens.saturating_add(room(kept, context)?));
        Ok(Some(&shift.sequence))
    }

    /// Ends the answer, and returns the tokens, the text, the reason and the times. Without another reason, an answer
    /// that ends before its limit was cancelled.
    pub fn finish(mut self) -> Summary {
        let first_token = self.first_token.unwrap_or(self.start);
        let reached_limit = self.tokens_left() == 0;
        let reason = self.reason.or(reached_limit.then_some(self.limit.1));
        let whole = self.prompt + self.len();
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
            missed: self.missed,
            drafts: self.drafts,
            shifts: self.shift.as_ref().map_or(0, |shift| shift.count),
            context_used: self.shift.map_or(whole, |shift| shift.sequence.len() as u32).min(self.context),
            prompt_time: first_token - self.start,
            decode_time: first_token.elapsed(),
        }
    }
}

/// The smaller one of the request's limit and the context's, with the reason for ending there.
fn limit(max_tokens: u32, room: u32) -> (u32, FinishReason) {
    if max_tokens > room { (room, FinishReason::ContextFull) } else { (max_tokens, FinishReason::MaxTokens) }
}
