//! Lines of the input.

use std::fmt;

use bespoke::engine::{EngineError, SamplingParams, check_prompt};
use bespoke::generation::{Request, room};
use bespoke_chat::Message;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;
use sha2::{Digest, Sha256};

/// A line of the input. Exactly one of `prompt`, `messages` and `tokens` is given; what is not given is as in
/// [`Defaults`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct InputLine {
    id: Option<Value>,
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    tokens: Option<Vec<u32>>,
    n: Option<i64>,
    /// Another name of `n`.
    max_tokens: Option<i64>,
    ignore_eos: Option<bool>,
    stop: Option<Stop>,
    temperature: Option<f32>,
    /// Another name of `temperature`.
    temp: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    seed: Option<u64>,
}

/// Texts that end an answer: one text, or a list.
#[derive(Clone, Debug)]
struct Stop(Vec<String>);

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stop, D::Error> {
        struct StopVisitor;

        impl<'de> Visitor<'de> for StopVisitor {
            type Value = Stop;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Stop, E> {
                Ok(Stop(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Stop, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Stop(texts))
            }
        }

        // Unlike an untagged enum, this keeps the column of an error.
        deserializer.deserialize_any(StopVisitor)
    }
}

/// Prompt of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt<'a> {
    /// A text, which the model gets as it is.
    Text(&'a str),
    /// A conversation, for the model's chat template.
    Messages(&'a [Message]),
    /// Token ids.
    Tokens(&'a [u32]),
}

/// What a line does not say.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Largest number of tokens; none for 128, and no limit for conversations.
    pub max_tokens: Option<u32>,
    /// Whether tokens that end a text do not end an answer.
    pub ignore_eos: bool,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Sampling parameters.
    pub sampling: SamplingParams,
}

/// Largest number of answer tokens for a prompt that is not a chat, unless the line or the command gives one.
const DEFAULT_TOKENS: u32 = 128;

/// A line of the input as a request.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line's `id`, which the output repeats.
    pub id: Option<Value>,
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Largest number of tokens to generate; `u32::MAX` for no limit.
    pub max_tokens: u32,
    /// Tokens that end the answer.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the answer.
    pub stop_strings: Vec<String>,
    /// Sampling parameters.
    pub sampling: SamplingParams,
    /// Fingerprint of the line and of everything else on which its answer depends.
    pub fingerprint: String,
}

/// A line that is no request.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The line is not a JSON object with the fields of [`InputLine`].
    #[error("{0}")]
    Json(String),
    /// Two names of the same field are given.
    #[error("`{0}` and `{1}` are the same field; give one")]
    SameField(&'static str, &'static str),
    /// None or several of the fields for the prompt are given.
    #[error("{0} of `prompt`, `messages` and `tokens` are given; give one")]
    Prompts(usize),
    /// A number is out of range.
    #[error("`{field}` is {value}; {range}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: i64,
        /// Allowed values, as text.
        range: &'static str,
    },
    /// The line is a request for OpenAI's batch API, which has other fields.
    #[error(
        "this is a request for OpenAI's batch API, with `custom_id` and `body`: write the fields of `body` as the line, without \
         `model`, and `custom_id` as `id`"
    )]
    OpenAiRequest,
    /// A stop string is empty.
    #[error("`stop` has an empty text; leave it out")]
    EmptyStop,
    /// Stop strings need a vocabulary.
    #[error("`stop` needs a model with a vocabulary")]
    NoVocabulary,
    /// The prompt or a parameter is not accepted by the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Parses a line.
