//! Fixtures: folders that `tests/references/folders.py` writes.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

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
