//! Shift of a full context: which tokens stay, and the sequence from which generation continues.

use super::{FinishReason, Generation, room};
use crate::engine::EngineError;

/// Sequence of a generation whose context may be shifted.
pub(super) struct Shift {
    /// Number of first tokens that every shift keeps.
    keep: u32,
    /// Largest number of tokens to generate.
    max_tokens: u32,
    /// Tokens in the context, then the tokens chosen since.
    sequence: Vec<u32>,
    /// Number of shifts so far.
    pub count: u32,
}

impl Shift {
    /// State at the start of a generation, for a context of `context` positions.
    ///
    /// # Errors
    /// If no position would be left for other tokens.
    pub fn new(keep: u32, prompt: &[u32], max_tokens: u32, context: u32) -> Result<Shift, EngineError> {
        if keep >= context {
            return Err(EngineError::KeepTooLarge { keep, context });
        }
        Ok(Shift { keep, max_tokens, sequence: prompt.to_vec(), count: 0 })
    }

    /// Adds a chosen token.
    pub fn push(&mut self, token: u32) {
        self.sequence.push(token);
    }
}

/// Tokens that stay when the context is full: the first `keep`, and the newer half (rounded up) of the others.
fn kept(sequence: &[u32], keep: u32) -> Vec<u32> {
    let (first, others) = sequence.split_at(sequence.len().min(keep as usize));
    [first, &others[others.len() / 2..]].concat()
}

impl Generation<'_> {
    /// Shifts the context if it is full and the request allows it: starts a sequence with the tokens that stay, as a
    /// prompt. Returns whether a token can be chosen.
    ///
    /// The first [`Request::keep`](super::Request::keep) tokens are in the cache at their positions and are reused; the
    /// others get new positions, so they are decoded again, at the price of a prompt of that length.
    pub(super) fn shift_context(&mut self) -> Result<bool, EngineError> {
        let context = self.engine.plan().params.context;
        let Some(shift) = self.shift.as_mut().filter(|_| self.limit.1 == FinishReason::ContextFull) else {
            return Ok(false);
        };
        shift.sequence = kept(&shift.sequence, shift.keep);
        shift.count += 1;
        self.engine.start_from_cache(&shift.sequence)?;
        let room = (self.tokens.len() as u32).saturating_add(room(shift.sequence.len(), context)?);
        self.limit = if shift.max_tokens > room {
            (room, FinishReason::ContextFull)
        } else {
            (shift.max_tokens, FinishReason::MaxTokens)
        };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tokens_and_the_newer_half_of_the_others_stay() {
        for (keep, expected) in [
            (0, vec![4, 5, 6, 7]),
            (1, vec![0, 4, 5, 6, 7]),
            (2, vec![0, 1, 5, 6, 7]),
            (6, vec![0, 1, 2, 3, 4, 5, 7]),
        ] {
            assert_eq!(kept(&[0, 1, 2, 3, 4, 5, 6, 7], keep), expected);
        }
        assert!(Shift::new(7, &[1], 9, 8).is_ok());
        let error = Shift::new(8, &[1], 9, 8).err().unwrap();
        assert!(matches!(error, EngineError::KeepTooLarge { keep: 8, context: 8 }), "{error}");
    }
}
