//! The text part of a Gemma 3 with vision: another place of the dimensions, other names of the tensors.

mod common;

use std::fs;
use std::path::Path;

use bespoke_gguf::Gguf;
use common::copy;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde_json::{Value, json};

/// Moves the model in a folder into a model with vision, whose tensors have `prefix`.
fn add_vision(folder: &Path, prefix: &str) {
    let path = folder.join("config.json");
    let mut text: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    // A default, which `transformers` does not write.
    text.as_object_mut().unwrap().remove("rms_norm_eps");
    let config = json!({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "vision_config": {}});
    fs::write(path, config.to_string()).unwrap();

    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<(String, TensorView<'_>)> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| (format!("{prefix}{}", name.strip_prefix("model.").unwrap()), view))
        .collect();
    let pixels = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
    for name in
        ["vision_tower.vision_model.post_layernorm.bias", "multi_modal_projector.mm_soft_emb_norm.weight"]
    {
        all.push((name.into(), pixels.clone()));
    }
    fs::write(path, serialize(all, None).unwrap()).unwrap();
}

/// Names, types and data of all tensors.
fn tensors(model: &Gguf) -> Vec<(String, Vec<u8>)> {
    let tensor = |info| (format!("{info:?}"), model.data(info).unwrap().into_owned());
    model.tensors().iter().map(tensor).collect()
}

#[test]
fn the_text_part_is_the_model_without_vision() {
    let plain = bespoke_hf::open(&common::folder("gemma3")).unwrap();
    for prefix in ["language_model.model.", "model.language_model."] {
        let folder = copy("gemma3");
        add_vision(folder.path(), prefix);
        let model = bespoke_hf::open(folder.path()).unwrap();
        assert!(tensors(&model) == tensors(&plain), "{prefix}");
        let keys = |model: &Gguf| {
            let keys = model.metadata().filter(|(key, _)| *key != "general.name");
            keys.map(|(key, value)| format!("{key} {value:?}")).collect::<Vec<_>>()
        };
        assert_eq!(keys(&model), keys(&plain));
    }
}
