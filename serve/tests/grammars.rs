//! Answers that belong to a language, by the demo model on the emulator: it knows no JSON, so the grammar alone makes it so.

#![cfg(unix)]

mod support;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke_kernels::shape::ModelShape;
use bespoke_serve::{Model, Options, Server};
use serde_json::{Value, json};
use support::{client_post, model, model_with, options, send};

fn engine() -> Engine {
    let gguf = bespoke_demo::model().unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let options = EngineOptions { context: Some(512), parallel: 4, sampling, ..EngineOptions::default() };
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Answers to requests, each a path and a body.
fn ask(engine: &mut Engine, model: Model, requests: &[(&'static str, Value)]) -> Vec<support::Reply> {
    let options = Options { queue: 64, timeout: std::time::Duration::from_secs(600), ..options() };
    let server = Server::start(options).unwrap();
    let (address, handle) = (server.address().to_owned(), server.handle());
    let requests: Vec<String> =
        requests.iter().map(|(path, body)| client_post(path, &body.to_string())).collect();
    let clients = std::thread::spawn(move || {
        while send(&address, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status
            != 200
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // All at once, so that rows with grammars and rows without share steps.
        let clients: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let address = address.clone();
                std::thread::spawn(move || send(&address, &request))
            })
            .collect();
        let replies: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        handle.shut_down();
        replies
    });
    server.run(model, Slots::new(engine).unwrap()).unwrap();
    clients.join().unwrap().into_iter().map(|reply| reply.unwrap()).collect()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]{2,6}$"},
            "age": {"type": "integer", "minimum": 1, "maximum": 120},
            "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 2},
            "home": {"$ref": "#/$defs/home"},
        },
        "required": ["name", "age", "colours", "home"],
        "additionalProperties": false,
        "$defs": {"home": {
            "type": "object",
            "properties": {"tower": {"type": "boolean"}},
            "required": ["tower"],
            "additionalProperties": false,
        }},
    })
}

fn fits_schema(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let colours = value["colours"].as_array().cloned().unwrap_or_default();
    let name = value["name"].as_str().unwrap_or_default();
    (2..=6).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase())
        && (1..=120).contains(&value["age"].as_u64().unwrap_or_default())
        && (1..=2).contains(&colours.len())
        && colours.iter().all(|colour| [json!("red"), json!("green"), json!("blue")].contains(colour))
        && value["home"]["tower"].is_boolean()
        && value.as_object().is_some_and(|fields| fields.len() == 4)
}

fn is_time(text: &str) -> bool {
    let digit = |at: usize| text.as_bytes()[at].is_ascii_digit();
    text.len() == 5 && text.as_bytes()[2] == b':' && [0, 1, 3, 4].into_iter().all(digit)
}

/// Fields of a request, and whether an answer fits them.
type Case = (&'static str, Value, fn(&str) -> bool);

fn cases() -> Vec<Case> {
    let format = |schema: Value| json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let nested = json!({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "array", "items": {"const": 1}, "maxItems": 1}, "maxItems": 1}}, "required": ["x"], "additionalProperties": false});
    vec![
        ("a schema", json!({"response_format": format(schema())}), fits_schema),
        (
            "a schema, sampled, two choices",
            json!({"response_format": format(schema()), "temperature": 1.5, "seed": 7, "n": 2}),
            fits_schema,
        ),
        (
            "a schema, with log-probabilities and a penalty",
            json!({"response_format": format(schema()), "logprobs": true, "frequency_penalty": 0.5, "temperature": 0.7, "seed": 1}),
            fits_schema,
        ),
        ("a schema, as a stream", json!({"response_format": format(schema()), "stream": true}), fits_schema),
        ("nested lists", json!({"response_format": format(nested)}), |text| {
            serde_json::from_str::<Value>(text).is_ok_and(|value| value["x"].is_array())
        }),
        (
            "a schema as a text, no white space",
            json!({"structured_outputs": {"json": schema().to_string(), "whitespace_pattern": "x{0}"}}),
            |text| fits_schema(text) && !text.contains(' '),
        ),
        ("a regular expression", json!({"structured_outputs": {"regex": "[012][0-9]:[0-5][0-9]"}}), is_time),
        (
            "a regular expression, sampled",
            json!({"structured_outputs": {"regex": "[012][0-9]:[0-5][0-9]"}, "temperature": 2.0, "seed": 3}),
            is_time,
        ),
        ("a choice", json!({"structured_outputs": {"choice": ["the fox", "the baker"]}}), |text| {
            ["the fox", "the baker"].contains(&text)
        }),
        (
            "a grammar",
            json!({"structured_outputs": {"grammar": "start: sum \" = \" NUMBER\nsum: NUMBER (\" + \" NUMBER)+\nNUMBER: /[1-9]/"}, "max_tokens": 40}),
            |text| {
                text.len() > 5
                    && text[1..].starts_with(" + ")
                    && text.bytes().all(|b| b" 123456789+=".contains(&b))
            },
        ),
        ("no grammar beside the others", json!({}), |text| text == " 42"),
    ]
}

/// Texts of the choices of a chat.
fn texts(reply: &support::Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events = reply.events();
    if events.is_empty() {
        let choices = reply.json()["choices"].as_array().unwrap().clone();
        return choices.iter().map(|it| it["message"]["content"].as_str().unwrap().to_owned()).collect();
    }
    let values = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    vec![
        values
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect(),
    ]
}