pub fn parse(line: &str) -> Result<InputLine, InputError> {
    let parsed: InputLine = serde_json::from_str(line).map_err(|error| {
        if error.to_string().starts_with("unknown field `custom_id`") {
            return InputError::OpenAiRequest;
        }
        // The position within the line is a column; the line's number is the caller's.
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        let text = in_terms_of_json(&text[..end]);
        let problem = if error.classify() == Category::Syntax { "this is not JSON: " } else { "" };
        InputError::Json(format!("column {}: {problem}{text}", error.column()))
    })?;
    let twice = [
        ("n", "max_tokens", parsed.n.is_some() && parsed.max_tokens.is_some()),
        ("temperature", "temp", parsed.temperature.is_some() && parsed.temp.is_some()),
    ];
    if let Some((name, other, _)) = twice.into_iter().find(|(.., given)| *given) {
        return Err(InputError::SameField(name, other));
    }
    let given = [parsed.prompt.is_some(), parsed.messages.is_some(), parsed.tokens.is_some()];
    match given.iter().filter(|&&given| given).count() {
        1 => Ok(parsed),
        count => Err(InputError::Prompts(count)),
    }
}

/// An error of serde with the types of JSON in place of Rust's.
fn in_terms_of_json(text: &str) -> String {
    const TYPES: [(&str, &str); 8] = [
        // Of a word that begins like `true`, `false` or `null`, and of any other word.
        ("expected ident", "expected a value; a text needs quotes"),
        ("expected value", "expected a value; a text needs quotes"),
        ("EOF while parsing a value", "the line ends before a value"),
        ("EOF while parsing an object", "the line ends before the object does"),
        ("expected i64", "expected a whole number"),
        ("expected u64", "expected a whole number from 0"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected f32", "expected a number"),
    ];
    let found = TYPES.iter().find_map(|(of_rust, of_json)| Some((text.strip_suffix(of_rust)?, of_json)));
    found.map_or_else(|| text.to_owned(), |(start, of_json)| format!("{start}{of_json}"))
}

impl InputLine {
    /// The prompt.
    pub fn prompt(&self) -> Prompt<'_> {
        match (&self.prompt, &self.messages, &self.tokens) {
            (Some(text), ..) => Prompt::Text(text),
            (_, Some(messages), _) => Prompt::Messages(messages),
            (.., tokens) => Prompt::Tokens(tokens.as_deref().unwrap_or_default()),
        }
    }

    /// The line as a request with the prompt's token ids. `ends` are the tokens that end a text.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn job(self, prompt: Vec<u32>, ends: &[u32], defaults: &Defaults) -> Result<Job, InputError> {
        let tokens = [("n", self.n), ("max_tokens", self.max_tokens)];
        let (name, tokens) = tokens.into_iter().find(|(_, value)| value.is_some()).unwrap_or(("n", None));
        let unlimited = |field, value: Option<i64>, default: u32| match value {
            None => Ok(default),
            Some(-1) => Ok(u32::MAX),
            Some(value) => u32::try_from(value).map_err(|_| InputError::OutOfRange {
                field,
                value,
                range: "0 to 4294967295 is needed, or -1 for no limit",
            }),
        };
        let usual = if self.messages.is_some() { u32::MAX } else { DEFAULT_TOKENS };
        let base = &defaults.sampling;
        let ignore_eos = self.ignore_eos.unwrap_or(defaults.ignore_eos);
        Ok(Job {
            max_tokens: unlimited(name, tokens, defaults.max_tokens.unwrap_or(usual))?,
            stop_tokens: if ignore_eos { Vec::new() } else { ends.to_vec() },
            stop_strings: match self.stop {
                None => defaults.stop.clone(),
                Some(Stop(texts)) => texts,
            },
            sampling: SamplingParams {
                temperature: self.temperature.or(self.temp).unwrap_or(base.temperature),
                top_k: self.top_k.unwrap_or(base.top_k),
                top_p: self.top_p.unwrap_or(base.top_p),
                min_p: self.min_p.unwrap_or(base.min_p),
                repeat_penalty: self.repeat_penalty.unwrap_or(base.repeat_penalty),
                presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
                frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
                repeat_last_n: unlimited("repeat_last_n", self.repeat_last_n, base.repeat_last_n)?,
                logit_bias: base.logit_bias.clone(),
                masked: false,
                seed: self.seed.unwrap_or(base.seed),
            },
            id: self.id,
            prompt,
            fingerprint: String::new(),
        })
    }
}

