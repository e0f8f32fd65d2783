//! Shapes from GGUF headers: dimensions, and the description of each architecture.

mod header;
mod refused;

use std::f64::consts::TAU;

use bespoke_codegen::ptx::Target;
use bespoke_gguf::{GgmlType, Gguf};
use bespoke_kernels::kernels::activation::Activation;
use bespoke_kernels::kernels::attention::NormSpan;
use bespoke_kernels::plan::{BufferKind, PartForm, Plan, PlanParams};
use bespoke_kernels::shape::architecture::ARCHITECTURES;
use bespoke_kernels::shape::{Blueprint, FeedForward, Mix, ModelShape, RopeKind, rope_table};

use header::Entry::*;
use header::{
    Entry, Header, LLAMA, POST_NORMS, gemma2, gemma3, granite, headers, olmo2, phi3, smollm3, tensors,
};

/// The window of each layer; 0 without one.
fn windows(shape: &ModelShape) -> Vec<u32> {
    shape.layers.iter().map(|layer| layer.attention.window.unwrap_or(0)).collect()
}

#[test]
fn every_architecture_has_a_header_here() {
    let names: Vec<&str> = headers().iter().map(|header| header.architecture).collect();
    assert_eq!(names, ARCHITECTURES.iter().map(|row| row.name).collect::<Vec<_>>());
}

/// A header of each architecture is accepted, gives a plan that is consistent, and its tensors are those of the header.
#[test]
fn every_architecture_is_planned_for_every_target() {
    for header in headers() {
        let shape = header.shape().unwrap_or_else(|error| panic!("{}: {error}", header.architecture));
        let mut names: Vec<String> = shape.tensors().map(|name| name.to_string()).collect();
        let mut expected: Vec<String> = header.tensors.iter().map(|tensor| tensor.0.clone()).collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "{}", header.architecture);
        for target in Target::ALL {
            let plan = Plan::new(&shape, target, PlanParams::single(128)).unwrap();
            plan.check().unwrap_or_else(|error| panic!("{}: {error}", header.architecture));
            let json = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
        }
    }
}

/// `bespoke synth --like`: the blueprint of a file gives its shape, with arrays of flags and without harmless arrays.
#[test]
fn blueprints_have_the_shapes_of_their_files() {
    let olmo3 = olmo2().with(&[
        ("attention.sliding_window", Integer(20)),
        ("attention.sliding_window_pattern", Flags(vec![true, false, true, true])),
        ("rope.dimension_sections", Integers(vec![0; 4])),
        ("attention.head_count_kv", Integers(vec![1; 4])),
    ]);
    let mut ollama = gemma3().with(&[("rope.global.freq_base", Float(2e6))]);
    ollama.keys.retain(|(key, _)| key != "rope.freq_base");
    for header in [olmo3, ollama, gemma2(), granite()] {
        let shape = header.shape().unwrap();
        let blueprint = Blueprint::of(&header.gguf(), &shape).unwrap();
        assert_eq!(blueprint.shape("test", Mix::Pure(GgmlType::F32)).unwrap(), shape);
    }
}

#[test]
fn a_header_gives_its_dimensions() {
    let shape = Header::llama().shape().unwrap();
    let d = &shape.dimensions;
    assert_eq!((d.hidden, d.heads, d.kv_heads, d.head_dim, d.ffn, d.vocab), (64, 2, 1, 32, 96, 40));
    let attention = &shape.layers[0].attention;
    assert!(shape.head.is_none() && attention.q.bias.is_none());
    assert_eq!((attention.window, attention.softcap), (None, None));
    assert_eq!((attention.scale, shape.ropes[0].kind), (1.0 / 32f32.sqrt(), RopeKind::Norm));
}

#[test]
fn biases_are_found_in_an_architecture_without_them() {
    let mut header = Header::llama();
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
        header.add(&format!("blk.0.{name}.bias"));
    }
    let shape = header.shape().unwrap();
    assert!(shape.layers[0].attention.k.bias.is_some());
    let plan = Plan::new(&shape, Target::Sm90, PlanParams::single(128)).unwrap();
    let biased = |launch: &str| {
        let buffer = plan.buffers.iter().find(|buffer| buffer.name == launch).unwrap();
        let BufferKind::Weights { parts } = &buffer.kind else { panic!("{launch} has no weights") };
        parts.iter().filter(|part| part.tensor.ends_with(".bias")).count()
    };
    let launches = ["blk.0.attn_qkv", "blk.0.attn_output", "blk.0.ffn_gate_up", "blk.0.ffn_down"];
    assert_eq!(launches.map(biased), [3, 1, 2, 1]);
}

