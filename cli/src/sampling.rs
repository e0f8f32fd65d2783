//! Sampling options, named like llama.cpp's.

use std::hash::{BuildHasher, Hasher, RandomState};

use bespoke::engine::SamplingParams;
use bespoke::tokenizer::Tokenizer;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use miette::miette;

/// Arguments of the commands that sample.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Sample with this temperature, usually 0.6 to 1; at 0, the default, the most likely token is always chosen
    #[arg(long, alias = "temperature", value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    pub temp: f32,
    /// Draw from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40)]
    pub top_k: u32,
    /// Draw from the most likely tokens whose probabilities add up to P; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = probability)]
    pub top_p: f32,
    /// Draw from the tokens that are at least P times as likely as the most likely one; 0 for all
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = probability)]
    pub min_p: f32,
    /// Divide positive logits of recent tokens by R, multiply negative ones by it; 1 for no penalty
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = repeat_penalty)]
    pub repeat_penalty: f32,
    /// Subtract P from the logits of recent tokens; 0 for no penalty
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = penalty)]
    pub presence_penalty: f32,
    /// Subtract F from the logits of recent tokens, times the number of their occurrences; 0 for no penalty
    #[arg(long, value_name = "F", default_value_t = 0.0, value_parser = penalty)]
    pub frequency_penalty: f32,
    /// Number of recent tokens for the penalties, including the prompt; -1 for all
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub repeat_last_n: i64,
    /// Add a value to a token's logit: ID+VALUE or ID-VALUE, or TEXT=VALUE for the token with this text; -inf forbids the
    /// token (ID-inf, TEXT=-inf). May be repeated
    #[arg(long, value_name = "BIAS", allow_hyphen_values = true, value_parser = logit_bias)]
    pub logit_bias: Vec<LogitBias>,
    /// Seed: the same seed gives the same text [default: random; `run`, `chat` and `batch` print it, `serve` draws one for each
    /// request]
    #[arg(long, value_name = "SEED", value_parser = seed)]
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

fn repeat_penalty(text: &str) -> Result<f32, String> {
    number(text, "a number above 0", |value| value > 0.0 && value <= f32::MAX)
}

fn penalty(text: &str) -> Result<f32, String> {
    number(text, "a finite number, usually from -2 to 2", f32::is_finite)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "expected a whole number from 0 to 2^64 - 1; leave it out for a random one".to_owned())
}

/// A bias for the logit of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitBias {
    token: BiasedToken,
    value: f32,
}

/// How a token is named.
#[derive(Clone, Debug, PartialEq)]
enum BiasedToken {
    Id(u32),
    Text(String),
}

fn logit_bias(text: &str) -> Result<LogitBias, String> {
    let value =
        |text: &str| number(text, "a finite number or -inf as the value", |value| value < f32::INFINITY);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (id, rest) = text.split_at(digits);
    if digits > 0 && rest.starts_with(['+', '-']) && !rest.contains('=') {
        let id = id.parse().map_err(|_| format!("expected a token id below 2^32, not {id}"))?;
        return Ok(LogitBias { token: BiasedToken::Id(id), value: value(rest)? });
    }
    match text.rsplit_once('=') {
        Some((token, number)) if !token.is_empty() => {
            Ok(LogitBias { token: BiasedToken::Text(token.to_owned()), value: value(number)? })
        }
        _ => Err("expected ID+VALUE, ID-VALUE or TEXT=VALUE".to_owned()),
    }
}

impl LogitBias {
    /// The tokens with their bias. Several tokens may have the same text.
    fn tokens(&self, tokenizer: Option<&Tokenizer>) -> miette::Result<Vec<(u32, f32)>> {
        let text = match &self.token {
            BiasedToken::Id(id) => return Ok(vec![(*id, self.value)]),
            BiasedToken::Text(text) => text,
        };
        let tokenizer = tokenizer.ok_or_else(|| {
            miette!(
                help = "name the token by its id: --logit-bias ID+VALUE",
                "--logit-bias `{text}`: there is no vocabulary to look the text up in"
            )
        })?;
        let same_text = (0..tokenizer.len() as u32).filter(|&id| tokenizer.piece(id) == text.as_bytes());
        let mut ids: Vec<u32> = same_text.collect();
        if ids.is_empty() {
            // Control tokens have no text, but a name.
            ids.extend(tokenizer.id(text));
        }
        if ids.is_empty() {
            let pieces = tokenizer.encode(text).unwrap_or_default();
            let ids: Vec<String> = pieces.iter().map(u32::to_string).collect();
            return Err(miette!(
                help = "most words begin with a space: `--logit-bias ' word=VALUE'`",
                "--logit-bias: no single token has the text {text:?} (its tokens are {})",
                ids.join(", ")
            ));
        }
        Ok(ids.into_iter().map(|id| (id, self.value)).collect())
    }
}

