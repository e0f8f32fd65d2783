//! Folders that are incomplete, contradictory, hostile or not supported: errors that name the file and the key.

mod common;

use std::fs;
use std::path::Path;

use common::copy;
use serde_json::{Value, json};

/// Message of opening a copy of `case` after `edit`, without the folder's name.
fn refusal(case: &str, edit: impl FnOnce(&Path)) -> String {
    let folder = copy(case);
    edit(folder.path());
    let message = bespoke_hf::open(folder.path()).err().expect("the folder is refused").to_string();
    message
        .replace(&format!("{}/", folder.path().display()), "")
        .replace(&folder.path().display().to_string(), "F")
}

/// Message after `edit` of a JSON file.
fn json_refusal(case: &str, name: &str, edit: impl FnOnce(&mut Value)) -> String {
    refusal(case, |folder| {
        let path = folder.join(name);
        let mut value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        edit(&mut value);
        fs::write(path, value.to_string()).unwrap();
    })
}

fn config(case: &str, key: &str, value: Value) -> String {
    json_refusal(case, "config.json", |config| config[key] = value)
}

/// Message after the safetensors file of `qwen3` was changed.
fn shard(edit: impl FnOnce(&mut Vec<u8>)) -> String {
    refusal("qwen3", |folder| {
        let path = folder.join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        edit(&mut bytes);
        fs::write(path, bytes).unwrap();
    })
}

/// Replaces a text of the same length in the header of a file.
fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let at =
        bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect("the text is there");
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
}

