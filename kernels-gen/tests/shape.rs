//! Shapes from GGUF headers: dimensions, and errors before anything is allocated.

use bespoke_gguf::{GgmlType, Gguf, Writer};
use bespoke_kernels::shape::{ModelShape, rope_table};

/// A header and its tensors, for a test to change.
#[derive(Clone)]
struct Header {
    integers: Vec<(&'static str, u32)>,
    floats: Vec<(&'static str, f32)>,
    strings: Vec<(&'static str, &'static str)>,
    tensors: Vec<(String, Vec<u64>, GgmlType)>,
}

impl Header {
    /// A Llama of one layer: width 64, two heads of 32 elements, one key head, ffn 96, 40 tokens.
    fn llama() -> Header {
        let f32 = |name: &str, dims: &[u64]| (name.to_owned(), dims.to_vec(), GgmlType::F32);
        Header {
            integers: vec![
                ("llama.embedding_length", 64),
                ("llama.block_count", 1),
                ("llama.attention.head_count", 2),
                ("llama.attention.head_count_kv", 1),
                ("llama.feed_forward_length", 96),
                ("llama.context_length", 128),
            ],
            floats: vec![("llama.attention.layer_norm_rms_epsilon", 1e-5)],
            strings: vec![("general.architecture", "llama")],
            tensors: vec![
                f32("token_embd.weight", &[64, 40]),
                f32("output_norm.weight", &[64]),
                f32("blk.0.attn_norm.weight", &[64]),
                f32("blk.0.ffn_norm.weight", &[64]),
                f32("blk.0.attn_q.weight", &[64, 64]),
                f32("blk.0.attn_k.weight", &[64, 32]),
                f32("blk.0.attn_v.weight", &[64, 32]),
                f32("blk.0.attn_output.weight", &[64, 64]),
                f32("blk.0.ffn_gate.weight", &[64, 96]),
                f32("blk.0.ffn_up.weight", &[64, 96]),
                f32("blk.0.ffn_down.weight", &[96, 64]),
            ],
        }
    }

    fn set(&mut self, key: &str, value: u32) {
        self.integers.iter_mut().find(|entry| entry.0 == key).unwrap().1 = value;
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Vec<u64>, GgmlType) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }

    fn gguf(&self) -> Gguf {
        let mut writer = Writer::new();
        self.integers.iter().for_each(|&(key, value)| writer.set(key, value).unwrap());
        self.floats.iter().for_each(|&(key, value)| writer.set(key, value).unwrap());
        self.strings.iter().for_each(|&(key, value)| writer.set(key, value).unwrap());
        for (name, dims, ty) in &self.tensors {
            writer.tensor(name, dims, *ty).unwrap();
        }
        let mut data = writer.start(Vec::new()).unwrap();
        while let Some((_, bytes)) = data.next() {
            data.write(&vec![0; bytes as usize]).unwrap();
        }
        Gguf::from_bytes(data.finish().unwrap()).unwrap()
    }

    fn shape(&self) -> Result<ModelShape, String> {
        ModelShape::from_gguf(&self.gguf(), "test").map_err(|error| error.to_string())
    }
}

#[test]
fn a_header_gives_its_dimensions() {
    let shape = Header::llama().shape().unwrap();
    let d = &shape.dimensions;
    assert_eq!((d.hidden, d.heads, d.kv_heads, d.head_dim, d.ffn, d.vocab), (64, 2, 1, 32, 96, 40));
    assert!(shape.head.is_none() && !shape.architecture.qkv_bias);
}

#[test]
fn biases_are_found_in_an_architecture_without_them() {
    let mut header = Header::llama();
    for (name, size) in [("q", 64), ("k", 32), ("v", 32)] {
        header.tensors.push((format!("blk.0.attn_{name}.bias"), vec![size], GgmlType::F32));
    }
    assert!(header.shape().unwrap().architecture.qkv_bias);
}

/// Changes to the header, with words that the error must contain.
#[test]
fn unsupported_models_are_errors() {
    type Change = fn(&mut Header);
    let cases: &[(Change, &[&str])] = &[
        (|h| h.strings[0].1 = "gemma9", &["architecture 'gemma9' is not supported"]),
        (
            |h| h.tensors.push(("blk.0.attn_output.bias".into(), vec![64], GgmlType::F32)),
            &["blk.0.attn_output.bias", "wrong results"],
        ),
        (
            |h| h.tensor("blk.0.ffn_up.weight").2 = GgmlType::Q8_1,
            &["blk.0.ffn_up.weight", "Q8_1", "no kernel"],
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
        (|h| h.set("llama.attention.head_count", 0x1000_0001), &["head_count", "are supported"]),
        (|h| h.set("llama.attention.head_count", 0), &["head_count is 0"]),
        (|h| h.set("llama.context_length", 0), &["context_length is 0"]),
        (|h| h.integers.push(("llama.attention.key_length", 36)), &["head dimension 36"]),
        (|h| h.integers.push(("llama.expert_count", 8)), &["mixture of experts"]),
        (|h| h.strings.push(("llama.rope.scaling.type", "yarn")), &["RoPE scaling 'yarn'"]),
        (|h| h.floats.push(("llama.rope.freq_base", -1.0)), &["must be positive"]),
        (|h| h.floats[0].1 = f32::NAN, &["layer_norm_rms_epsilon is NaN"]),
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

#[test]
fn linear_scaling_divides_the_frequencies() {
    let plain = Header::llama();
    let mut scaled = plain.clone();
    scaled.strings.push(("llama.rope.scaling.type", "linear"));
    scaled.floats.push(("llama.rope.scaling.factor", 4.0));
    let table = |header: &Header| rope_table(&header.gguf(), &header.shape().unwrap()).unwrap();
    let (plain, scaled) = (table(&plain), table(&scaled));
    assert_eq!(plain.len(), 32);
    assert!(plain.iter().zip(&scaled).all(|(plain, scaled)| *scaled == plain / 4.0));
}
