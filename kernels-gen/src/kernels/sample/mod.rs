//! Sampling on the device: draws the next token from the filtered distribution.
//!
//! A step with sampling ends with two launches. [`sample_keys`] applies bias and penalties and converts every logit to a
//! [key] with the same order; [`choose_sampled`] filters, draws and advances the position. Formulas and order are
//! llama.cpp's:
//!
//! 1. **logit bias** b: each token's own bias is added to its logit; a token that is not in the **mask** gets the logit −∞;
//! 2. **penalties** for a token that occurs c > 0 times among the last n tokens, prompt included: a positive logit is
//!    divided by the repetition penalty r, any other is multiplied by it; then c·f + p is subtracted, with the frequency
//!    penalty f and the presence penalty p;
//! 3. **top-k**: keep the k tokens with the largest logits;
//! 4. **top-p**: of those, keep the shortest run of most likely tokens whose probabilities add up to at least p;
//! 5. **min-p**: of those, keep the ones at least m times as likely as the most likely one;
//! 6. **temperature** t: draw one of those with probabilities proportional to e^(logit/t).
//!
//! Top-p and min-p use the probabilities before the temperature. Of equal logits the smaller token ranks higher. If one of
//! the model's logits is not finite, no token is drawn, and the host is told so. Each filter keeps a prefix of the ranked tokens, so a filter is a search for the end of that prefix;
//! k, p and m may have any value, and the result is exact.
//!
//! Probabilities are integers: the weight of a token is ⌊2³⁹·e^((x − max)/t)⌋ ([`weight`]). Sums of integers do not
//! depend on their order, and the exponential consists of correctly rounded operations, so the same logits give the
//! same token on every device and in the emulator. A token less likely than the best one by a factor of 2³⁹ or more is
//! never drawn.
//!
//! The draw is ⌊u·sum/2⁶⁴⌋ for 64 random bits u from [`philox`], whose key is the seed and whose counter is the
//! position of the new token. The new token is the one at which the running sum, in the order of token numbers, first
//! exceeds the draw.
//!
//! # Parameters
//!
//! A slot has a record of [`WORDS`] words in device memory, so that one graph serves all values:
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | temperature, f32; 0: always the most likely token |
//! | 1 | k, u32; 0: all tokens |
//! | 2 | p, f32; 1 or more: all tokens |
//! | 3 | −ln m, f32; ∞: all tokens. The host computes the logarithm, so that it has the same bits on every device |
//! | 4 | repetition penalty, f32; 1: none |
//! | 5 | presence penalty, f32; 0: none |
//! | 6 | frequency penalty, f32; 0: none |
//! | 7 | window of the penalties in tokens, u32 |
//! | 8 | flags, u32: 1 if there is a logit bias, 2 if there is a mask |
//! | 9, 10 | seed, u64, low half first |
//!
//! The logit bias is an f32 for each token of the vocabulary, for each slot. It is read only if word 8 says so. So is the mask, a
//! bit for each token: bit i of word g is that of token 32g + i. The host writes a mask before each step that chooses by it.

mod all;
mod choose;
mod few;
mod filters;
pub mod key;
mod penalise;
pub mod philox;
mod scan;
mod search;
mod shape;
pub mod weight;

pub use choose::choose_sampled;
pub use penalise::sample_keys;
pub(crate) use scan::warp_scan_words;
pub use shape::{
    BIASED, FLAGS, FREQUENCY, LAST_N, MASKED, MIN_P_MARGIN, PRESENCE, REPETITION, SEED, SampleShape,
    TEMPERATURE, TOP_K, TOP_P, WORDS,
};
