//! Calls of tools in the text of an answer, in the forms that models were trained to write.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::grammar::quoted;

/// Form of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// Hermes, Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, between other text.
    Tagged,
    /// Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`, any number of them,
    /// between other text. The values are texts; only the schema says whether they are JSON.
    Functions,
    /// Llama 3: the whole answer is `{"name": …, "parameters": {…}}`, or several with `;` between them, after
    /// `<|python_tag|>` or not.
    Bare,
    /// Mistral: `[TOOL_CALLS]` and a list of `{"name": …, "arguments": {…}}`, at the end of the answer.
    Listed,
    /// Mistral since version 11 of its tokenizer: `[TOOL_CALLS]NAME[ARGS]{…}`, any number of them, at the end of the answer.
    Named,
}

/// Opening and closing tag of [`CallForm::Tagged`] and [`CallForm::Functions`].
const TAGS: (&str, &str) = ("<tool_call>", "</tool_call>");
/// Mark of [`CallForm::Bare`], which not all models write.
const PYTHON: &str = "<|python_tag|>";
/// Beginning of a function of [`CallForm::Functions`].
const FUNCTION: &str = "<function=";
/// Mark of [`CallForm::Listed`], and of each call of [`CallForm::Named`].
const LIST: &str = "[TOOL_CALLS]";
/// Mark between the name and the arguments in [`CallForm::Named`].
const ARGS: &str = "[ARGS]";
/// Mark of an id, which some models write behind the name in [`CallForm::Named`].
const CALL_ID: &str = "[CALL_ID]";

/// Tokens that mark calls. In some vocabularies they are control tokens, which have no text.
pub const MARKS: [&str; 6] = [TAGS.0, TAGS.1, PYTHON, LIST, ARGS, CALL_ID];

impl CallForm {
    /// The form that a chat template teaches; none if it teaches none of these.
    pub fn of(template: &str) -> Option<CallForm> {
        if template.contains(TAGS.0) && template.contains(FUNCTION) {
            Some(CallForm::Functions)
        } else if template.contains(TAGS.0) {
            Some(CallForm::Tagged)
        } else if template.contains(LIST) && template.contains(ARGS) {
            Some(CallForm::Named)
        } else if template.contains(LIST) {
            Some(CallForm::Listed)
        } else if template.contains("\"parameters\"") && template.contains("<|start_header_id|>") {
            Some(CallForm::Bare)
        } else {
            None
        }
    }

    /// Whether there is a grammar of calls, so that an answer can be made to be one.
    pub fn has_grammar(self) -> bool {
        self != CallForm::Functions
    }

    /// The language of a call of a function in Lark. `arguments` is the rule of its arguments; `mark` writes a mark.
    pub fn call(self, name: &str, arguments: &str, mark: impl Fn(&str) -> String) -> String {
        if self == CallForm::Named {
            return format!("{} {} {} {arguments}", mark(LIST), quoted(name), mark(ARGS));
        }
        let key = if self == CallForm::Bare { "parameters" } else { "arguments" };
        let head = format!("{{\"name\": {}, \"{key}\": ", Value::from(name));
        format!("{} {arguments} \"}}\"", quoted(&head))
    }

    /// The language of answers that are nothing but calls, one or at least one, in Lark without the rule `call`.
    /// `mark` writes a mark.
    pub fn grammar(self, one: bool, mark: impl Fn(&str) -> String) -> String {
        let several = |between: &str| if one { String::new() } else { format!(" ({between} call)*") };
        match self {
            CallForm::Named => format!("start: call{}\n", if one { "" } else { " call*" }),
            CallForm::Tagged | CallForm::Functions => {
                let (open, close) = (mark(TAGS.0), mark(TAGS.1));
                let more = if one { "" } else { " (\"\\n\" tagged)*" };
                format!("start: tagged{more}\ntagged: {open} \"\\n\" call \"\\n\" {close}\n")
            }
            CallForm::Bare => format!("start: call{}\n", several("\"; \"")),
            CallForm::Listed => format!("start: {} \" [\" call{} \"]\"\n", mark(LIST), several("\", \"")),
        }
    }
}

