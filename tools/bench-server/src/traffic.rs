//! Kinds of requests of mixed traffic, with the answers that `bespoke serve` must give.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::exchange::{Exchange, Expected, Reading};
use crate::words::{self, Words};

/// What requests depend on.
#[derive(Clone, Debug)]
pub struct Traffic {
    pub model: String,
    /// Positions of the server's context.
    pub context: u32,
    pub words: Words,
    /// Whether the server has a chat template.
    pub chat: bool,
}

/// A kind of request.
pub struct Kind {
    pub name: &'static str,
    /// Share of the traffic, relative to the others.
    pub weight: u32,
    /// Whether it needs a chat template.
    pub chat: bool,
    make: fn(&Traffic, &mut Rng) -> Exchange,
}

const CHATS: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

/// All kinds.
pub static KINDS: [Kind; 24] = [
    chat("chat stream", 12, |it, rng| it.stream(CHATS, it.talk(rng), Duration::ZERO)),
    chat("chat", 8, |it, rng| it.post(CHATS, it.talk(rng), Expected::Choices(1))),
    kind("completion", 6, |it, rng| it.post(COMPLETIONS, it.complete(rng), Expected::Choices(1))),
    kind("completion stream", 6, |it, rng| it.stream(COMPLETIONS, it.complete(rng), Duration::ZERO)),
    kind("several choices", 4, |it, rng| {
        let more = json!({"n": 2, "temperature": 0.9, "logprobs": 2, "stop": [" home"]});
        it.post(COMPLETIONS, with(it.complete(rng), &more), Expected::Choices(2))
    }),
    chat("response stream", 4, |it, rng| {
        let body =
            json!({"model": it.model, "input": words::text(5, rng), "max_output_tokens": it.answer(rng)});
        it.stream(RESPONSES, body, Duration::ZERO)
    }),
    kind("same prompt", 6, Traffic::same),
    kind("long prompt", 5, |it, rng| {
        let prompt = it.words.prompt(it.context * 3 / 4, rng);
        it.post(COMPLETIONS, with(it.complete(rng), &json!({"prompt": prompt})), Expected::Choices(1))
    }),
    kind("shared prefix", 5, |it, rng| {
        let shared = it.words.prompt(it.context / 2, &mut Rng::with_seed(7));
        let prompt = format!("{shared} {}", words::text(3, rng));
        it.stream(COMPLETIONS, with(it.complete(rng), &json!({"prompt": prompt})), Duration::ZERO)
    }),
    chat("JSON schema", 5, |it, rng| {
        let schema = json!({
            "type": "object",
            "properties": {"big": {"type": "boolean"}, "kind": {"enum": ["fox", "bird"]}},
            "required": ["big", "kind"],
            "additionalProperties": false,
        });
        let format = json!({"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}});
        let more = json!({"response_format": format, "max_tokens": it.context / 2});
        it.post(CHATS, with(it.talk(rng), &more), Expected::Json)
    }),
    kind("leaves within the answer", 8, |it, rng| {
        let reading = Reading::Leave { after: rng.u32(1..6) };
        Exchange { reading, ..it.stream(COMPLETIONS, it.endless(rng), Duration::ZERO) }
    }),
    kind("leaves before the answer", 5, |it, rng| {
        let reading = Reading::LeaveBefore { after: Duration::from_millis(rng.u64(1..200)) };
        Exchange { reading, ..it.post(COMPLETIONS, it.endless(rng), Expected::Choices(1)) }
    }),
    kind("slow reader", 3, |it, rng| it.stream(COMPLETIONS, it.complete(rng), Duration::from_millis(150))),
    kind("prompt too long", 3, |it, rng| {
        let prompt = words::text(it.words.words(it.context * 2) + 8, rng);
        it.refused(COMPLETIONS, json!({"prompt": prompt}), "context_length_exceeded")
    }),
    kind("broken JSON", 2, |it, rng| {
        let body = format!("{{\"prompt\": \"{}\"", words::text(3, rng));
        Exchange { body, ..it.refused(COMPLETIONS, Value::Null, "invalid_json") }
    }),
    kind("unknown field", 2, |it, rng| {
        it.refused(COMPLETIONS, with(it.complete(rng), &json!({"temprature": 1})), "unknown_field")
    }),
    kind("wrong type", 2, |it, rng| {
        it.refused(COMPLETIONS, with(it.complete(rng), &json!({"max_tokens": "ten"})), "invalid_value")
    }),
    kind("another model", 1, |it, rng| {
        let body = with(it.complete(rng), &json!({"model": "no/such-model"}));
        it.post(COMPLETIONS, body, Expected::Error(404, "model_not_found"))
    }),
    kind("another content type", 1, |it, rng| Exchange {
        content_type: "text/plain",
        ..it.post(COMPLETIONS, it.complete(rng), Expected::Error(415, "unsupported_content_type"))
    }),
    kind("another method", 1, |_, _| get(COMPLETIONS, Expected::Error(405, "method_not_allowed"))),
    kind("no such path", 1, |_, _| get("/v1/embeddings", Expected::Error(404, "not_found"))),
    kind("models", 1, |_, _| get("/v1/models", Expected::Success)),
    kind("metrics", 1, |_, _| get("/metrics", Expected::Success)),
    kind("tokenize", 2, |it, rng| {
        it.post("/tokenize", json!({"content": words::text(40, rng)}), Expected::Success)
    }),
];

const fn kind(name: &'static str, weight: u32, make: fn(&Traffic, &mut Rng) -> Exchange) -> Kind {
    Kind { name, weight, chat: false, make }
}

/// A kind that needs a chat template.
const fn chat(name: &'static str, weight: u32, make: fn(&Traffic, &mut Rng) -> Exchange) -> Kind {
    Kind { name, weight, chat: true, make }
}

fn get(path: &'static str, expected: Expected) -> Exchange {
    let (method, content_type, body) = ("GET", "", String::new());
    Exchange { method, path, content_type, body, reading: Reading::Whole, expected }
}

/// A body with more fields, or other values of its fields.
fn with(mut body: Value, more: &Value) -> Value {
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body
}

impl Traffic {
    /// Index of a random kind, by their weights.
    pub fn choose(&self, rng: &mut Rng) -> usize {
        let weight = |kind: &Kind| if kind.chat && !self.chat { 0 } else { kind.weight };
        let total: u32 = KINDS.iter().map(weight).sum();
        let mut left = rng.u32(..total);
        let chosen = KINDS.iter().position(|kind| match left.checked_sub(weight(kind)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        chosen.unwrap_or(0)
    }

    /// A request of a kind.
    pub fn request(&self, kind: usize, rng: &mut Rng) -> Exchange {
        (KINDS[kind].make)(self, rng)
    }

    /// Number of tokens of an answer.
    fn answer(&self, rng: &mut Rng) -> u32 {
        rng.u32(2..=(self.context / 4).clamp(2, 64))
    }

    fn talk(&self, rng: &mut Rng) -> Value {
        let text = words::text(rng.u32(2..12), rng);
        json!({"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": self.answer(rng)})
    }

    fn complete(&self, rng: &mut Rng) -> Value {
        let text = words::text(rng.u32(2..12), rng);
        json!({"model": self.model, "prompt": text, "max_tokens": self.answer(rng), "ignore_eos": rng.bool()})
    }

    /// A request whose answer is as long as the context allows.
    fn endless(&self, rng: &mut Rng) -> Value {
        let more = json!({"max_tokens": self.context, "ignore_eos": true});
        with(self.complete(rng), &more)
    }

    /// One of a few requests, greedy or with a seed, whose answers must not depend on the load.
    fn same(&self, rng: &mut Rng) -> Exchange {
        let number = rng.u32(..4);
        let own = &mut Rng::with_seed(number.into());
        let temperature = if number.is_multiple_of(2) { 0.0 } else { 0.9 };
        let more = json!({"temperature": temperature, "seed": number, "ignore_eos": true, "max_tokens": 12});
        let body = with(self.complete(own), &more);
        let key = format!("{} (seed {number})", body["prompt"].as_str().unwrap_or_default());
        self.post(COMPLETIONS, body, Expected::Same(key))
    }

    fn post(&self, path: &'static str, body: Value, expected: Expected) -> Exchange {
        let (method, content_type) = ("POST", "application/json");
        Exchange { method, path, content_type, body: body.to_string(), reading: Reading::Whole, expected }
    }

    fn stream(&self, path: &'static str, body: Value, pause: Duration) -> Exchange {
        let body = with(body, &json!({"stream": true}));
        Exchange { reading: Reading::Events { pause }, ..self.post(path, body, Expected::Stream) }
    }

    /// A request that is wrong (400).
    fn refused(&self, path: &'static str, body: Value, code: &'static str) -> Exchange {
        self.post(path, body, Expected::Error(400, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(chat: bool) -> Traffic {
        Traffic { model: "demo".to_owned(), context: 256, words: Words { tokens_per_word: 2.0 }, chat }
    }

    #[test]
    fn all_kinds_are_sent_and_those_with_a_template_only_if_there_is_one() {
        for (with_template, expected) in
            [(true, KINDS.len()), (false, KINDS.iter().filter(|it| !it.chat).count())]
        {
            let (traffic, mut rng) = (traffic(with_template), Rng::with_seed(1));
            let mut counts = [0_u32; KINDS.len()];
            (0..5000).for_each(|_| counts[traffic.choose(&mut rng)] += 1);
            assert_eq!(counts.iter().filter(|&&count| count > 0).count(), expected, "{counts:?}");
        }
    }

    #[test]
    fn bodies_are_json_but_for_the_broken_one() {
        let (traffic, mut rng) = (traffic(true), Rng::with_seed(1));
        for (index, kind) in KINDS.iter().enumerate() {
            let exchange = traffic.request(index, &mut rng);
            let is_json = serde_json::from_str::<Value>(&exchange.body).is_ok();
            assert_eq!(is_json, exchange.method == "POST" && kind.name != "broken JSON", "{exchange:?}");
        }
    }

    #[test]
    fn requests_with_the_same_key_are_the_same() {
        let (traffic, mut rng) = (traffic(true), Rng::with_seed(1));
        let mut bodies = std::collections::HashMap::new();
        for _ in 0..50 {
            let exchange = traffic.same(&mut rng);
            let Expected::Same(key) = exchange.expected else { panic!("{exchange:?}") };
            assert_eq!(bodies.entry(key).or_insert_with(|| exchange.body.clone()), &exchange.body);
        }
        assert_eq!(bodies.len(), 4);
    }
}
