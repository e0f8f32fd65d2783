//! A run of mixed traffic: clients that send random kinds of requests, and the server's metrics after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::Client;
use crate::exchange::{FirstAnswers, Outcome, timed};
use crate::facts::Facts;
use crate::server_metrics::ServerMetrics;
use crate::traffic::{KINDS, Traffic};
use crate::words::Words;
use crate::{LoadError, Percentiles, block_on};

/// Unexpected answers that the report shows.
const SHOWN: usize = 20;
/// Growth of resident memory after the warm-up that counts as a leak.
const GROWTH: f64 = 0.1;
/// Shortest run whose memory is judged.
const JUDGED: Duration = Duration::from_secs(60);
/// Time in which the server must become idle after the last answer.
const IDLE: Duration = Duration::from_secs(60);
/// Time between two calls of the caller's report.
const REPORT: Duration = Duration::from_secs(60);
/// Longest wait of a client whose request was refused.
const WAIT: Duration = Duration::from_secs(2);

/// A run of mixed traffic.
#[derive(Clone, Debug)]
pub struct Soak {
    /// Concurrent clients.
    pub clients: u32,
    /// Time during which clients begin requests.
    pub time: Duration,
    /// Name of the model; none for the server's first one.
    pub model: Option<String>,
}

/// What became of the requests, and of the server.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// URL of the server.
    pub url: String,
    /// Name of the model.
    pub model: String,
    /// Concurrent clients.
    pub clients: u32,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Requests by kind.
    pub kinds: Vec<KindReport>,
    /// Unexpected answers, the first ones.
    pub unexpected: Vec<String>,
    /// What the server still holds when it should be idle.
    pub left: Vec<String>,
    /// Failures of the server's engine during the run.
    pub engine_failures: f64,
    /// The server's memory; none if it does not say it.
    pub memory: Option<Memory>,
}

/// Requests of a kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KindReport {
    /// Name of the kind.
    pub name: &'static str,
    /// Requests with the expected answer.
    pub answered: u64,
    /// Requests that were refused because the queue was full.
    pub refused: u64,
    /// Requests whose client went away as planned.
    pub left: u64,
    /// Streams that the server ended because their client read too slowly.
    pub slow_readers: u64,
    /// Requests with an unexpected answer, or without a complete one.
    pub unexpected: u64,
    /// Time from the request to the end of the answer, of those answered, in milliseconds.
    #[serde(rename = "time_ms")]
    pub time: Option<Percentiles>,
}

/// Resident memory of the server, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// After a quarter of the run.
    #[serde(rename = "warm_bytes")]
    pub warm: f64,
    /// At the end, when the server is idle.
    #[serde(rename = "end_bytes")]
    pub end: f64,
    /// Whether the run was long enough to judge the growth: a minute.
    pub judged: bool,
}

impl Memory {
    /// Growth after the warm-up, as a fraction.
    pub fn growth(&self) -> f64 {
        self.end / self.warm - 1.0
    }
}

impl Report {
    /// Number of requests.
    pub fn requests(&self) -> u64 {
        let of = |it: &KindReport| it.answered + it.refused + it.left + it.slow_readers + it.unexpected;
        self.kinds.iter().map(of).sum()
    }

    /// What is wrong with the server; empty if nothing is.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let unexpected: u64 = self.kinds.iter().map(|kind| kind.unexpected).sum();
        if unexpected > 0 {
            problems.push(format!("{unexpected} unexpected answers"));
        }
        problems.extend(self.left.iter().cloned());
        if self.engine_failures > 0.0 {
            problems.push(format!("the engine failed {} times", self.engine_failures));
        }
        if let Some(memory) = self.memory.filter(|it| it.judged && it.growth() > GROWTH) {
            problems
                .push(format!("resident memory grew by {:.1}% after the warm-up", memory.growth() * 100.0));
        }
        problems
    }
}

/// Results while clients run.
struct Tally {
    kinds: Vec<(KindReport, Vec<Duration>)>,
    unexpected: Vec<String>,
}

impl Tally {
    fn new() -> Tally {
        let kinds = KINDS.iter().map(|kind| KindReport { name: kind.name, ..KindReport::default() });
        Tally { kinds: kinds.map(|kind| (kind, Vec::new())).collect(), unexpected: Vec::new() }
    }

