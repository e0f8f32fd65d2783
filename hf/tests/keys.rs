//! What keys of `config.json` become: fixtures with other values, or of another class of the same tensors.

mod common;

use std::fs;
use std::path::Path;

use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use common::{as_json, copy, equal, folder};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

/// Sets keys of a folder's `config.json`.
fn edit(folder: &Path, edits: &Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(edits.as_object().unwrap().clone());
    fs::write(path, config.to_string()).unwrap();
}

/// The model of a fixture whose `config.json` has other values.
fn edited(case: &str, edits: &Value) -> Gguf {
    let folder = copy(case);
    edit(folder.path(), edits);
    bespoke_hf::open(folder.path()).unwrap_or_else(|error| panic!("{case} with {edits}: {error}"))
}

/// Fixtures with edits of `config.json`, and metadata below the architecture's prefix; null for a key that is missing.
#[test]
fn keys_become_metadata() {
    let yarn = |more: Value| {
        let mut parameters =
            json!({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"rope_parameters": parameters})
    };
    let (window, pattern) = ("attention.sliding_window", "attention.sliding_window_pattern");
    let (full, sliding) = ("full_attention", "sliding_attention");
    for (case, edits, expected) in [
        // Soft caps that are switched off; without the key they have the defaults of Gemma 2.
        (
            "gemma2",
            json!({"attn_logit_softcapping": null}),
            json!({"attn_logit_softcapping": 0.0, "final_logit_softcapping": 30.0}),
        ),
        (
            "gemma2",
            json!({"final_logit_softcapping": null}),
            json!({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 0.0}),
        ),
        // Windows that alternate in another way than GGUF's architecture.
        ("gemma2", json!({}), json!({window: 8, pattern: null})),
        ("gemma2", json!({"layer_types": [full, sliding]}), json!({window: 8, pattern: [false, true]})),
        ("gemma3", json!({}), json!({window: 8, pattern: null})),
        ("gemma3", json!({"layer_types": null}), json!({window: 8, pattern: null})),
        (
            "gemma3",
            json!({"layer_types": null, "sliding_window_pattern": 1}),
            json!({window: null, pattern: null}),
        ),
        ("gemma3", json!({"layer_types": null, "sliding_window_pattern": 3}), json!({window: 8, pattern: 3})),
        (
            "gemma3",
            json!({"layer_types": null, "_sliding_window_pattern": 2}),
            json!({window: 8, pattern: 2}),
        ),
        // Of the classes with Llama's tensors only Mistral's have windows.
        ("mistral", json!({}), json!({window: 8})),
        ("mistral", json!({"sliding_window": 4096}), json!({window: null})),
        ("mistral", json!({"architectures": ["LlamaForCausalLM"]}), json!({window: null})),
        // YaRN's magnitude is `attention_factor` or follows from other keys; there is no `attn_factor`.
        (
            "qwen2",
            yarn(json!({"attn_factor": 2.0, "extrapolation_factor": 0.5})),
            json!({"rope.scaling.yarn_attn_factor": null, "rope.scaling.yarn_ext_factor": null}),
        ),
        ("qwen2", yarn(json!({"attention_factor": 1.5})), json!({"rope.scaling.yarn_attn_factor": 1.5})),
        (
            "qwen2",
            yarn(json!({"mscale": 1.0, "mscale_all_dim": 1.0})),
            json!({"rope.scaling.yarn_log_multiplier": 1.0}),
        ),
        (
            "olmo2",
            json!({"architectures": ["Olmo3ForCausalLM"], "sliding_window": 8}),
            json!({window: 8, pattern: [true, true]}),
        ),
        (
            "olmo2",
            json!({"architectures": ["Olmo3ForCausalLM"], "sliding_window": 8, "layer_types": [full, sliding]}),
            json!({window: 8, pattern: [false, true]}),
        ),
        (
            "mistral",
            json!({
                "architectures": ["Ministral3ForCausalLM"],
                "sliding_window": null,
                "rope_parameters": {
                    "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
                },
            }),
            json!({
                window: null,
                "attention.temperature_scale": 0.1,
                "rope.scaling.original_context_length": 256,
                "rope.scaling.yarn_log_multiplier": 1.0,
            }),
        ),
        (
            "llama",
            json!({"architectures": ["Ernie4_5ForCausalLM"], "rope_parameters": null}),
            json!({"rope.freq_base": 500000.0}),
        ),
    ] {
        let model = edited(case, &edits);
        let prefix = model.architecture().unwrap();
        for (key, expected) in expected.as_object().unwrap() {
            let found = model.get(&format!("{prefix}.{key}")).map_or(Value::Null, as_json);
            assert!(equal(&found, expected), "{case} with {edits}: {key} is {found}, not {expected}");
        }
    }
}

