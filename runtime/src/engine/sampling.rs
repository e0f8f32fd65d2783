//! Sampling parameters, and their upload.

use bespoke_kernels::kernels::sample;
use bespoke_kernels::plan::Sampling;

use super::{Engine, EngineError};

/// Sampling parameters. [`bespoke_kernels::kernels::sample`] defines the formulas and their order.
///
/// The default is greedy decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divisor of the logits; 0 chooses the most likely token.
    pub temperature: f32,
    /// Number of most likely tokens to keep; 0 keeps all.
    pub top_k: u32,
    /// Cumulative probability of the most likely tokens to keep, 0 to 1; 1 keeps all.
    pub top_p: f32,
    /// Smallest probability of a token to keep, relative to the most likely token, 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// Repetition penalty: factor that divides positive and multiplies negative logits of recent tokens; 1 for none.
    pub repeat_penalty: f32,
    /// Presence penalty: subtracted from the logit of each recent token; 0 for none.
    pub presence_penalty: f32,
    /// Frequency penalty: subtracted from the logit of a recent token once for each of its occurrences; 0 for none.
    pub frequency_penalty: f32,
    /// Number of recent tokens that the penalties cover, prompt tokens included; `u32::MAX` for the whole sequence.
    pub repeat_last_n: u32,
    /// Tokens with the value that is added to their logits; −∞ forbids a token. Values for the same token add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// Whether each token is chosen among those of a mask: [`Steps::set_masks`](crate::scheduler::Steps::set_masks). A
    /// [`Grammar`](crate::generation::Grammar) sets it.
    pub masked: bool,
    /// Seed: the same seed gives the same tokens.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repeat_last_n: 64,
            logit_bias: Vec::new(),
            masked: false,
            seed: 0,
        }
    }
}

/// Invalid sampling parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A parameter is out of its range.
    #[error("{parameter} is {value}; {range}")]
    OutOfRange {
        /// Name of the parameter.
        parameter: &'static str,
        /// Value of the parameter.
        value: f32,
        /// Allowed range of the parameter, as text.
        range: &'static str,
    },
    /// The bias of a token is NaN or +∞.
    #[error("the logit bias of token {token} is {value}; a number or -inf is needed")]
    Bias {
        /// The token.
        token: u32,
        /// Its bias.
        value: f32,
    },
    /// The biases forbid every token.
    #[error("the logit bias forbids every token: at least one must have a bias above -inf")]
    NoTokenLeft,
    /// A bias is for a token outside the vocabulary.
    #[error("there is no token {token} for the logit bias: the vocabulary has {vocab} tokens")]
    NoSuchToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
}

impl SamplingParams {
    /// Kind of plan that these parameters need. A greedy plan is cheaper and can only decode greedily.
    pub fn launches(&self) -> Sampling {
        let neutral =
            self.repeat_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        let unchanged = (neutral || self.repeat_last_n == 0) && self.logit_bias.is_empty() && !self.masked;
        if self.temperature == 0.0 && unchanged { Sampling::Greedy } else { Sampling::Sampled }
    }

    /// Checks that every parameter is in its range, for a vocabulary of `vocab` tokens.
    pub fn check(&self, vocab: u32) -> Result<(), SamplingError> {
        let unit = |value: f32| (0.0..=1.0).contains(&value);
        let positive = |value: f32| (0.0..=f32::MAX).contains(&value);
        for (parameter, value, allowed, range) in [
            ("the temperature", self.temperature, positive(self.temperature), "0 or more is needed"),
            ("top-p", self.top_p, unit(self.top_p), "0 to 1 is needed"),
            ("min-p", self.min_p, unit(self.min_p), "0 to 1 is needed"),
            (
                "the repetition penalty",
                self.repeat_penalty,
                positive(self.repeat_penalty) && self.repeat_penalty > 0.0,
                "more than 0 is needed",
            ),
            (
                "the presence penalty",
                self.presence_penalty,
                self.presence_penalty.is_finite(),
                "a number is needed",
            ),
            (
                "the frequency penalty",
                self.frequency_penalty,
                self.frequency_penalty.is_finite(),
                "a number is needed",
            ),
        ] {
            if !allowed {
                return Err(SamplingError::OutOfRange { parameter, value, range });
            }
        }
        for &(token, value) in &self.logit_bias {
            if token >= vocab {
                return Err(SamplingError::NoSuchToken { token, vocab });
            }
            if value.is_nan() || value == f32::INFINITY {
                return Err(SamplingError::Bias { token, value });
            }
        }
        let may_forbid_all = self.logit_bias.len() >= vocab as usize;
        if may_forbid_all && self.bias_row(vocab).iter().all(|&bias| bias == f32::NEG_INFINITY) {
            return Err(SamplingError::NoTokenLeft);
        }
        Ok(())
    }

