//! Sampling: the next token drawn from the model's distribution, on the device.
//!
//! A step that samples ends with two launches. [`sample_keys`] applies the repetition penalty and turns every logit
//! into a [key] that sorts like it; [`choose_sampled`] filters, draws and advances the position. The steps are those
//! that users of llama.cpp expect, in its order:
//!
//! 1. **repetition penalty** r over the last n tokens, prompt included: a positive logit is divided by r, another is
//!    multiplied; once, however often the token occurs;
//! 2. **top-k**: the k tokens of the largest logits;
//! 3. **top-p**: the shortest run of the most likely of those whose probabilities add up to p or more;
//! 4. **min-p**: of those, the ones at least m times as likely as the most likely one;
//! 5. **temperature** t: what is left is drawn with probabilities in proportion to e^(logit/t).
//!
//! Top-p and min-p look at probabilities before the temperature. Of equal logits the smaller token ranks higher, a NaN
//! counts as −∞. Each filter keeps a run of the tokens in the order of their ranks, so all that is searched for is where
//! that run ends; k, p and m may have any value, and nothing is approximated.
//!
//! Probabilities are integers: a token weighs ⌊2³⁹·e^((x − max)/t)⌋ ([`weight`]). Sums of integers do not depend on their
//! order, and the exponential is made of correctly rounded operations, so that the same logits give the same token on
//! every device and in the emulator. A token less likely than the best by a factor of 2³⁹ or more is never drawn.
//!
//! The draw is ⌊u·sum/2⁶⁴⌋ for 64 bits u from [`philox`], whose key is the seed and whose counter is the position of the
//! token to be chosen; the token is the one where the running sum, in the order of token numbers, first exceeds the draw.
//!
//! # Parameters
//!
//! [`WORDS`] words of device memory a slot, so that one graph serves all values:
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | temperature, f32; 0: the most likely token, whatever the filters |
//! | 1 | k, u32; 0: all |
//! | 2 | p, f32; from 1 on: all |
//! | 3 | −ln m, f32; ∞: all. The logarithm is the host's business: that way it is the same everywhere |
//! | 4 | repetition penalty, f32; 1: none |
//! | 5 | tokens that it looks back, u32 |
//! | 6, 7 | seed, u64, low half first |

mod all;
mod choose;
mod few;
pub mod key;
mod penalise;
pub mod philox;
mod scan;
mod search;
pub mod weight;

pub use choose::choose_sampled;
pub use penalise::sample_keys;

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

/// Words of parameters a slot.
pub const WORDS: u32 = 8;
/// Index of the temperature.
pub const TEMPERATURE: u32 = 0;
/// Index of k.
pub const TOP_K: u32 = 1;
/// Index of p.
pub const TOP_P: u32 = 2;
/// Index of −ln m.
pub const MIN_P_MARGIN: u32 = 3;
/// Index of the repetition penalty.
pub const PENALTY: u32 = 4;
/// Index of the number of tokens that the penalty looks back.
pub const LAST_N: u32 = 5;
/// Index of the seed's low half; the high one follows.
pub const SEED: u32 = 6;

/// Sampling's compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleShape {
    /// Logits, at most [`SampleShape::MAX_VOCAB`].
    pub vocab: u32,
    /// CTAs of [`sample_keys`].
    pub blocks: u32,
    /// Threads a CTA of [`sample_keys`]: a multiple of 32, at most 1024.
    pub threads: u32,
    /// Threads of [`choose_sampled`]'s one CTA: a power of two from 64 to 1024. It compares half as many candidates with one
    /// another.
    pub choose_threads: u32,
}

impl SampleShape {
    /// Most logits: tokens have so many numbers in an [ordering](key).
    pub const MAX_VOCAB: u32 = 1 << key::TOKEN_BITS;

    /// Groups of 32 tokens, of each of which the largest key is known.
    pub fn groups(&self) -> u32 {
        self.vocab.div_ceil(WARP)
    }

    /// Elements of the array of keys: whole groups.
    pub fn padded(&self) -> u32 {
        self.groups() * WARP
    }

    /// Times that a thread of [`sample_keys`] takes a token.
    fn rounds(&self) -> u32 {
        self.padded().div_ceil(self.blocks * self.threads)
    }
}

/// The parameter at `word`, as f32.
#[device]
fn float(sampling: Ptr<Global, u32>, word: u32) -> Val<f32> {
    sampling.at(word).load().bitcast::<f32>()
}
