//! Functions, tests, methods and texts of values as Python's jinja2 has them, where minijinja differs.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use crate::error::RaisedMessage;
use crate::{bounds, iterators, json, rewrite};

/// Adds everything to an environment.
pub fn install(environment: &mut Environment<'_>) {
    iterators::install(environment);
    bounds::install(environment);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter(rewrite::PLUS, plus);
    for name in ["e", "escape"] {
        environment.add_filter(
            name,
            |value: &Value| if value.is_safe() { value.clone() } else { force_escape(value) },
        );
    }
    environment.add_filter("forceescape", force_escape);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", is_callable);
    environment.add_function("raise_exception", raise_exception);
    environment.set_unknown_method_callback(method);
}

/// `raise_exception(message)`: ends rendering with the template's own error.
fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(RaisedMessage(message)))
}

/// `left + right`. If one of two texts is marked as safe for HTML, the other one is escaped.
fn plus(state: &State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        bounds::charge(state, a.len() + b.len())?;
        return Ok(match (left.is_safe(), right.is_safe()) {
            (false, false) => Value::from(format!("{a}{b}")),
            (true, true) => Value::from_safe_string(format!("{a}{b}")),
            (true, false) => Value::from_safe_string(format!("{a}{}", escaped(b))),
            (false, true) => Value::from_safe_string(format!("{}{b}", escaped(a))),
        });
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        return Ok(left.try_iter()?.chain(right.try_iter()?).collect());
    }
    // `i128::try_from` also takes floats without a fraction, but `1.0 + 2` is 3.0.
    if !is_float(left)
        && !is_float(right)
        && let (Ok(a), Ok(b)) = (i128::try_from(left.clone()), i128::try_from(right.clone()))
        && let Some(sum) = a.checked_add(b)
    {
        return Ok(Value::from(sum));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(a), Ok(b)) => Ok(Value::from(a + b)),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tried to use + operator on unsupported types {} and {}", left.kind(), right.kind()),
        )),
    }
}

fn is_float(value: &Value) -> bool {
    value.is_number() && !value.is_integer()
}

/// The text of a value, escaped for HTML and marked as safe.
fn force_escape(value: &Value) -> Value {
    Value::from_safe_string(escaped(&value.to_string()))
}

/// A text with the escapes of Python's `markupsafe`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(character),
        }
    }
    out
}

/// Python's sequences: whatever has a length and items, so texts and mappings too.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

/// Whether a value can be called: a function, a macro or a `joiner`. Only these are of the kind `Plain` in templates.
fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
}

/// Methods of texts, lists and mappings.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        bounds::charge_method(state, text, name, arguments)?;
    }
    let result = pycompat::unknown_method_callback(state, value, name, arguments)?;
    let is_view = value.kind() == ValueKind::Map && matches!(name, "keys" | "values" | "items");
    Ok(if is_view { iterators::view(result) } else { result })
}