/// Phi-3: slices of fused tensors; RoPE's divisors by the context; a window in every layer.
#[test]
fn fused_tensors_are_sliced() {
    let mut header = phi3();
    for layer in 0..2 {
        header.add(&format!("blk.{layer}.attn_qkv.bias"));
    }
    let shape = header.shape().unwrap();
    let plan = Plan::new(&shape, Target::Sm90, PlanParams::single(128)).unwrap();
    let parts = |launch: &str| -> Vec<(String, u32, u32)> {
        let buffer = plan.buffers.iter().find(|buffer| buffer.name == launch).unwrap();
        let BufferKind::Weights { parts } = &buffer.kind else { panic!("{launch} has no weights") };
        let size = |form| match form {
            PartForm::Matrix { rows, .. } => rows,
            PartForm::Vector { elements } => elements,
        };
        parts.iter().map(|part| (part.tensor.clone(), part.first_row, size(part.form.clone()))).collect()
    };
    let expected = |parts: &[(&str, u32, u32)]| -> Vec<(String, u32, u32)> {
        parts.iter().map(|&(name, first, rows)| (format!("blk.1.{name}"), first, rows)).collect()
    };
    let qkv = [
        ("attn_qkv.weight", 0, 64),
        ("attn_qkv.bias", 0, 64),
        ("attn_qkv.weight", 64, 32),
        ("attn_qkv.bias", 64, 32),
        ("attn_qkv.weight", 96, 32),
        ("attn_qkv.bias", 96, 32),
        ("attn_norm.weight", 0, 64),
    ];
    assert_eq!(parts("blk.1.attn_qkv"), expected(&qkv));
    let gate_up = [("ffn_up.weight", 0, 96), ("ffn_up.weight", 96, 96), ("ffn_norm.weight", 0, 64)];
    assert_eq!(parts("blk.1.ffn_gate_up"), expected(&gate_up));
    assert_eq!(windows(&shape), [16, 16]);
    assert_eq!(shape.ropes[0].magnitude, 1.25);
}

#[test]
fn long_and_short_factors_are_chosen_by_the_context() {
    let mut header = phi3();
    header.value = 2.0;
    let file = header.gguf();
    let mut bytes = header.bytes();
    let short = file.require("rope_factors_short.weight").unwrap().offset as usize;
    bytes[short..short + 4].copy_from_slice(&4f32.to_le_bytes());
    let file = Gguf::from_bytes(bytes).unwrap();
    let shape = ModelShape::from_gguf(&file, "phi3").unwrap();
    let first = |context| f64::from(rope_table(&file, &shape, 0, context).unwrap()[0]) * TAU;
    assert!((first(64) - 0.25).abs() < 1e-7 && (first(65) - 0.5).abs() < 1e-7);
}

#[test]
fn gemma_has_windows_softcaps_and_norms_around_blocks() {
    let shape = gemma2().shape().unwrap();
    assert_eq!(windows(&shape), [24, 0, 24]);
    assert_eq!(shape.multipliers.embedding, 8.0);
    assert_eq!((shape.multipliers.softcap, shape.layers[0].attention.softcap), (Some(30.0), Some(50.0)));
    assert_eq!(shape.ropes.len(), 1);
    let FeedForward::Dense { activation, norms, .. } = &shape.layers[0].feed_forward;
    assert_eq!(*activation, Activation::Gelu);
    assert!(norms.before.is_some() && norms.after.is_some());
    // Without keys: those of Gemma 2.
    let mut plain = gemma2();
    plain.keys.retain(|(key, _)| !key.contains("softcapping") && !key.contains("window"));
    let plain = plain.shape().unwrap();
    assert_eq!((plain.multipliers.softcap, plain.layers[0].attention.softcap), (Some(30.0), Some(50.0)));
    assert_eq!(windows(&plain), [4096, 0, 4096]);
    // The 27B models have 46 and 62 layers; their scores are scaled by the width of a head of the residual stream.
    let wide = Header::new("gemma2", 46, &tensors(&[], &POST_NORMS));
    let narrow = wide.clone().with(&[("attention.scale", Float(0.5))]);
    assert_eq!(wide.shape().unwrap().layers[0].attention.scale, 1.0 / 32f32.sqrt());
    assert_eq!(narrow.shape().unwrap().layers[0].attention.scale, 0.5);
}

