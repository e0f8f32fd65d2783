//! What keys of `config.json` become: fixtures with other values, or of another class of the same tensors.

mod common;

use std::fs;

use bespoke_gguf::Gguf;
use common::{as_json, copy, equal, folder};
use safetensors::SafeTensors;
use serde_json::{Value, json};

/// The model of a fixture whose `config.json` has other values.
fn edited(case: &str, edits: &Value) -> Gguf {
    let folder = copy(case);
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(edits.as_object().unwrap().clone());
    fs::write(path, config.to_string()).unwrap();
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
