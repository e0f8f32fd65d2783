//! Results as text.

use std::fmt::Write;

use comfy_table::{Table, presets};

use crate::{Level, Measurements, Percentiles, Report};

/// Table of a measurement, and the reasons of failed requests.
pub fn measurements(results: &Measurements) -> String {
    let mut table = table(&[
        "clients",
        "requests",
        "failed",
        "prompt tokens",
        "answer tokens",
        "t/s",
        "first token p50 ms",
        "p99 ms",
        "between tokens p50 ms",
        "p99 ms",
    ]);
    for level in &results.levels {
        let [first_p50, first_p99] = milliseconds(level.first_token);
        let [between_p50, between_p99] = milliseconds(level.between_tokens);
        table.add_row([
            level.clients.to_string(),
            level.requests.to_string(),
            level.failed.to_string(),
            format!("{:.0}", level.prompt_tokens),
            format!("{:.0}", level.answer_tokens as f64 / f64::from(level.requests.max(1))),
            format!("{:.1}", level.tokens_per_second),
            first_p50,
            first_p99,
            between_p50,
            between_p99,
        ]);
    }
    let mut text = format!("{table}\n");
    if results.answers_may_end_early {
        text += "\nThe server does not know `ignore_eos`: answers may be shorter than asked for.\n";
    }
    list(&mut text, "Failed requests", &results.failures);
    text
}

/// One number of clients as a line.
pub fn level(level: &Level) -> String {
    let Level { clients, seconds, tokens_per_second, .. } = level;
    let plural = if *clients == 1 { "" } else { "s" };
    format!("{clients} client{plural}: {tokens_per_second:.1} tokens/s in {seconds:.1} s")
}

/// Table of the kinds of requests, the server's memory, and what is wrong.
pub fn report(report: &Report) -> String {
    let mut table =
        table(&["request", "answered", "refused", "left", "slow reader", "unexpected", "p50 ms", "p99 ms"]);
    for kind in &report.kinds {
        let [p50, p99] = milliseconds(kind.time);
        table.add_row([
            kind.name.to_owned(),
            kind.answered.to_string(),
            kind.refused.to_string(),
            kind.left.to_string(),
            kind.slow_readers.to_string(),
            kind.unexpected.to_string(),
            p50,
            p99,
        ]);
    }
    let mut text = format!("{table}\n\n{}\n", summary(report));
    list(&mut text, "Unexpected answers", &report.unexpected);
    list(&mut text, "Problems", &report.problems());
    text
}

/// The number of requests and the memory as a line.
pub fn summary(report: &Report) -> String {
    let mut text =
        format!("{} requests of {} clients in {:.0} s", report.requests(), report.clients, report.seconds);
    if let Some(memory) = report.memory {
        write!(
            text,
            "; resident memory {:.1} MiB, {:+.1}% since the first quarter",
            memory.end / f64::from(1 << 20),
            memory.growth() * 100.0
        )
        .expect("writing to a string succeeds");
    }
    text
}

fn list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let items: Vec<String> = items.iter().map(|item| format!("- {item}\n")).collect();
        write!(text, "\n{title}:\n{}", items.concat()).expect("writing to a string succeeds");
    }
}

fn milliseconds(percentiles: Option<Percentiles>) -> [String; 2] {
    let cell = |of: fn(&Percentiles) -> f64| {
        percentiles.as_ref().map_or("-".to_owned(), |percentiles| format!("{:.1}", of(percentiles)))
    };
    [cell(|it| it.p50), cell(|it| it.p99)]
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.to_vec());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_a_table_with_the_reasons_of_failures() {
        let level = Level {
            clients: 8,
            requests: 15,
            failed: 1,
            seconds: 2.0,
            prompt_tokens: 31.6,
            answer_tokens: 240,
            tokens_per_second: 120.0,
            first_token: Some(Percentiles { p50: 12.34, p99: 56.7 }),
            between_tokens: None,
        };
        let results = Measurements {
            url: "http://localhost".to_owned(),
            model: "demo".to_owned(),
            answers_may_end_early: true,
            levels: vec![level.clone()],
            failures: vec!["8 clients: status 429".to_owned()],
        };
        let text = measurements(&results);
        let cells: Vec<&str> = text.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells[1..11], ["8", "15", "1", "32", "16", "120.0", "12.3", "56.7", "-", "-"], "{text}");
        assert!(text.contains("ignore_eos") && text.contains("- 8 clients: status 429\n"), "{text}");
        assert_eq!(super::level(&level), "8 clients: 120.0 tokens/s in 2.0 s");
    }
}
