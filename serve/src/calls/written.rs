//! Whole calls, in the forms that models write.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::parser::Piece;
use super::{ARGS, CALL_ID, FUNCTION, LIST, Types};

/// A call as models write it. Some write the arguments as a text with JSON.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// A call: `{"name": …, "arguments": {…}}`.
pub fn one(text: &str) -> Option<Vec<Piece>> {
    Some(vec![call(serde_json::from_str(text).ok()?)?])
}

/// Calls in a list.
pub fn list(text: &str) -> Option<Vec<Piece>> {
    let calls: Vec<Written<'_>> = serde_json::from_str(text).ok()?;
    calls.into_iter().map(call).collect()
}

/// The name of a call behind the mark, and the length of the text before its arguments, which begin as an object.
pub fn named_head(text: &str) -> Option<(String, usize)> {
    let (name, rest) = text.strip_prefix(LIST)?.split_once(ARGS)?;
    let name = name.split(CALL_ID).next().unwrap_or_default().trim();
    let arguments = rest.trim_start();
    (!name.is_empty() && arguments.starts_with('{')).then(|| (name.to_owned(), text.len() - arguments.len()))
}

/// A call whose parameters have tags.
pub fn function(text: &str, types: &Types) -> Option<Vec<Piece>> {
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
pub fn separated(text: &str) -> Option<Vec<Piece>> {
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