#[test]
fn local_layers_have_their_own_rope() {
    let header = gemma3();
    let shape = header.shape().unwrap();
    assert_eq!(windows(&shape), [24, 24, 24, 24, 24, 0, 24]);
    let tables: Vec<_> = shape.layers.iter().map(|layer| layer.attention.rope.unwrap()).collect();
    assert_eq!(tables, [0, 0, 0, 0, 0, 1, 0]);
    let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
    assert!(close(header.turns(0, 128)[1], 1e4f64.powf(-1.0 / 16.0) / TAU));
    assert!(close(header.turns(1, 128)[1], 1e6f64.powf(-1.0 / 16.0) / 8.0 / TAU));
    let own = header.with(&[("rope.freq_base_swa", Float(500.0))]);
    assert!(close(own.turns(0, 128)[1], 500f64.powf(-1.0 / 16.0) / TAU));
    // The names of Ollama's converter.
    let mut theirs = gemma3();
    theirs.keys.retain(|(key, _)| key != "rope.freq_base");
    let theirs =
        theirs.with(&[("rope.global.freq_base", Float(2e6)), ("rope.local.freq_base", Float(500.0))]);
    assert!(close(theirs.turns(0, 128)[1], 500f64.powf(-1.0 / 16.0) / TAU));
    assert!(close(theirs.turns(1, 128)[1], 2e6f64.powf(-1.0 / 16.0) / 8.0 / TAU));
}

#[test]
fn patterns_of_windows_and_rope_are_read() {
    let flags = |flags: [bool; 4]| Flags(flags.to_vec());
    let olmo3 = olmo2().with(&[
        ("attention.sliding_window", Integer(20)),
        ("attention.sliding_window_pattern", flags([true, false, true, true])),
    ]);
    assert_eq!(windows(&olmo3.shape().unwrap()), [20, 0, 20, 20]);
    let period = olmo2()
        .with(&[("attention.sliding_window", Integer(20)), ("attention.sliding_window_pattern", Integer(2))]);
    assert_eq!(windows(&period.shape().unwrap()), [20, 0, 20, 0]);
    assert_eq!(windows(&olmo2().shape().unwrap()), [0; 4]);
    let ropes = |header: Header| -> Vec<bool> {
        let shape = header.shape().unwrap();
        shape.layers.iter().map(|layer| layer.attention.rope.is_some()).collect()
    };
    assert_eq!(ropes(smollm3()), [true, true, true, false, true]);
    let pattern = Flags(vec![false, true, true, true, false]);
    let own = smollm3().with(&[("attention.rope_pattern", pattern)]);
    assert_eq!(ropes(own), [false, true, true, true, false]);
    assert_eq!(ropes(granite().with(&[("rope.scaling.finetuned", Flag(false))])), [false]);
    assert_eq!(ropes(Header::llama().with(&[("rope.scaling.finetuned", Flag(false))])), [true]);
}

#[test]
fn granite_has_multipliers() {
    let shape = granite().shape().unwrap();
    let multipliers = shape.multipliers;
    assert_eq!((multipliers.embedding, multipliers.residual, multipliers.logits), (12.0, 0.22, 0.125));
    assert_eq!(shape.layers[0].attention.scale, 0.015625);
}

#[test]
fn olmo2_has_norms_after_blocks_only_and_wide_qk_norms() {
    let shape = olmo2().shape().unwrap();
    let attention = &shape.layers[0].attention;
    assert!(attention.norms.before.is_none() && attention.norms.after.is_some());
    assert_eq!(attention.qk_norm.unwrap().span, NormSpan::Projection);
    let plan = Plan::new(&shape, Target::Sm80, PlanParams::single(128)).unwrap();
    let labels: Vec<String> = plan.launches.iter().map(|launch| launch.label.to_string()).collect();
    let layer = ["attn_qkv", "attention", "attn_output", "attn_post_norm", "ffn_gate_up", "ffn_down"];
    let layer: Vec<String> =
        layer.iter().chain(&["ffn_post_norm"]).map(|role| format!("blk.0.{role}")).collect();
    assert_eq!(labels[1..8], layer);
}

