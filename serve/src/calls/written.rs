//! Whole calls, in the forms that models write.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::piece::Piece;
use super::{ARGS, CALL_ID, LIST};

/// A call as models write it. Some write the arguments as a text with JSON.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// A call: `{"name": …, "arguments": {…}}`.
pub fn one(text: &str) -> Option<Piece> {
    call(serde_json::from_str(text).ok()?)
}

/// The name of a call behind the mark, and the length of the text before its arguments, which begin as an object.
pub fn named_head(text: &str) -> Option<(String, usize)> {
    let (name, rest) = text.strip_prefix(LIST)?.split_once(ARGS)?;
    let name = name.split(CALL_ID).next().unwrap_or_default().trim();
    let arguments = rest.trim_start();
    (!name.is_empty() && arguments.starts_with('{')).then(|| (name.to_owned(), text.len() - arguments.len()))
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