/// Every id in `eos_token_id` ends a generation, however many there are, in `generation_config.json` and in `config.json`.
#[test]
fn end_tokens_of_the_folder_end_a_generation() {
    let ids = json!({"eos_token_id": [3, 7, 11, 7, 12]});
    for name in ["generation_config.json", "config.json"] {
        let folder = copy("qwen3");
        fs::remove_file(folder.path().join("generation_config.json")).unwrap();
        match name {
            "config.json" => edit(folder.path(), &ids),
            _ => fs::write(folder.path().join(name), ids.to_string()).unwrap(),
        }
        let model = bespoke_hf::open(folder.path()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&model).unwrap();
        for id in [3, 7, 11, 12] {
            assert!(tokenizer.end_tokens().contains(&id), "{name}, {id}: {:?}", tokenizer.end_tokens());
        }
    }
    // A single id, which is not that of `tokenizer_config.json`.
    let folder = copy("qwen3");
    fs::remove_file(folder.path().join("generation_config.json")).unwrap();
    edit(folder.path(), &json!({"eos_token_id": 7}));
    let tokenizer = Tokenizer::from_gguf(&bespoke_hf::open(folder.path()).unwrap()).unwrap();
    assert!(tokenizer.end_tokens().contains(&7), "{:?}", tokenizer.end_tokens());
}

/// Classes whose tensors have the names of another class: the architecture, and whether GGUF has the rows of Q in the
/// order of the folder.
#[test]
fn classes_of_the_same_tensors() {
    for (case, class, architecture, same_rows) in [
        ("mistral", "Ministral3ForCausalLM", "mistral3", false),
        ("mistral", "Mistral3ForConditionalGeneration", "mistral3", false),
        ("mistral", "Ernie4_5ForCausalLM", "ernie4_5", true),
        ("mistral", "Ernie4_5_ForCausalLM", "ernie4_5", true),
        ("olmo2", "Olmo3ForCausalLM", "olmo2", true),
    ] {
        let model = edited(case, &json!({"architectures": [class], "sliding_window": 8}));
        assert_eq!(model.architecture().unwrap(), architecture, "{class}");
        let bytes = fs::read(folder(case).join("model.safetensors")).unwrap();
        let stored = SafeTensors::deserialize(&bytes).unwrap();
        let stored = stored.tensor("model.layers.0.self_attn.q_proj.weight").unwrap();
        let q = model.data(model.require("blk.0.attn_q.weight").unwrap()).unwrap();
        assert_eq!(*stored.data() == *q, same_rows, "{class}");
    }
}

/// A Granite 4 without experts: the fixture of Granite with gate and up in one tensor, under another name.
#[test]
fn fused_gate_and_up_are_two_tensors() {
    let folder = copy("granite");
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<(String, TensorView<'_>)> = Vec::new();
    let fused: Vec<Vec<u8>> = (0..2)
        .map(|layer| {
            let half = |name| stored.tensor(&format!("model.layers.{layer}.mlp.{name}_proj.weight")).unwrap();
            [half("gate").data(), half("up").data()].concat()
        })
        .collect();
    for (name, view) in stored.tensors() {
        match name.rsplit_once(".mlp.") {
            None => tensors.push((name, view)),
            Some((layer, "down_proj.weight")) => {
                tensors.push((format!("{layer}.shared_mlp.output_linear.weight"), view));
            }
            Some((layer, "up_proj.weight")) => {
                let index: usize = layer.rsplit_once('.').unwrap().1.parse().unwrap();
                let shape = vec![2 * view.shape()[0], view.shape()[1]];
                let view = TensorView::new(view.dtype(), shape, &fused[index]).unwrap();
                tensors.push((format!("{layer}.shared_mlp.input_linear.weight"), view));
            }
            Some(_) => {}
        }
    }
    let fused = safetensors::serialize(tensors, None).unwrap();
    fs::write(&path, fused).unwrap();
    edit(
        folder.path(),
        &json!({
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "intermediate_size": 1,
            "shared_intermediate_size": 64,
            "layer_types": ["attention", "attention"],
            "position_embedding_type": "rope",
        }),
    );
    let (model, plain) = (bespoke_hf::open(folder.path()).unwrap(), edited("granite", &json!({})));
    assert!(model.bool("granite.rope.scaling.finetuned").unwrap());
    assert_eq!(model.tensors(), plain.tensors());
    for (one, other) in model.tensors().iter().zip(plain.tensors()) {
        assert!(model.data(one).unwrap() == plain.data(other).unwrap(), "{}", one.name);
    }
}

/// `lstrip` and `rstrip` of an added token.
#[test]
fn white_space_beside_added_tokens_belongs_to_them() {
    let folder = copy("qwen3");
    let path = folder.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for added in tokenizer["added_tokens"].as_array_mut().unwrap() {
        added["lstrip"] = (added["content"] != "<|im_end|>").into();
        added["rstrip"] = (added["content"] == "<|im_end|>").into();
    }
    fs::write(path, tokenizer.to_string()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&bespoke_hf::open(folder.path()).unwrap()).unwrap();
    let ids = |text: &str| tokenizer.encode(text).unwrap();
    assert_eq!(ids("a <|im_start|> b <|im_end|> c"), ids("a<|im_start|> b <|im_end|>c"));
    assert_ne!(ids("a<|im_start|> b"), ids("a<|im_start|>b"));
    assert_ne!(ids("b <|im_end|>"), ids("b<|im_end|>"));
}
