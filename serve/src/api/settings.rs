//! Fields that chats and completions have in common: sampling, ends, choices, streaming.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use bespoke::engine::SamplingParams;

use crate::app::{App, Ready};
use crate::error::ApiError;
use crate::fields::{Fields, Texts};
use crate::queue::Settings;
use crate::random;

/// Largest number of choices.
const CHOICES: u32 = 128;
/// Largest number of stop strings. Each is looked for at every token.
const STOPS: usize = 16;
/// Longest stop string in bytes.
const STOP_BYTES: usize = 1 << 10;
/// Largest number of biased tokens.
const BIASES: usize = 1 << 10;
/// Largest number of log-probabilities for each token.
pub const LOGPROBS: u32 = 20;
/// Fields that do not change an answer: of OpenAI's API, and of llama.cpp's and vLLM's.
const WITHOUT_EFFECT: [&str; 8] = [
    "user",
    "safety_identifier",
    "metadata",
    "store",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "cache_prompt",
];

/// What a request says besides its prompt.
pub struct Common {
    pub settings: Settings,
    pub seed: u64,
    pub n: u32,
    pub stream: Option<Stream>,
}

/// How an answer is streamed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// Whether the last event has the numbers of tokens.
    pub usage: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    /// Padding against the observation of lengths; there is none.
    #[serde(default, rename = "include_obfuscation")]
    _include_obfuscation: bool,
}

/// Takes the common fields. `default_tokens` is the number of tokens to generate for a request that does not say it.
pub fn common(
    app: &App,
    ready: &Ready,
    fields: &mut Fields<'_>,
    default_tokens: u32,
) -> Result<Common, ApiError> {
    fields.ignore(&WITHOUT_EFFECT);
    fields.only("skip_special_tokens", &[json!(true)])?;
    let n = fields.within("n", 1, CHOICES)?.unwrap_or(1);
    let model = &ready.model;
    let default_seed = || if model.fixed_seed { model.sampling.seed } else { random::number() };
    let seed = seed(fields)?.unwrap_or_else(default_seed);
    let sampling = sampling(&ready.model.sampling, ready.limits.vocab, fields)?;
    let ignore_eos: bool = fields.take("ignore_eos")?.unwrap_or(false);
    let ends = ready.model.tokenizer.end_tokens();
    let settings = Settings {
        sampling,
        max_tokens: max_tokens(app, fields, default_tokens)?,
        stop_tokens: if ignore_eos { Vec::new() } else { ends.to_vec() },
        stop_strings: stops(fields)?,
        logprobs: None,
        grammar: None,
    };
    Ok(Common { settings, seed, n, stream: stream(fields)? })
}

/// The seed that a request asks for. It may be negative; -1 is none, as in llama.cpp and vLLM.
fn seed(fields: &mut Fields<'_>) -> Result<Option<u64>, ApiError> {
    let given: Option<i128> = fields.within("seed", i64::MIN.into(), u64::MAX.into())?;
    // Two's complement, so that different seeds stay different.
    Ok(given.filter(|&seed| seed != -1).map(|seed| seed as u64))
}

