//! Speculation: several tokens of a sequence in one step, with the bits of single steps.
//!
//! A *draft* is a guess of a sequence's next tokens. A verify step processes the last token and the draft, one row each, and
//! chooses a token after every row. The choice after the last token is valid. The choice after a drafted token is valid if the
//! draft is what the row before has chosen. So the sequence gets all equal tokens and one more; the others are discarded,
//! and later steps overwrite their keys and values. Rows have the bits of decode steps, so the tokens do not depend on drafts.
//!
//! Where drafts come from ([`Source`]):
//!
//! - **Look-up** (`lookup`): what followed the last tokens of the sequence when they occurred before. The same guesses are
//!   compared with the tokens of ordinary steps, so the share of right ones is known also while nothing is drafted.
//! - **A draft model**: a small model of the same vocabulary, whose steps the [scheduler](crate::scheduler) runs. Its share
//!   of right tokens is known only while it drafts, so that a sequence tries it again now and then.
//!
//! `acceptance` estimates how often either is right. From that and from the measured times of steps, `costs` decides how many
//! rows a step gets, which may be none besides the last tokens. [`Synthetic`] drafts replace those of a model to measure
//! what a given share of right tokens would gain.

mod acceptance;
mod costs;
mod lookup;
mod synthetic;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

pub(crate) use acceptance::ModelPrior;
use acceptance::{Acceptance, ModelAcceptance};
pub(crate) use costs::{Proposal, StepCosts, StepSizes, Work, drafts};
use lookup::Lookup;
pub use synthetic::Synthetic;

/// Whether and how a sequence drafts tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Largest number of drafted tokens in a step; 0 for no drafts. The steps of the engine bound it too
    /// ([`EngineOptions::drafts`](crate::engine::EngineOptions::drafts)).
    pub most: u32,
    /// Whether every draft is as long as possible, whatever it costs; for tests and measurements. Otherwise its length
    /// depends on the share of accepted tokens and on the times of steps, and there may be none.
    pub always: bool,
    /// Whether tokens are drafted by look-up. A draft model drafts if the scheduler has one.
    pub lookup: bool,
}

impl Speculation {
    /// Drafts of at most `most` tokens, as long as they pay, by look-up and by the draft model if there is one.
    pub fn up_to(most: u32) -> Speculation {
        Speculation { most, always: false, lookup: true }
    }
}

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Look-up of n-grams in the sequence.
    Lookup,
    /// A draft model.
    Model,
}

impl Source {
    /// All sources.
    pub const ALL: [Source; 2] = [Source::Lookup, Source::Model];

    /// Name of the source.
    pub fn name(self) -> &'static str {
        match self {
            Source::Lookup => "lookup",
            Source::Model => "model",
        }
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

/// Numbers of drafted tokens by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts([DraftCounts; Source::ALL.len()]);

impl SourceCounts {
    /// Sum over the sources.
    pub fn total(&self) -> DraftCounts {
        self.0.iter().fold(DraftCounts::default(), |sum, counts| DraftCounts {
            drafted: sum.drafted + counts.drafted,
            accepted: sum.accepted + counts.accepted,
        })
    }
}

impl Index<Source> for SourceCounts {
    type Output = DraftCounts;
    fn index(&self, source: Source) -> &DraftCounts {
        &self.0[source as usize]
    }
}

impl IndexMut<Source> for SourceCounts {
    fn index_mut(&mut self, source: Source) -> &mut DraftCounts {
        &mut self.0[source as usize]
    }
}

/// Number of tokens that a draft model can draft for a sequence, and work that it must do first.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    /// Largest number of tokens that it can draft.
    pub most: u32,
    /// Number of the sequence's tokens that it must process first.
    pub behind: u32,
}

impl Default for Offer {
    /// The offer for synthetic drafts: no model runs, so there is no limit and no work.
    fn default() -> Offer {
        Offer { most: u32::MAX, behind: 0 }
    }
}