/// Types of the parameters of functions, by the names of both, as their schemas say.
#[derive(Debug, Default)]
pub struct Types(BTreeMap<(String, String), Vec<&'static str>>);

impl Types {
    /// The types of the parameters of tools.
    pub fn of(tools: &[Value]) -> Types {
        let mut types = BTreeMap::new();
        for function in tools.iter().map(|tool| &tool["function"]) {
            let name = function["name"].as_str().unwrap_or_default();
            for (key, schema) in function["parameters"]["properties"].as_object().into_iter().flatten() {
                let mut found = Vec::new();
                collect_types(schema, &mut found);
                types.insert((name.to_owned(), key.clone()), found);
            }
        }
        Types(types)
    }

    /// The value that a text is for a parameter: JSON if its schema allows JSON of that type, else the text.
    fn value(&self, function: &str, key: &str, text: &str) -> Value {
        let allowed = self.0.get(&(function.to_owned(), key.to_owned()));
        let value = match text.trim() {
            // Templates write the values of earlier calls as Python does.
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_default(),
        };
        let is_null = matches!(text.trim(), "null" | "None");
        let is_json = !value.is_string() && (is_null || !value.is_null());
        if is_json && allowed.is_some_and(|allowed| allowed.contains(&type_of(&value))) {
            value
        } else {
            text.into()
        }
    }
}

/// The type of a value. Integers are numbers.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Collects the types that a schema allows; none if it does not say them.
fn collect_types(schema: &Value, types: &mut Vec<&'static str>) {
    const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];
    let mut add = |name: &str| {
        let name = if name == "integer" { "number" } else { name };
        types.extend(TYPES.into_iter().find(|&it| it == name));
    };
    match &schema["type"] {
        Value::String(name) => add(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).for_each(add),
        _ if schema.get("$ref").is_some() => types.extend(TYPES),
        _ => schema["enum"].as_array().into_iter().flatten().for_each(|value| types.push(type_of(value))),
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|schema| collect_types(schema, types));
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A call with its arguments, an object in JSON.
    Call { name: String, arguments: String },
}

/// A call as models write it. Some write the arguments as a text with JSON.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// Finds calls in a text that arrives in parts. Text that may be a call is held back until it is decided.
pub struct CallParser {
    form: CallForm,
    types: Arc<Types>,
    held: String,
    /// Whether other text than white space has been returned.
    begun: bool,
    /// Whether a call has been returned.
    called: bool,
}

impl CallParser {
    /// A parser at the beginning of an answer.
    pub fn new(form: CallForm, types: Arc<Types>) -> CallParser {
        CallParser { form, types, held: String::new(), begun: false, called: false }
    }

    /// Adds a part of the text, and returns what is decided.
    pub fn push(&mut self, part: &str) -> Vec<Piece> {
        self.held += part;
        let mut pieces = Vec::new();
        match self.form {
            CallForm::Tagged | CallForm::Functions => while self.tagged(&mut pieces) {},
            // Models of either form may write the other one.
            CallForm::Listed | CallForm::Named => while self.named(&mut pieces) {},
            CallForm::Bare => {
                let start = self.held.trim_start();
                let may_call = start.is_empty() || start.starts_with('{') || common_start(start, PYTHON);
                if self.begun || !may_call {
                    let text = std::mem::take(&mut self.held);
                    self.text(text, &mut pieces);
                }
            }
        }
        pieces
    }

    /// Ends the text, and returns the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        let calls = match self.form {
            // A call at the end may lack its closing tag: it may be a control token that ended the answer.
            CallForm::Tagged | CallForm::Functions => {
                held.trim_start().strip_prefix(TAGS.0).and_then(|inside| self.inside(inside))
            }
            CallForm::Listed | CallForm::Named => held.trim_start().strip_prefix(LIST).and_then(list),
            CallForm::Bare if self.begun => None,
            CallForm::Bare => separated(held.trim().trim_start_matches(PYTHON)),
        };
        match calls {
            Some(calls) => pieces.extend(calls),
            // White space after calls is no text.
            None if self.called && held.trim().is_empty() => {}
            None => self.text(held, &mut pieces),
        }
        pieces
    }

    fn text(&mut self, text: String, pieces: &mut Vec<Piece>) {
        self.begun |= !text.trim().is_empty();
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
    }

    /// Returns the text before a mark, or before what may become one, and before white space ahead of it.
    fn before(&mut self, mark: &str, pieces: &mut Vec<Piece>) {
        let may_start = |at: &usize| mark.starts_with(&self.held[*at..]);
        let partial = || self.held.char_indices().map(|(at, _)| at).find(may_start);
        let at = self.held.find(mark).or_else(partial).unwrap_or(self.held.len());
        let rest = self.held.split_off(self.held[..at].trim_end().len());
        let text = std::mem::replace(&mut self.held, rest);
        self.text(text, pieces);
    }

    /// Returns text and a call with tags; returns whether there may be more.
    fn tagged(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(TAGS.0, pieces);
        let Some(end) = self.held.find(TAGS.1) else { return false };
        let rest = self.held.split_off(end + TAGS.1.len());
        let whole = std::mem::replace(&mut self.held, rest);
        let inside = whole[..end].trim_start().strip_prefix(TAGS.0);
        match inside.and_then(|inside| self.inside(inside)) {
            Some(calls) => {
                self.called = true;
                pieces.extend(calls);
            }
            None => self.text(whole, pieces),
        }
        true
    }

    /// The call between tags.
    fn inside(&self, text: &str) -> Option<Vec<Piece>> {
        if self.form == CallForm::Functions { function(text, &self.types) } else { one(text) }
    }

    /// Returns text and a call with a name behind the mark; returns whether there may be more.
    fn named(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(LIST, pieces);
        let start = self.held.len() - self.held.trim_start().len();
        let Some((call, length)) = named(&self.held[start..]) else { return false };
        self.held.drain(..start + length);
        self.called = true;
        pieces.push(call);
        true
    }
}