/// The sampling parameters of a request; `base` has those of the server.
fn sampling(base: &SamplingParams, vocab: u32, fields: &mut Fields<'_>) -> Result<SamplingParams, ApiError> {
    let repeat = fields.within("repeat_penalty", f32::MIN_POSITIVE, 1e6)?;
    let repetition = fields.within("repetition_penalty", f32::MIN_POSITIVE, 1e6)?;
    if repeat.is_some() && repetition.is_some() {
        let message = "`repeat_penalty` and `repetition_penalty` are the same penalty; give one";
        return Err(ApiError::field("repetition_penalty", message));
    }
    let last_n = fields.within("repeat_last_n", -1_i64, i64::from(u32::MAX))?;
    let presence = fields.within("presence_penalty", -2.0, 2.0)?.unwrap_or(base.presence_penalty);
    let frequency = fields.within("frequency_penalty", -2.0, 2.0)?.unwrap_or(base.frequency_penalty);
    // vLLM's `repetition_penalty` covers all tokens, its other penalties do not cover the prompt.
    let covers_all = last_n.is_none() && repetition.is_some_and(|penalty| penalty != 1.0);
    if covers_all && (presence, frequency) != (0.0, 0.0) {
        let message =
            "penalties cover the same tokens: with `repetition_penalty` and others, give `repeat_last_n`";
        return Err(ApiError::field("repetition_penalty", message));
    }
    let last_n = if covers_all { Some(-1) } else { last_n };
    let params = SamplingParams {
        temperature: fields.within("temperature", 0.0, 100.0)?.unwrap_or(base.temperature),
        top_k: top_k(fields)?.unwrap_or(base.top_k),
        top_p: fields.within("top_p", 0.0, 1.0)?.unwrap_or(base.top_p),
        min_p: fields.within("min_p", 0.0, 1.0)?.unwrap_or(base.min_p),
        repeat_penalty: repeat.or(repetition).unwrap_or(base.repeat_penalty),
        presence_penalty: presence,
        frequency_penalty: frequency,
        repeat_last_n: last_n.map_or(base.repeat_last_n, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        logit_bias: biases(vocab, fields)?.unwrap_or_else(|| base.logit_bias.clone()),
        masked: false,
        seed: base.seed,
    };
    Ok(params)
}

/// The number of most likely tokens; -1 is 0, all of them.
fn top_k(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let given = fields.within("top_k", -1_i64, i64::from(u32::MAX))?;
    Ok(given.map(|k| u32::try_from(k).unwrap_or(0)))
}

/// `{"TOKEN ID": BIAS}`.
fn biases(vocab: u32, fields: &mut Fields<'_>) -> Result<Option<Vec<(u32, f32)>>, ApiError> {
    let wrong = |message: String| Err(ApiError::field("logit_bias", format!("`logit_bias`{message}")));
    let Some(given) = fields.take::<BTreeMap<String, f32>>("logit_bias")? else { return Ok(None) };
    if given.len() > BIASES {
        return wrong(format!(" has {} tokens; at most {BIASES} are accepted", given.len()));
    }
    let mut biases = Vec::new();
    for (token, bias) in given {
        match token.parse::<u32>() {
            Ok(id) if id < vocab && (-100.0..=100.0).contains(&bias) => biases.push((id, bias)),
            Ok(id) if id < vocab => {
                return wrong(format!(" of token {id} is {bias}; -100 to 100 is needed"));
            }
            _ => {
                return wrong(format!(": `{token}` is no token; ids are 0 to {}", vocab.saturating_sub(1)));
            }
        }
    }
    Ok(Some(biases))
}

fn max_tokens(app: &App, fields: &mut Fields<'_>, default: u32) -> Result<u32, ApiError> {
    let most = app.options.max_tokens.unwrap_or(u32::MAX);
    let mut given = None;
    for name in ["max_tokens", "max_completion_tokens"] {
        let value = fields.within(name, 1_u32, most)?;
        if let (Some(value), Some(other)) = (value, given)
            && value != other
        {
            let message = "`max_tokens` and `max_completion_tokens` have different values; give one";
            return Err(ApiError::field(name, message));
        }
        given = value.or(given);
    }
    Ok(given.unwrap_or(default.min(most)))
}

fn stops(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let stops = fields.take("stop")?.map_or_else(Vec::new, Texts::into_vec);
    let message = if stops.len() > STOPS {
        format!("`stop` has {} texts; at most {STOPS} are accepted", stops.len())
    } else if let Some(long) = stops.iter().find(|stop| stop.len() > STOP_BYTES) {
        format!("`stop` has a text of {} bytes; at most {STOP_BYTES} are accepted", long.len())
    } else if stops.iter().any(String::is_empty) {
        "`stop` has an empty text".to_owned()
    } else {
        return Ok(stops);
    };
    Err(ApiError::field("stop", message))
}

fn stream(fields: &mut Fields<'_>) -> Result<Option<Stream>, ApiError> {
    let on: bool = fields.take("stream")?.unwrap_or(false);
    let options: Option<StreamOptions> = fields.take("stream_options")?;
    match options {
        Some(_) if !on => {
            Err(ApiError::field("stream_options", "`stream_options` needs `stream` to be true"))
        }
        options => Ok(on.then(|| Stream { usage: options.unwrap_or_default().include_usage })),
    }
}

/// Refuses tools, unless the fields ask for none.
pub fn refuse_tools(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.only("tools", &[json!([])])?;
    fields.only("tool_choice", &[json!("none"), json!("auto")])?;
    fields.only("parallel_tool_calls", &[json!(true), json!(false)])
}

/// Refuses fields that are not supported, unless a field asks for nothing.
pub fn refuse_unsupported(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.only("modalities", &[json!(["text"])])?;
    fields.only("functions", &[json!([])])?;
    fields.only("function_call", &[json!("none"), json!("auto")])?;
    for name in ["audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"] {
        fields.only(name, &[])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_minus_one_is_none() {
        for (body, expected) in [
            ("{}", None),
            (r#"{"seed": null}"#, None),
            (r#"{"seed": -1}"#, None),
            (r#"{"seed": 0}"#, Some(0)),
            (r#"{"seed": -2}"#, Some(u64::MAX - 1)),
            (r#"{"seed": 18446744073709551615}"#, Some(u64::MAX)),
        ] {
            let mut fields = Fields::parse(body.as_bytes()).unwrap();
            assert_eq!(seed(&mut fields).unwrap(), expected, "{body}");
        }
    }

    /// The repetition penalty and the number of tokens that penalties cover.
    #[test]
    fn names_of_the_repetition_penalty() {
        let base = SamplingParams::default();
        for (body, expected) in [
            (r#"{"repeat_penalty": 1.5}"#, (1.5, base.repeat_last_n)),
            (r#"{"repetition_penalty": 1.5}"#, (1.5, u32::MAX)),
            (r#"{"repetition_penalty": 1.5, "repeat_last_n": 8}"#, (1.5, 8)),
            (r#"{"repetition_penalty": 1.0, "frequency_penalty": 0.5}"#, (1.0, base.repeat_last_n)),
        ] {
            let mut fields = Fields::parse(body.as_bytes()).unwrap_or_else(|_| panic!("{body}"));
            let found = sampling(&base, 10, &mut fields).unwrap_or_else(|_| panic!("{body}"));
            assert_eq!((found.repeat_penalty, found.repeat_last_n), expected, "{body}");
        }
    }
}
