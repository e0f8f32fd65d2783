//! Answers to a request: the outputs of its sequences, until all have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bespoke::engine::EngineError;
use bespoke::generation::{FinishReason, MissedPages, TokenLogprobs};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use crate::app::{App, Ready, shutting_down, timed_out};
use crate::error::ApiError;
use crate::phase::{self, Phase};
use crate::queue::{Job, Output, Settings};

/// Sequences of a request: each prompt with a number of choices.
pub struct Sequences {
    pub prompts: Vec<Vec<u32>>,
    /// Choices for each prompt.
    pub n: u32,
    pub settings: Settings,
    /// Seed of the first choice; each next one has the next seed.
    pub seed: u64,
    /// Name of the request's field with the prompts, for errors.
    pub field: &'static str,
    /// Tokens without text, with names that count as their texts.
    pub marks: Vec<(u32, &'static str)>,
}

/// A token with its log-probabilities.
pub type TokenInfo = (u32, TokenLogprobs);

/// A part of an answer.
#[derive(Debug)]
pub enum Part {
    /// Text, with the tokens that it comes from if log-probabilities were asked for.
    Text { choice: u32, text: String, tokens: Vec<TokenInfo> },
    /// The end of a choice.
    End { choice: u32, reason: &'static str },
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub prompt: u64,
    pub reused: u64,
    pub generated: u64,
}

impl Usage {
    /// The numbers as in OpenAI's API.
    pub fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.reused},
        })
    }
}

/// The sequences of a request under way. Dropping it cancels them.
pub struct Answers {
    outputs: mpsc::Receiver<Output>,
    /// Number of choices that have not ended.
    open: u32,
    choices: u32,
    /// Choices for each prompt.
    n: u32,
    deadline: Instant,
    timeout: Duration,
    phases: watch::Receiver<Phase>,
    /// Tokens of each choice whose text was not returned yet.
    held: Vec<Vec<TokenInfo>>,
    /// Tokens of each choice that are part of `usage`.
    counted: Vec<u32>,
    marks: Vec<(u32, &'static str)>,
    usage: Usage,
    record: Record,
}

/// What the log says about a request when it ends.
struct Record {
    id: String,
    arrived: Instant,
    usage: Usage,
    /// Full pages of the prompts that were not in the cache; of choices with the same prompt, those of the first.
    missed: MissedPages,
    outcome: &'static str,
}

impl Answers {
    /// Checks the sequences of a request that had arrived at `arrived`, and gives them to the decoding thread.
    ///
    /// # Errors
    /// If the engine cannot decode a prompt (400), the queue is full (429), or the request's time is over (504).
    pub fn start(
        app: &App,
        ready: &Ready,
        id: &str,
        sequences: Sequences,
        arrived: Instant,
    ) -> Result<Answers, ApiError> {
        let Sequences { prompts, n, settings, seed, field, marks } = sequences;
        for prompt in &prompts {
            ready.limits.check(&settings.request(prompt, seed)).map_err(|error| {
                let (message, code) = match error {
                    // The error of the engine names an option of the command line, which clients do not have.
                    EngineError::ContextFull { needed, context } => (
                        format!(
                            "the prompt has {needed} tokens, and the server's context {context} positions"
                        ),
                        "context_length_exceeded",
                    ),
                    error => (error.to_string(), "invalid_prompt"),
                };
                ApiError::field(field, message).with_code(code)
            })?;
        }
        let choices = count_choices(ready, prompts.len(), n)?;
        let deadline = arrived + app.options.timeout;
        if Instant::now() >= deadline {
            return Err(timed_out(app.options.timeout));
        }
        let mut places = ready.queue.reserve(choices).inspect_err(|_| {
            app.metrics.refused.inc();
        })?;
        // Room for the tokens that may wait, and for the end of each choice.
        let (sender, outputs) = mpsc::channel(app.options.backlog + choices as usize);
        let settings = Arc::new(settings);
        let prompt_tokens = prompts.iter().map(|prompt| prompt.len() as u64).sum();
        for (choice, prompt) in (0..).step_by(n as usize).zip(prompts) {
            let prompt: Arc<[u32]> = prompt.into();
            for index in 0..n {
                let place = places.split(1).ok_or_else(|| ApiError::internal("a place is missing"))?;
                ready.queue.add(Job {
                    prompt: Arc::clone(&prompt),
                    settings: Arc::clone(&settings),
                    seed: seed.wrapping_add(index.into()),
                    choice: choice + index,
                    choices,
                    outputs: sender.clone(),
                    _place: place,
                })?;
            }
        }
        let usage = Usage { prompt: prompt_tokens, ..Usage::default() };
        Ok(Answers {
            outputs,
            open: choices,
            choices,
            n,
            deadline,
            timeout: app.options.timeout,
            phases: app.phases.watch(),
            held: (0..choices).map(|_| Vec::new()).collect(),
            counted: vec![0; choices as usize],
            marks,
            usage,
            record: Record {
                id: id.to_owned(),
                arrived,
                usage,
                missed: MissedPages::default(),
                outcome: "cancelled by the client",
            },
        })
    }

