//! Fixtures: folders that `tests/references/folders.py` writes.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use bespoke_gguf::Value as Metadata;
use serde_json::Value;

/// Folders, one per architecture and form.
pub const CASES: [&str; 11] = [
    "llama",
    "llama-bias",
    "mistral",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma2",
    "gemma3",
    "granite",
    "smollm3",
    "olmo2",
];

/// A metadata value as JSON.
pub fn as_json(value: Metadata<'_>) -> Value {
    match value {
        Metadata::F32(v) => v.into(),
        Metadata::F64(v) => v.into(),
        Metadata::Bool(v) => v.into(),
        Metadata::String(v) => v.into(),
        Metadata::Array(array) => array.iter().map(as_json).collect(),
        integer => (integer.as_integer().unwrap() as i64).into(),
    }
}

/// Whether two values are equal; numbers within the rounding of f32.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}

/// Path of a fixture.
pub fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(case)
}

/// A JSON file of a fixture.
pub fn json(case: &str, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder(case).join(name)).unwrap()).unwrap()
}

/// A copy of a fixture.
pub fn copy(case: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder(case)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}
