//! Models and metadata that are refused, and those that are not.

use bespoke_gguf::{GgmlType, Gguf, Writer};
use bespoke_kernels::shape::ModelShape;

use crate::header::{Entry, Entry::*, Header};

/// Changes to the header of a Llama, with words that the error must contain.
#[test]
fn unsupported_models_are_errors() {
    type Change = fn(&mut Header);
    let cases: &[(Change, &[&str])] = &[
        (
            |h| h.architecture = "gemma9",
            &["architecture `gemma9` is not supported", "llama", "qwen2", "olmo2"],
        ),
        (|h| h.add("blk.0.attn_norm.bias"), &["blk.0.attn_norm.bias", "wrong results"]),
        (|h| h.add("blk.0.attn_q_norm.weight"), &["blk.0.attn_q_norm.weight", "wrong results"]),
        (
            |h| h.tensor("blk.0.ffn_up.weight").2 = GgmlType::Q8_1,
            &[
                "tensor blk.0.ffn_up.weight: type Q8_1 is not supported",
                "IQ4_XS and MXFP4 are",
                "bespoke quantize",
            ],
        ),
        (
            |h| h.tensor("blk.0.ffn_up.weight").1 = vec![64, 97],
            &["blk.0.ffn_up.weight", "[64, 97]", "[64, 96]"],
        ),
        (
            |h| h.tensor("blk.0.ffn_norm.weight").2 = GgmlType::F16,
            &["blk.0.ffn_norm.weight", "F16", "norms and biases must be F32"],
        ),
        (|h| h.tensors.retain(|tensor| tensor.0 != "blk.0.attn_k.weight"), &["blk.0.attn_k.weight"]),
        (|h| h.set("attention.head_count", Integer(0x1000_0001)), &["head_count", "are supported"]),
        (|h| h.set("attention.head_count", Integer(0)), &["head_count is 0"]),
        (|h| h.set("context_length", Integer(0)), &["context_length is 0"]),
        (|h| h.set("attention.key_length", Integer(36)), &["head dimension 36"]),
        (|h| h.set("attention.key_length_swa", Integer(64)), &["key_length_swa is 64", "32 elements"]),
        (|h| h.set("expert_count", Integer(8)), &["mixture of experts", "only dense models"]),
        (|h| h.set("rope.scaling.type", Text("dynamic")), &["RoPE scaling 'dynamic'", "yarn", "longrope"]),
        (|h| h.set("rope.scale_linear", Float(f32::NAN)), &["llama.rope.scale_linear is NaN"]),
        (|h| h.set("rope.freq_base", Float(-1.0)), &["llama.rope.freq_base is -1", "must be positive"]),
        (|h| h.set("attention.layer_norm_rms_epsilon", Float(f32::NAN)), &["layer_norm_rms_epsilon is NaN"]),
        (|h| h.set("attention.temperature_scale", Float(0.1)), &["llama.attention.temperature_scale"]),
        (|h| h.set("attention.causal", Flag(false)), &["llama.attention.causal", "does not support"]),
        (|h| h.set("logit_scale", Float(8.0)), &["llama.logit_scale", "does not support"]),
        (|h| h.set("residual_scale", Float(0.5)), &["llama.residual_scale", "does not support"]),
        (|h| h.set("deepstack_mapping", Integers(vec![1])), &["llama.deepstack_mapping", "does not support"]),
        (
            |h| h.set("rope.dimension_sections", Integers(vec![16, 8, 8, 0])),
            &["llama.rope.dimension_sections"],
        ),
        (
            |h| h.set("attention.head_count_kv", Integers(vec![1, 2])),
            &["llama.attention.head_count_kv", "the same integer for each of 1 layers"],
        ),
        (
            |h| h.set("feed_forward_length", Integers(vec![])),
            &["llama.feed_forward_length", "each of 1 layers"],
        ),
        (|h| h.set("something_new", Integer(1)), &["llama.something_new", "wrong results"]),
        (
            |h| h.set("attention.rope_pattern", Flags(vec![])),
            &["llama.attention.rope_pattern", "each of 1 layers"],
        ),
        (
            |h| {
                h.value = -1.0;
                h.add("rope_freqs.weight");
            },
            &["rope_freqs.weight", "element 0 is -1", "positive"],
        ),
    ];
    for (index, (change, words)) in cases.iter().enumerate() {
        let mut header = Header::llama();
        change(&mut header);
        let error = header.shape().err().unwrap_or_else(|| panic!("case {index} is accepted"));
        for word in *words {
            assert!(error.contains(word), "case {index}: no {word:?} in: {error}");
        }
    }
}

