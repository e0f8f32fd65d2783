//! GGUF headers of small models, for tests to change.

use bespoke_gguf::{GgmlType, Gguf, Writer};
use bespoke_kernels::shape::{ModelShape, rope_table};

/// Value of a metadata key.
#[derive(Clone, Debug)]
pub enum Entry {
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
pub struct Header {
    pub architecture: &'static str,
    /// Keys below the architecture's prefix.
    pub keys: Vec<(String, Entry)>,
    pub tensors: Vec<(String, Vec<u64>, GgmlType)>,
    /// Value of every element of the F32 tensors.
    pub value: f32,
}

/// Tensors of a layer that most architectures have.
pub const LLAMA: &[&str] = &[
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
    pub fn new(architecture: &'static str, layers: u32, tensors: &[&str]) -> Header {
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
    pub fn llama() -> Header {
        Header::new("llama", 1, LLAMA)
    }

    /// This header with more keys, or other values of its keys.
    pub fn with(mut self, keys: &[(&str, Entry)]) -> Header {
        for (key, value) in keys {
            self.set(key, value.clone());
        }
        self
    }

    pub fn set(&mut self, key: &str, value: Entry) {
        self.keys.retain(|(known, _)| known != key);
        self.keys.push((key.to_owned(), value));
    }

    pub fn add(&mut self, name: &str) {
        let short = name.splitn(3, '.').nth(2).filter(|_| name.starts_with("blk.")).unwrap_or(name);
        self.tensors.push((name.to_owned(), dims(self.architecture, short), GgmlType::F32));
    }

    pub fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, GgmlType) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }

    /// The header's file.
    pub fn gguf(&self) -> Gguf {
        Gguf::from_bytes(self.bytes()).unwrap()
    }

    /// The bytes of the header's file.
    pub fn bytes(&self) -> Vec<u8> {
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
        data.finish().unwrap()
    }

    pub fn shape(&self) -> Result<ModelShape, String> {
        ModelShape::from_gguf(&self.gguf(), "test").map_err(|error| error.to_string())
    }

    /// Turns per position of the pairs of `ropes[table]`, in double precision.
    pub fn turns(&self, table: usize, context: u32) -> Vec<f64> {
        let table = rope_table(&self.gguf(), &self.shape().unwrap(), table, context).unwrap();
        table.chunks(2).map(|pair| f64::from(pair[0]) + f64::from(pair[1])).collect()
    }
}

/// One layer's tensors: those of [`LLAMA`] without some, with others.
pub fn tensors(without: &[&str], with: &[&'static str]) -> Vec<&'static str> {
    LLAMA.iter().copied().filter(|name| !without.contains(name)).chain(with.iter().copied()).collect()
}

pub fn qwen2() -> Header {
    Header::new("qwen2", 2, &tensors(&[], &["attn_q.bias", "attn_k.bias", "attn_v.bias"]))
}

pub fn qwen3() -> Header {
    Header::new("qwen3", 2, &tensors(&[], &["attn_q_norm.weight", "attn_k_norm.weight"]))
}

pub fn phi3() -> Header {
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

pub const POST_NORMS: [&str; 2] = ["post_attention_norm.weight", "post_ffw_norm.weight"];

pub fn gemma2() -> Header {
    Header::new("gemma2", 3, &tensors(&[], &POST_NORMS)).with(&[
        ("attention.key_length", Integer(32)),
        ("attention.value_length", Integer(32)),
        ("attn_logit_softcapping", Float(50.0)),
        ("final_logit_softcapping", Float(30.0)),
        ("attention.sliding_window", Integer(24)),
    ])
}

pub fn gemma3() -> Header {
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

pub fn granite() -> Header {
    Header::new("granite", 1, LLAMA).with(&[
        ("embedding_scale", Float(12.0)),
        ("residual_scale", Float(0.22)),
        ("attention.scale", Float(0.015625)),
        ("logit_scale", Float(8.0)),
    ])
}

pub fn smollm3() -> Header {
    Header::new("smollm3", 5, LLAMA).with(&[("rope.dimension_count", Integer(32))])
}

pub fn olmo2() -> Header {
    let norms = ["attn_q_norm.weight", "attn_k_norm.weight"];
    let more = [&POST_NORMS[..], &norms].concat();
    let mut header = Header::new("olmo2", 4, &tensors(&["attn_norm.weight", "ffn_norm.weight"], &more));
    header.add("output.weight");
    header
}

/// A header of every architecture.
pub fn headers() -> Vec<Header> {
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
