//! Sampling parameters.

use bespoke_kernels::kernels::sample;
use bespoke_kernels::plan::Sampling;

/// Sampling parameters. [`bespoke_kernels::kernels::sample`] defines the filters and their order.
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
    /// Factor that divides positive and multiplies negative logits of recent tokens; 1 for no penalty.
    pub repeat_penalty: f32,
    /// Number of recent tokens that the repetition penalty covers, prompt tokens included.
    pub repeat_last_n: u32,
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
            repeat_last_n: 64,
            seed: 0,
        }
    }
}

/// A sampling parameter out of its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{parameter} is {value}; {range}")]
pub struct SamplingError {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Value of the parameter.
    pub value: f32,
    /// Allowed range of the parameter, as text.
    pub range: &'static str,
}

impl SamplingParams {
    /// Kind of plan that these parameters need. A greedy plan is cheaper and can only decode greedily.
    pub fn launches(&self) -> Sampling {
        let plain = self.temperature == 0.0 && (self.repeat_penalty == 1.0 || self.repeat_last_n == 0);
        if plain { Sampling::Greedy } else { Sampling::Sampled }
    }

    /// Checks that every parameter is in its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        let unit = |value: f32| (0.0..=1.0).contains(&value);
        let finite = |value: f32| (0.0..=f32::MAX).contains(&value);
        for (parameter, value, allowed, range) in [
            ("the temperature", self.temperature, finite(self.temperature), "0 or more is needed"),
            ("top-p", self.top_p, unit(self.top_p), "0 to 1 is needed"),
            ("min-p", self.min_p, unit(self.min_p), "0 to 1 is needed"),
            (
                "the repetition penalty",
                self.repeat_penalty,
                finite(self.repeat_penalty) && self.repeat_penalty > 0.0,
                "more than 0 is needed",
            ),
        ] {
            if !allowed {
                return Err(SamplingError { parameter, value, range });
            }
        }
        Ok(())
    }

    /// Encodes the parameters as the words that the sampling kernel reads.
    pub fn words(&self) -> [u32; sample::WORDS as usize] {
        let mut words = [0; sample::WORDS as usize];
        // Adding 0.0 turns -0.0 into 0.0.
        words[sample::TEMPERATURE as usize] = (self.temperature + 0.0).to_bits();
        words[sample::TOP_K as usize] = self.top_k;
        words[sample::TOP_P as usize] = self.top_p.to_bits();
        words[sample::MIN_P_MARGIN as usize] = (-f64::from(self.min_p).ln() as f32).to_bits();
        words[sample::PENALTY as usize] = self.repeat_penalty.to_bits();
        words[sample::LAST_N as usize] = self.repeat_last_n;
        words[sample::SEED as usize] = self.seed as u32;
        words[sample::SEED as usize + 1] = (self.seed >> 32) as u32;
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let default = SamplingParams::default;
        assert_eq!(default().check(), Ok(()));
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
        ] {
            assert_eq!(params.check().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn only_what_needs_them_gets_the_drawing_launches() {
        let default = SamplingParams::default;
        for (params, launches) in [
            (default(), Sampling::Greedy),
            (SamplingParams { top_k: 40, seed: 3, ..default() }, Sampling::Greedy),
            (SamplingParams { repeat_penalty: 1.1, repeat_last_n: 0, ..default() }, Sampling::Greedy),
            (SamplingParams { repeat_penalty: 1.1, ..default() }, Sampling::Sampled),
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
            repeat_last_n: 7,
            seed: 0x0123_4567_89AB_CDEF,
        };
        let infinity = f32::INFINITY.to_bits();
        assert_eq!(params.words(), [0, 40, 0x3F00_0000, infinity, 0x3FA0_0000, 7, 0x89AB_CDEF, 0x0123_4567]);
        let margin = f32::from_bits(SamplingParams { min_p: 0.05, ..params }.words()[3]);
        assert_eq!(margin, 2.995_732_3);
    }
}
