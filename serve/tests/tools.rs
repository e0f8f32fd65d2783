//! Calls of tools: in the form of each family, whole and as a stream.

#![cfg(unix)]

mod support;

use bespoke_serve::Server;
use serde_json::{Value, json};
use support::{Sizes, model_with, options, reciter, serve, tokenizer};

/// A template of a family, as far as the server looks at it, and what its model writes.
const FAMILIES: [(&str, &str, &str); 5] = [
    (
        "Hermes",
        "{% if tools %}Write <tool_call>. {{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
        "I look. <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 17, \"b\": 25}}</tool_call><|end|>",
    ),
    (
        "Llama 3",
        "{# <|start_header_id|> #}{% if tools %}Write \"parameters\". {{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
        "{\"name\": \"add\", \"parameters\": {\"a\": 17, \"b\": 25}}<|end|>",
    ),
    (
        "Mistral",
        "{% if tools %}Write [TOOL_CALLS]. {{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
        "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 17, \"b\": 25}}]<|end|>",
    ),
    (
        "Mistral 11",
        "{% if tools %}Write [TOOL_CALLS] and [ARGS]. {{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
        "[TOOL_CALLS]add[ARGS]{\"a\": 17, \"b\": 25}<|end|>",
    ),
    (
        "Qwen3-Coder",
        "{% if tools %}Write <tool_call> <function=>. {{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
        "<tool_call><function=add><parameter=a>17</parameter><parameter=b>25</parameter></function></tool_call><|end|>",
    ),
];

fn body(more: Value) -> String {
    let mut body = json!({
        "messages": [{"role": "user", "content": "17 + 25"}],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        }}}],
        "stop": "<|end|>",
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

#[test]
fn calls_are_found_in_the_form_of_each_family() {
    for (family, template, text) in FAMILIES {
        let sizes = Sizes { context: 600, pages: 20, text, ..Sizes::default() };
        let (steps, pace) = reciter(&tokenizer(), &sizes);
        let server = serve(Server::start(options()).unwrap(), model_with(template), steps, pace);
        let reply = server.post("/v1/chat/completions", &body(json!({})));
        let choice = &reply.json()["choices"][0];
        let message = &choice["message"];
        assert_eq!(choice["finish_reason"], "tool_calls", "{family}: {reply:?}");
        assert_eq!(message["content"], if family == "Hermes" { json!("I look.") } else { Value::Null });
        let call = &message["tool_calls"][0];
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("add")));
        let written = |call: &Value| call["function"]["arguments"].as_str().unwrap().to_owned();
        let arguments = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert_eq!(arguments(&written(call)), json!({"a": 17, "b": 25}));
        assert!(call["id"].as_str().unwrap().starts_with("call_"));

        let reply = server.post("/v1/chat/completions", &body(json!({"stream": true})));
        let events: Vec<Value> =
            reply.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let deltas = events.iter().map(|event| &event["choices"][0]["delta"]);
        let calls: Vec<&Value> = deltas.clone().filter_map(|delta| delta["tool_calls"].get(0)).collect();
        // Arguments arrive in parts.
        assert!((3..=30).contains(&calls.len()), "{family}: {}", reply.body);
        assert!(calls[0]["id"].is_string() && calls[1..].iter().all(|call| call["id"].is_null()));
        assert!(calls.iter().all(|call| call["index"] == 0), "{family}: {}", reply.body);
        let joined: String = calls.iter().map(|call| written(call)).collect();
        assert_eq!(arguments(&joined), json!({"a": 17, "b": 25}));
        let content: String = deltas.filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(content, if family == "Hermes" { "I look." } else { "" });
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

        // Without tools the same text is a text.
        let reply = server.post("/v1/chat/completions", &body(json!({"tool_choice": "none"})));
        let choice = &reply.json()["choices"][0];
        assert_eq!(choice["message"]["content"], text.trim_end_matches("<|end|>"));
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[test]
fn a_call_without_a_grammar_cannot_be_required() {
    let (_, template, _) = FAMILIES[4];
    let (steps, pace) = reciter(&tokenizer(), &Sizes { context: 600, pages: 20, ..Sizes::default() });
    let server = serve(Server::start(options()).unwrap(), model_with(template), steps, pace);
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "add"}})] {
        let reply = server.post("/v1/chat/completions", &body(json!({"tool_choice": choice})));
        assert_eq!((reply.status, reply.code().as_str()), (400, "unsupported"), "{}", reply.body);
        assert!(reply.body.contains("<function=NAME>"), "{}", reply.body);
    }
}

#[test]
fn a_conversation_with_calls_and_results_goes_through_the_template() {
    let template = "{# <tool_call> #}{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for call in m.tool_calls or [] %}\
                    {{ call.function.name }}({{ call.function.arguments.a }}){% endfor %};{% endfor %}{{ (tools or []) | length }}";
    let (steps, pace) = reciter(&tokenizer(), &Sizes::default());
    let server = serve(Server::start(options()).unwrap(), model_with(template), steps, pace);
    let messages = json!([
        {"role": "user", "content": "17"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 5}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]);
    let tokens = server.post("/tokenize", &json!({"messages": messages}).to_string());
    let text = server.post("/detokenize", &json!({"tokens": tokens.json()["tokens"]}).to_string());
    assert_eq!(text.json()["content"], "user:17;assistant:add(5);tool:42;0");
}
