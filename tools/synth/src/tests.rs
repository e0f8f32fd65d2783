//! Files follow their specification, and do not depend on the number of threads.

use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::{Gguf, dequantize};
use bespoke_kernels::shape::ModelShape;
use bespoke_kernels::shape::architecture::{ARCHITECTURES, Architecture};

use super::*;

fn architecture(name: &str) -> Architecture {
    Architecture::named(name).unwrap()
}

fn made(spec: &SynthSpec) -> Gguf {
    Gguf::from_bytes(to_bytes(spec).unwrap()).unwrap()
}

#[test]
fn values_have_the_requested_standard_deviation() {
    use GgmlType::*;
    let types =
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4];
    for ty in types {
        let spec = SynthSpec {
            mix: Mix::Pure(ty),
            dimensions: Dimensions { layers: 1, vocab: 1024, ..TINY },
            ..SynthSpec::default()
        };
        let file = made(&spec);
        for (name, expected) in [("token_embd.weight", 1.0), ("output.weight", 1.0 / 16.0)] {
            let info = file.require(name).unwrap();
            assert_eq!(info.ty, ty);
            let mut values = vec![0.0; info.elements() as usize];
            dequantize(ty, &file.data(info).unwrap(), &mut values).unwrap();
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let std = (values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n - mean * mean).sqrt();
            assert!((std / expected - 1.0).abs() < 0.02, "{ty} {name}: standard deviation {std}");
            assert!((mean / expected).abs() < 0.02, "{ty} {name}: mean {mean}");
        }
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    // A model whose tensors have several chunks.
    let spec = SynthSpec {
        dimensions: Dimensions { hidden: 512, ffn: 2048, layers: 1, ..TINY },
        ..SynthSpec::default()
    };
    let with = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| to_bytes(&spec).unwrap())
    };
    let one = with(1);
    assert!(one == with(3), "one thread and three make different files");
    assert!(one != to_bytes(&SynthSpec { seed: 2, ..spec }).unwrap(), "another seed makes the same file");
}

#[test]
fn chunks_differ() {
    let spec = SynthSpec {
        dimensions: Dimensions { hidden: 512, ffn: 2048, layers: 1, ..TINY },
        mix: Mix::Pure(GgmlType::F16),
        ..SynthSpec::default()
    };
    let file = made(&spec);
    let data = file.data(file.require("blk.0.ffn_up.weight").unwrap()).unwrap();
    let chunk = 2 << 18;
    assert!(data.len() > 2 * chunk && data[..chunk] != data[chunk..2 * chunk]);
    assert!(data != file.data(file.require("blk.0.ffn_gate.weight").unwrap()).unwrap());
}

/// Every tensor as `name type dims`, sorted by name.
fn listing(spec: &SynthSpec) -> String {
    let file = made(spec);
    let mut lines: Vec<String> =
        file.tensors().iter().map(|info| format!("{} {} {:?}\n", info.name, info.ty, info.dims)).collect();
    lines.sort();
    lines.concat()
}

