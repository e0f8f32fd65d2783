//! Synthetic drafts: a given share of their tokens is right.

/// Drafts for a sequence whose answer is known. Each drafted token is right with the given probability, if those before it are:
/// a measurement of speculation without a draft model, or with one whose acceptance does not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// The tokens that the model chooses after the prompt.
    pub answer: Vec<u32>,
    /// Probability that a drafted token is right.
    pub rate: f64,
    /// Seed of the choice of right tokens.
    pub seed: u64,
}

impl Synthetic {
    /// Drafts `count` tokens from index `first` of the answer on. Whether a token is right depends on seed and index.
    pub(super) fn tokens(&self, first: usize, count: usize) -> Vec<u32> {
        (first..first + count)
            .map(|index| {
                let right = self.answer.get(index).copied().unwrap_or(0);
                let wrong = if right == 0 { 1 } else { right - 1 };
                if fraction(self.seed, index as u64) < self.rate { right } else { wrong }
            })
            .collect()
    }
}

/// A number of at least 0 and below 1, by SplitMix64.
fn fraction(seed: u64, index: u64) -> f64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_right_tokens_is_the_rate() {
        let answer: Vec<u32> = (0..10_000).collect();
        for rate in [0.0, 0.5, 0.7, 0.9, 1.0] {
            let synthetic = Synthetic { answer: answer.clone(), rate, seed: 3 };
            let tokens = synthetic.tokens(0, answer.len());
            let right = tokens.iter().zip(&answer).filter(|(drafted, right)| drafted == right).count();
            assert!((right as f64 / 10_000.0 - rate).abs() < 0.02, "{rate}: {right}");
            // A draft that begins elsewhere has the same tokens.
            assert_eq!(synthetic.tokens(70, 9), tokens[70..79]);
        }
    }
}
