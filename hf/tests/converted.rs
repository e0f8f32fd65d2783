//! Folders of every architecture have the metadata and the tensors that llama.cpp's converter gives them.
//! `tests/references/folders.py` writes the fixtures.

mod common;

use std::fmt::Write;

use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use common::{CASES, as_json, equal, folder, json};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// Keys that only the converter writes: descriptions of the model, and what decoding does not read.
const ONLY_THEIRS: [&str; 3] =
    ["general.size_label", "general.quantization_version", "tokenizer.ggml.add_sep_token"];

/// Ends of keys that only we write: dimensions that llama.cpp computes, defaults, Mistral's window, a second token that
/// ends answers, and tokens that take white space.
const ONLY_OURS: [&str; 13] = [
    "bespoke.tokenizer.strip_left",
    "bespoke.tokenizer.strip_right",
    "llama.attention.sliding_window",
    "tokenizer.ggml.eot_token_id",
    "attention.key_length",
    "attention.value_length",
    "attention.scale",
    "vocab_size",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.original_context_length",
    "tokenizer.ggml.add_space_prefix",
];

/// Names of pre-tokenizers with the same patterns: the first of the table, and the converter's.
const SAME_PRE: [(&str, &str); 1] = [("smollm", "refact")];

/// Differences between the metadata of a model and the converter's, one per line.
fn metadata_differences(ours: &Gguf, theirs: &Json) -> String {
    let theirs = theirs.as_object().unwrap();
    let mut out = String::new();
    for (key, value) in ours.metadata() {
        let value = as_json(value);
        match theirs.get(key) {
            // The name is the folder's.
            _ if key == "general.name" => {}
            Some(expected) if equal(&value, expected) => {}
            Some(expected) if SAME_PRE.iter().any(|(ours, theirs)| value == *ours && expected == theirs) => {}
            Some(expected) => writeln!(out, "{key}: {value}, not {expected}").unwrap(),
            None if ONLY_OURS.iter().any(|end| key.ends_with(end)) => {}
            None => writeln!(out, "{key}: {value} is only ours").unwrap(),
        }
    }
    for (key, value) in theirs {
        if ours.get(key).is_none() && !ONLY_THEIRS.contains(&key.as_str()) {
            writeln!(out, "{key}: {value} is missing").unwrap();
        }
    }
    out
}

/// Differences between the tensors of a model and the converter's, one per line.
fn tensor_differences(ours: &Gguf, theirs: &Json) -> String {
    let theirs = theirs.as_object().unwrap();
    let mut out = String::new();
    for info in ours.tensors() {
        let Some(expected) = theirs.get(&info.name) else {
            writeln!(out, "{} is only ours", info.name).unwrap();
            continue;
        };
        let data = ours.data(info).unwrap();
        let same_bytes = match expected.get("values") {
            // Computed values may differ in the last bit.
            Some(values) => {
                let floats =
                    data.as_chunks::<4>().0.iter().map(|&bytes| Json::from(f32::from_le_bytes(bytes)));
                equal(&floats.collect(), values)
            }
            None => {
                let sha256 =
                    Sha256::digest(&data).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
                expected["sha256"] == sha256.as_str()
            }
        };
        let dims = Json::from(info.dims.clone());
        if !same_bytes || expected["dims"] != dims || expected["type"] != info.ty.name() {
            let differ = if same_bytes { "" } else { ", other data" };
            writeln!(out, "{}: {dims} {}{differ}, not {expected}", info.name, info.ty).unwrap();
        }
    }
    for name in theirs.keys().filter(|name| ours.tensor(name).is_none()) {
        writeln!(out, "{name} is missing").unwrap();
    }
    out
}

/// Differences of all cases, each line with the name of the case.
fn differences(part: &str, of: fn(&Gguf, &Json) -> String) -> String {
    let mut out = String::new();
    for case in CASES {
        let model = bespoke_hf::open(&folder(case)).unwrap();
        for line in of(&model, &json(case, "converted.json")[part]).lines() {
            writeln!(out, "{case}: {line}").unwrap();
        }
    }
    out
}

#[test]
fn metadata_is_the_converters() {
    assert_eq!(differences("metadata", metadata_differences), "");
}

#[test]
fn tensors_are_the_converters() {
    assert_eq!(differences("tensors", tensor_differences), "");
}

#[test]
fn texts_have_the_ids_of_the_tokenizers_library() {
    let mut wrong = String::new();
    for case in CASES {
        let model = bespoke_hf::open(&folder(case)).unwrap();
        let tokenizer = Tokenizer::from_gguf(&model).unwrap();
        for pair in json(case, "encoded.json").as_array().unwrap() {
            let text = pair[0].as_str().unwrap();
            let ids = Json::from(tokenizer.encode(text).unwrap());
            if ids != pair[1] {
                writeln!(wrong, "{case}: {text:?}: {ids}, not {}", pair[1]).unwrap();
            }
        }
    }
    assert_eq!(wrong, "");
}
