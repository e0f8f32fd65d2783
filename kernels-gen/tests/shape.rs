//! Shapes from GGUF headers: dimensions, the description of each architecture, and errors before anything is allocated.

use std::f64::consts::TAU;

use bespoke_codegen::ptx::Target;
use bespoke_gguf::{GgmlType, Gguf, Writer};
use bespoke_kernels::kernels::activation::Activation;
use bespoke_kernels::kernels::attention::NormSpan;
use bespoke_kernels::plan::{BufferKind, PartForm, Plan, PlanParams};
use bespoke_kernels::shape::architecture::ARCHITECTURES;
use bespoke_kernels::shape::{Blueprint, FeedForward, Mix, ModelShape, RopeKind, rope_table};

/// Value of a metadata key.
#[derive(Clone, Debug)]
enum Entry {
    Integer(u32),
    Float(f32),
    Text(&'static str),
    Flag(bool),
    Flags(Vec<bool>),
    Integers(Vec<i32>),
}

use Entry::{Flag, Flags, Float, Integer, Integers, Text};

/// A header and its tensors, for a test to change.
#[derive(Clone)]
struct Header {
    architecture: &'static str,
    /// Keys below the architecture's prefix.
    keys: Vec<(String, Entry)>,
    tensors: Vec<(String, Vec<u64>, GgmlType)>,
    /// Value of every element of the F32 tensors.
    value: f32,
}

/// Tensors of a layer that most architectures have.
const LLAMA: &[&str] = &[
    "attn_norm.weight",
    "ffn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
];

/// Dimensions of a tensor, innermost first, in a model of width 64 with two heads of 32 elements, one key head, ffn 96
/// and 40 tokens.
fn dims(architecture: &str, name: &str) -> Vec<u64> {
    match (name, architecture) {
        ("token_embd.weight" | "output.weight", _) => vec![64, 40],
        ("attn_q.weight" | "attn_output.weight", _) => vec![64, 64],
        ("attn_k.weight" | "attn_v.weight", _) => vec![64, 32],
        ("attn_qkv.weight", _) => vec![64, 128],
        ("attn_qkv.bias", _) => vec![128],
        ("attn_k.bias" | "attn_v.bias", _) => vec![32],
        ("ffn_up.weight", "phi3") => vec![64, 192],
        ("ffn_gate.weight" | "ffn_up.weight", _) => vec![64, 96],
        ("ffn_gate.bias" | "ffn_up.bias", _) => vec![96],
        ("ffn_down.weight", _) => vec![96, 64],
        ("attn_k_norm.weight", _) => vec![32],
        ("attn_q_norm.weight", "qwen3" | "gemma3") => vec![32],
        ("rope_freqs.weight" | "rope_factors_long.weight" | "rope_factors_short.weight", _) => vec![16],
        _ => vec![64],
    }
}

impl Header {
    /// A tied model whose layers have the tensors `tensors`.
    fn new(architecture: &'static str, layers: u32, tensors: &[&str]) -> Header {
        let keys = [
            ("embedding_length", Integer(64)),
            ("block_count", Integer(layers)),
            ("attention.head_count", Integer(2)),
            ("attention.head_count_kv", Integer(1)),
            ("feed_forward_length", Integer(96)),
            ("context_length", Integer(128)),
            ("attention.layer_norm_rms_epsilon", Float(1e-5)),
        ];
        let mut header = Header {
            architecture,
            keys: keys.map(|(key, value)| (key.to_owned(), value)).into(),
            tensors: Vec::new(),
            value: 1.0,
        };
        header.add("token_embd.weight");
        header.add("output_norm.weight");
        for layer in 0..layers {
            for tensor in tensors {
                header.add(&format!("blk.{layer}.{tensor}"));
            }
        }
        header
    }

    /// A Llama of one layer.
    fn llama() -> Header {
        Header::new("llama", 1, LLAMA)
    }

    /// This header with more keys, or other values of its keys.
    fn with(mut self, keys: &[(&str, Entry)]) -> Header {
        for (key, value) in keys {
            self.set(key, value.clone());
        }
        self
    }

    fn set(&mut self, key: &str, value: Entry) {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.to_owned(), value));
    }

    fn add(&mut self, name: &str) {
        let short = name.splitn(3, '.').nth(2).filter(|_| name.starts_with("blk.")).unwrap_or(name);
        self.tensors.push((name.to_owned(), dims(self.architecture, short), GgmlType::F32));
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, GgmlType) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }

    fn gguf(&self) -> Gguf {
        let mut writer = Writer::new();
        writer.set("general.architecture", self.architecture).unwrap();
        for (key, value) in &self.keys {
            let key = format!("{}.{key}", self.architecture);
            match value {
                Integer(value) => writer.set(&key, *value).unwrap(),
                Float(value) => writer.set(&key, *value).unwrap(),
                Text(value) => writer.set(&key, *value).unwrap(),
                Flag(value) => writer.set(&key, *value).unwrap(),
                Flags(values) => writer.set_array(&key, values).unwrap(),
                Integers(values) => writer.set_array(&key, values).unwrap(),
            }
        }
        for (name, dims, ty) in &self.tensors {
            writer.tensor(name, dims, *ty).unwrap();
        }
        let mut data = writer.start(Vec::new()).unwrap();
        while let Some((_, bytes)) = data.next() {
            data.write(&self.value.to_le_bytes().repeat(bytes as usize / 4 + 1)[..bytes as usize]).unwrap();
        }
        Gguf::from_bytes(data.finish().unwrap()).unwrap()
    }

    fn shape(&self) -> Result<ModelShape, String> {
        ModelShape::from_gguf(&self.gguf(), "test").map_err(|error| error.to_string())
    }

    /// Turns per position of the pairs of `ropes[table]`, in double precision.
    fn turns(&self, table: usize, context: u32) -> Vec<f64> {
        let table = rope_table(&self.gguf(), &self.shape().unwrap(), table, context).unwrap();
        table.chunks(2).map(|pair| f64::from(pair[0]) + f64::from(pair[1])).collect()
    }
}