/// Turns per position of each pair relative to those without scaling, and the magnitude.
#[test]
fn rope_scaling_follows_the_metadata() {
    let plain = Header::llama().turns(0, 128);
    type Keys<'a> = &'a [(&'a str, Entry)];
    let cases: &[(Keys<'_>, f64, f32)] = &[
        (&[("rope.scaling.type", Text("linear")), ("rope.scaling.factor", Float(4.0))], 0.25, 1.0),
        (&[("rope.scaling.factor", Float(4.0))], 0.25, 1.0),
        (&[("rope.scale_linear", Float(2.0))], 0.5, 1.0),
        (&[("rope.scaling.type", Text("none")), ("rope.scaling.factor", Float(4.0))], 1.0, 1.0),
        (&[("rope.scaling.attn_factor", Float(1.5))], 1.0, 1.5),
        // The older key counts only without the newer one, even if that is 0.
        (&[("rope.scaling.factor", Float(4.0)), ("rope.scale_linear", Float(2.0))], 0.25, 1.0),
        (&[("rope.scaling.factor", Float(0.0)), ("rope.scale_linear", Float(2.0))], 1.0, 1.0),
        (&[("rope.scaling.type", Text("longrope")), ("rope.scaling.factor", Float(4.0))], 0.25, 1.0),
        (&[("rope.scale_linear", Float(2.0)), ("rope.scaling.attn_factor", Float(1.5))], 0.5, 1.5),
    ];
    for (keys, factor, magnitude) in cases {
        let header = Header::llama().with(keys);
        assert_eq!(header.shape().unwrap().ropes[0].magnitude, *magnitude, "{keys:?}");
        for (turns, plain) in header.turns(0, 128).iter().zip(&plain) {
            assert!((turns / plain / factor - 1.0).abs() < 1e-12, "{keys:?}: {turns} {plain}");
        }
    }
    // YaRN, of Hugging Face transformers' _compute_yarn_parameters with base 10000, 32 elements, original context 32:
    // pairs 0 to 2 blend from one to the other frequency; magnitude 0.1 · ln 4 + 1.
    let yarn = Header::llama().with(&[
        ("rope.scaling.type", Text("yarn")),
        ("rope.scaling.factor", Float(4.0)),
        ("rope.scaling.original_context_length", Integer(32)),
    ]);
    let ratios: Vec<f64> =
        yarn.turns(0, 128).iter().zip(&plain).map(|(turns, plain)| turns / plain).collect();
    let expected = [1.0, 0.75, 0.5, 0.25, 0.25];
    assert!(
        ratios.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9),
        "{ratios:?}"
    );
    let magnitude = |keys: &[(&str, Entry)]| yarn.clone().with(keys).shape().unwrap().ropes[0].magnitude;
    let mscale = 0.1 * 4f32.ln() + 1.0;
    assert_eq!(magnitude(&[]), mscale);
    assert_eq!(magnitude(&[("rope.scaling.yarn_log_multiplier", Float(1.0))]), 1.0);
    assert_eq!(magnitude(&[("rope.scaling.yarn_attn_factor", Float(1.25))]), 1.25);
    // Older converters' key of OLMo 3's `attention_factor`; llama.cpp writes 1 if there is none.
    assert_eq!(magnitude(&[("rope.scaling.attn_factor", Float(1.2079))]), 1.2079);
    assert_eq!(magnitude(&[("rope.scaling.attn_factor", Float(1.0))]), mscale);
}

/// Ministral 3: contexts whose queries have the temperature 1.
#[test]
fn a_temperature_of_queries_limits_the_context() {
    let header = Header::new("mistral3", 1, LLAMA).with(&[
        ("attention.temperature_scale", Float(0.1)),
        ("rope.scaling.original_context_length", Integer(64)),
    ]);
    let shape = header.shape().unwrap();
    assert_eq!((shape.dimensions.context, shape.max_context), (64, Some(64)));
    let plan = |context| Plan::new(&shape, Target::Sm90, PlanParams::single(context));
    assert!(plan(64).is_ok());
    let error = plan(65).unwrap_err().to_string();
    assert!(error.contains("a context of 65 positions") && error.contains("--ctx 64"), "{error}");
    let without = header.with(&[("attention.temperature_scale", Float(0.0))]).shape().unwrap();
    assert_eq!((without.dimensions.context, without.max_context), (128, None));
}
