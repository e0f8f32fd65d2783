//! Share of right guesses of a sequence: of look-up by the number of tokens that match, and of a draft model.

/// Smallest number of matching tokens of each class but the first.
const CLASSES: [u32; 4] = [3, 4, 8, 16];

/// Share of right guesses that is assumed at first, for each class. A long match is rarely a coincidence.
const ASSUMED: [f64; CLASSES.len() + 1] = [0.3, 0.5, 0.7, 0.8, 0.9];

/// Weight of an assumed share, as a number of guesses.
const ASSUMED_GUESSES: f64 = 3.0;

/// Factor of the weight of earlier guesses with each new guess: about the last thirty guesses count.
const FADING: f64 = 0.97;

/// Right guesses and all guesses, of each class, with fading weights.
#[derive(Default)]
pub(super) struct Acceptance {
    right: [f64; CLASSES.len() + 1],
    all: [f64; CLASSES.len() + 1],
}

fn class(matched: u32) -> usize {
    CLASSES.iter().take_while(|&&least| matched >= least).count()
}

impl Acceptance {
    /// Records a guess after `matched` matching tokens.
    pub fn record(&mut self, matched: u32, is_right: bool) {
        let class = class(matched);
        self.right[class] = self.right[class] * FADING + f64::from(u8::from(is_right));
        self.all[class] = self.all[class] * FADING + 1.0;
    }

    /// Estimated probability that a guess after `matched` matching tokens is right.
    pub fn of(&self, matched: u32) -> f64 {
        let class = class(matched);
        (self.right[class] + ASSUMED[class] * ASSUMED_GUESSES) / (self.all[class] + ASSUMED_GUESSES)
    }
}

/// Share of right tokens of a draft model that is assumed before it has drafted.
const ASSUMED_OF_MODEL: f64 = 0.7;

/// Factor of the weight of earlier tokens with each new token in [`ModelPrior`]: about the last 500 tokens count.
const PRIOR_FADING: f64 = 0.998;

/// Number of tokens without a draft after which a sequence first tries the draft model again.
const FIRST_PAUSE: u32 = 32;

/// Largest number of tokens without a draft before the next try; the number doubles with each failed try.
const MAX_PAUSE: u32 = 1024;

/// Number of right tokens, with fading weights, after which a try counts as successful.
const SUCCESS: f64 = 8.0;

/// Share of right tokens of a draft model in all sequences, which a new sequence starts with.
#[derive(Debug, Default)]
pub(crate) struct ModelPrior {
    right: f64,
    all: f64,
}

impl ModelPrior {
    /// Records a drafted token.
    pub fn record(&mut self, is_right: bool) {
        self.right = self.right * PRIOR_FADING + f64::from(u8::from(is_right));
        self.all = self.all * PRIOR_FADING + 1.0;
    }

    fn estimate(&self) -> f64 {
        (self.right + ASSUMED_OF_MODEL * ASSUMED_GUESSES) / (self.all + ASSUMED_GUESSES)
    }
}

/// Share of right tokens of a draft model in a sequence. It is known only from drafts, so after a pause without drafts the
/// sequence forgets it and tries again.
pub(super) struct ModelAcceptance {
    /// The share that is assumed.
    assumed: f64,
    right: f64,
    all: f64,
    /// Number of tokens since the last draft.
    idle: u32,
    /// Number of tokens without a draft after which the sequence tries again.
    pause: u32,
}

impl ModelAcceptance {
    /// The state of a new sequence: assumes the share of `prior`.
    pub fn new(prior: &ModelPrior) -> ModelAcceptance {
        ModelAcceptance { assumed: prior.estimate(), right: 0.0, all: 0.0, idle: 0, pause: FIRST_PAUSE }
    }

    /// Records a drafted token.
    pub fn record(&mut self, is_right: bool) {
        self.idle = 0;
        self.right = self.right * FADING + f64::from(u8::from(is_right));
        self.all = self.all * FADING + 1.0;
        if self.right >= SUCCESS {
            self.pause = FIRST_PAUSE;
        }
    }

    /// Records a token for which the model drafted nothing.
    pub fn pass(&mut self) {
        self.idle += 1;
        if self.idle >= self.pause {
            let pause = (self.pause * 2).min(MAX_PAUSE);
            *self = ModelAcceptance { assumed: ASSUMED_OF_MODEL, right: 0.0, all: 0.0, idle: 0, pause };
        }
    }

    /// Estimated probability that a drafted token is right if the ones before it are.
    pub fn estimate(&self) -> f64 {
        (self.right + self.assumed * ASSUMED_GUESSES) / (self.all + ASSUMED_GUESSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_guesses_of_its_class() {
        let mut acceptance = Acceptance::default();
        assert_eq!([2, 3, 4, 7, 8, 15, 16, 999].map(class), [0, 1, 2, 2, 3, 3, 4, 4]);
        (0..100).for_each(|index| acceptance.record(2, index % 4 == 0));
        assert!((acceptance.of(2) - 0.25).abs() < 0.05, "{}", acceptance.of(2));
        assert!((acceptance.of(5) - 0.7).abs() < 1e-9);
        // Guesses of a new kind of text replace the old ones.
        (0..60).for_each(|_| acceptance.record(2, true));
        assert!(acceptance.of(2) > 0.8, "{}", acceptance.of(2));
    }

    #[test]
    fn a_draft_model_is_tried_again_after_longer_and_longer_pauses() {
        let mut model = ModelAcceptance::new(&ModelPrior::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            (0..9).for_each(|_| model.record(false));
            assert!(model.estimate() < 0.2, "{}", model.estimate());
            pauses.push((1..).find(|_| {
                model.pass();
                model.estimate() > 0.6
            }));
        }
        assert_eq!(pauses, [32, 64, 128, 256, 512, 1024, 1024].map(Some));
        // Once drafts are right, the next pause is short again.
        (0..20).for_each(|_| model.record(true));
        assert_eq!(model.pause, FIRST_PAUSE);
    }

    #[test]
    fn a_new_sequence_assumes_what_others_found() {
        let mut prior = ModelPrior::default();
        assert!((ModelAcceptance::new(&prior).estimate() - ASSUMED_OF_MODEL).abs() < 1e-9);
        (0..1000).for_each(|index| prior.record(index % 5 == 0));
        assert!((ModelAcceptance::new(&prior).estimate() - 0.2).abs() < 0.02);
    }
}