impl Job {
    /// Checks the request for a model with `vocab` tokens, in a context of `context` positions.
    pub fn check(&self, vocab: u32, context: u32, has_vocabulary: bool) -> Result<(), InputError> {
        check_prompt(&self.prompt, vocab)?;
        room(self.prompt.len(), context)?;
        self.sampling.check(vocab).map_err(EngineError::from)?;
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(InputError::EmptyStop);
        }
        if !has_vocabulary && !self.stop_strings.is_empty() {
            return Err(InputError::NoVocabulary);
        }
        Ok(())
    }

    /// Sets the fingerprint: a hash of `setting`, the line and its prompt. `setting` names everything else on which an
    /// answer depends, such as the model and the options.
    pub fn with_fingerprint(mut self, setting: &str, line: &str) -> Job {
        let mut hash = Sha256::new();
        for part in [setting, line, &format!("{:?}", self.prompt)] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        self.fingerprint = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self
    }

    /// The request.
    pub fn request(&self) -> Request<'_> {
        Request {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            stop_tokens: &self.stop_tokens,
            stop_strings: &self.stop_strings,
            ..Request::new(&self.prompt)
        }
    }

    /// Number of positions that the job needs: the prompt, and the tokens but for the last one; without a limit,
    /// `DEFAULT_TOKENS`.
    pub fn positions(&self) -> u64 {
        let tokens = if self.max_tokens == u32::MAX { DEFAULT_TOKENS } else { self.max_tokens };
        self.prompt.len() as u64 + u64::from(tokens.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        let sampling = SamplingParams { top_k: 40, seed: 5, ..SamplingParams::default() };
        Defaults { max_tokens: None, ignore_eos: false, stop: vec!["END".to_owned()], sampling }
    }

    fn job(line: &str) -> Result<Job, InputError> {
        parse(line)?.job(vec![1, 2], &[7], &defaults())
    }

    #[test]
    fn a_line_overrides_the_defaults() {
        let plain = job(r#"{"prompt": "Hello"}"#).unwrap();
        assert_eq!(
            (plain.max_tokens, &plain.stop_tokens[..], &plain.stop_strings[..]),
            (128, &[7][..], &["END".to_owned()][..])
        );
        assert_eq!((plain.sampling.top_k, plain.sampling.seed, plain.positions()), (40, 5, 129));
        let chat =
            job(r#"{"messages": [{"role": "user", "content": "Hi"}], "id": {"a": 1}, "stop": "x"}"#).unwrap();
        assert_eq!((chat.max_tokens, chat.id), (u32::MAX, Some(serde_json::json!({"a": 1}))));
        assert_eq!(job(r#"{"prompt": "Hello", "max_tokens": 5}"#).unwrap().max_tokens, 5);
        assert_eq!(chat.stop_strings, ["x"]);
        let line = r#"{"tokens": [1, 2], "n": 9, "ignore_eos": true, "stop": [], "temp": 0.5, "top_k": 3, "top_p": 0.5,
            "min_p": 0.25, "repeat_penalty": 2, "presence_penalty": 1, "frequency_penalty": 1, "repeat_last_n": -1, "seed": 8}"#;
        let full = job(line).unwrap();
        assert_eq!((full.max_tokens, full.stop_tokens.len(), full.stop_strings.len()), (9, 0, 0));
        let sampling = SamplingParams {
            temperature: 0.5,
            top_k: 3,
            top_p: 0.5,
            min_p: 0.25,
            repeat_penalty: 2.0,
            presence_penalty: 1.0,
            frequency_penalty: 1.0,
            repeat_last_n: u32::MAX,
            logit_bias: Vec::new(),
            masked: false,
            seed: 8,
        };
        assert_eq!(full.sampling, sampling);
        assert_eq!(parse(line).unwrap().prompt(), Prompt::Tokens(&[1, 2]));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, message) in [
            ("", "column 0: the line ends before a value"),
            (r#"{"prompt": "a""#, "column 14: the line ends before the object does"),
            ("[]", "column 2: invalid length 0, expected a JSON object"),
            ("5", "column 1: invalid type: integer `5`, expected a JSON object"),
            ("{}", "0 of `prompt`, `messages` and `tokens` are given; give one"),
            (
                r#"{"prompt": "a", "tokens": [1]}"#,
                "2 of `prompt`, `messages` and `tokens` are given; give one",
            ),
            (r#"{"prompt": 5}"#, "column 12: invalid type: integer `5`, expected a string"),
            (
                r#"{"tokens": [-1]}"#,
                "column 14: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
            ),
            (
                r#"{"prompt": "a", "n": "5"}"#,
                "column 24: invalid type: string \"5\", expected a whole number",
            ),
            (r#"{"tokens": [1], "n": -2}"#, "`n` is -2; 0 to 4294967295 is needed, or -1 for no limit"),
            (
                r#"{"tokens": [1], "max_tokens": -2}"#,
                "`max_tokens` is -2; 0 to 4294967295 is needed, or -1 for no limit",
            ),
            ("the fox", "column 2: this is not JSON: expected a value; a text needs quotes"),
            ("fox", "column 2: this is not JSON: expected a value; a text needs quotes"),
            ("hello", "column 1: this is not JSON: expected a value; a text needs quotes"),
            (r#"{"prompt": "a"} x"#, "column 17: this is not JSON: trailing characters"),
            (
                r#"{"tokens": [1], "n": 5, "max_tokens": 5}"#,
                "`n` and `max_tokens` are the same field; give one",
            ),
            (
                r#"{"tokens": [1], "temp": 1, "temperature": 1}"#,
                "`temperature` and `temp` are the same field; give one",
            ),
            (
                r#"{"tokens": [1], "stop": 5}"#,
                "column 25: invalid type: integer `5`, expected a text or a list of texts",
            ),
            (r#"{"tokens": [1], "stop": [5]}"#, "column 26: invalid type: integer `5`, expected a string"),
        ] {
            assert_eq!(job(line).unwrap_err().to_string(), message, "{line}");
        }
        let unknown = job(r#"{"prompt": "a", "max_length": 5}"#).unwrap_err().to_string();
        assert!(
            unknown.starts_with("column 28: unknown field `max_length`, expected one of `id`, `prompt`"),
            "{unknown}"
        );
    }

    #[test]
    fn a_job_is_checked_before_anything_runs() {
        let good = job(r#"{"tokens": []}"#).unwrap();
        assert!(good.check(10, 8, true).is_ok());
        for (job, has_vocabulary, message) in [
            (Job { prompt: vec![], ..good.clone() }, true, "the prompt is empty: give at least one token"),
            (
                Job { prompt: vec![10], ..good.clone() },
                true,
                "token 10 is not in the vocabulary of 10 tokens",
            ),
            (
                Job { prompt: vec![1; 9], ..good.clone() },
                true,
                "the context is full: 9 positions are needed and the cache holds 8",
            ),
            (
                Job { sampling: SamplingParams { top_p: 2.0, ..SamplingParams::default() }, ..good.clone() },
                true,
                "top-p is 2; 0 to 1 is needed",
            ),
            (
                Job { stop_strings: vec![String::new()], ..good.clone() },
                true,
                "`stop` has an empty text; leave it out",
            ),
            (good.clone(), false, "`stop` needs a model with a vocabulary"),
        ] {
            assert_eq!(job.check(10, 8, has_vocabulary).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn fingerprints_depend_on_the_setting_the_line_and_the_prompt() {
        let job = job(r#"{"tokens": []}"#).unwrap();
        let of = |prompt: &[u32], setting: &str, line: &str| {
            Job { prompt: prompt.to_vec(), ..job.clone() }.with_fingerprint(setting, line).fingerprint
        };
        let first = of(&[1], "ab", "c");
        assert_eq!((first.len(), &first), (32, &of(&[1], "ab", "c")));
        for other in [of(&[2], "ab", "c"), of(&[1], "a", "bc"), of(&[1], "ab", "d")] {
            assert_ne!(first, other);
        }
    }
}
