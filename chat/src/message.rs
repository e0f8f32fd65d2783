//! What a template is rendered from.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use minijinja::Value;
use minijinja::value::ValueKind;
use serde::{Deserialize, Serialize};

/// A message of a conversation: a mapping with at least `role`, and mostly `content`. Other keys, such as
/// `tool_calls`, are kept with their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Message(Value);

impl Message {
    /// Creates a message with a text.
    pub fn new(role: &str, text: &str) -> Message {
        Message(Value::from_pairs([("role", role), ("content", text)]))
    }

    /// The role, such as `system`, `user`, `assistant` or `tool`.
    pub fn role(&self) -> String {
        self.field("role").and_then(|role| role.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The content, if it is a text; else the texts of its parts.
    pub fn text(&self) -> String {
        let Some(content) = self.field("content") else { return String::new() };
        if let Some(text) = content.as_str() {
            return text.to_owned();
        }
        let parts = content.try_iter().into_iter().flatten();
        parts.filter_map(|part| part.get_attr("text").ok()?.as_str().map(str::to_owned)).collect()
    }

    /// Whether the content is a text or a list of parts with a `type`; it may be missing or `null` beside `tool_calls`.
    pub fn has_text(&self) -> bool {
        let is_absent = |value: &Value| value.is_none() || value.is_undefined();
        match self.field("content").filter(|content| !is_absent(content)) {
            None => self.field("tool_calls").is_some_and(|calls| !is_absent(&calls)),
            Some(content) if content.as_str().is_some() => true,
            Some(content) if content.kind() == ValueKind::Seq => {
                let is_part = |part: Value| part.get_attr("type").is_ok_and(|kind| kind.as_str().is_some());
                content.try_iter().is_ok_and(|mut parts| parts.all(is_part))
            }
            Some(_) => false,
        }
    }

    /// Types of the content's parts, such as `text` and `image_url`; none if the content is one text.
    pub fn part_types(&self) -> Vec<String> {
        let content = self.field("content").filter(|content| content.kind() == ValueKind::Seq);
        let parts = content.iter().flat_map(|content| content.try_iter().into_iter().flatten());
        parts.filter_map(|part| part.get_attr("type").ok()?.as_str().map(str::to_owned)).collect()
    }

    /// The message with its parts' texts as one text, with `separator` between them. Many templates only write texts.
    pub fn with_joined_parts(self, separator: &str) -> Message {
        let Some(content) = self.field("content").filter(|content| content.kind() == ValueKind::Seq) else {
            return self;
        };
        let parts = content.try_iter().into_iter().flatten();
        let texts = parts.filter_map(|part| part.get_attr("text").ok()?.as_str().map(str::to_owned));
        let text = texts.collect::<Vec<_>>().join(separator);
        self.with("content", Value::from(text))
    }

    /// The message with another role.
    pub fn with_role(self, role: &str) -> Message {
        self.with("role", Value::from(role))
    }

    /// The message with the arguments of its calls as mappings, as templates expect them: in OpenAI's API they are texts with
    /// JSON. Texts that are not JSON stay.
    pub fn with_parsed_arguments(self) -> Message {
        let Some(calls) = self.field("tool_calls").filter(|calls| calls.kind() == ValueKind::Seq) else {
            return self;
        };
        let parsed = |call: Value| -> Option<Value> {
            let function = call.get_attr("function").ok()?;
            let arguments = serde_json::from_str(function.get_attr("arguments").ok()?.as_str()?).ok()?;
            Some(replaced(&call, "function", replaced(&function, "arguments", arguments)))
        };
        let calls = calls.try_iter().into_iter().flatten();
        let calls: Vec<Value> = calls.map(|call| parsed(call.clone()).unwrap_or(call)).collect();
        self.with("tool_calls", Value::from(calls))
    }

    /// The message with another value of a key, in the same place.
    fn with(&self, key: &str, value: Value) -> Message {
        Message(replaced(&self.0, key, value))
    }

    /// The message as a value of templates.
    pub fn value(&self) -> &Value {
        &self.0
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.0.get_attr(name).ok().filter(|value| !value.is_undefined())
    }

    /// The message with its reasoning under the names that templates read, as in `transformers`: `reasoning_content`,
    /// and for older templates `thinking`.
    pub(crate) fn with_reasoning_aliases(&self) -> Value {
        let reasoning = ["reasoning_content", "thinking", "reasoning"]
            .into_iter()
            .find_map(|name| self.field(name).filter(|value| !value.is_none()));
        let Some(reasoning) = reasoning else { return self.0.clone() };
        // A later entry replaces the value of an earlier one, and keeps its place.
        let first = [(Value::from("thinking"), reasoning.clone())];
        let last = [(Value::from("reasoning_content"), reasoning)];
        Value::from_pairs(first.into_iter().chain(pairs(&self.0)).chain(last))
    }
}

/// Keys of a mapping with their values.
fn pairs(mapping: &Value) -> impl Iterator<Item = (Value, Value)> + '_ {
    let keys = mapping.try_iter().into_iter().flatten();
    keys.filter_map(|key| Some((key.clone(), mapping.get_item(&key).ok()?)))
}

/// A mapping with another value of a key, in the same place.
fn replaced(mapping: &Value, key: &str, value: Value) -> Value {
    Value::from_pairs(pairs(mapping).chain([(Value::from(key), value)]))
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        let message = Message(Value::deserialize(deserializer)?);
        if message.field("role").is_some_and(|role| role.as_str().is_some()) {
            Ok(message)
        } else {
            Err(serde::de::Error::custom("a message is an object with a text `role`"))
        }
    }
}

