//! Bounds on the size of values, and of what methods and functions make.

use minijinja::value::{Kwargs, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions};

use crate::{iterators, limits, rewrite};

/// Adds the filters of [`rewrite`], and replaces functions and filters of minijinja that make large values.
pub fn install(environment: &mut Environment<'_>) {
    environment.add_filter(rewrite::SIZED, |state: &State<'_, '_>, value: Value| sized(state, value, true));
    environment.add_filter(rewrite::STORED, |state: &State<'_, '_>, value: Value| sized(state, value, false));
    environment.add_function("dict", |state: &State<'_, '_>, value: Option<Value>, more: Kwargs| {
        sized(state, functions::dict(value, more)?, false)
    });
    environment.add_function("namespace", |state: &State<'_, '_>, defaults: Option<ValueOrKwargs>| {
        if let Some(defaults) = &defaults {
            measure(state, defaults, 0)?;
        }
        functions::namespace(defaults)
    });
    environment.add_filter(
        "batch",
        |state: &mut State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            filters::batch(state, value, repetitions(count)?, fill)
        },
    );
    environment.add_filter(
        "slice",
        |state: &mut State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            filters::slice(state, value, repetitions(count)?, fill)
        },
    );
    // jinja2 does not have these.
    for name in ["chain", "zip", "lines", "split", "bool"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
}

/// The value, if its text is not too large. A namespace is accepted only by itself, so that none contains itself.
fn sized(state: &State<'_, '_>, value: Value, accept_namespace: bool) -> Result<Value, Error> {
    if !(accept_namespace && is_namespace(&value)) {
        measure(state, &value, 0)?;
    }
    Ok(value)
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Consumes fuel for every item of a value, with those inside, and for their texts.
fn measure(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    let fault = |message: String| Err(Error::new(ErrorKind::InvalidOperation, message));
    match value.kind() {
        // minijinja consumes fuel for texts when it makes them.
        ValueKind::String if depth > 0 => charge(state, value.as_str().map_or(0, str::len)),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain if is_namespace(value) => {
            fault("a namespace cannot be stored in a value".to_owned())
        }
        // Generators and views have the items of a value that was measured.
        _ if iterators::is_lazy(value) => Ok(()),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable if depth > limits::NESTING => {
            fault(format!("more than {} nested lists and mappings", limits::NESTING))
        }
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| {
            charge(state, 64)?;
            measure(state, &item, depth + 1)
        }),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            charge(state, 64 + key.as_str().map_or(0, str::len))?;
            measure(state, &value.get_item(&key)?, depth + 1)
        }),
        _ => Ok(()),
    }
}

/// Consumes fuel for bytes.
pub fn charge(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes as u64 / 64)
}

/// A number of repetitions that is not too large.
fn repetitions(count: usize) -> Result<usize, Error> {
    if count <= 10_000 {
        return Ok(count);
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("{count} is too large a number of items")))
}

/// Consumes fuel for the text that a method of texts is about to make, if that may be much longer than its parts.
pub fn charge_method(
    state: &State<'_, '_>,
    text: &str,
    name: &str,
    arguments: &[Value],
) -> Result<(), Error> {
    let length = |index: usize| arguments.get(index).and_then(Value::as_str).map_or(0, str::len);
    let bytes = match name {
        "replace" => {
            let old = arguments.first().and_then(Value::as_str).unwrap_or_default();
            text.matches(old).count().saturating_mul(length(1))
        }
        "join" => {
            let mut bytes = 0_usize;
            if let Some(items) = arguments.first() {
                for item in items.try_iter()? {
                    let Some(item) = item.as_str() else {
                        return Err(Error::new(
                            ErrorKind::InvalidOperation,
                            format!("join: expected a text, found {}", item.kind()),
                        ));
                    };
                    bytes = bytes.saturating_add(item.len() + text.len());
                }
            }
            bytes
        }
        "format" => {
            let long_number = text.as_bytes().windows(5).any(|five| five.iter().all(u8::is_ascii_digit));
            if long_number {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "format: a number has more than four digits",
                ));
            }
            let fields = text.matches('{').count();
            let longest = arguments.iter().map(|argument| argument.to_string().len()).max().unwrap_or(0);
            // A field may be padded to 9999 characters.
            fields.saturating_mul(longest.max(if text.contains(':') { 9999 } else { 0 }))
        }
        // The others make no more than a few times their text.
        _ => text.len(),
    };
    charge(state, bytes)
}
