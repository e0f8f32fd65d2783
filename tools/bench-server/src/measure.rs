//! Throughput and latency of streamed completions from concurrent clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Client, Events, Failure, whole};
use crate::facts::Facts;
use crate::words::Words;
use crate::{LoadError, Percentiles, block_on};

/// Largest prompt and answer if the caller does not choose.
const PROMPT: u32 = 256;
const ANSWER: u32 = 64;
/// Context of a server that does not say it.
const CONTEXT: u32 = 2048;
/// Failures that the results show.
const SHOWN: usize = 10;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Numbers of concurrent clients, each measured after the other.
    pub clients: Vec<u32>,
    /// Requests of each client, one after the other.
    pub requests: u32,
    /// Tokens of a prompt; none for half of the context, at most 256.
    pub prompt: Option<u32>,
    /// Tokens of an answer; none for a quarter of the context, at most 64.
    pub answer: Option<u32>,
    /// Name of the model; none for the server's first one.
    pub model: Option<String>,
}

/// Results at every number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Measurements {
    /// URL of the server.
    pub url: String,
    /// Name of the model.
    pub model: String,
    /// Whether answers may end before the requested length: the server does not know `ignore_eos`.
    pub answers_may_end_early: bool,
    /// Results by number of clients.
    pub levels: Vec<Level>,
    /// Reasons of failed requests, the first ones.
    pub failures: Vec<String>,
}

impl Measurements {
    /// Number of requests that failed.
    pub fn failed(&self) -> u32 {
        self.levels.iter().map(|level| level.failed).sum()
    }
}

/// Results at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// Concurrent clients.
    pub clients: u32,
    /// Answered requests.
    pub requests: u32,
    /// Requests without a complete answer.
    pub failed: u32,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Mean number of tokens of a prompt, as the server counts them.
    pub prompt_tokens: f64,
    /// Generated tokens of all answers.
    pub answer_tokens: u64,
    /// Generated tokens per second, of all clients together.
    pub tokens_per_second: f64,
    /// From a request to its first token, in milliseconds.
    #[serde(rename = "first_token_ms")]
    pub first_token: Option<Percentiles>,
    /// Between tokens of an answer that follow each other, in milliseconds.
    #[serde(rename = "between_tokens_ms")]
    pub between_tokens: Option<Percentiles>,
}

/// A request's answer.
#[derive(Debug, Default)]
struct Sample {
    first: Duration,
    gaps: Vec<Duration>,
    prompt: u64,
    answer: u64,
}

/// What the clients share.
struct Target {
    client: Client,
    model: String,
    words: Words,
    prompt: u32,
    answer: u32,
    ignore_eos: bool,
}

/// Measures a server. Calls `report` after each number of clients.
///
/// # Errors
/// If the server cannot be reached or refuses the kind of request. Requests that fail under load are part of the results.
pub fn measure(
    client: &Client,
    workload: &Workload,
    report: impl Fn(&Level),
) -> Result<Measurements, LoadError> {
    block_on(async {
        let target = Arc::new(prepare(client, workload).await?);
        let mut measurements = Measurements {
            url: client.url().to_owned(),
            model: target.model.clone(),
            answers_may_end_early: !target.ignore_eos,
            levels: Vec::new(),
            failures: Vec::new(),
        };
        for &clients in &workload.clients {
            let (level, failures) = measure_level(&target, clients, workload.requests).await;
            report(&level);
            measurements.levels.push(level);
            measurements.failures.extend(failures);
        }
        measurements.failures.truncate(SHOWN);
        Ok(measurements)
    })
}

async fn prepare(client: &Client, workload: &Workload) -> Result<Target, LoadError> {
    let facts = Facts::ask(client, workload.model.as_deref()).await?;
    let context = facts.context.unwrap_or(CONTEXT);
    let prompt = workload.prompt.unwrap_or((context / 2).clamp(1, PROMPT));
    let answer = workload.answer.unwrap_or((context / 4).clamp(1, ANSWER));
    if facts.context.is_some_and(|context| prompt.saturating_add(answer) > context) {
        return Err(LoadError::Context { prompt, answer, context });
    }
    let words = Words::calibrate(client, &facts, prompt, &mut Rng::new()).await?;
    let mut target =
        Target { client: client.clone(), model: facts.model, words, prompt, answer, ignore_eos: true };
    // Fields besides OpenAI's are an error for some servers. This request is also a warm-up.
    let path = "/v1/completions";
    let reply = client.send("POST", path, "application/json", target.body(&mut Rng::new())).await?;
    if reply.status == 400 {
        target.ignore_eos = false;
        client.post(path, target.body(&mut Rng::new())).await?;
    } else if reply.status != 200 {
        let body = reply.shown().to_owned();
        return Err(LoadError::Refused { path: path.to_owned(), status: reply.status, body });
    }
    Ok(target)
}

async fn measure_level(target: &Arc<Target>, clients: u32, requests: u32) -> (Level, Vec<String>) {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let target = Arc::clone(target);
        tasks.spawn(async move {
            let mut rng = Rng::new();
            let mut samples = Vec::new();
            for _ in 0..requests {
                let limit = target.client.limit();
                let sample = timeout(limit, target.sample(&mut rng)).await;
                samples.push(sample.unwrap_or_else(|_| Err(Failure::Stuck(limit).to_string())));
            }
            samples
        });
    }
    let results = tasks.join_all().await.into_iter().flatten();
    summarise(clients, start.elapsed(), results)
}