/// One layer's tensors: those of [`LLAMA`] without some, with others.
fn tensors(without: &[&str], with: &[&'static str]) -> Vec<&'static str> {
    LLAMA.iter().copied().filter(|name| !without.contains(name)).chain(with.iter().copied()).collect()
}

fn qwen2() -> Header {
    Header::new("qwen2", 2, &tensors(&[], &["attn_q.bias", "attn_k.bias", "attn_v.bias"]))
}

fn qwen3() -> Header {
    Header::new("qwen3", 2, &tensors(&[], &["attn_q_norm.weight", "attn_k_norm.weight"]))
}

fn phi3() -> Header {
    let split = ["attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight"];
    let mut header = Header::new("phi3", 2, &tensors(&split, &["attn_qkv.weight"])).with(&[
        ("rope.dimension_count", Integer(32)),
        ("rope.freq_base", Float(10_000.0)),
        ("rope.scaling.original_context_length", Integer(64)),
        ("rope.scaling.attn_factor", Float(1.25)),
        ("attention.sliding_window", Integer(16)),
    ]);
    header.add("rope_factors_long.weight");
    header.add("rope_factors_short.weight");
    header
}

const POST_NORMS: [&str; 2] = ["post_attention_norm.weight", "post_ffw_norm.weight"];

fn gemma2() -> Header {
    Header::new("gemma2", 3, &tensors(&[], &POST_NORMS)).with(&[
        ("attention.key_length", Integer(32)),
        ("attention.value_length", Integer(32)),
        ("attn_logit_softcapping", Float(50.0)),
        ("final_logit_softcapping", Float(30.0)),
        ("attention.sliding_window", Integer(24)),
    ])
}

fn gemma3() -> Header {
    let more = [&POST_NORMS[..], &["attn_q_norm.weight", "attn_k_norm.weight"]].concat();
    Header::new("gemma3", 7, &tensors(&[], &more)).with(&[
        ("attention.key_length", Integer(32)),
        ("attention.value_length", Integer(32)),
        ("attention.sliding_window", Integer(24)),
        ("rope.freq_base", Float(1e6)),
        ("rope.scaling.type", Text("linear")),
        ("rope.scaling.factor", Float(8.0)),
    ])
}

fn granite() -> Header {
    Header::new("granite", 1, LLAMA).with(&[
        ("embedding_scale", Float(12.0)),
        ("residual_scale", Float(0.22)),
        ("attention.scale", Float(0.015625)),
        ("logit_scale", Float(8.0)),
    ])
}

fn smollm3() -> Header {
    Header::new("smollm3", 5, LLAMA).with(&[("rope.dimension_count", Integer(32))])
}

fn olmo2() -> Header {
    let norms = ["attn_q_norm.weight", "attn_k_norm.weight"];
    let more = [&POST_NORMS[..], &norms].concat();
    let mut header = Header::new("olmo2", 4, &tensors(&["attn_norm.weight", "ffn_norm.weight"], &more));
    header.add("output.weight");
    header
}

/// A header of every architecture.
fn headers() -> Vec<Header> {
    let mistral3 = Header { architecture: "mistral3", ..Header::llama() };
    vec![
        Header::llama(),
        mistral3,
        qwen2(),
        qwen3(),
        phi3(),
        gemma2(),
        gemma3(),
        granite(),
        smollm3(),
        olmo2(),
        Header { architecture: "ernie4_5", ..Header::llama() },
    ]
}

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
    let mut bytes = std::fs::read(write_temporary(&header)).unwrap();
    let short = file.require("rope_factors_short.weight").unwrap().offset as usize;
    bytes[short..short + 4].copy_from_slice(&4f32.to_le_bytes());
    let file = Gguf::from_bytes(bytes).unwrap();
    let shape = ModelShape::from_gguf(&file, "phi3").unwrap();
    let first = |context| f64::from(rope_table(&file, &shape, 0, context).unwrap()[0]) * TAU;
    assert!((first(64) - 0.25).abs() < 1e-7 && (first(65) - 0.5).abs() < 1e-7);
}

/// The header's file in the folder of temporary files.
fn write_temporary(header: &Header) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("bespoke-shape-{}.gguf", std::process::id()));
    let mut writer = Writer::new();
    let gguf = header.gguf();
    for (key, _) in gguf.metadata() {
        writer.copy(&gguf, key).unwrap();
    }
    for info in gguf.tensors() {
        writer.tensor(&info.name, &info.dims, info.ty).unwrap();
    }
    let mut data = writer.start(Vec::new()).unwrap();
    for info in gguf.tensors() {
        data.write(&gguf.data(info).unwrap()).unwrap();
    }
    std::fs::write(&path, data.finish().unwrap()).unwrap();
    path
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

/// Changes to the header of a Llama, with words that the error must contain.
#[test]
fn unsupported_models_are_errors() {
    type Change = fn(&mut Header);
    let cases: &[(Change, &[&str])] = &[
        (
            |h| h.architecture = "gemma9",
            &["architecture 'gemma9' is not supported", "llama", "qwen2", "olmo2"],
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