#[test]
fn answers_belong_to_the_language_that_is_asked_for() {
    let cases = cases();
    let body = |fields: &Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "17 + 25 ="}], "max_tokens": 250});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ("/v1/chat/completions", body)
    };
    let mut requests: Vec<_> = cases.iter().map(|(_, fields, _)| body(fields)).collect();
    let format = json!({"type": "json_schema", "name": "x", "schema": schema()});
    requests.push(("/v1/responses", json!({"input": "17 + 25 =", "text": {"format": format}})));
    requests.push((
        "/v1/completions",
        json!({"prompt": "17 + 25 =", "structured_outputs": {"regex": " [0-9]{4}"}}),
    ));
    let replies = ask(&mut engine(), model(), &requests);
    for ((name, fields, fits), reply) in cases.iter().zip(&replies) {
        let texts = texts(reply);
        assert_eq!(texts.len() as u64, fields["n"].as_u64().unwrap_or(1));
        assert!(texts.iter().all(|text| fits(text)), "{name}: {texts:?}");
    }
    let [.., response, completion] = &replies[..] else { panic!("{replies:?}") };
    let response = response.json();
    assert_eq!((&response["status"], &response["text"]["format"]), (&json!("completed"), &format));
    assert!(fits_schema(response["output"][0]["content"][0]["text"].as_str().unwrap()), "{response}");
    let completion = completion.json();
    let text = completion["choices"][0]["text"].as_str().unwrap();
    assert!(text.len() == 5 && text.trim().parse::<u32>().is_ok(), "{completion}");
    assert_eq!(completion["choices"][0]["finish_reason"], "stop");
}

/// Templates as far as the server looks at them.
const FAMILIES: [(&str, &str); 4] = [
    ("Hermes", "{% if tools %}<tool_call>{% endif %}{{ messages[-1].content }}"),
    (
        "Llama 3",
        "{# <|start_header_id|> \"parameters\" #}{% if tools %}.{% endif %}{{ messages[-1].content }}",
    ),
    ("Mistral", "{% if tools %}[TOOL_CALLS]{% endif %}{{ messages[-1].content }}"),
    ("Mistral 11", "{% if tools %}[TOOL_CALLS][ARGS]{% endif %}{{ messages[-1].content }}"),
];

#[test]
fn a_model_that_must_call_a_tool_calls_it_in_the_form_of_its_family() {
    let add = json!({"type": "function", "function": {"name": "add", "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "op": {"enum": ["+", "-"]}},
        "required": ["a", "op"],
        "additionalProperties": false,
    }}});
    let now = json!({"type": "function", "function": {"name": "now"}});
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    // The choice, whether several calls may come, and the functions of which one must be called.
    let choices = [
        (json!("required"), true, ["add", "now"].as_slice()),
        (json!("required"), false, &["add", "now"]),
        (named("add"), true, &["add"]),
        (named("now"), false, &["now"]),
    ];
    let mut engine = engine();
    for (family, template) in FAMILIES {
        let mut requests = Vec::new();
        for (seed, (choice, parallel, _)) in (0u32..).zip(&choices) {
            requests.push((
                "/v1/chat/completions",
                json!({
                    "messages": [{"role": "user", "content": "17 + 25"}], "tools": [add, now],
                    "tool_choice": choice, "parallel_tool_calls": parallel, "temperature": 0.8, "seed": seed, "max_tokens": 150,
                    "stream": seed == 1,
                }),
            ));
        }
        let replies = ask(&mut engine, model_with(template), &requests);
        for ((choice, parallel, allowed), reply) in choices.iter().zip(&replies) {
            let calls = calls(reply);
            assert!(!calls.is_empty(), "{family}, {choice}: {}", reply.body);
            assert!(calls.len() == 1 || *parallel && choice == "required", "{family}, {choice}: {calls:?}");
            for call in &calls {
                let name = call["name"].as_str().unwrap();
                assert!(allowed.contains(&name), "{family}, {choice}: {call}");
                let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
                match name {
                    "add" => assert!(arguments["a"].as_u64().unwrap() < 10 && arguments["op"].is_string()),
                    _ => assert_eq!(arguments, json!({})),
                }
            }
        }
    }
}

/// The functions that an answer calls; it has no text, and ends with its calls.
fn calls(reply: &support::Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let events: Vec<Value> =
        reply.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let choices = match &events[..] {
        [] => vec![reply.json()["choices"][0].clone()],
        events => events.iter().map(|event| event["choices"][0].clone()).collect(),
    };
    // An answer with several calls may be cut off at its limit.
    let reason = &choices.last().unwrap()["finish_reason"];
    assert!(reason == "tool_calls" || reason == "length", "{}", reply.body);
    let lists =
        choices.iter().flat_map(|choice| [&choice["message"]["tool_calls"], &choice["delta"]["tool_calls"]]);
    let mut calls: Vec<Value> = Vec::new();
    for part in lists.filter_map(Value::as_array).flatten().map(|call| &call["function"]) {
        match calls.last_mut() {
            // The arguments of a stream's call arrive in parts.
            Some(call) if part["name"].is_null() => {
                let text = [&call["arguments"], &part["arguments"]].map(|text| text.as_str().unwrap());
                call["arguments"] = text.concat().into();
            }
            _ => calls.push(part.clone()),
        }
    }
    let texts =
        choices.iter().flat_map(|choice| [&choice["message"]["content"], &choice["delta"]["content"]]);
    assert!(reason == "length" || texts.filter_map(Value::as_str).all(str::is_empty), "{}", reply.body);
    calls
}