#[test]
fn configurations() {
    for (message, expected) in [
        (
            config("qwen3", "architectures", json!(["MambaForCausalLM"])),
            "config.json: the architecture MambaForCausalLM is not supported; these are: LlamaForCausalLM, \
             MistralForCausalLM, Ministral3ForCausalLM, Mistral3ForConditionalGeneration, Qwen2ForCausalLM, \
             Qwen3ForCausalLM, Phi3ForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, \
             Gemma3ForConditionalGeneration, GraniteForCausalLM, GraniteMoeHybridForCausalLM, \
             SmolLM3ForCausalLM, Olmo2ForCausalLM, Olmo3ForCausalLM, Ernie4_5ForCausalLM, Ernie4_5_ForCausalLM",
        ),
        (config("qwen3", "architectures", Value::Null), "config.json: architectures: is missing"),
        (config("qwen3", "hidden_size", Value::Null), "config.json: hidden_size: is missing"),
        (
            config("qwen3", "hidden_size", json!("64")),
            "config.json: hidden_size: expected an integer from 0 to 4294967295, found \"64\"",
        ),
        (
            config("qwen3", "num_attention_heads", json!(0)),
            "config.json: num_attention_heads: 0 is not supported: 1 to 16777216 are",
        ),
        (
            config("qwen3", "hidden_act", json!("relu")),
            "config.json: hidden_act: relu is not supported: the models use silu, swish",
        ),
        (
            config("qwen3", "quantization_config", json!({"quant_method": "gptq"})),
            "config.json: quantization_config: weights quantised by the method gptq are not supported; use the \
             original folder",
        ),
        (
            config("llama", "num_local_experts", json!(8)),
            "config.json: num_local_experts: a mixture of experts is not supported: only dense models are",
        ),
        (
            config("smollm3", "no_rope_layers", json!([1, 0, 1, 0])),
            "config.json: no_rope_layers: only every fourth layer without RoPE is supported",
        ),
        (
            config("gemma2", "layer_types", json!(["full_attention", "chunked_attention"])),
            "config.json: layer_types: layer 1 must be sliding_attention or full_attention",
        ),
        (
            config("granite", "layer_types", json!(["attention", "mamba"])),
            "config.json: layer_types: layer 1 is \"mamba\": only attention is supported",
        ),
        (
            config("qwen3", "layer_types", json!(["full_attention", "sliding_attention"])),
            "config.json: layer_types: layer 1 must be full_attention in Qwen3ForCausalLM models",
        ),
        (
            config("olmo2", "sliding_window", json!(8)),
            "config.json: sliding_window: sliding windows are not supported here",
        ),
        (
            config("qwen3", "partial_rotary_factor", json!(0.5)),
            "config.json: partial_rotary_factor: only 1 is supported",
        ),
        (
            config("qwen3", "rope_parameters", json!({"rope_type": "default", "partial_rotary_factor": 0.5})),
            "config.json: rope_parameters.partial_rotary_factor: only 1 is supported",
        ),
        (
            config("gemma3", "rope_parameters", json!({"sliding_attention": {"partial_rotary_factor": 0.5}})),
            "config.json: rope_parameters.sliding_attention.partial_rotary_factor: only 1 is supported",
        ),
        (
            json_refusal("phi3", "config.json", |config| {
                config["rope_parameters"]["partial_rotary_factor"] = json!(1e9);
            }),
            "config.json: rope_parameters.partial_rotary_factor: must be above 0 and at most 1",
        ),
        (
            config("qwen3", "rope_parameters", json!({"rope_type": "dynamic", "factor": 2.0})),
            "config.json: rope_parameters.rope_type: dynamic is not supported for Qwen3ForCausalLM: default, linear, \
             llama3 and yarn are",
        ),
        (
            config("qwen3", "rope_parameters", json!({"rope_type": "yarn"})),
            "config.json: rope_parameters.factor: is missing",
        ),
        (
            config("qwen3", "intermediate_size", json!(128)),
            "model.safetensors: the tensor model.layers.0.mlp.gate_proj.weight has the shape [32, 64], but \
             config.json gives [128, 64]",
        ),
        (
            config("llama", "num_hidden_layers", json!(16_000_000)),
            "the tensor model.layers.2.input_layernorm.weight is missing in the safetensors files",
        ),
        (
            config("qwen3", "num_hidden_layers", json!(1)),
            "model.safetensors: the tensor model.layers.1.input_layernorm.weight is not used by Qwen3ForCausalLM \
             models, and ignoring it could give wrong results",
        ),
        (
            refusal("qwen3", |folder| fs::write(folder.join("config.json"), "{\n  \"a\": 1,\n}").unwrap()),
            "config.json: malformed JSON: trailing comma at line 3 column 1",
        ),
        (
            refusal("qwen3", |folder| fs::remove_file(folder.join("config.json")).unwrap()),
            "cannot read config.json: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(message, expected);
    }
}

/// Damaged files are refused or accepted, but never cause a panic or take long.
#[test]
fn damage_never_panics() {
    let folder = copy("mistral");
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors",
    ] {
        let path = folder.path().join(name);
        let whole = fs::read(&path).unwrap();
        // The header of the weights, and a few bytes of data.
        let header = whole.len().min(4000);
        for round in 0..60 {
            let mut bytes = whole.clone();
            match round % 3 {
                0 => bytes.truncate(random(header)),
                1 => bytes[random(header)] = random(256) as u8,
                _ => {
                    let at = random(header - 3);
                    bytes[at..at + 3].copy_from_slice(b"999");
                }
            }
            fs::write(&path, bytes).unwrap();
            if let Ok(model) = bespoke_hf::open(folder.path()) {
                for info in model.tensors() {
                    model.data(info).unwrap();
                }
            }
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(bespoke_hf::open(folder.path()).is_ok());
}

#[test]
fn weights() {
    for (message, expected) in [
        (
            refusal("qwen3", |folder| fs::remove_file(folder.join("model.safetensors")).unwrap()),
            "F: neither model.safetensors nor model.safetensors.index.json is there",
        ),
        (
            refusal("qwen3", |folder| {
                fs::rename(folder.join("model.safetensors"), folder.join("pytorch_model.bin")).unwrap();
            }),
            "F: neither model.safetensors nor model.safetensors.index.json is there; weights in pytorch_model.bin are \
             not supported: convert them",
        ),
        (
            shard(|bytes| replace(bytes, "model.norm.weight", "model.norn.weight")),
            "the tensor model.norm.weight is missing in the safetensors files",
        ),
        (
            shard(|bytes| replace(bytes, "\"BF16\"", "\"I16\" ")),
            "model.safetensors: the tensor lm_head.weight is I16; F32, F16 and BF16 are supported",
        ),
        (
            shard(|bytes| bytes.truncate(bytes.len() - 1)),
            "model.safetensors: not a valid safetensors file: the tensors do not end at the file's SIZE bytes \
             (truncated download?)",
        ),
        (
            shard(|bytes| bytes.truncate(100)),
            "model.safetensors: not a valid safetensors file: the header is longer than the file's 100 bytes \
             (truncated download?)",
        ),
        (
            shard(Vec::clear),
            "model.safetensors: not a valid safetensors file: the header is longer than the file's 0 bytes \
             (truncated download?)",
        ),
        (
            shard(|bytes| bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes())),
            "model.safetensors: not a valid safetensors file: the header is longer than the file's SIZE bytes \
             (truncated download?)",
        ),
        (shard(|bytes| bytes[8] = b'['), "model.safetensors: not a valid safetensors file: invalid header: "),
    ] {
        // The size of the fixture does not matter.
        let size = message
            .split(['\'', ' '])
            .find(|word| word.len() > 3 && word.bytes().all(|b| b.is_ascii_digit()));
        let message = size.map_or(message.clone(), |size| message.replace(size, "SIZE"));
        assert!(message.starts_with(expected), "{message}\n{expected}");
    }
}

#[test]
fn shards() {
    let index = "model.safetensors.index.json";
    let set = |name: &str, file: &str| {
        json_refusal("llama", index, |index| index["weight_map"][name] = file.into())
    };
    for outside in ["../llama/model.safetensors", "/etc/passwd", "..", "a/b.safetensors"] {
        assert_eq!(
            set("model.norm.weight", outside),
            format!(
                "{index}: the tensor model.norm.weight is in {outside:?}: a shard must be a file of the same folder"
            )
        );
    }
    assert_eq!(
        set("model.norm.weight", "model-00009-of-00009.safetensors"),
        "cannot read model-00009-of-00009.safetensors: No such file or directory (os error 2)"
    );
    let message = set("model.extra.weight", "model-00001-of-00003.safetensors");
    assert!(
        message.starts_with(&format!("{index}: the tensor model.extra.weight is not in model-00001")),
        "{message}"
    );
    assert_eq!(
        json_refusal("llama", index, |index| index["weight_map"] = json!([])),
        format!("{index}: weight_map: expected an object, found an array of 0 values")
    );
}

#[test]
fn tokenizers() {
    let file = "tokenizer.json";
    for (message, expected) in [
        (
            json_refusal("qwen3", file, |json| json["model"]["type"] = "WordPiece".into()),
            "tokenizer.json: model.type: WordPiece is not supported: only BPE is",
        ),
        (
            json_refusal("qwen3", file, |json| {
                json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x+".into()
            }),
            "tokenizer.json: pre_tokenizer: no known pre-tokenizer has these patterns: x+",
        ),
        (
            json_refusal("qwen3", file, |json| json["normalizer"] = json!({"type": "Lowercase"})),
            "tokenizer.json: normalizer.type: Lowercase is not supported for a byte-level BPE",
        ),
        (
            json_refusal("qwen3", file, |json| json["model"]["merges"][3] = json!(["a"])),
            "tokenizer.json: model.merges[3]: expected two tokens",
        ),
        (
            json_refusal("qwen3", file, |json| json["model"]["vocab"]["!"] = json!(1)),
            "tokenizer.json: model.vocab.\"",
        ),
        (
            json_refusal("mistral", file, |json| {
                drop(json["model"]["merges"].as_array_mut().unwrap().remove(0))
            }),
            "tokenizer.json: model.merges: ",
        ),
        (
            json_refusal("mistral", file, |json| json["model"]["byte_fallback"] = false.into()),
            "tokenizer.json: pre_tokenizer: neither a byte-level BPE nor one with byte_fallback",
        ),
    ] {
        assert!(message.starts_with(expected), "{message}\n{expected}");
    }
}