/// Every key that GGUF has below an architecture's prefix is used by a Llama, harmless, or refused by name: none is ignored.
#[test]
fn every_key_is_used_harmless_or_refused() {
    let plain = Header::llama().shape();
    let (mut used, mut harmless, mut refused) = (Vec::new(), Vec::new(), 0);
    for key in include_str!("gguf_keys.txt").lines() {
        let values = [Integer(3), Float(1.5), Flag(true), Text("yarn")];
        let shapes = values.map(|value| Header::llama().with(&[(key, value)]).shape());
        let by_name = format!("metadata key llama.{key}: decoding of llama models does not support it");
        if shapes.iter().any(|shape| shape.as_ref().is_err_and(|error| error.starts_with(&by_name))) {
            refused += 1;
        } else if shapes.iter().all(|shape| *shape == plain) {
            harmless.push(key);
        } else {
            used.push(key);
        }
    }
    let text = |keys: &[&str]| keys.join(" ");
    assert_eq!(
        text(&harmless),
        "attention.layer_norm_epsilon attention.sliding_window_pattern attention.temperature_length \
         expert_chunk_feed_forward_length expert_feed_forward_length expert_gating_func expert_group_count \
         expert_group_scale expert_group_used_count expert_latent_length expert_shared_count \
         expert_shared_feed_forward_length expert_used_count expert_weights_norm expert_weights_scale pooling_type \
         rope.scaling.finetuned rope.scaling.yarn_ext_factor ssm.conv_kernel ssm.dt_b_c_rms ssm.group_count \
         ssm.inner_size ssm.state_size ssm.time_step_rank tensor_data_layout vocab_size"
    );
    assert_eq!(
        text(&used),
        "attention.head_count attention.head_count_kv attention.key_length attention.key_length_swa \
         attention.layer_norm_rms_epsilon attention.rope_pattern attention.scale attention.sliding_window \
         attention.value_length attention.value_length_swa attn_logit_softcapping block_count context_length \
         embedding_length expert_count feed_forward_length final_logit_softcapping rope.dimension_count \
         rope.dimension_count_swa rope.freq_base rope.freq_base_swa rope.scale_linear rope.scaling.attn_factor \
         rope.scaling.factor rope.scaling.original_context_length rope.scaling.type rope.scaling.yarn_attn_factor \
         rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow rope.scaling.yarn_log_multiplier"
    );
    assert_eq!(refused, 116);
}

#[test]
fn blocks_of_another_quantization_version_are_refused() {
    let file = |version: u32, ty: GgmlType| {
        let mut header = Header::llama();
        header.tensor("blk.0.ffn_up.weight").2 = ty;
        let mut writer = Writer::new();
        let gguf = header.gguf();
        for (key, _) in gguf.metadata() {
            writer.copy(&gguf, key).unwrap();
        }
        writer.set("general.quantization_version", version).unwrap();
        gguf.tensors().iter().for_each(|info| writer.tensor(&info.name, &info.dims, info.ty).unwrap());
        let mut data = writer.start(Vec::new()).unwrap();
        while let Some((_, bytes)) = data.next() {
            data.write(&vec![0; bytes as usize]).unwrap();
        }
        ModelShape::from_gguf(&Gguf::from_bytes(data.finish().unwrap()).unwrap(), "test")
    };
    assert!(file(2, GgmlType::Q8_0).is_ok() && file(1, GgmlType::F16).is_ok());
    let error = file(1, GgmlType::Q8_0).unwrap_err().to_string();
    assert!(error.starts_with("metadata key general.quantization_version is 1; only"), "{error}");
}

/// Keys that change nothing about the shape of a Llama, and of another architecture if its name is given.
#[test]
fn harmless_keys_are_accepted() {
    let cases: &[(&str, Entry)] = &[
        ("vocab_size", Integer(40)),
        ("tensor_data_layout", Text("Meta AI original pth")),
        ("expert_count", Integer(0)),
        ("expert_used_count", Integer(0)),
        ("expert_group_count", Integer(0)),
        ("expert_group_used_count", Integer(0)),
        ("expert_gating_func", Integer(1)),
        // Granite 4 without experts and state-space layers.
        ("expert_shared_feed_forward_length", Integer(4096)),
        ("ssm.conv_kernel", Integer(4)),
        ("ssm.state_size", Integer(128)),
        ("ssm.group_count", Integer(1)),
        ("ssm.inner_size", Integer(3072)),
        ("ssm.time_step_rank", Integer(48)),
        ("deepstack_mapping", Integers(vec![-1])),
        ("attention.causal", Flag(true)),
        ("attention.layer_norm_epsilon", Float(1e-5)),
        ("attention.temperature_length", Integer(8192)),
        ("attention.temperature_scale", Float(0.0)),
        ("attention.sliding_window", Integer(0)),
        ("use_parallel_residual", Flag(false)),
        ("rope.dimension_sections", Integers(vec![0; 4])),
        ("rope.scaling.attn_factor", Float(1.0)),
        ("rope.scaling.yarn_ext_factor", Float(0.5)),
        ("logit_scale", Float(1.0)),
        ("residual_scale", Float(1.0)),
        ("embedding_scale", Float(0.0)),
        ("attention.head_count", Integers(vec![2])),
        ("attention.head_count_kv", Integers(vec![1])),
        ("feed_forward_length", Integers(vec![96])),
    ];
    let plain = Header::llama().shape().unwrap();
    for (key, value) in cases {
        let shape = Header::llama().with(&[(key, value.clone())]).shape();
        assert_eq!(shape.as_ref(), Ok(&plain), "{key}");
    }
}
