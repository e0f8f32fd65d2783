//! Compares the logits of Hugging Face folders with float64 logits of `transformers`, on the emulator. The folders have
//! weights of F32, F16 and BF16; `tests/references/folders.py` writes them.

use std::path::PathBuf;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions};
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::{Reference, nmse};

/// Largest ratio of our NMSE to that of a float64 model whose keys and values are rounded to f16, as in our cache.
const SLACK: f64 = 1.05;

fn check(name: &str, cache: f64) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../hf/tests/fixtures").join(name);
    let model = bespoke_hf::open(&folder).unwrap();
    let shape = ModelShape::from_gguf(&model, name).unwrap();
    let device = open(Selector::Emulator).unwrap().device;
    let options = EngineOptions { context: Some(128), ..EngineOptions::default() };
    let mut engine = Engine::load(device, &model, &shape, &options, &|_, _| ()).unwrap();
    let reference = Reference::read(&folder.join("reference.safetensors")).unwrap();
    engine.start(&reference.tokens).unwrap();
    let mut ours = Vec::new();
    for _ in &reference.tokens {
        engine.step().unwrap();
        ours.extend(engine.logits().unwrap());
    }
    let error = nmse(&ours, &reference.logits).unwrap();
    println!("{name} {error:.3e} (f16 cache alone {cache:.3e})");
    assert!(error <= SLACK * cache, "NMSE {error:.3e} is above that of an f16 cache, {cache:.3e}");
}

/// Defines a test for each folder: its name, and the NMSE that rounding keys and values to f16 causes, which
/// `folders.py` prints.
macro_rules! cases {
    ($($test:ident $name:literal $cache:literal;)*) => {
        $(#[test]
        fn $test() {
            check($name, $cache);
        })*
    };
}

cases! {
    llama "llama" 2.533e-7;
    llama_bias "llama-bias" 8.179e-8;
    mistral "mistral" 2.454e-7;
    qwen2 "qwen2" 5.123e-7;
    qwen3 "qwen3" 8.075e-8;
    phi3 "phi3" 6.371e-7;
    gemma2 "gemma2" 3.066e-9;
    gemma3 "gemma3" 6.356e-9;
    granite "granite" 1.175e-10;
    smollm3 "smollm3" 5.030e-7;
    olmo2 "olmo2" 8.094e-8;
}
