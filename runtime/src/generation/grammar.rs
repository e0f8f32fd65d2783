//! Grammars: answers that belong to a language.
//!
//! The caller implements [`Grammar`], for example over a parser of JSON schemas. Before each choice of a token the grammar
//! says which tokens may follow. The device chooses among them, or the tokens are known without a choice.

use std::collections::VecDeque;

use crate::engine::EngineError;

/// A language of answers.
pub trait Grammar: Send + Sync {
    /// The state before an answer's first token.
    fn start(&self) -> Box<dyn GrammarState>;
}

/// State of a grammar within an answer.
pub trait GrammarState: Send {
    /// What may follow the tokens so far.
    ///
    /// # Errors
    /// If the grammar cannot tell, as a text. The sequence then ends with [`EngineError::Grammar`].
    fn next(&mut self) -> Result<Next, String>;

    /// Accepts a token that was chosen among those of [`Next::Any`]. Not called for a stop token.
    ///
    /// # Errors
    /// If the token may not follow, as a text.
    fn accept(&mut self, token: u32) -> Result<(), String>;

    /// Whether nothing may follow but the end.
    fn is_complete(&self) -> bool;
}

/// What may follow in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// One of the tokens whose bits are set: bit i of word w is that of token 32w + i. Tokens past the last word are
    /// not allowed.
    Any(Vec<u32>),
    /// These tokens, at least one. The grammar counts them as accepted.
    Only(Vec<u32>),
    /// Nothing: the answer is complete.
    End,
}

/// Follows an answer through its grammar.
pub(crate) struct Guide {
    state: Box<dyn GrammarState>,
    /// Number of tokens in the vocabulary.
    vocab: u32,
    /// Tokens that the grammar counts as accepted, and that the answer does not have yet.
    ahead: VecDeque<u32>,
}

impl Guide {
    /// A guide before an answer's first token, for a model whose vocabulary has `vocab` tokens.
    pub fn new(grammar: &dyn Grammar, vocab: u32) -> Guide {
        Guide { state: grammar.start(), vocab, ahead: VecDeque::new() }
    }

    /// What may follow the answer so far. All tokens are in the vocabulary, and there is at least one.
    ///
    /// # Errors
    /// If the grammar cannot tell, or gives tokens outside the vocabulary, or none.
    pub fn next(&mut self) -> Result<Next, EngineError> {
        if self.ahead.is_empty() {
            match self.state.next().map_err(EngineError::Grammar)? {
                Next::Any(mask) if !self.allows_any(&mask) => return Ok(Next::End),
                Next::Only(tokens) => {
                    let vocab = self.vocab;
                    if let Some(token) = tokens.iter().find(|&&token| token >= vocab) {
                        let message = format!("token {token} is outside the vocabulary of {vocab}");
                        return Err(EngineError::Grammar(message));
                    }
                    if tokens.is_empty() {
                        return Err(EngineError::Grammar("it names no token that may follow".to_owned()));
                    }
                    self.ahead = tokens.into();
                }
                next => return Ok(next),
            }
        }
        Ok(Next::Only(self.ahead.iter().copied().collect()))
    }

    /// Whether a mask has the bit of a token of the vocabulary.
    fn allows_any(&self, mask: &[u32]) -> bool {
        let whole = (self.vocab / 32) as usize;
        let last = mask.get(whole).is_some_and(|word| word & ((1 << (self.vocab % 32)) - 1) != 0);
        last || mask.iter().take(whole).any(|&word| word != 0)
    }

    /// Adds a token to the answer. Returns whether the answer is complete.
    pub fn accept(&mut self, token: u32) -> Result<bool, EngineError> {
        match self.ahead.pop_front() {
            None => self.state.accept(token).map_err(EngineError::Grammar)?,
            Some(expected) if expected == token => {}
            Some(expected) => {
                let message = format!("token {token} came instead of token {expected}");
                return Err(EngineError::Grammar(message));
            }
        }
        Ok(self.ahead.is_empty() && self.state.is_complete())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grammar that always says the same.
    #[derive(Clone)]
    struct Says(Next);

    impl Grammar for Says {
        fn start(&self) -> Box<dyn GrammarState> {
            Box::new(self.clone())
        }
    }

    impl GrammarState for Says {
        fn next(&mut self) -> Result<Next, String> {
            Ok(self.0.clone())
        }
        fn accept(&mut self, _token: u32) -> Result<(), String> {
            Ok(())
        }
        fn is_complete(&self) -> bool {
            false
        }
    }

    #[test]
    fn only_tokens_of_the_vocabulary_may_follow() {
        // A vocabulary of 40 tokens: a word and eight bits.
        let next = |next: Next| match Guide::new(&Says(next), 40).next() {
            Ok(next) => format!("{next:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(next(Next::Any(vec![1 << 31])), "Any([2147483648])");
        assert_eq!(next(Next::Any(vec![0, 1 << 7, 9])), "Any([0, 128, 9])");
        assert_eq!(next(Next::Any(vec![0, 1 << 8, 1])), "End");
        assert_eq!(next(Next::Any(vec![])), "End");
        assert_eq!(next(Next::Only(vec![39, 0])), "Only([39, 0])");
        assert_eq!(
            next(Next::Only(vec![39, 40])),
            "the grammar failed: token 40 is outside the vocabulary of 40"
        );
        assert_eq!(next(Next::Only(vec![])), "the grammar failed: it names no token that may follow");
    }
}