/// Whether one text begins with the other.
fn common_start(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn one(text: &str) -> Option<Vec<Piece>> {
    Some(vec![call(serde_json::from_str(text).ok()?)?])
}

fn list(text: &str) -> Option<Vec<Piece>> {
    let calls: Vec<Written<'_>> = serde_json::from_str(text).ok()?;
    calls.into_iter().map(call).collect()
}

/// A call with its name behind the mark, and its length in the text.
fn named(text: &str) -> Option<(Piece, usize)> {
    let (name, rest) = text.strip_prefix(LIST)?.split_once(ARGS)?;
    let name = name.split(CALL_ID).next().unwrap_or_default().trim();
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
    let arguments = values.next()?.ok()?.get();
    if name.is_empty() || !arguments.starts_with('{') {
        return None;
    }
    let call = Piece::Call { name: name.to_owned(), arguments: arguments.to_owned() };
    Some((call, text.len() - rest.len() + values.byte_offset()))
}

/// A call whose parameters have tags.
fn function(text: &str, types: &Types) -> Option<Vec<Piece>> {
    let (name, rest) = text.trim().strip_prefix(FUNCTION)?.split_once('>')?;
    let mut rest = rest.strip_suffix("</function>")?.trim();
    let mut arguments = Map::new();
    while let Some(parameter) = rest.strip_prefix("<parameter=") {
        let (key, parameter) = parameter.split_once('>')?;
        let (value, more) = parameter.split_once("</parameter>")?;
        // The value is on lines of its own.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_owned(), types.value(name, key, value));
        rest = more.trim_start();
    }
    let arguments = Value::Object(arguments).to_string();
    rest.is_empty().then(|| vec![Piece::Call { name: name.to_owned(), arguments }])
}

/// Calls with `;` between them.
fn separated(text: &str) -> Option<Vec<Piece>> {
    let mut calls = Vec::new();
    let mut rest = text;
    loop {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = values.next()?.ok()?;
        calls.push(call(serde_json::from_str(value.get()).ok()?)?);
        rest = rest[values.byte_offset()..].trim_start();
        match rest.strip_prefix(';') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Some(calls),
            None => return None,
        }
    }
}

