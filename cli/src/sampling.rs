//! Sampling options, named like llama.cpp's.

use std::hash::{BuildHasher, Hasher, RandomState};

use bespoke::engine::SamplingParams;

/// Arguments of the commands that sample.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always chooses the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, value_parser = temperature)]
    pub temp: f32,
    /// Draw from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40, requires = "temp")]
    pub top_k: u32,
    /// Draw from the most likely tokens whose probabilities add up to P; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95, requires = "temp", allow_negative_numbers = true, value_parser = probability)]
    pub top_p: f32,
    /// Draw from the tokens that are at least P times as likely as the most likely one; 0 for all
    #[arg(long, value_name = "P", default_value_t = 0.05, requires = "temp", allow_negative_numbers = true, value_parser = probability)]
    pub min_p: f32,
    /// Divide positive logits of recent tokens by R, multiply negative ones by it; 1 for no penalty
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, value_parser = penalty)]
    pub repeat_penalty: f32,
    /// Number of recent tokens, including the prompt; -1 for all
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub repeat_last_n: i64,
    /// Seed: the same seed gives the same text [default: random; it is printed]
    #[arg(long, value_name = "SEED", requires = "temp")]
    pub seed: Option<u64>,
}

fn number(text: &str, range: &str, allowed: impl Fn(f32) -> bool) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| format!("expected {range}"))?;
    if allowed(value) { Ok(value) } else { Err(format!("expected {range}")) }
}

fn temperature(text: &str) -> Result<f32, String> {
    number(text, "a number from 0", |value| (0.0..=f32::MAX).contains(&value))
}

fn probability(text: &str) -> Result<f32, String> {
    number(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

fn penalty(text: &str) -> Result<f32, String> {
    number(text, "a number above 0", |value| value > 0.0 && value <= f32::MAX)
}

impl SamplingArgs {
    /// Sampling parameters for the engine. Without `--seed`, draws a random seed and logs the seed.
    pub fn params(&self) -> SamplingParams {
        let seed = self.seed.unwrap_or_else(|| {
            // `RandomState` is keyed with the system's random numbers.
            let seed = RandomState::new().build_hasher().finish() >> 32;
            if self.temp > 0.0 {
                tracing::info!("--seed {seed} reproduces this text");
            }
            seed
        });
        SamplingParams {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: u32::try_from(self.repeat_last_n).unwrap_or(u32::MAX),
            seed,
        }
    }
}