    /// Number of choices.
    pub fn choices(&self) -> u32 {
        self.choices
    }

    /// Numbers of tokens; complete once all choices have ended.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The next parts; none once all choices have ended.
    ///
    /// # Errors
    /// If a sequence failed, the time is over, or the server ends. The request is over then.
    pub async fn next(&mut self) -> Option<Result<Vec<Part>, ApiError>> {
        if self.open == 0 {
            return None;
        }
        let output = tokio::select! {
            // What has arrived comes before reasons to end.
            biased;
            output = self.outputs.recv() => match output {
                Some(Output::Failed(error)) => Err(error),
                Some(output) => Ok(output),
                None => Err(ApiError::unavailable("engine_stopped", "the engine has stopped")),
            },
            () = sleep_until(self.deadline.into()) => Err(timed_out(self.timeout)),
            () = phase::begun(&mut self.phases, Phase::Ending) => Err(shutting_down()),
        };
        match output {
            Ok(output) => Some(Ok(self.parts(output))),
            Err(error) => {
                self.open = 0;
                self.record.outcome = error.code();
                self.outputs.close();
                Some(Err(error))
            }
        }
    }

    fn parts(&mut self, output: Output) -> Vec<Part> {
        match output {
            Output::Token { choice, mut token } => {
                if let Some((_, name)) = self.marks.iter().find(|(mark, _)| *mark == token.id) {
                    token.text += name;
                }
                self.counted[choice as usize] += 1;
                self.usage.generated += 1;
                self.record.usage = self.usage;
                let held = &mut self.held[choice as usize];
                held.extend(token.logprobs.map(|logprobs| (token.id, logprobs)));
                if token.text.is_empty() {
                    return Vec::new();
                }
                vec![Part::Text { choice, text: token.text, tokens: std::mem::take(held) }]
            }
            Output::Finished { choice, reason, rest, tokens, reused, missed } => {
                self.open -= 1;
                self.usage.generated += u64::from(tokens.saturating_sub(self.counted[choice as usize]));
                if choice.is_multiple_of(self.n) {
                    self.usage.reused += u64::from(reused);
                    self.record.missed += missed;
                }
                self.record.usage = self.usage;
                self.record.outcome = outcome(reason);
                // Tokens of a stop token or a stop string have no text in the answer.
                let mut held = std::mem::take(&mut self.held[choice as usize]);
                match reason {
                    FinishReason::StopString => held.clear(),
                    FinishReason::StopToken => drop(held.pop()),
                    _ => {}
                }
                let mut parts = Vec::new();
                if !rest.is_empty() || !held.is_empty() {
                    parts.push(Part::Text { choice, text: rest, tokens: held });
                }
                parts.push(Part::End { choice, reason: finish_reason(reason) });
                parts
            }
            Output::Failed(_) => Vec::new(),
        }
    }
}

/// The number of choices of a request. To be asked before prompts are encoded, which takes time.
///
/// # Errors
/// If they are more than run and wait at the same time (400).
pub fn count_choices(ready: &Ready, prompts: usize, n: u32) -> Result<u32, ApiError> {
    let count = (prompts as u64).saturating_mul(n.into());
    let largest = ready.queue.largest_request();
    match u32::try_from(count) {
        Ok(choices) if choices <= largest => Ok(choices),
        _ => {
            let field = if prompts > 1 { "prompt" } else { "n" };
            let message = format!("the request asks for {count} choices; this server has room for {largest}");
            Err(ApiError::field(field, message))
        }
    }
}

/// Reason why a choice ended, in OpenAI's API.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::StopToken | FinishReason::StopString | FinishReason::Complete => "stop",
        FinishReason::MaxTokens | FinishReason::ContextFull | FinishReason::OutOfPages => "length",
        FinishReason::Cancelled => "cancelled",
    }
}

/// Reason why a choice ended, for the log.
fn outcome(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::StopToken => "stop token",
        FinishReason::StopString => "stop string",
        FinishReason::Complete => "the answer is complete",
        FinishReason::MaxTokens => "max_tokens",
        FinishReason::ContextFull => "the context is full",
        FinishReason::OutOfPages => "the KV cache is full",
        FinishReason::Cancelled => "cancelled",
    }
}

/// Why full pages of a prompt were not in the cache, for the log; empty if all were there.
fn reasons(MissedPages { new, evicted, generated }: MissedPages) -> String {
    let reasons = [(new, "new"), (evicted, "evicted"), (generated, "generated before")];
    let reasons: Vec<String> = reasons
        .into_iter()
        .filter(|&(count, _)| count > 0)
        .map(|(count, reason)| format!("{count} {reason}"))
        .collect();
    if reasons.is_empty() { String::new() } else { format!("; pages missed: {}", reasons.join(", ")) }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Record { id, arrived, usage: Usage { prompt, reused, generated }, missed, outcome } = self;
        let missed = reasons(*missed);
        let seconds = arrived.elapsed().as_secs_f64();
        tracing::info!(
            "{id}: {prompt} prompt tokens ({reused} cached{missed}), {generated} generated, {seconds:.2} s: {outcome}"
        );
    }
}
