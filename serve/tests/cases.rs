//! Requests with the status and the body that they must get: `cases.txt`.
//!
//! A case begins with a line `== NAME`. Then follow the request's line, its headers, an empty line, and its body; a line
//! `-- STATUS`, and what the answer must have: JSON of which the answer may have more, with `"*"` for any value, or lines
//! `data:` of a stream, each JSON of that kind.

#![cfg(unix)]

mod support;

use serde_json::Value;
use support::{Sizes, options, send, start};

struct Case<'a> {
    name: &'a str,
    request: String,
    status: u16,
    expected: &'a str,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let parse = |block| {
        let (name, rest): (&str, &str) = str::split_once(block, '\n')?;
        let (request, answer) = rest.split_once("\n-- ")?;
        let (status, expected) = answer.split_once('\n')?;
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let body = body.trim_end_matches('\n');
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let mut sent = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if line.starts_with("POST") {
            if !headers.contains("Content-Type") {
                sent += "Content-Type: application/json\r\n";
            }
            if !headers.contains("Content-Length") {
                sent += &format!("Content-Length: {}\r\n", body.len());
            }
        }
        headers.lines().for_each(|header| sent += &format!("{header}\r\n"));
        Some(Case { name, request: sent + "\r\n" + body, status: status.parse().ok()?, expected })
    };
    let blocks = text.split("\n== ").skip(1);
    blocks.map(|block| parse(block).unwrap_or_else(|| panic!("no case: {block}"))).collect()
}

/// Whether a value has everything that is expected of it.
fn has(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (_, Value::String(any)) if any == "*" => true,
        (Value::Object(value), Value::Object(expected)) => {
            expected.iter().all(|(key, expected)| value.get(key).is_some_and(|value| has(value, expected)))
        }
        (Value::Array(value), Value::Array(expected)) => {
            value.len() == expected.len()
                && value.iter().zip(expected).all(|(value, expected)| has(value, expected))
        }
        (Value::Number(value), Value::Number(expected)) => {
            (value.as_f64().unwrap() - expected.as_f64().unwrap()).abs() < 1e-6
        }
        _ => value == expected,
    }
}

#[test]
fn requests_have_the_expected_answers() {
    let sizes = Sizes { context: 200, ..Sizes::default() };
    let server = start(options(), &sizes);
    let text = include_str!("cases.txt");
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in cases(text) {
        count += 1;
        let reply = send(&server.address, &case.request);
        let events: Vec<&str> = reply.events();
        let found: Vec<&str> = if events.is_empty() { vec![reply.body.as_str()] } else { events };
        let lines = case.expected.lines().filter_map(|line| line.strip_prefix("data: "));
        let lines: Vec<&str> = lines.collect();
        let expected = if lines.is_empty() { vec![case.expected] } else { lines };
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.trim().into());
        let right = reply.status == case.status
            && found.len() == expected.len()
            && found.iter().zip(&expected).all(|(found, expected)| has(&value(found), &value(expected)));
        if !right {
            wrong.push(format!(
                "{}\nexpected {} {}\nfound {} {}",
                case.name, case.status, case.expected, reply.status, reply.body
            ));
        }
    }
    assert!(count > 50, "only {count} cases were read");
    assert!(wrong.is_empty(), "{} of {count} cases are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
    server.end().unwrap();
}
