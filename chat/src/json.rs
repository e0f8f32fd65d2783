//! The filter `tojson`, with the output of Python's `json.dumps`.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::number::float_text;
use crate::{iterators, limits};

/// Options of `json.dumps`.
struct Style {
    ensure_ascii: bool,
    /// One level of indentation; none for one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `value|tojson`: JSON as `transformers` writes it, without escapes for HTML.
pub fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ascii: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(limits::JSON_DEPTH)),
        }),
    };
    let separators = options.get::<Option<Value>>("separators")?.filter(|separators| !separators.is_none());
    let (item, key) = match &separators {
        Some(pair) => (text_at(pair, 0)?, text_at(pair, 1)?),
        // As in Python: without a space before a line break.
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let style = Style {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.or(ascii).unwrap_or(false),
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut out = String::new();
    style.write(&mut out, state, value, 0)?;
    Ok(Value::from(out))
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    item.as_str().map(str::to_owned).ok_or_else(|| invalid("`separators` is a pair of texts".into()))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

impl Style {
    fn write(
        &self,
        out: &mut String,
        state: &State<'_, '_>,
        value: &Value,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > limits::JSON_DEPTH {
            return Err(invalid(format!("tojson: more than {} nested lists and maps", limits::JSON_DEPTH)));
        }
        // Charged while writing, since a value may contain another one many times.
        state.consume_fuel(1)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float_text(f64::try_from(value.clone())?)),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                state.consume_fuel(text.len() as u64 / 64)?;
                self.quote(out, text);
            }
            // Slices and sums of lists are lists in Python.
            ValueKind::Seq | ValueKind::Iterable if !iterators::is_lazy(value) => {
                let mut items = value.try_iter()?.peekable();
                let empty = items.peek().is_none();
                out.push('[');
                for (index, item) in items.enumerate() {
                    self.separate(out, index, depth + 1);
                    self.write(out, state, &item, depth + 1)?;
                }
                self.close(out, ']', empty, depth);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                out.push('{');
                for (index, key) in keys.iter().enumerate() {
                    self.separate(out, index, depth + 1);
                    self.key(out, key)?;
                    out.push_str(&self.key_separator);
                    self.write(out, state, &value.get_item(key)?, depth + 1)?;
                }
                self.close(out, '}', keys.is_empty(), depth);
            }
            kind => return Err(invalid(format!("tojson: {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    /// A key as a text; Python also accepts numbers, booleans and None.
    fn key(&self, out: &mut String, key: &Value) -> Result<(), Error> {
        let text = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Bool => key.is_true().to_string(),
            ValueKind::Number if key.is_integer() => key.to_string(),
            ValueKind::Number => float_text(f64::try_from(key.clone())?),
            kind => return Err(invalid(format!("tojson: {kind} is not a key"))),
        };
        self.quote(out, &text);
        Ok(())
    }

    fn separate(&self, out: &mut String, index: usize, depth: usize) {
        if index > 0 {
            out.push_str(&self.item_separator);
        }
        self.line_break(out, depth);
    }

    fn close(&self, out: &mut String, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.line_break(out, depth);
        }
        out.push(bracket);
    }

    fn line_break(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn quote(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => escape(out, character as u16),
                '\u{7f}'.. if self.ensure_ascii && !character.is_ascii() => {
                    character.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| escape(out, unit));
                }
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

fn escape(out: &mut String, unit: u16) {
    // Writing to a `String` does not fail.
    let _ = write!(out, "\\u{unit:04x}");
}
