//! Lines of the output.

use bespoke::generation::Summary;
use serde::Serialize;
use serde_json::Value;

use crate::Job;

/// A line of the output.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Index of the job, from 0.
    pub index: usize,
    /// The input line's `id`.
    pub id: Option<Value>,
    /// Generated tokens, including a stop token and the tokens of a stop string.
    pub tokens: Vec<u32>,
    /// Their text, before a stop string; none without a vocabulary.
    pub text: Option<String>,
    /// `stop_token`, `stop_string`, `max_tokens`, `context_full`, `out_of_pages`, or `error`.
    pub finish_reason: &'static str,
    /// What went wrong, if `finish_reason` is `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Durations.
    pub timings: Timings,
}

/// Durations in seconds, from when the job was given to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Time to the first token.
    pub first_token_seconds: f64,
    /// Time to the last token.
    pub total_seconds: f64,
}

impl Record {
    /// The record of a job that ended. `has_text` tells whether tokens have texts.
    pub fn new(index: usize, job: &Job, summary: Summary, has_text: bool) -> Record {
        let first = summary.prompt_time.as_secs_f64();
        Record {
            index,
            id: job.id.clone(),
            tokens: summary.tokens,
            text: has_text.then_some(summary.text),
            finish_reason: summary.reason.name(),
            error: None,
            prompt_tokens: job.prompt.len(),
            timings: Timings {
                first_token_seconds: first,
                total_seconds: first + summary.decode_time.as_secs_f64(),
            },
        }
    }

    /// The record of a job that failed.
    pub fn failed(index: usize, job: &Job, error: String) -> Record {
        Record {
            index,
            id: job.id.clone(),
            tokens: Vec::new(),
            text: None,
            finish_reason: "error",
            error: Some(error),
            prompt_tokens: job.prompt.len(),
            timings: Timings::default(),
        }
    }
}
