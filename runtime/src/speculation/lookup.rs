//! Look-up of n-grams: where the last tokens of a sequence occurred before.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Numbers of tokens that are looked up, in the order in which they are tried.
const LENGTHS: [usize; 3] = [4, 3, 2];

/// The tokens of a sequence, with the latest place of each n-gram.
#[derive(Default)]
pub(super) struct Lookup {
    tokens: Vec<u32>,
    /// Index of the token after the latest occurrence of an n-gram, by the n-gram's hash. Only n-grams that a token follows.
    places: HashMap<u64, usize>,
}

fn hash(gram: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    gram.hash(&mut hasher);
    hasher.finish()
}

impl Lookup {
    /// Adds a token.
    pub fn push(&mut self, token: u32) {
        let end = self.tokens.len();
        for length in LENGTHS.into_iter().filter(|&length| length <= end) {
            self.places.insert(hash(&self.tokens[end - length..]), end);
        }
        self.tokens.push(token);
    }

    /// The token at an index.
    pub fn token(&self, index: usize) -> u32 {
        self.tokens[index]
    }

    /// The latest place where the longest n-gram at the end of the sequence occurred before: the index of the token that
    /// followed, and the number of tokens of the n-gram.
    pub fn find(&self) -> Option<(usize, u32)> {
        let end = self.tokens.len();
        LENGTHS.into_iter().filter(|&length| length <= end).find_map(|length| {
            let last = &self.tokens[end - length..];
            let place = *self.places.get(&hash(last))?;
            (self.tokens[place - length..place] == *last).then_some((place, length as u32))
        })
    }

    /// The `count` tokens from index `source` on. Past the end of the sequence, the tokens from `source` to the end
    /// repeat.
    pub fn continuation(&self, source: usize, count: usize) -> Vec<u32> {
        self.tokens[source..].iter().copied().cycle().take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[u32]) -> Lookup {
        let mut lookup = Lookup::default();
        tokens.iter().for_each(|&token| lookup.push(token));
        lookup
    }

    #[test]
    fn the_longest_n_gram_is_found_and_of_its_places_the_latest() {
        for (tokens, found) in [
            (&[][..], None),
            (&[1, 1], None),
            (&[1, 2, 3], None),
            (&[1, 1, 1], Some((2, 2))),
            (&[1, 2, 7, 1, 2, 8, 1, 2], Some((5, 2))),
            (&[5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2], Some((3, 3))),
            (&[0, 5, 1, 2, 7, 5, 1, 2, 8, 0, 5, 1, 2], Some((4, 4))),
        ] {
            assert_eq!(of(tokens).find(), found, "{tokens:?}");
        }
    }

    #[test]
    fn a_continuation_behind_the_end_repeats() {
        let lookup = of(&[9, 1, 2, 3, 1, 2]);
        assert_eq!(lookup.continuation(3, 7), [3, 1, 2, 3, 1, 2, 3]);
        assert_eq!(lookup.continuation(3, 2), [3, 1]);
        assert!(lookup.continuation(3, 0).is_empty());
        assert_eq!(lookup.token(0), 9);
    }
}
