//! Shift of a full context: which tokens stay, and the sequence from which generation continues.

use crate::engine::EngineError;

/// Sequence of a generation whose context may be shifted.
pub(super) struct Shift {
    /// Number of first tokens that every shift keeps.
    keep: u32,
    /// Largest number of tokens to generate.
    pub max_tokens: u32,
    /// Tokens in the context, then the tokens chosen since.
    pub sequence: Vec<u32>,
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

    /// Drops the tokens that do not stay; returns the number of those that do.
    ///
    /// The first `keep` tokens have their positions still, so that their keys and values can be reused; the others get
    /// new positions and are decoded again, at the price of a prompt of that length.
    pub fn apply(&mut self) -> usize {
        self.sequence = kept(&self.sequence, self.keep);
        self.count += 1;
        self.sequence.len()
    }
}

/// Tokens that stay when the context is full: the first `keep`, and the newer half (rounded up) of the others.
fn kept(sequence: &[u32], keep: u32) -> Vec<u32> {
    let (first, others) = sequence.split_at(sequence.len().min(keep as usize));
    [first, &others[others.len() / 2..]].concat()
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
