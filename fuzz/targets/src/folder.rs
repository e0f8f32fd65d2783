//! Hugging Face folders: hostile files, up to the model's shape, its tensors' data and its tokenizer.
//!
//! Each part of the input is a file. `weights.json` stands for `model.safetensors`: the header of that file, with its
//! length before it and zeros behind it. Property: a tensor of the model has the bytes that its type and dimensions
//! need, or converting it is an error.

use std::fs;

use bespoke::tokenizer::Tokenizer;
use bespoke_kernels::shape::ModelShape;

use crate::sections::sections;

/// Files that a folder may have.
const FILES: [&str; 8] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "model.safetensors",
    "model-00001-of-00002.safetensors",
    "model.safetensors.index.json",
];
/// Bytes of zeros behind the header of `weights.json`.
const DATA: usize = 1 << 18;

pub fn run(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("a file");
    for (name, bytes) in sections(data) {
        if name == "weights.json" {
            let mut file = (bytes.len() as u64).to_le_bytes().to_vec();
            file.extend(bytes);
            file.resize(file.len() + end_of_data(bytes).min(DATA), 0);
            write("model.safetensors", &file);
        } else if FILES.contains(&name) {
            write(name, bytes);
        }
    }
    let model = match bespoke_hf::open(folder.path()) {
        Ok(model) => model,
        Err(error) => return drop(error.to_string()),
    };
    if let Err(error) = ModelShape::from_gguf(&model, "fuzzed") {
        drop(error.to_string());
    }
    for info in model.tensors() {
        drop(model.data(info).map_err(|error| error.to_string()));
    }
    match Tokenizer::from_gguf(&model) {
        Ok(tokenizer) => drop(tokenizer.encode("a text, with 12 words")),
        Err(error) => drop(error.to_string()),
    }
}

/// The largest end of a tensor's data that the header declares.
fn end_of_data(header: &[u8]) -> usize {
    let header: serde_json::Value = serde_json::from_slice(header).unwrap_or_default();
    let tensors = header.as_object().into_iter().flat_map(|tensors| tensors.values());
    tensors.filter_map(|tensor| tensor["data_offsets"][1].as_u64()).max().unwrap_or(0) as usize
}
