//! Parameters of sampling: compile-time sizes, and the words of the run-time record.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::key;

/// Number of words of a slot's record of sampling parameters.
pub const WORDS: u32 = 11;
/// Index of the temperature's word in a slot's record.
pub const TEMPERATURE: u32 = 0;
/// Index of the word of k (top-k) in a slot's record.
pub const TOP_K: u32 = 1;
/// Index of the word of p (top-p) in a slot's record.
pub const TOP_P: u32 = 2;
/// Index of the word of −ln m (min-p) in a slot's record.
pub const MIN_P_MARGIN: u32 = 3;
/// Index of the repetition penalty's word in a slot's record.
pub const REPETITION: u32 = 4;
/// Index of the presence penalty's word in a slot's record.
pub const PRESENCE: u32 = 5;
/// Index of the frequency penalty's word in a slot's record.
pub const FREQUENCY: u32 = 6;
/// Index of the word for the length of the penalties' window, in tokens.
pub const LAST_N: u32 = 7;
/// Index of the word of flags: [`BIASED`], [`MASKED`].
pub const FLAGS: u32 = 8;
/// Flag of a slot with a logit bias.
pub const BIASED: u32 = 1;
/// Flag of a slot whose tokens are chosen among those of a mask.
pub const MASKED: u32 = 2;
/// Index of the word of the seed's low half; the high half follows.
pub const SEED: u32 = 9;

/// Compile-time parameters of sampling.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleShape {
    /// Number of rows of the step that may choose.
    pub tokens: u32,
    /// Number of logits, at most [`SampleShape::MAX_VOCAB`].
    pub vocab: u32,
    /// Number of CTAs of [`sample_keys`](super::sample_keys) for a row.
    pub blocks: u32,
    /// Threads per CTA of [`sample_keys`](super::sample_keys): a multiple of 32, at most 1024.
    pub threads: u32,
    /// Threads per CTA of [`choose_sampled`](super::choose_sampled): a power of two from 64 to 1024. A CTA
    /// compares at most half as many candidates pairwise.
    pub choose_threads: u32,
}

impl SampleShape {
    /// Largest vocabulary: the number of tokens that an [ordering](key) can tell apart.
    pub const MAX_VOCAB: u32 = 1 << key::TOKEN_BITS;

    /// Number of groups of 32 tokens; the largest key of each is stored.
    pub fn groups(&self) -> u32 {
        self.vocab.div_ceil(WARP)
    }

    /// Length of the array of keys, padded to whole groups of 32.
    pub fn padded(&self) -> u32 {
        self.groups() * WARP
    }

    /// Number of tokens per thread of [`sample_keys`](super::sample_keys), rounded up.
    pub(super) fn rounds(&self) -> u32 {
        self.padded().div_ceil(self.blocks * self.threads)
    }
}

/// Loads the parameter at `word` as f32.
#[device]
pub(super) fn float(sampling: Ptr<Global, u32>, word: u32) -> Val<f32> {
    sampling.at(word).load().bitcast::<f32>()
}