/// Options that only a draw reads. Giving one of them without `--temp` is an error.
const DRAWING: [&str; 4] = ["top_k", "top_p", "min_p", "seed"];

/// Check of the command line of a command whose only temperature is `--temp`: the options in [`DRAWING`] need it. A field of this
/// type is before [`SamplingArgs`], since reading an option removes it from clap's matches.
#[derive(Clone, Debug)]
pub struct DrawsWithTemp;

impl clap::Args for DrawsWithTemp {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }
    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl clap::FromArgMatches for DrawsWithTemp {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        match DRAWING.iter().find(|id| given(id)) {
            Some(id) if !given(&"temp") => {
                let message = format!(
                    "--{} has no effect without --temp, for example --temp 0.8: without it, decoding is greedy",
                    id.replace('_', "-")
                );
                Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message))
            }
            _ => Ok(DrawsWithTemp),
        }
    }
    fn update_from_arg_matches(&mut self, _: &clap::ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}

impl SamplingArgs {
    /// Sampling parameters for the engine. Without `--seed`, draws a random seed and logs the seed.
    ///
    /// # Errors
    /// As [`SamplingArgs::defaults`].
    pub fn params(&self, tokenizer: Option<&Tokenizer>) -> miette::Result<SamplingParams> {
        let seed = self.seed.unwrap_or_else(|| {
            // `RandomState` is keyed with the system's random numbers.
            let seed = RandomState::new().build_hasher().finish() >> 32;
            if self.temp > 0.0 {
                tracing::info!("sampling with a random seed; --seed {seed} repeats it");
            }
            seed
        });
        Ok(SamplingParams { seed, ..self.defaults(tokenizer)? })
    }

    /// Default sampling parameters, for requests that do not set their own. Without `--seed`, the seed is 0.
    ///
    /// # Errors
    /// If a logit bias names a token by a text that no token has, or there is no tokenizer for it.
    pub fn defaults(&self, tokenizer: Option<&Tokenizer>) -> miette::Result<SamplingParams> {
        let mut logit_bias = Vec::new();
        for bias in &self.logit_bias {
            logit_bias.extend(bias.tokens(tokenizer)?);
        }
        Ok(SamplingParams {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            repeat_last_n: u32::try_from(self.repeat_last_n).unwrap_or(u32::MAX),
            logit_bias,
            masked: false,
            seed: self.seed.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_names_a_token_by_id_or_by_text() {
        let id = |id, value| Ok(LogitBias { token: BiasedToken::Id(id), value });
        let text = |text: &str, value| Ok(LogitBias { token: BiasedToken::Text(text.to_owned()), value });
        let value = || Err("expected a finite number or -inf as the value".to_owned());
        let form = || Err("expected ID+VALUE, ID-VALUE or TEXT=VALUE".to_owned());
        for (argument, expected) in [
            ("15043+1", id(15043, 1.0)),
            ("15043-2.5", id(15043, -2.5)),
            ("0-inf", id(0, f32::NEG_INFINITY)),
            ("7+-inf", value()),
            (" Paris=-inf", text(" Paris", f32::NEG_INFINITY)),
            (" ==2", text(" =", 2.0)),
            ("1+1=2", text("1+1", 2.0)),
            ("42=-1", text("42", -1.0)),
            ("5+inf", value()),
            ("5+nan", value()),
            ("a=b", value()),
            ("5", form()),
            ("=1", form()),
            ("", form()),
            ("99999999999+1", Err("expected a token id below 2^32, not 99999999999".to_owned())),
        ] {
            assert_eq!(logit_bias(argument), expected, "{argument}");
        }
    }

    #[test]
    fn a_text_needs_a_vocabulary() {
        let message = logit_bias("the=1").unwrap().tokens(None).unwrap_err().to_string();
        assert_eq!(message, "--logit-bias `the`: there is no vocabulary to look the text up in");
        assert_eq!(logit_bias("7-inf").unwrap().tokens(None).unwrap(), [(7, f32::NEG_INFINITY)]);
    }
}