/// Variables of a template.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Inputs {
    /// The conversation.
    pub messages: Vec<Message>,
    /// Descriptions of tools (JSON schemas) that the model may call.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// Documents for retrieval, with `title` and `text`.
    #[serde(default)]
    pub documents: Option<Vec<Value>>,
    /// Whether the text ends with the start of an answer.
    #[serde(default)]
    pub add_generation_prompt: bool,
    /// Text of the beginning-of-sequence token.
    #[serde(default)]
    pub bos_token: Option<String>,
    /// Text of the end-of-sequence token.
    #[serde(default)]
    pub eos_token: Option<String>,
    /// Other variables, such as `enable_thinking`.
    #[serde(flatten)]
    pub variables: BTreeMap<String, Value>,
    /// Local time of `strftime_now`, if not the current time.
    #[serde(skip)]
    pub now: Option<DateTime>,
}

impl Inputs {
    /// Creates the inputs for an answer to a conversation.
    pub fn new(messages: Vec<Message>) -> Inputs {
        Inputs { messages, add_generation_prompt: true, ..Inputs::default() }
    }

    /// The variables as a mapping. Tokens that the vocabulary lacks are undefined.
    pub(crate) fn context(&self) -> Value {
        let messages: Vec<Value> = self.messages.iter().map(Message::with_reasoning_aliases).collect();
        let mut context = vec![
            ("messages", Value::from(messages)),
            ("tools", Value::from(self.tools.clone())),
            ("documents", Value::from(self.documents.clone())),
            ("add_generation_prompt", Value::from(self.add_generation_prompt)),
        ];
        for (name, token) in [("bos_token", &self.bos_token), ("eos_token", &self.eos_token)] {
            context.extend(token.as_ref().map(|token| (name, Value::from(token.as_str()))));
        }
        context.extend(self.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));
        Value::from_pairs(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_one_text() {
        for (text, types, joined) in [
            (
                r#"{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"}"#,
                &["text", "text"][..],
                r#"{"role":"system","content":"a\nb","name":"n"}"#,
            ),
            (r#"{"role":"user","content":"a"}"#, &[], r#"{"role":"system","content":"a"}"#),
            (
                r#"{"role":"user","content":[{"type":"image_url","image_url":{}}]}"#,
                &["image_url"],
                r#"{"role":"system","content":""}"#,
            ),
        ] {
            let message: Message = serde_json::from_str(text).unwrap();
            assert_eq!(message.part_types(), types);
            let message = message.with_joined_parts("\n").with_role("system");
            assert_eq!(serde_json::to_string(&message).unwrap(), joined);
        }
    }

    #[test]
    fn arguments_of_calls_become_mappings() {
        let call = |arguments: &str| {
            format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"1","function":{{"name":"f","arguments":{arguments}}}}}]}}"#
            )
        };
        for (given, parsed) in [
            (r#""{\"b\": 1, \"a\": \"x\"}""#, r#"{"b":1,"a":"x"}"#),
            (r#"{"b":1}"#, r#"{"b":1}"#),
            (r#""no JSON""#, r#""no JSON""#),
        ] {
            let message: Message = serde_json::from_str(&call(given)).unwrap();
            assert_eq!(serde_json::to_string(&message.with_parsed_arguments()).unwrap(), call(parsed));
        }
    }

    #[test]
    fn messages_keep_their_keys_and_order() {
        let text = r#"{"role":"tool","name":"f","content":"x","b":[1,{"z":null,"a":2.5}]}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!((message.role().as_str(), message.text().as_str()), ("tool", "x"));
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
    }

    #[test]
    fn the_text_of_parts_is_their_concatenation() {
        let text = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        assert_eq!(serde_json::from_str::<Message>(text).unwrap().text(), "ab");
    }

    #[test]
    fn a_content_is_a_text_or_a_list_of_parts() {
        for (content, expected) in [
            (r#","content":"x""#, true),
            (r#","content":[{"type":"text","text":"a"}]"#, true),
            (r#","content":null,"tool_calls":[{"id":1}]"#, true),
            (r#","tool_calls":[{"id":1}]"#, true),
            ("", false),
            (r#","content":null"#, false),
            (r#","content":3"#, false),
            (r#","content":{"text":"x"}"#, false),
            (r#","content":["x"]"#, false),
        ] {
            let text = format!(r#"{{"role":"assistant"{content}}}"#);
            assert_eq!(serde_json::from_str::<Message>(&text).unwrap().has_text(), expected, "{text}");
        }
    }

    #[test]
    fn a_message_without_a_role_is_an_error() {
        for text in [r#"{"content":"x"}"#, r#"{"role":1}"#, r#""user""#, "null"] {
            let error = serde_json::from_str::<Message>(text).unwrap_err().to_string();
            assert!(error.contains("a message is an object with a text `role`"), "{text}: {error}");
        }
    }

    #[test]
    fn reasoning_is_under_the_names_that_templates_read() {
        let message: Message =
            serde_json::from_str(r#"{"role":"assistant","reasoning":"r","content":"x"}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&message.with_reasoning_aliases()).unwrap(),
            r#"{"thinking":"r","role":"assistant","reasoning":"r","content":"x","reasoning_content":"r"}"#
        );
    }
}