    fn add(&mut self, kind: usize, outcome: Result<Outcome, String>, time: Duration) {
        let (report, times) = &mut self.kinds[kind];
        match outcome {
            Ok(Outcome::Answered) => {
                report.answered += 1;
                times.push(time);
            }
            Ok(Outcome::Refused(_)) => report.refused += 1,
            Ok(Outcome::Left) => report.left += 1,
            Ok(Outcome::SlowReader) => report.slow_readers += 1,
            Err(what) => {
                report.unexpected += 1;
                if self.unexpected.len() < SHOWN {
                    self.unexpected.push(format!("{}: {what}", report.name));
                }
            }
        }
    }

    fn kinds(&self) -> Vec<KindReport> {
        let report = |(kind, times): &(KindReport, Vec<Duration>)| KindReport {
            time: Percentiles::of(times),
            ..kind.clone()
        };
        self.kinds.iter().map(report).collect()
    }
}

/// What the clients share.
struct Shared {
    client: Client,
    traffic: Traffic,
    first: FirstAnswers,
    tally: Mutex<Tally>,
    end: Instant,
}

/// Sends mixed traffic to a `bespoke serve`. Calls `report` each minute with the results so far.
///
/// # Errors
/// If the server cannot be reached, or is another one. Everything else is part of the report.
pub fn soak(client: &Client, soak: &Soak, report: impl Fn(&Report)) -> Result<Report, LoadError> {
    block_on(async {
        // An own client, whose idle connections are closed with it.
        let observer = client.with_own_connections();
        let before = ServerMetrics::read(&observer).await?;
        let shared = Arc::new(prepare(client, soak).await?);
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..soak.clients {
            clients.spawn(send_requests(Arc::clone(&shared)));
        }
        let mut result = Report {
            url: client.url().to_owned(),
            model: shared.traffic.model.clone(),
            clients: soak.clients,
            seconds: 0.0,
            kinds: Vec::new(),
            unexpected: Vec::new(),
            left: Vec::new(),
            engine_failures: 0.0,
            memory: None,
        };
        let warm_up = soak.time / 4;
        let (mut warm, mut reported) = (None, start);
        while !clients.is_empty() {
            sleep(Duration::from_millis(100)).await;
            while clients.try_join_next().is_some() {}
            if warm.is_none() && start.elapsed() >= warm_up {
                warm = ServerMetrics::read(&observer).await?.resident();
            }
            if reported.elapsed() >= REPORT {
                reported = Instant::now();
                result.update(&shared, start);
                let now = ServerMetrics::read(&observer).await?;
                result.compare(&before, &now, warm, soak.time)?;
                report(&result);
            }
        }
        result.update(&shared, start);
        drop(shared);
        let (after, left) = wait_until_idle(&observer, &before).await?;
        result.compare(&before, &after, warm, soak.time)?;
        result.left = left;
        Ok(result)
    })
}

async fn prepare(client: &Client, soak: &Soak) -> Result<Shared, LoadError> {
    let client = client.with_own_connections();
    let facts = Facts::ask(&client, soak.model.as_deref()).await?;
    let context = facts.context.unwrap_or(1);
    let words = Words::calibrate(&client, &facts, context / 2, &mut Rng::new()).await?;
    let chat = client.get("/props").await?;
    let chat: serde_json::Value = serde_json::from_str(&chat).unwrap_or_default();
    let chat = !chat["chat_template"].is_null();
    let traffic = Traffic { model: facts.model, context, words, chat };
    let (first, tally) = (FirstAnswers::default(), Mutex::new(Tally::new()));
    Ok(Shared { client, traffic, first, tally, end: Instant::now() + soak.time })
}

/// One client: requests one after the other.
async fn send_requests(shared: Arc<Shared>) {
    let mut rng = Rng::new();
    while Instant::now() < shared.end {
        let kind = shared.traffic.choose(&mut rng);
        let exchange = shared.traffic.request(kind, &mut rng);
        let (outcome, time) = timed(&exchange, &shared.client, &shared.first).await;
        let wait = match (&outcome, outcome.is_err()) {
            (Ok(Outcome::Refused(seconds)), _) => Duration::from_secs(*seconds).min(WAIT),
            // A server that is gone answers nothing, at once.
            (_, true) => Duration::from_millis(100),
            _ => Duration::ZERO,
        };
        shared.tally.lock().unwrap_or_else(PoisonError::into_inner).add(kind, outcome, time);
        sleep(wait).await;
    }
}

