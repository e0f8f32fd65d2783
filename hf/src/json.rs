//! JSON files: reading within limits, and typed access to keys.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::HfError;

/// Largest JSON file that is read, in bytes. The largest published `tokenizer.json` files have about 35 MB.
const LIMIT: u64 = 256 << 20;

/// A file whose JSON is an object.
pub struct File {
    path: PathBuf,
    object: Map<String, Value>,
}

/// An object of a file, with its place for messages.
#[derive(Clone)]
pub struct Document<'a> {
    path: &'a Path,
    /// Key of this object in its file, with a dot at the end; empty for the whole file.
    prefix: String,
    object: &'a Map<String, Value>,
}

/// Reads the text of a file.
pub fn text(path: &Path) -> Result<String, HfError> {
    let io = |source| HfError::Io { path: path.into(), source };
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > LIMIT {
        return Err(HfError::TooLarge { path: path.into(), bytes, limit: LIMIT });
    }
    fs::read_to_string(path).map_err(io)
}

/// Reads a file whose JSON is an object.
pub fn read(path: &Path) -> Result<File, HfError> {
    let text = text(path)?;
    let object = serde_json::from_str(&text).map_err(|source| HfError::Json { path: path.into(), source })?;
    Ok(File { path: path.into(), object })
}

/// Does what [`read`] does, for a file that may be missing.
pub fn read_optional(path: &Path) -> Result<Option<File>, HfError> {
    if path.exists() { read(path).map(Some) } else { Ok(None) }
}

impl File {
    /// The object that is the file.
    pub fn root(&self) -> Document<'_> {
        Document { path: &self.path, prefix: String::new(), object: &self.object }
    }

    /// Sets every key of the object at `key` at the root too.
    pub fn lift(&mut self, key: &str) -> Result<(), HfError> {
        if let Some(inner) = self.root().object(key)? {
            let inner = inner.object.clone();
            self.object.extend(inner);
        }
        Ok(())
    }
}

impl<'a> Document<'a> {
    /// An error about a key.
    pub fn fault(&self, key: &str, fault: impl ToString) -> HfError {
        HfError::Key {
            path: self.path.into(),
            key: format!("{}{key}", self.prefix),
            fault: fault.to_string(),
        }
    }

    /// The value of a key; `None` if it is missing or null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Whether a key is there with the value null.
    pub fn is_null(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(Value::is_null)
    }

    /// All keys with their values.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.object.iter()
    }

    fn convert<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, HfError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value)
            .map(Some)
            .ok_or_else(|| self.fault(key, format!("expected {expected}, found {}", brief(value))))
    }

    /// The unsigned 32-bit integer at `key`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, HfError> {
        self.convert(key, "an integer from 0 to 4294967295", |value| value.as_u64()?.try_into().ok())
    }

    /// The number at `key`.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, HfError> {
        self.convert(key, "a number", Value::as_f64)
    }

    /// The numbers at `key`.
    pub fn f64s(&self, key: &str) -> Result<Option<Vec<f64>>, HfError> {
        let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect();
        self.convert(key, "an array of numbers", numbers)
    }

    /// The bool at `key`.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, HfError> {
        self.convert(key, "true or false", Value::as_bool)
    }

    /// The string at `key`.
    pub fn str(&self, key: &str) -> Result<Option<&'a str>, HfError> {
        self.convert(key, "a string", Value::as_str)
    }

    /// The array at `key`.
    pub fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, HfError> {
        self.convert(key, "an array", Value::as_array)
    }

    /// The object at `key`.
    pub fn object(&self, key: &str) -> Result<Option<Document<'a>>, HfError> {
        let object = self.convert(key, "an object", Value::as_object)?;
        Ok(object.map(|object| self.inner(key, object)))
    }

    /// The objects of the array at `key`.
    pub fn objects(&self, key: &str) -> Result<Vec<Document<'a>>, HfError> {
        let Some(array) = self.array(key)? else { return Ok(Vec::new()) };
        let object = |(index, value): (usize, &'a Value)| {
            let key = format!("{key}[{index}]");
            let object = value.as_object();
            let object = object
                .ok_or_else(|| self.fault(&key, format!("expected an object, found {}", brief(value))))?;
            Ok(self.inner(&key, object))
        };
        array.iter().enumerate().map(object).collect()
    }

    fn inner(&self, key: &str, object: &'a Map<String, Value>) -> Document<'a> {
        Document { path: self.path, prefix: format!("{}{key}.", self.prefix), object }
    }

    /// `value`, which `key` has, or an error that says that it is missing.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, HfError> {
        value.ok_or_else(|| self.fault(key, "is missing"))
    }
}

/// Short description of a value for messages.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("an array of {} values", array.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.len() > 40 => "a string".into(),
        short => short.to_string(),
    }
}
