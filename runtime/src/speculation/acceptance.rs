//! Share of right guesses of a sequence, by the number of tokens that match.

/// Smallest number of matching tokens of each class but the first.
const CLASSES: [u32; 4] = [3, 4, 8, 16];

/// Share of right guesses that is assumed at first, for each class. A long match is rarely a coincidence.
const ASSUMED: [f64; CLASSES.len() + 1] = [0.3, 0.5, 0.7, 0.8, 0.9];

/// Number of guesses that what is assumed counts for.
const ASSUMED_GUESSES: f64 = 3.0;

/// Factor by which the weight of earlier guesses decreases with each guess: about thirty count.
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
}
