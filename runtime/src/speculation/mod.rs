//! Speculation: several tokens of a sequence in one step, with the bits of single steps.
//!
//! A *draft* is a guess of a sequence's next tokens. A verify step processes the last token and the draft, one row each, and
//! chooses a token after every row. The choice after the last token is valid. The choice after a drafted token is valid if the
//! draft is what the row before has chosen. So the sequence gets all equal tokens and one more; the others are discarded,
//! and later steps overwrite their keys and values. Rows have the bits of decode steps, so the tokens do not depend on drafts.
//!
//! Drafts come from the sequence itself (`lookup`): what followed the last tokens when they occurred before. The same
//! guesses are compared with the tokens of ordinary steps, so the share of right ones is known also while nothing is
//! drafted (`acceptance`). From it and from the measured times of steps, `costs` decides how many rows a step gets, which
//! may be none besides the last tokens.

mod acceptance;
mod costs;
mod lookup;

use acceptance::Acceptance;
pub(crate) use costs::{Kind, Promise, StepCosts, drafts};
use lookup::Lookup;

/// Whether and how a sequence drafts tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Largest number of drafted tokens in a step; 0 for no drafts. The steps of the engine bound it too
    /// ([`EngineOptions::drafts`](crate::engine::EngineOptions::drafts)).
    pub most: u32,
    /// Whether every draft is as long as possible, whatever it costs; for tests and measurements. Otherwise its length
    /// depends on the share of accepted tokens and on the times of steps, and there may be none.
    pub always: bool,
}

impl Speculation {
    /// Drafts of at most `most` tokens, as long as they pay.
    pub fn up_to(most: u32) -> Speculation {
        Speculation { most, always: false }
    }
}

/// Numbers of drafted tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Tokens that were drafted.
    pub drafted: u64,
    /// Drafted tokens that the model chose.
    pub accepted: u64,
}

/// Guesses the next tokens of a sequence.
pub(crate) struct Speculator {
    speculation: Speculation,
    lookup: Lookup,
    acceptance: Acceptance,
    guess: Option<Guess>,
}

/// A place in the sequence whose tokens are expected to follow again.
#[derive(Clone, Copy)]
struct Guess {
    /// Index of the token that is expected next.
    source: usize,
    /// Number of tokens before it that equal the last tokens.
    matched: u32,
}

impl Speculator {
    /// A speculator for a sequence that starts with `tokens`; none if nothing shall be drafted.
    pub fn new(speculation: Speculation, tokens: &[u32]) -> Option<Speculator> {
        let mut speculator = Speculator {
            speculation,
            lookup: Lookup::default(),
            acceptance: Acceptance::default(),
            guess: None,
        };
        speculator.restart(tokens);
        (speculation.most > 0).then_some(speculator)
    }

    /// Replaces the tokens of the sequence; what is known about acceptance stays.
    pub fn restart(&mut self, tokens: &[u32]) {
        self.lookup = Lookup::default();
        tokens.iter().for_each(|&token| self.lookup.push(token));
        self.guess = self.find();
    }

    /// Adds a chosen token, and compares it with the guess.
    pub fn push(&mut self, token: u32) {
        let guessed = self.guess.map(|guess| (guess, self.lookup.token(guess.source) == token));
        self.lookup.push(token);
        if let Some((guess, is_right)) = guessed {
            self.acceptance.record(guess.matched, is_right);
        }
        self.guess = match guessed {
            Some((Guess { source, matched }, true)) => {
                Some(Guess { source: source + 1, matched: matched + 1 })
            }
            _ => self.find(),
        };
    }

    fn find(&self) -> Option<Guess> {
        self.lookup.find().map(|(source, matched)| Guess { source, matched })
    }

    /// What a draft of at most `most` tokens is expected to be worth; none if there is no guess.
    pub fn promise(&self, most: u32) -> Option<Promise> {
        let guess = self.guess?;
        let most = most.min(self.speculation.most);
        let always = self.speculation.always;
        (most > 0).then(|| Promise { probability: self.acceptance.of(guess.matched), most, always })
    }

    /// The next `count` tokens by the guess.
    pub fn draft(&self, count: u32) -> Vec<u32> {
        self.guess.map_or(Vec::new(), |guess| self.lookup.continuation(guess.source, count as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[u32]) -> Speculator {
        Speculator::new(Speculation::up_to(8), tokens).unwrap()
    }

    #[test]
    fn a_guess_goes_on_while_it_is_right_and_ends_when_it_is_wrong() {
        let mut speculator = of(&[1, 2, 3, 4, 5, 6, 9, 1, 2]);
        assert_eq!(speculator.draft(3), [3, 4, 5]);
        speculator.push(3);
        assert_eq!(speculator.draft(3), [4, 5, 6]);
        speculator.push(7);
        assert!(speculator.draft(3).is_empty());
        assert_eq!(speculator.promise(3), None);
        speculator.restart(&[5, 6, 7, 5, 6]);
        assert_eq!(speculator.draft(2), [7, 5]);
        assert!(Speculator::new(Speculation::default(), &[1, 1, 1]).is_none());
    }

    #[test]
    fn right_guesses_raise_the_probability_and_wrong_ones_lower_it() {
        let period = [4, 8, 1, 6, 2];
        let mut repeated = of(&period.repeat(2));
        let first = repeated.promise(4).unwrap().probability;
        period.repeat(6).iter().for_each(|&token| repeated.push(token));
        assert!(repeated.promise(4).unwrap().probability > first.max(0.9));
        assert_eq!(repeated.promise(99).unwrap().most, 8);

        // The pair (1, 2) is followed by another token each time.
        let mut changing = of(&[1, 2, 50, 1, 2]);
        let first = changing.promise(4).unwrap().probability;
        for next in 60..80 {
            [next, 1, 2].iter().for_each(|&token| changing.push(token));
        }
        assert!(changing.promise(4).unwrap().probability < first.min(0.2));
    }
}