impl Report {
    fn update(&mut self, shared: &Shared, start: Instant) {
        let tally = shared.tally.lock().unwrap_or_else(PoisonError::into_inner);
        self.seconds = start.elapsed().as_secs_f64();
        self.kinds = tally.kinds();
        self.unexpected.clone_from(&tally.unexpected);
    }

    fn compare(
        &mut self,
        before: &ServerMetrics,
        now: &ServerMetrics,
        warm: Option<f64>,
        time: Duration,
    ) -> Result<(), LoadError> {
        self.engine_failures = now.engine_failures()? - before.engine_failures()?;
        let judged = time >= JUDGED;
        self.memory = warm.zip(now.resident()).map(|(warm, end)| Memory { warm, end, judged });
        Ok(())
    }
}

/// Waits until the server holds nothing for requests. Returns its metrics, and what is left if it does not become idle.
async fn wait_until_idle(
    observer: &Client,
    before: &ServerMetrics,
) -> Result<(ServerMetrics, Vec<String>), LoadError> {
    let start = Instant::now();
    loop {
        let metrics = ServerMetrics::read(observer).await?;
        let left = held(before, &metrics)?;
        if left.is_empty() || start.elapsed() > IDLE {
            return Ok((metrics, left));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// What a server holds that an idle one does not.
fn held(before: &ServerMetrics, now: &ServerMetrics) -> Result<Vec<String>, LoadError> {
    let mut held = Vec::new();
    let mut expect = |what: &str, found: f64, most: f64| {
        if found > most {
            held.push(format!("{} {what} are left on an idle server", found - most));
        }
    };
    expect("sequences", now.sequences()?, 0.0);
    expect("used pages", now.used_pages()?, 0.0);
    // The connection that asks for the metrics, and those of others.
    expect("connections", now.connections()?, before.connections()?.max(1.0));
    let lost = before.pages()? - now.pages()?;
    if lost > 0.0 {
        held.push(format!("{lost} pages are neither free, cached nor used"));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(used: u32, free: u32, running: u32, connections: u32) -> ServerMetrics {
        ServerMetrics::parse(&format!(
            "bespoke_pages{{state=\"used\"}} {used}\nbespoke_pages{{state=\"free\"}} {free}\n\
             bespoke_pages{{state=\"cached\"}} 3\nbespoke_sequences{{state=\"running\"}} {running}\n\
             bespoke_sequences{{state=\"waiting\"}} 0\nbespoke_connections {connections}\n"
        ))
    }

    #[test]
    fn what_an_idle_server_holds_is_named() {
        let before = metrics(0, 5, 0, 1);
        assert!(held(&before, &before).unwrap().is_empty());
        let leaked = held(&before, &metrics(2, 2, 1, 3)).unwrap();
        assert_eq!(
            leaked,
            [
                "1 sequences are left on an idle server",
                "2 used pages are left on an idle server",
                "2 connections are left on an idle server",
                "1 pages are neither free, cached nor used",
            ]
        );
    }

    #[test]
    fn problems_are_leaks_and_unexpected_answers_but_not_full_queues() {
        let mut tally = Tally::new();
        tally.add(0, Ok(Outcome::Answered), Duration::from_millis(4));
        tally.add(0, Ok(Outcome::Refused(1)), Duration::ZERO);
        tally.add(1, Ok(Outcome::Left), Duration::ZERO);
        let report = |tally: &Tally, memory| Report {
            url: String::new(),
            model: String::new(),
            clients: 1,
            seconds: 1.0,
            kinds: tally.kinds(),
            unexpected: tally.unexpected.clone(),
            left: Vec::new(),
            engine_failures: 0.0,
            memory,
        };
        let memory = |end, judged| Some(Memory { warm: 100.0, end, judged });
        let fine = report(&tally, memory(109.0, true));
        assert_eq!((fine.requests(), fine.problems()), (3, Vec::new()));
        assert!(report(&tally, memory(150.0, false)).problems().is_empty());
        let grown = report(&tally, memory(125.0, true)).problems();
        assert_eq!(grown, ["resident memory grew by 25.0% after the warm-up"]);
        tally.add(1, Err("status 500".to_owned()), Duration::ZERO);
        let wrong = report(&tally, None);
        assert_eq!(wrong.problems(), ["1 unexpected answers"]);
        assert_eq!(wrong.unexpected, [format!("{}: status 500", KINDS[1].name)]);
    }
}