    /// Encodes the parameters as the words that the sampling kernels read.
    pub fn words(&self) -> [u32; sample::WORDS as usize] {
        let mut words = [0; sample::WORDS as usize];
        for (word, value) in [
            // Adding 0.0 turns -0.0 into 0.0.
            (sample::TEMPERATURE, self.temperature + 0.0),
            (sample::TOP_P, self.top_p),
            (sample::MIN_P_MARGIN, -f64::from(self.min_p).ln() as f32),
            (sample::REPETITION, self.repeat_penalty),
            (sample::PRESENCE, self.presence_penalty),
            (sample::FREQUENCY, self.frequency_penalty),
        ] {
            words[word as usize] = value.to_bits();
        }
        words[sample::TOP_K as usize] = self.top_k;
        words[sample::LAST_N as usize] = self.repeat_last_n;
        let flags = [(sample::BIASED, !self.logit_bias.is_empty()), (sample::MASKED, self.masked)];
        words[sample::FLAGS as usize] = flags.into_iter().map(|(flag, on)| if on { flag } else { 0 }).sum();
        words[sample::SEED as usize] = self.seed as u32;
        words[sample::SEED as usize + 1] = (self.seed >> 32) as u32;
        words
    }

    /// The bias of every token, as the sampling kernels read it, f32 `[vocab]`. Every token must be below `vocab`.
    pub fn bias_row(&self, vocab: u32) -> Vec<f32> {
        let mut row = vec![0.0; vocab as usize];
        for &(token, value) in &self.logit_bias {
            row[token as usize] += value;
        }
        row
    }
}

impl Engine {
    /// Sets the sampling parameters from the next step on.
    ///
    /// # Errors
    /// If a parameter is out of range, or the engine was loaded for greedy decoding and the parameters are not greedy.
    pub fn set_sampling(&mut self, params: &SamplingParams) -> Result<(), EngineError> {
        self.wait()?;
        self.write_sampling(0, params)
    }

    /// Sets the sampling parameters of a slot.
    pub(super) fn write_sampling(&mut self, slot: u32, params: &SamplingParams) -> Result<(), EngineError> {
        let vocab = self.plan.shape.dimensions.vocab;
        params.check(vocab)?;
        let Some(buffers) = self.buffers.sampling() else {
            self.sampling_set = true;
            return if params.launches() == Sampling::Greedy { Ok(()) } else { Err(EngineError::OnlyGreedy) };
        };
        // After a failure, the device may hold a part of the parameters.
        self.sampling_set = false;
        if !params.logit_bias.is_empty() {
            let row = params.bias_row(vocab);
            let bytes: Vec<u8> = row.iter().flat_map(|bias| bias.to_le_bytes()).collect();
            self.device.upload(buffers.bias.offset(u64::from(slot) * bytes.len() as u64), &bytes)?;
        }
        let bytes: Vec<u8> = params.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.device.upload(buffers.parameters.offset(u64::from(slot) * bytes.len() as u64), &bytes)?;
        self.sampling_set = true;
        Ok(())
    }

