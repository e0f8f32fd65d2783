//! Typed access to metadata. Every error names the key.
//!
//! Exporters use integers of different widths, so a getter accepts any integer that fits its type.

use crate::{Array, Error, Gguf, Value};

impl Gguf {
    /// The string at `key`.
    pub fn str(&self, key: &str) -> Result<&str, Error> {
        required(key, self.opt_str(key)?)
    }

    /// The string at `key`, or `None` if the key is missing.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.convert(key, "a string", as_str)
    }

    /// The integer at `key`, of any kind, that fits `u32`.
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        required(key, self.opt_u32(key)?)
    }

    /// The integer at `key`, of any kind, that fits `u32`; `None` if the key is missing.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, Error> {
        opt_u32(self.get(key), key)
    }

    /// The float at `key`.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        required(key, self.opt_f32(key)?)
    }

    /// The float at `key`, or `None` if the key is missing.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.convert(key, "a float", as_f32)
    }

    /// The bool at `key`.
    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        required(key, self.opt_bool(key)?)
    }

    /// The bool at `key`, or `None` if the key is missing.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.convert(key, "a bool", as_bool)
    }

    /// The array of strings at `key`.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>, Error> {
        required(key, self.opt_strings(key)?)
    }

    /// The array of strings at `key`, or `None` if the key is missing.
    pub fn opt_strings(&self, key: &str) -> Result<Option<Vec<&str>>, Error> {
        self.convert(key, "an array of strings", |value| elements(value, as_str))
    }

    /// The array of floats at `key`.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>, Error> {
        required(key, self.opt_f32s(key)?)
    }

    /// The array of floats at `key`, or `None` if the key is missing.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.convert(key, "an array of floats", |value| elements(value, as_f32))
    }

    /// The array at `key` of integers that fit `i32`.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, Error> {
        required(key, self.opt_i32s(key)?)
    }

    /// The array at `key` of integers that fit `i32`, or `None` if the key is missing.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, Error> {
        self.convert(key, "an array of 32-bit integers", |value| elements(value, as_i32))
    }

    fn convert<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        converted(self.get(key), key, expected, convert)
    }
}

/// The integer at `key` of any kind, that fits `u32`; `None` if there is no value.
pub(crate) fn opt_u32(value: Option<Value<'_>>, key: &str) -> Result<Option<u32>, Error> {
    converted(value, key, "an unsigned 32-bit integer", as_u32)
}

fn converted<'a, T>(
    value: Option<Value<'a>>,
    key: &str,
    expected: &'static str,
    convert: impl Fn(Value<'a>) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(value) = value else { return Ok(None) };
    convert(value).map(Some).ok_or_else(|| Error::wrong_kind(key, expected, describe(&value)))
}

fn required<T>(key: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::MissingKey { key: key.into() })
}

fn as_str(value: Value<'_>) -> Option<&str> {
    if let Value::String(text) = value { Some(text) } else { None }
}

fn as_u32(value: Value<'_>) -> Option<u32> {
    value.as_integer()?.try_into().ok()
}

fn as_i32(value: Value<'_>) -> Option<i32> {
    value.as_integer()?.try_into().ok()
}

fn as_f32(value: Value<'_>) -> Option<f32> {
    match value {
        Value::F32(v) => Some(v),
        Value::F64(v) => Some(v as f32),
        _ => None,
    }
}

fn as_bool(value: Value<'_>) -> Option<bool> {
    if let Value::Bool(v) = value { Some(v) } else { None }
}

/// The elements of an array, each converted; `None` if the value is not an array or an element does not convert.
fn elements<'a, T>(value: Value<'a>, convert: fn(Value<'a>) -> Option<T>) -> Option<Vec<T>> {
    let Value::Array(array) = value else { return None };
    let converted: Vec<T> = Array::iter(&array).map(convert).collect::<Option<_>>()?;
    (converted.len() == array.len()).then_some(converted)
}

/// Description of a value for messages: its kind, and the value unless it is a string or an array.
fn describe(value: &Value<'_>) -> String {
    match value {
        Value::String(_) => "a string".into(),
        Value::Array(array) => format!("an array of {} {}s", array.len(), array.kind().name()),
        short => format!("the {} {short}", short.kind().name()),
    }
}