fn summarise(
    clients: u32,
    elapsed: Duration,
    results: impl Iterator<Item = Result<Sample, String>>,
) -> (Level, Vec<String>) {
    let (mut first, mut gaps, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let (mut prompt, mut answer) = (0, 0);
    for result in results {
        match result {
            Ok(sample) => {
                first.push(sample.first);
                gaps.extend(sample.gaps);
                prompt += sample.prompt;
                answer += sample.answer;
            }
            Err(reason) => failures.push(format!("{clients} clients: {reason}")),
        }
    }
    let seconds = elapsed.as_secs_f64();
    let level = Level {
        clients,
        requests: first.len() as u32,
        failed: failures.len() as u32,
        seconds,
        prompt_tokens: prompt as f64 / first.len().max(1) as f64,
        answer_tokens: answer,
        tokens_per_second: answer as f64 / seconds,
        first_token: Percentiles::of(&first),
        between_tokens: Percentiles::of(&gaps),
    };
    (level, failures)
}

impl Target {
    /// A request for a stream, with a prompt that no other request has.
    fn body(&self, rng: &mut Rng) -> String {
        let mut body = json!({
            "model": self.model,
            "prompt": self.words.prompt(self.prompt, rng),
            "max_tokens": self.answer,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if self.ignore_eos {
            body["ignore_eos"] = true.into();
        }
        body.to_string()
    }

    async fn sample(&self, rng: &mut Rng) -> Result<Sample, String> {
        let body = self.body(rng);
        let start = Instant::now();
        let response = self.client.open("POST", "/v1/completions", "application/json", body).await;
        let response = response.map_err(|error| error.to_string())?;
        if response.status() != 200 {
            let reply = whole(response).await.map_err(|error| error.to_string())?;
            return Err(format!("status {}: {}", reply.status, reply.shown()));
        }
        let mut recorder = Recorder { start, last: None, sample: Sample::default(), texts: 0 };
        let mut events = Events::new(response);
        while let Some(data) = events.next().await.map_err(|error| error.to_string())? {
            if data == "[DONE]" {
                return recorder.finish();
            }
            recorder.event(&data, Instant::now())?;
        }
        Err("the stream ended without [DONE]".to_owned())
    }
}

/// Times of a stream's events.
struct Recorder {
    start: Instant,
    /// When the last text arrived.
    last: Option<Instant>,
    sample: Sample,
    /// Events with text.
    texts: u64,
}

impl Recorder {
    fn event(&mut self, data: &str, now: Instant) -> Result<(), String> {
        let event: Value = serde_json::from_str(data).map_err(|error| format!("event `{data}`: {error}"))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(format!("the stream ended with an error: {error}"));
        }
        if let Some(prompt) = event["usage"]["prompt_tokens"].as_u64() {
            self.sample.prompt = prompt;
            self.sample.answer = event["usage"]["completion_tokens"].as_u64().unwrap_or(0);
        }
        if event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()) {
            self.texts += 1;
            match self.last {
                None => self.sample.first = now - self.start,
                Some(last) => self.sample.gaps.push(now - last),
            }
            self.last = Some(now);
        }
        Ok(())
    }

    /// The sample. Servers that send no numbers of tokens send an event for each token.
    fn finish(mut self) -> Result<Sample, String> {
        if self.texts == 0 {
            return Err("the answer has no text".to_owned());
        }
        if self.sample.answer == 0 {
            self.sample.answer = self.texts;
        }
        Ok(self.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_times_events_with_text() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut recorder = Recorder { start, last: None, sample: Sample::default(), texts: 0 };
        for (ms, data) in [
            (5, r#"{"choices": [{"text": ""}]}"#),
            (10, r#"{"choices": [{"text": "The"}]}"#),
            (14, r#"{"choices": [{"text": " fox"}]}"#),
            (21, r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#),
            (22, r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}"#),
        ] {
            recorder.event(data, at(ms)).unwrap();
        }
        let sample = recorder.finish().unwrap();
        assert_eq!((sample.first, sample.gaps), (Duration::from_millis(10), vec![Duration::from_millis(4)]));
        assert_eq!((sample.prompt, sample.answer), (9, 3));
    }

    #[test]
    fn errors_and_empty_answers_are_failures() {
        let now = Instant::now();
        let recorder = || Recorder { start: now, last: None, sample: Sample::default(), texts: 0 };
        assert!(recorder().event(r#"{"error": {"code": "timeout"}}"#, now).unwrap_err().contains("timeout"));
        assert!(recorder().event("no json", now).is_err());
        assert!(recorder().finish().is_err());
    }

    #[test]
    fn a_level_sums_its_samples_and_counts_failures() {
        let sample = |first, gaps: &[u64]| Sample {
            first: Duration::from_millis(first),
            gaps: gaps.iter().map(|&ms| Duration::from_millis(ms)).collect(),
            prompt: 10,
            answer: 4,
        };
        let results = [Ok(sample(10, &[1, 2])), Err("status 429".to_owned()), Ok(sample(30, &[3]))];
        let (level, failures) = summarise(2, Duration::from_secs(2), results.into_iter());
        assert_eq!((level.requests, level.failed, level.answer_tokens), (2, 1, 8));
        assert_eq!((level.prompt_tokens, level.tokens_per_second), (10.0, 4.0));
        assert_eq!(level.first_token, Some(Percentiles { p50: 10.0, p99: 30.0 }));
        assert_eq!(level.between_tokens, Some(Percentiles { p50: 2.0, p99: 3.0 }));
        assert_eq!(failures, ["2 clients: status 429"]);
    }
}