    /// Writes which tokens a slot may choose, as bits. The steps that choose by an earlier mask are complete.
    pub(super) fn write_mask(&self, slot: u32, mask: &[u32]) -> Result<(), EngineError> {
        let buffers = self.buffers.sampling().ok_or(EngineError::OnlyGreedy)?;
        let words = self.plan.shape.dimensions.vocab.div_ceil(32) as usize;
        let padded = mask.iter().copied().chain(std::iter::repeat(0)).take(words);
        let bytes: Vec<u8> = padded.flat_map(u32::to_le_bytes).collect();
        self.end_sequence_on_error(
            self.device.upload(buffers.mask.offset(u64::from(slot) * bytes.len() as u64), &bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let default = SamplingParams::default;
        assert_eq!(default().check(8), Ok(()));
        let forbidden = SamplingParams { logit_bias: vec![(7, f32::NEG_INFINITY), (0, 1e9)], ..default() };
        assert_eq!(forbidden.check(8), Ok(()));
        let forbidding =
            |count| (0..count).map(|token| (token, f32::NEG_INFINITY)).chain([(0, 1.0)]).collect();
        assert_eq!(SamplingParams { logit_bias: forbidding(7), ..default() }.check(8), Ok(()));
        for (params, message) in [
            (
                SamplingParams { temperature: -0.5, ..default() },
                "the temperature is -0.5; 0 or more is needed",
            ),
            (
                SamplingParams { temperature: f32::INFINITY, ..default() },
                "the temperature is inf; 0 or more is needed",
            ),
            (SamplingParams { top_p: 1.5, ..default() }, "top-p is 1.5; 0 to 1 is needed"),
            (SamplingParams { min_p: f32::NAN, ..default() }, "min-p is NaN; 0 to 1 is needed"),
            (
                SamplingParams { repeat_penalty: 0.0, ..default() },
                "the repetition penalty is 0; more than 0 is needed",
            ),
            (
                SamplingParams { presence_penalty: f32::NEG_INFINITY, ..default() },
                "the presence penalty is -inf; a number is needed",
            ),
            (
                SamplingParams { frequency_penalty: f32::NAN, ..default() },
                "the frequency penalty is NaN; a number is needed",
            ),
            (
                SamplingParams { logit_bias: vec![(3, 1.0), (8, 1.0)], ..default() },
                "there is no token 8 for the logit bias: the vocabulary has 8 tokens",
            ),
            (
                SamplingParams { logit_bias: vec![(3, f32::INFINITY)], ..default() },
                "the logit bias of token 3 is inf; a number or -inf is needed",
            ),
            (
                SamplingParams { logit_bias: forbidding(8), ..default() },
                "the logit bias forbids every token: at least one must have a bias above -inf",
            ),
        ] {
            assert_eq!(params.check(8).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn only_what_needs_them_gets_the_drawing_launches() {
        let default = SamplingParams::default;
        for (params, launches) in [
            (default(), Sampling::Greedy),
            (SamplingParams { top_k: 40, seed: 3, ..default() }, Sampling::Greedy),
            (SamplingParams { repeat_penalty: 1.1, repeat_last_n: 0, ..default() }, Sampling::Greedy),
            (SamplingParams { presence_penalty: 1.1, repeat_last_n: 0, ..default() }, Sampling::Greedy),
            (SamplingParams { repeat_penalty: 1.1, ..default() }, Sampling::Sampled),
            (SamplingParams { presence_penalty: -0.5, ..default() }, Sampling::Sampled),
            (SamplingParams { frequency_penalty: 0.5, ..default() }, Sampling::Sampled),
            (SamplingParams { logit_bias: vec![(1, 2.0)], ..default() }, Sampling::Sampled),
            (SamplingParams { masked: true, ..default() }, Sampling::Sampled),
            (SamplingParams { temperature: 0.1, ..default() }, Sampling::Sampled),
        ] {
            assert_eq!(params.launches(), launches, "{params:?}");
        }
    }

    #[test]
    fn the_record_has_every_parameter_in_its_place() {
        let params = SamplingParams {
            temperature: -0.0,
            top_k: 40,
            top_p: 0.5,
            min_p: 0.0,
            repeat_penalty: 1.25,
            presence_penalty: -1.0,
            frequency_penalty: 2.0,
            repeat_last_n: 7,
            logit_bias: vec![(2, 1.5), (0, f32::NEG_INFINITY), (2, 1.0)],
            masked: true,
            seed: 0x0123_4567_89AB_CDEF,
        };
        let infinity = f32::INFINITY.to_bits();
        let penalties = [0x3FA0_0000, 0xBF80_0000, 0x4000_0000, 7];
        let words =
            [&[0, 40, 0x3F00_0000, infinity][..], &penalties, &[3, 0x89AB_CDEF, 0x0123_4567]].concat();
        assert_eq!(params.words()[..], words);
        assert_eq!(params.bias_row(4), [f32::NEG_INFINITY, 0.0, 2.5, 0.0]);
        let unbiased = SamplingParams { min_p: 0.05, logit_bias: Vec::new(), masked: false, ..params };
        assert_eq!(f32::from_bits(unbiased.words()[3]), 2.995_732_3);
        assert_eq!(unbiased.words()[8], 0);
    }
}