/// Decides about the drafts of a sequence, and guesses its next tokens by look-up.
pub(crate) struct Speculator {
    speculation: Speculation,
    lookup: Lookup,
    acceptance: Acceptance,
    guess: Option<Guess>,
    /// Share of right tokens of the draft model, if there is one or its drafts are synthetic.
    model: Option<ModelAcceptance>,
    synthetic: Option<Arc<Synthetic>>,
    /// Source of the last draft.
    source: Source,
    /// Tokens of the last draft that were not compared with chosen tokens.
    pending: VecDeque<u32>,
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
    /// A speculator for a sequence that starts with `tokens`; none if no tokens are to be drafted. `model` is the prior of the
    /// draft model, if there is one.
    pub fn new(
        speculation: Speculation,
        tokens: &[u32],
        model: Option<&ModelPrior>,
        synthetic: Option<Arc<Synthetic>>,
    ) -> Option<Speculator> {
        let model = match (model, &synthetic) {
            (Some(prior), _) => Some(ModelAcceptance::new(prior)),
            (None, Some(_)) => Some(ModelAcceptance::new(&ModelPrior::default())),
            (None, None) => None,
        };
        if speculation.most == 0 || !(speculation.lookup || model.is_some()) {
            return None;
        }
        let mut speculator = Speculator {
            speculation,
            lookup: Lookup::default(),
            acceptance: Acceptance::default(),
            guess: None,
            model,
            synthetic,
            source: Source::Lookup,
            pending: VecDeque::new(),
        };
        speculator.restart(tokens);
        Some(speculator)
    }

    /// Replaces the tokens of the sequence; the acceptance statistics are kept.
    pub fn restart(&mut self, tokens: &[u32]) {
        self.pending.clear();
        self.lookup = Lookup::default();
        if self.speculation.lookup {
            tokens.iter().for_each(|&token| self.lookup.push(token));
        }
        self.guess = self.find();
    }

