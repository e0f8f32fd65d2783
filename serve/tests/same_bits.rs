//! The answers of the demo model on the emulator are those of each prompt alone, whatever the load.

#![cfg(unix)]

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::generation::Request;
use bespoke::scheduler::{Scheduler, Steps};
use bespoke::speculation::Speculation;
use bespoke_kernels::shape::ModelShape;
use bespoke_serve::Server;
use serde_json::{Value, json};
use support::{client_post, model, options, send, tokenizer};

/// Clients at the same time.
const CLIENTS: usize = 32;
const CONTEXT: u32 = 128;
const PROMPTS: [&str; 4] =
    ["17 + 25 =", "The old fox", "86 * 7 =", "The old fox lives in the tower. It wants"];

fn engine(parallel: u32, drafts: u32) -> Engine {
    let gguf = bespoke_demo::model().unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let (context, prefill) = (Some(CONTEXT), true);
    let options = EngineOptions { context, prefill, parallel, drafts, sampling, ..EngineOptions::default() };
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Prompt, temperature, seed and number of tokens of a client.
fn request(client: usize) -> (&'static str, f32, u64, u32) {
    let temperature = if client.is_multiple_of(3) { 0.0 } else { 0.9 };
    (PROMPTS[client % PROMPTS.len()], temperature, client as u64, 3 + client as u32 % 4)
}

/// The answers of clients, each alone.
fn alone(clients: usize) -> Vec<String> {
    let tokenizer = tokenizer();
    let mut alone = engine(1, 0);
    let answer = |client| {
        let (text, temperature, seed, max_tokens) = request(client);
        let prompt = tokenizer.encode(text).unwrap();
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        let stop_tokens = tokenizer.end_tokens();
        let request = Request { sampling, max_tokens, stop_tokens, ..Request::new(&prompt) };
        let mut scheduler = Scheduler::new(Slots::new(&mut alone).unwrap(), Some(&tokenizer));
        scheduler.generate(&request, |_| ControlFlow::Continue(())).unwrap().text
    };
    (0..clients).map(answer).collect()
}

/// Starts a server with a number of slots, and compares the answers of clients at the same time with those of each alone.
/// If the server speculates, it has a draft model. Returns the metrics.
fn check(slots: u32, clients: usize, speculation: Speculation) -> String {
    let expected = alone(clients);
    let timeout = std::time::Duration::from_secs(600);
    let options = bespoke_serve::Options { queue: 32, timeout, speculation, ..options() };
    let server = Server::start(options).unwrap();
    let (address, handle) = (Arc::new(server.address().to_owned()), server.handle());
    let thread = std::thread::spawn(move || {
        let mut target = engine(slots, speculation.most);
        let mut draft = (speculation.most > 0).then(|| engine(slots, 1));
        let draft = draft.as_mut().map(|draft| Box::new(Slots::new(draft).unwrap()) as Box<dyn Steps + '_>);
        server.run_with_draft_model(model(), Slots::new(&mut target).unwrap(), draft).unwrap();
    });
    while send(&address, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status != 200
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let address = Arc::clone(&address);
            std::thread::spawn(move || answer(&address, client))
        })
        .collect();
    let found: Vec<String> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let metrics =
        send(&address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").body;
    handle.shut_down();
    thread.join().unwrap();
    for (client, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "client {client}: {:?}", request(client));
    }
    assert!(expected.contains(&" 42".to_owned()), "{expected:?}");
    metrics
}

#[test]
fn thirty_two_clients_get_the_answers_of_each_alone() {
    check(8, CLIENTS, Speculation::default());
}

#[test]
fn clients_of_a_server_with_a_draft_model_get_the_same_answers() {
    // As long as possible: on the emulator the times of steps would forbid drafts.
    let metrics = check(3, 6, Speculation { most: 3, always: true, lookup: true });
    for name in ["drafted", "accepted"] {
        let name = format!("bespoke_{name}_tokens_total{{source=\"model\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
        assert!(count.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0), "{name}{metrics}");
    }
    assert!(metrics.contains("bespoke_drafted_tokens_total{source=\"lookup\"} "), "{metrics}");
}

/// The text that a client gets: every second one by chat, every fourth one as a stream.
fn answer(address: &str, client: usize) -> String {
    let (prompt, temperature, seed, max_tokens) = request(client);
    let mut body = json!({"temperature": temperature, "seed": seed, "max_tokens": max_tokens});
    let path = if client.is_multiple_of(2) {
        body["messages"] = json!([{"role": "user", "content": prompt}]);
        "/v1/chat/completions"
    } else {
        body["prompt"] = prompt.into();
        "/v1/completions"
    };
    body["stream"] = client.is_multiple_of(4).into();
    let reply = send(address, &client_post(path, &body.to_string()));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let part = |choice: &Value| {
        let text = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]];
        text.iter().filter_map(|text| text.as_str()).collect::<String>()
    };
    match reply.events().as_slice() {
        [] => part(&reply.json()["choices"][0]),
        events => {
            let values = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
            values.map(|event| part(&event["choices"][0])).collect()
        }
    }
}