fn call(written: Written<'_>) -> Option<Piece> {
    let Written { name, arguments } = written;
    let arguments = match arguments.map(RawValue::get) {
        None | Some("null") => "{}".to_owned(),
        Some(text) => match serde_json::from_str(text).ok()? {
            Value::String(text) => text,
            Value::Object(_) => text.to_owned(),
            _ => return None,
        },
    };
    Some(Piece::Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of a text in parts of `size` characters, with neighbouring texts joined.
    fn parse(form: CallForm, text: &str, size: usize) -> Vec<Piece> {
        let tools = serde_json::json!([{"function": {"name": "f", "parameters": {"properties": {
            "n": {"type": "integer"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }}}}]);
        let mut parser = CallParser::new(form, Arc::new(Types::of(tools.as_array().unwrap())));
        let chars: Vec<char> = text.chars().collect();
        let mut pieces: Vec<Piece> = Vec::new();
        for part in chars.chunks(size) {
            pieces.extend(parser.push(&part.iter().collect::<String>()));
        }
        pieces.extend(parser.finish());
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (joined.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(text)) => *before += &text,
                (_, piece) => joined.push(piece),
            }
        }
        joined
    }

    #[test]
    fn calls_are_found_however_the_text_is_divided() {
        use CallForm::{Bare, Functions, Listed, Named, Tagged};
        let text = |text: &str| Piece::Text(text.to_owned());
        let call = |name: &str, arguments: &str| Piece::Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        for (form, answer, pieces) in [
            (Tagged, "It is warm.", vec![text("It is warm.")]),
            (
                Tagged,
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"</x>\"]}}\n</tool_call>",
                vec![call("f", "{\"a\": [1, \"</x>\"]}")],
            ),
            (
                Tagged,
                "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
                vec![text("I look."), call("f", "{}"), call("g", "{}")],
            ),
            (Tagged, "a < b <tool> c", vec![text("a < b <tool> c")]),
            (Tagged, "<tool_call>no JSON</tool_call>", vec![text("<tool_call>no JSON</tool_call>")]),
            (
                Tagged,
                "<tool_call>{\"name\": \"f\", \"argu",
                vec![text("<tool_call>{\"name\": \"f\", \"argu")],
            ),
            (Tagged, "<tool_call>{\"name\": \"f\"}", vec![call("f", "{}")]),
            (Bare, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", vec![call("f", "{\"x\": 1}")]),
            (Bare, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", vec![call("f", "{}")]),
            (Bare, "{\"name\": \"f\"}; {\"name\": \"g\"}", vec![call("f", "{}"), call("g", "{}")]),
            (Bare, "{\"x\": 1}", vec![text("{\"x\": 1}")]),
            (Bare, "A brace: {\"name\": \"f\"}", vec![text("A brace: {\"name\": \"f\"}")]),
            (
                Listed,
                "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": \"{}\"}, {\"name\": \"g\", \"arguments\": {\"b\": null}}]",
                vec![call("f", "{}"), call("g", "{\"b\": null}")],
            ),
            (
                Functions,
                "I look.\n<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=text>\na\n7\n</parameter>\n</function>\n</tool_call>",
                vec![text("I look."), call("f", "{\"n\":5,\"text\":\"a\\n7\"}")],
            ),
            (
                Functions,
                "<tool_call><function=f><parameter=flag>True</parameter><parameter=list>[1, \"x\"]</parameter></function></tool_call><tool_call><function=g></function>",
                vec![call("f", "{\"flag\":true,\"list\":[1,\"x\"]}"), call("g", "{}")],
            ),
            (
                Functions,
                "<tool_call><function=f><parameter=text>5</parameter><parameter=maybe>5</parameter><parameter=n>many</parameter></function></tool_call>",
                vec![call("f", "{\"text\":\"5\",\"maybe\":\"5\",\"n\":\"many\"}")],
            ),
            (
                Functions,
                "<tool_call><function=f><parameter=maybe>null</parameter><parameter=other>[1]</parameter></function></tool_call>",
                vec![call("f", "{\"maybe\":null,\"other\":\"[1]\"}")],
            ),
            (
                Functions,
                "<tool_call><function=f><parameter=n>5</function></tool_call>",
                vec![text("<tool_call><function=f><parameter=n>5</function></tool_call>")],
            ),
            (
                Named,
                "I look. [TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS]}\"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
                vec![text("I look."), call("f", "{\"a\": \"[ARGS]}\"}"), call("g", "{}")],
            ),
            (Named, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[AR", vec![call("f", "{}"), text("[TOOL_CALLS]g[AR")]),
            (Named, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", vec![call("f", "{}")]),
            (Listed, "[TOOL_CALLS]f[ARGS]{}", vec![call("f", "{}")]),
            (Listed, "A list: [1, 2]", vec![text("A list: [1, 2]")]),
            (Listed, "[TOOL_CALLS] none", vec![text("[TOOL_CALLS] none")]),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(parse(form, answer, size), pieces, "{answer} in parts of {size}");
            }
        }
    }

    #[test]
    fn the_template_tells_the_form() {
        for (template, form) in [
            ("<tool_call>{{ call | tojson }}</tool_call>", Some(CallForm::Tagged)),
            ("<tool_call><function={{ call.name }}>", Some(CallForm::Functions)),
            ("[TOOL_CALLS] [{{ calls }}]", Some(CallForm::Listed)),
            ("[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments }}", Some(CallForm::Named)),
            ("<|start_header_id|> \"parameters\"", Some(CallForm::Bare)),
            ("{{ tools }}", None),
        ] {
            assert_eq!(CallForm::of(template), form, "{template}");
        }
    }

    #[test]
    fn text_is_not_held_back_without_need() {
        let mut parser = CallParser::new(CallForm::Tagged, Arc::default());
        assert_eq!(parser.push("It is <b"), [Piece::Text("It is <b".to_owned())]);
        assert_eq!(parser.push(" or <tool"), [Piece::Text(" or".to_owned())]);
        assert_eq!(parser.push("s>"), [Piece::Text(" <tools>".to_owned())]);
    }
}
