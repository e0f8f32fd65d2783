//! How tokens are chosen, on the command line: llama.cpp's options.

use std::hash::{BuildHasher, Hasher, RandomState};

use bespoke::engine::SamplingParams;

/// Arguments of the commands that can draw tokens.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, value_parser = temperature)]
    pub temp: f32,
    /// Draw from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40, requires = "temp")]
    pub top_k: u32,
    /// Draw from the most likely tokens that have probability P together; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95, requires = "temp", allow_negative_numbers = true, value_parser = probability)]
    pub top_p: f32,
    /// Draw from the tokens that are at least P times as likely as the most likely one; 0 for all
    #[arg(long, value_name = "P", default_value_t = 0.05, requires = "temp", allow_negative_numbers = true, value_parser = probability)]
    pub min_p: f32,
    /// Divide the logits of recent tokens by R, multiply negative ones; 1 for no penalty
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, value_parser = penalty)]
    pub repeat_penalty: f32,
    /// How many tokens, the prompt's included, are recent; -1 for all
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub repeat_last_n: i64,
    /// Seed: the same one gives the same text [default: a random one, which is shown]
    #[arg(long, value_name = "SEED", requires = "temp")]
    pub seed: Option<u64>,
}

fn number(text: &str, range: &str, allowed: impl Fn(f32) -> bool) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| format!("{range} is needed"))?;
    if allowed(value) { Ok(value) } else { Err(format!("{range} is needed")) }
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
    /// The engine's parameters. Where tokens are drawn without a seed, takes a random one and says which.
    pub fn params(&self) -> SamplingParams {
        let seed = self.seed.unwrap_or_else(|| {
            // Keyed with the system's random numbers.
            let seed = RandomState::new().build_hasher().finish() >> 32;
            if self.temp > 0.0 {
                tracing::info!("--seed {seed} gives this text again");
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