#[test]
fn a_llama_has_these_tensors() {
    let spec = SynthSpec { rope_factors: true, ..SynthSpec::default() };
    expect_test::expect![[r#"
        blk.0.attn_k.weight Q4_K [256, 128]
        blk.0.attn_norm.weight F32 [256]
        blk.0.attn_output.weight Q4_K [256, 256]
        blk.0.attn_q.weight Q4_K [256, 256]
        blk.0.attn_v.weight Q4_K [256, 128]
        blk.0.ffn_down.weight Q4_K [768, 256]
        blk.0.ffn_gate.weight Q4_K [256, 768]
        blk.0.ffn_norm.weight F32 [256]
        blk.0.ffn_up.weight Q4_K [256, 768]
        blk.1.attn_k.weight Q4_K [256, 128]
        blk.1.attn_norm.weight F32 [256]
        blk.1.attn_output.weight Q4_K [256, 256]
        blk.1.attn_q.weight Q4_K [256, 256]
        blk.1.attn_v.weight Q6_K [256, 128]
        blk.1.ffn_down.weight Q6_K [768, 256]
        blk.1.ffn_gate.weight Q4_K [256, 768]
        blk.1.ffn_norm.weight F32 [256]
        blk.1.ffn_up.weight Q4_K [256, 768]
        output.weight Q6_K [256, 512]
        output_norm.weight F32 [256]
        rope_freqs.weight F32 [32]
        token_embd.weight Q4_K [256, 512]
    "#]]
    .assert_eq(&listing(&spec));
}

#[test]
fn a_tied_qwen2_of_odd_widths_falls_back() {
    let spec = SynthSpec {
        architecture: architecture("qwen2"),
        dimensions: Dimensions {
            hidden: 224,
            heads: 7,
            kv_heads: 1,
            head_dim: 32,
            rotated: 32,
            ffn: 512,
            layers: 1,
            ..TINY
        },
        tied: true,
        ..SynthSpec::default()
    };
    expect_test::expect![[r#"
        blk.0.attn_k.bias F32 [32]
        blk.0.attn_k.weight Q5_0 [224, 32]
        blk.0.attn_norm.weight F32 [224]
        blk.0.attn_output.weight Q5_0 [224, 224]
        blk.0.attn_q.bias F32 [224]
        blk.0.attn_q.weight Q5_0 [224, 224]
        blk.0.attn_v.bias F32 [32]
        blk.0.attn_v.weight Q8_0 [224, 32]
        blk.0.ffn_down.weight Q6_K [512, 224]
        blk.0.ffn_gate.weight Q5_0 [224, 512]
        blk.0.ffn_norm.weight F32 [224]
        blk.0.ffn_up.weight Q5_0 [224, 512]
        output_norm.weight F32 [224]
        token_embd.weight Q8_0 [224, 512]
    "#]]
    .assert_eq(&listing(&spec));
}

#[test]
fn qwen3_has_head_norms_and_a_key_length() {
    let spec = SynthSpec {
        architecture: architecture("qwen3"),
        dimensions: Dimensions { head_dim: 128, rotated: 128, layers: 1, ..TINY },
        ..SynthSpec::default()
    };
    let file = made(&spec);
    assert_eq!(file.require("blk.0.attn_q_norm.weight").unwrap().dims, [128]);
    assert_eq!(file.require("blk.0.attn_q.weight").unwrap().dims, [256, 512]);
    assert_eq!(file.u32("qwen3.attention.key_length").unwrap(), 128);
    assert_eq!(file.u32("qwen3.vocab_size").unwrap(), 512);
    assert_eq!(file.strings("tokenizer.ggml.tokens").unwrap().len(), 512);
}

/// A file of every architecture is read as the shape that it was written from.
#[test]
fn every_architecture_is_written_and_read() {
    for architecture in ARCHITECTURES {
        for (tied, rope_factors) in [(false, true), (true, false)] {
            let spec = SynthSpec {
                architecture: *architecture,
                dimensions: Dimensions { layers: 5, ..TINY },
                tied,
                rope_factors,
                ..SynthSpec::default()
            };
            let file = made(&spec);
            let shape = ModelShape::from_gguf(&file, "model").unwrap();
            assert_eq!(shape, spec.blueprint().shape("model", spec.mix).unwrap(), "{}", architecture.name);
            assert_eq!(Blueprint::of(&file, &shape).unwrap().shape("model", spec.mix).unwrap(), shape);
        }
    }
}

#[test]
fn fused_tensors_get_the_types_of_llama_quantize() {
    let spec = SynthSpec {
        architecture: architecture("phi3"),
        dimensions: Dimensions { layers: 1, ..TINY },
        rope_factors: true,
        settings: vec![("attention.sliding_window".into(), Setting::Integer(64))],
        ..SynthSpec::default()
    };
    expect_test::expect![[r#"
        blk.0.attn_norm.weight F32 [256]
        blk.0.attn_output.weight Q4_K [256, 256]
        blk.0.attn_qkv.weight Q5_K [256, 512]
        blk.0.ffn_down.weight Q6_K [768, 256]
        blk.0.ffn_norm.weight F32 [256]
        blk.0.ffn_up.weight Q4_K [256, 1536]
        output.weight Q6_K [256, 512]
        output_norm.weight F32 [256]
        rope_factors_long.weight F32 [32]
        rope_factors_short.weight F32 [32]
        token_embd.weight Q4_K [256, 512]
    "#]]
    .assert_eq(&listing(&spec));
    let file = made(&spec);
    assert_eq!(file.u32("phi3.attention.sliding_window").unwrap(), 64);
    assert_eq!(file.u32("phi3.rope.scaling.original_context_length").unwrap(), 4096);
}

#[test]
fn invalid_specifications_are_errors() {
    let message = |spec: SynthSpec| to_bytes(&spec).err().map(|error| error.to_string());
    let default = SynthSpec::default;
    let sized = |dimensions| SynthSpec { dimensions, ..default() };
    for (spec, expected) in [
        (sized(Dimensions { layers: 0, ..TINY }), "layers must not be 0"),
        (sized(Dimensions { kv_heads: 3, ..TINY }), "4 heads cannot share 3 KV heads evenly"),
        (sized(Dimensions { head_dim: 63, ..TINY }), "head_dim 63 must be even for RoPE"),
        (sized(Dimensions { vocab: 259, ..TINY }), "a vocabulary of 259 is too small: 260 is the least"),
        (
            SynthSpec { embedding: Some(GgmlType::IQ3_S), ..default() },
            "tensors of type IQ3_S are not supported",
        ),
    ] {
        assert_eq!(message(spec).as_deref(), Some(expected));
    }
}

#[test]
fn progress_ends_with_the_size_of_the_file() {
    let spec = SynthSpec::default();
    let last = std::cell::Cell::new((0, 0));
    let progress = |done, total| {
        assert!(done >= last.get().0 && done <= total);
        last.set((done, total));
    };
    let bytes = write(&spec, Vec::new(), &progress).unwrap();
    assert_eq!(last.get(), (bytes.len() as u64, bytes.len() as u64));
    assert!(bytes == to_bytes(&spec).unwrap());
}

#[test]
fn text_round_trips_through_synthetic_vocabularies() {
    for (arch, vocab, fox) in [("llama", 260, 20), ("qwen2", 512, 19), ("qwen3", 5000, 13)] {
        let spec = SynthSpec {
            architecture: architecture(arch),
            dimensions: Dimensions { vocab, hidden: 32, ffn: 32, ..TINY },
            ..SynthSpec::default()
        };
        let file = Gguf::from_bytes(to_bytes(&spec).unwrap()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&file).unwrap();
        assert_eq!(tokenizer.len(), vocab as usize);
        for text in [
            "",
            "Hello, world!",
            "  two  spaces\tand a tab ",
            "naïve café, 日本語, 🦀",
            "line one\nline two\r\n",
            "\u{0}\u{7f}",
        ] {
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(ids.first() == Some(&(vocab - 4)), arch == "llama", "{text:?}");
            assert_eq!(tokenizer.decode(&ids), text);
            assert!(!ids.iter().any(|&id| tokenizer.is_end(id)));
        }
        assert!(tokenizer.is_end(vocab - 3));
        assert_eq!(tokenizer.encode("The quick brown fox").unwrap().len(), fox);
    }
}
