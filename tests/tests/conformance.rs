//! Compares the logits of the conformance models with float64 logits: 96 positions each, on the emulator.

use std::path::PathBuf;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::{Reference, nmse};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn engine(name: &str) -> Engine {
    let gguf = Gguf::open(fixture(&format!("{name}.gguf"))).unwrap();
    let shape = ModelShape::from_gguf(&gguf, name).unwrap();
    let device = open(Selector::Emulator).unwrap().device;
    let options = EngineOptions { context: Some(128), ..EngineOptions::default() };
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Decodes the tokens and returns the logits after each token.
fn logits(engine: &mut Engine, tokens: &[u32]) -> Vec<f32> {
    engine.start(tokens).unwrap();
    let mut all = Vec::new();
    for _ in tokens {
        engine.step().unwrap();
        all.extend(engine.logits().unwrap());
    }
    all
}

/// Defines a test for each case: name, fixture, and largest NMSE, which is that of llama.cpp on the same model.
macro_rules! cases {
    ($($test:ident $name:literal $limit:literal;)*) => {
        $(#[test]
        fn $test() {
            let reference = Reference::read(&fixture(concat!($name, ".safetensors"))).unwrap();
            let ours = logits(&mut engine($name), &reference.tokens);
            let error = nmse(&ours, &reference.logits).unwrap();
            println!("{} {error:.3e} (llama.cpp {:.2e})", $name, $limit);
            assert!(error <= $limit, "NMSE {error:.3e} is above llama.cpp's {:.2e}", $limit);
        })*
    };
}

cases! {
    llama_q4_k_m "llama-q4_k_m" 6.45e-4;
    llama_q8_0 "llama-q8_0" 1.06e-4;
    qwen2_q4_k_m "qwen2-q4_k_m" 1.41e-3;
    qwen3_q4_k_m "qwen3-q4_k_m" 4.18e-4;
    llama_q6_k "llama-q6_k" 2.68e-4;
    llama_q5_k "llama-q5_k" 3.73e-4;
    llama_q4_0 "llama-q4_0" 2.90e-5;
    llama_q4_1 "llama-q4_1" 1.06e-4;
    llama_q5_0 "llama-q5_0" 1.09e-4;
    llama_f16 "llama-f16" 1.65e-7;
    llama_f32 "llama-f32" 2.78e-8;
}

/// Greedy decoding chooses the most likely tokens, and the host reads them position by position.
#[test]
fn greedy_tokens_are_the_largest_logits() {
    let mut engine = engine("llama-q8_0");
    let prompt = [5, 17, 300];
    engine.start(&prompt).unwrap();
    let mut expected = prompt.to_vec();
    for position in 1..24u32 {
        engine.step().unwrap();
        engine.wait().unwrap();
        let logits = engine.logits().unwrap();
        let largest =
            (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
        if position as usize >= prompt.len() {
            expected.push(largest);
        }
        assert_eq!(engine.token(position).unwrap(), expected[position as usize], "position {position}");
    }
}

/// A second sequence on the same engine does not depend on the first.
#[test]
fn a_new_start_gives_the_same_logits() {
    let mut engine = engine("qwen2-q4_k_m");
    let first = logits(&mut engine, &[1, 2, 3, 4, 5]);
    logits(&mut engine, &[9, 8, 7]);
    assert!(first == logits(&mut engine, &[1, 2, 3, 4, 5]), "logits differ");
}

#[test]
fn a_prompt_that_does_not_fit_is_an_error() {
    let mut engine = engine("llama-q8_0");
    for (prompt, expected) in [
        (vec![], "the prompt is empty: give at least one token"),
        (vec![400], "token 400 is not in the vocabulary of 400 tokens"),
        (
            vec![1; 129],
            "the context is full: 129 positions are needed and the cache holds 128; use --ctx 129",
        ),
    ] {
        assert_eq!(engine.start(&prompt).unwrap_err().to_string(), expected);
    }
    engine.start(&[1; 128]).unwrap();
    assert!(engine.require_steps(129).is_err());
}
