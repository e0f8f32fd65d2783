//! Metrics, in the text format of Prometheus.

use std::sync::atomic::Ordering;

use bespoke::generation::{MissedPages, Summary};
use bespoke::scheduler::{Scheduler, StepCounts, Steps};
use bespoke::speculation::Source;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Labels with their values.
type Labels = Vec<(&'static str, String)>;

/// Counts and durations of a server.
pub struct Metrics {
    registry: Registry,
    /// Answers by path and status.
    requests: Family<Labels, Counter>,
    /// Requests that were refused because the queue was full.
    pub refused: Counter,
    /// Sequences whose client went away, or whose time was over.
    pub cancelled: Counter,
    /// Sequences that were ended because their client read too slowly.
    pub slow_readers: Counter,
    /// Failures of the engine.
    pub engine_failures: Counter,
    /// Generated tokens.
    pub generated_tokens: Counter,
    prompt_tokens: Counter,
    reused_tokens: Counter,
    missed_pages: Family<Labels, Counter>,
    finished: Family<Labels, Counter>,
    scheduler: SchedulerMetrics,
    first_token: Histogram,
    between_tokens: Histogram,
    /// Connections that are open.
    pub connections: Gauge,
    /// Bytes of this process's memory that are resident; none where the system does not say them.
    resident: Option<Gauge>,
}

impl Metrics {
    /// Metrics of a server that has done nothing yet.
    pub fn new() -> Metrics {
        let mut whole = Registry::default();
        // Prometheus gives this metric of every process its name.
        let resident = resident_bytes().map(|_| {
            let gauge = Gauge::default();
            let help = "Resident memory size in bytes";
            whole.register("process_resident_memory_bytes", help, gauge.clone());
            gauge
        });
        let counter = |registry: &mut Registry, name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let family = |registry: &mut Registry, name: &str, help: &str| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let histogram = |registry: &mut Registry, name: &str, help: &str, least: f64| {
            // The largest bucket is 131072 times as long as the smallest.
            let histogram = Histogram::new(exponential_buckets(least, 2.0, 18));
            registry.register(name, help, histogram.clone());
            histogram
        };
        let r = whole.sub_registry_with_prefix("bespoke");
        let requests = family(r, "requests", "Answers by path and status");
        let finished = family(r, "finished", "Sequences that ended, by reason");
        let refused = counter(r, "refused", "Requests refused because the queue was full");
        let cancelled = counter(r, "cancelled", "Sequences whose client went away or whose time was over");
        let slow_readers = counter(r, "slow_readers", "Sequences ended because their client read too slowly");
        let engine_failures = counter(r, "engine_failures", "Failures of the engine");
        let generated_tokens = counter(r, "generated_tokens", "Generated tokens");
        let prompt_tokens = counter(r, "prompt_tokens", "Prompt tokens of sequences that have ended");
        let reused_tokens = counter(r, "reused_prompt_tokens", "Prompt tokens that were in the cache");
        let missed_pages =
            family(r, "missed_pages", "Full pages of prompts that were not in the cache, by reason");
        let first_token =
            histogram(r, "first_token_seconds", "Time from the queue to a sequence's first token", 0.001);
        let between_tokens =
            histogram(r, "between_tokens_seconds", "Mean time between the tokens of a sequence", 0.0001);
        let connections = Gauge::default();
        r.register("connections", "Open connections", connections.clone());
        let scheduler = SchedulerMetrics::register(r);
        Metrics {
            registry: whole,
            requests,
            refused,
            cancelled,
            slow_readers,
            engine_failures,
            generated_tokens,
            prompt_tokens,
            reused_tokens,
            missed_pages,
            finished,
            scheduler,
            first_token,
            between_tokens,
            connections,
            resident,
        }
    }

    /// Counts an answer.
    pub fn answered(&self, path: &str, status: u16) {
        let labels = vec![("path", path.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a sequence that ended.
    pub fn finished(&self, summary: &Summary, prompt: usize) {
        let labels = vec![("reason", summary.reason.name().to_owned())];
        self.finished.get_or_create(&labels).inc();
        self.prompt_tokens.inc_by(prompt as u64);
        self.reused_tokens.inc_by(summary.reused.into());
        let MissedPages { new, evicted, generated } = summary.missed;
        for (reason, count) in [("new", new), ("evicted", evicted), ("generated", generated)] {
            let labels = vec![("reason", reason.to_owned())];
            self.missed_pages.get_or_create(&labels).inc_by(count.into());
        }
        if !summary.tokens.is_empty() {
            self.first_token.observe(summary.prompt_time.as_secs_f64());
        }
        if let Some(gaps @ 1..) = summary.tokens.len().checked_sub(1) {
            self.between_tokens.observe(summary.decode_time.as_secs_f64() / gaps as f64);
        }
    }

    /// Sets the metrics of the scheduler to its counts.
    pub fn observe<S: Steps>(&self, scheduler: &Scheduler<'_, S>) {
        self.scheduler.observe(scheduler);
    }

    /// The metrics as text.
    pub fn text(&self) -> String {
        if let Some((gauge, bytes)) = self.resident.as_ref().zip(resident_bytes()) {
            gauge.set(bytes);
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Bytes of this process's memory that are resident. Linux writes them as `VmRSS:  1234 kB`.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// Counts of the scheduler, looked up once: they are set after every step.
struct SchedulerMetrics {
    running: Gauge,
    waiting: Gauge,
    free: Gauge,
    cached: Gauge,
    used: Gauge,
    decode_steps: Counter,
    prefill_steps: Counter,
    decode_rows: Counter,
    prefill_rows: Counter,
    preemptions: Counter,
    /// Drafted and accepted tokens of each source.
    drafts: Vec<(Source, Counter, Counter)>,
}

impl SchedulerMetrics {
    fn register(registry: &mut Registry) -> SchedulerMetrics {
        let sequences = Family::<Labels, Gauge>::default();
        let pages = Family::<Labels, Gauge>::default();
        let steps = Family::<Labels, Counter>::default();
        let rows = Family::<Labels, Counter>::default();
        let state = |family: &Family<Labels, Gauge>, state: &str| {
            family.get_or_create_owned(&vec![("state", state.to_owned())])
        };
        let kind = |family: &Family<Labels, Counter>, kind: &str| {
            family.get_or_create_owned(&vec![("kind", kind.to_owned())])
        };
        let (drafted, accepted) =
            (Family::<Labels, Counter>::default(), Family::<Labels, Counter>::default());
        let source = |family: &Family<Labels, Counter>, source: Source| {
            family.get_or_create_owned(&vec![("source", source.name().to_owned())])
        };
        let metrics = SchedulerMetrics {
            running: state(&sequences, "running"),
            waiting: state(&sequences, "waiting"),
            free: state(&pages, "free"),
            cached: state(&pages, "cached"),
            used: state(&pages, "used"),
            decode_steps: kind(&steps, "decode"),
            prefill_steps: kind(&steps, "prefill"),
            decode_rows: kind(&rows, "decode"),
            prefill_rows: kind(&rows, "prefill"),
            preemptions: Counter::default(),
            drafts: Source::ALL.map(|it| (it, source(&drafted, it), source(&accepted, it))).into(),
        };
        let help = "Tokens that were drafted, by look-up of n-grams or by a draft model";
        registry.register("drafted_tokens", help, drafted);
        registry.register("accepted_tokens", "Drafted tokens that were accepted", accepted);
        let help = "Preempted sequences: others got their pages, and they were recomputed later";
        registry.register("preemptions", help, metrics.preemptions.clone());
        registry.register("sequences", "Sequences that run or wait for a slot", sequences);
        registry.register("pages", "Pages of the KV cache", pages);
        registry.register("steps", "Steps of the engine", steps);
        registry.register("step_rows", "Rows of steps: tokens", rows);
        metrics
    }

    fn observe<S: Steps>(&self, scheduler: &Scheduler<'_, S>) {
        self.running.set(scheduler.running() as i64);
        self.waiting.set(scheduler.waiting() as i64);
        let pages = scheduler.pages();
        self.free.set(pages.free.into());
        self.cached.set(pages.cached.into());
        self.used.set(pages.used.into());
        let StepCounts { decode_steps, decode_rows, prefill_steps, prefill_rows, .. } =
            scheduler.step_counts();
        let StepCounts { preemptions, drafts, .. } = scheduler.step_counts();
        let drafts = self.drafts.iter().flat_map(|(source, drafted, accepted)| {
            [(drafted, drafts[*source].drafted), (accepted, drafts[*source].accepted)]
        });
        let counts = [
            (&self.decode_steps, decode_steps),
            (&self.prefill_steps, prefill_steps),
            (&self.decode_rows, decode_rows),
            (&self.prefill_rows, prefill_rows),
            (&self.preemptions, preemptions),
        ];
        for (counter, count) in counts.into_iter().chain(drafts) {
            counter.inner().store(count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_prefix_but_for_that_of_the_process() {
        let text = Metrics::new().text();
        let names = text.lines().filter(|line| !line.starts_with('#'));
        let others: Vec<&str> = names.filter(|line| !line.starts_with("bespoke_")).collect();
        #[cfg(target_os = "linux")]
        {
            let [line] = others[..] else { panic!("{others:?}") };
            let bytes: f64 = line.strip_prefix("process_resident_memory_bytes ").unwrap().parse().unwrap();
            assert!(bytes > 1e6, "{bytes}");
        }
        #[cfg(not(target_os = "linux"))]
        assert!(others.is_empty(), "{others:?}");
    }
}