    /// Adds a chosen token, and compares it with the guess and with the last draft. Tells `prior` how a draft model did.
    pub fn push(&mut self, token: u32, prior: &mut ModelPrior) {
        self.compare_draft(token, prior);
        if !self.speculation.lookup {
            return;
        }
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

    fn compare_draft(&mut self, token: u32, prior: &mut ModelPrior) {
        let drafted = self.pending.pop_front();
        let is_right = drafted == Some(token);
        if !is_right {
            self.pending.clear();
        }
        match &mut self.model {
            Some(model) if drafted.is_some() && self.source == Source::Model => {
                model.record(is_right);
                prior.record(is_right);
            }
            Some(model) => model.pass(),
            None => {}
        }
    }

    fn find(&self) -> Option<Guess> {
        self.lookup.find().map(|(source, matched)| Guess { source, matched })
    }

    /// Expected worth of a draft, if at most `left` tokens may follow besides one; none if there is no guess. Of two sources
    /// the one that is more often right is taken.
    pub fn proposal(&self, left: u32, offer: Offer) -> Option<Proposal> {
        let most = left.min(self.speculation.most);
        let proposal = |probability, most, source| Proposal {
            probability,
            most,
            always: self.speculation.always,
            source: Some(source),
            behind: offer.behind,
            left,
        };
        let lookup =
            self.guess.map(|guess| proposal(self.acceptance.of(guess.matched), most, Source::Lookup));
        let model =
            self.model.as_ref().map(|model| proposal(model.estimate(), most.min(offer.most), Source::Model));
        // Of equals the last one: look-up costs nothing.
        let of = [model, lookup].into_iter().flatten().filter(|proposal| proposal.most > 0);
        of.max_by(|a, b| a.probability.total_cmp(&b.probability))
    }

    /// The next `count` tokens by look-up.
    pub fn look_up(&self, count: u32) -> Vec<u32> {
        self.guess.map_or(Vec::new(), |guess| self.lookup.continuation(guess.source, count as usize))
    }

    /// Synthetic tokens in place of `count` tokens of a draft model, after `generated` tokens of the answer; none if drafts are
    /// not synthetic.
    pub fn synthetic(&self, generated: usize, count: u32) -> Option<Vec<u32>> {
        Some(self.synthetic.as_ref()?.tokens(generated, count as usize))
    }

    /// Notes a draft. An empty one of a draft model counts as wrong, so that it is not tried again and again.
    pub fn drafted(&mut self, source: Source, tokens: &[u32]) {
        self.source = source;
        self.pending = tokens.iter().copied().collect();
        if let (Source::Model, [], Some(model)) = (source, tokens, &mut self.model) {
            model.record(false);
        }
    }

    /// Notes that only the first `count` tokens of the last draft are verified.
    pub fn keep_drafted(&mut self, count: u32) {
        self.pending.truncate(count as usize);
    }

    /// Source of the last draft.
    pub fn source(&self) -> Source {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[u32]) -> Speculator {
        Speculator::new(Speculation::up_to(8), tokens, None, None).unwrap()
    }

    fn offer(most: u32) -> Offer {
        Offer { most, behind: 0 }
    }

    fn push(speculator: &mut Speculator, token: u32) {
        speculator.push(token, &mut ModelPrior::default());
    }

    #[test]
    fn a_guess_goes_on_while_it_is_right_and_ends_when_it_is_wrong() {
        let mut speculator = of(&[1, 2, 3, 4, 5, 6, 9, 1, 2]);
        assert_eq!(speculator.look_up(3), [3, 4, 5]);
        push(&mut speculator, 3);
        assert_eq!(speculator.look_up(3), [4, 5, 6]);
        push(&mut speculator, 7);
        assert!(speculator.look_up(3).is_empty());
        assert_eq!(speculator.proposal(3, offer(3)), None);
        speculator.restart(&[5, 6, 7, 5, 6]);
        assert_eq!(speculator.look_up(2), [7, 5]);
        assert!(Speculator::new(Speculation::default(), &[1, 1, 1], None, None).is_none());
    }

    #[test]
    fn right_guesses_raise_the_probability_and_wrong_ones_lower_it() {
        let period = [4, 8, 1, 6, 2];
        let mut repeated = of(&period.repeat(2));
        let first = repeated.proposal(4, offer(0)).unwrap().probability;
        period.repeat(6).iter().for_each(|&token| push(&mut repeated, token));
        assert!(repeated.proposal(4, offer(0)).unwrap().probability > first.max(0.9));
        assert_eq!(repeated.proposal(99, offer(0)).unwrap().most, 8);

        // The pair (1, 2) is followed by another token each time.
        let mut changing = of(&[1, 2, 50, 1, 2]);
        let first = changing.proposal(4, offer(0)).unwrap().probability;
        for next in 60..80 {
            [next, 1, 2].iter().for_each(|&token| push(&mut changing, token));
        }
        assert!(changing.proposal(4, offer(0)).unwrap().probability < first.min(0.2));
    }

    #[test]
    fn the_source_that_is_more_often_right_drafts() {
        let model = ModelPrior::default();
        let of = |lookup, tokens: &[u32]| {
            let speculation = Speculation { lookup, ..Speculation::up_to(8) };
            Speculator::new(speculation, tokens, Some(&model), None).unwrap()
        };
        let source = |speculator: &Speculator| {
            speculator.proposal(5, offer(3)).map(|proposal| (proposal.source, proposal.most))
        };
        // A match of two tokens is less certain than a model at first; one of 20 tokens is more certain.
        let short = [1, 2, 7, 1, 2];
        let long: Vec<u32> = (0..20).chain([99]).chain(0..20).collect();
        assert_eq!(source(&of(true, &short)), Some((Some(Source::Model), 3)));
        assert_eq!(source(&of(false, &long)), Some((Some(Source::Model), 3)));
        let mut matched = of(true, &long[..25]);
        long[25..].iter().for_each(|&token| push(&mut matched, token));
        assert_eq!(source(&matched), Some((Some(Source::Lookup), 5)));
        // A draft model without room does not draft.
        assert_eq!(of(false, &long).proposal(5, offer(0)), None);
    }

    #[test]
    fn a_draft_is_compared_up_to_its_first_wrong_token() {
        let mut prior = ModelPrior::default();
        let speculation = Speculation { lookup: false, ..Speculation::up_to(8) };
        let mut speculator = Speculator::new(speculation, &[1], Some(&prior), None).unwrap();
        let before = speculator.proposal(8, offer(8)).unwrap().probability;
        speculator.drafted(Source::Model, &[5, 6, 7]);
        speculator.push(5, &mut prior);
        let right = speculator.proposal(8, offer(8)).unwrap().probability;
        assert!(right > before);
        speculator.push(9, &mut prior);
        let wrong = speculator.proposal(8, offer(8)).unwrap().probability;
        assert!(wrong < right);
        // The last drafted token was never compared: it says nothing.
        speculator.push(7, &mut prior);
        assert_eq!(speculator.proposal(8, offer(8)).unwrap().probability, wrong);
    }
}
