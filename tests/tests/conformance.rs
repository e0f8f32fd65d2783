//! Compares the logits of the conformance models with float64 logits, on the emulator: the first positions of each, and the last
//! ones after prefill steps. `--ignored` compares all positions, 96 or 2,048. Logits are compared without the optional checks of
//! the emulator; a prefill step and some decode steps of each model run under all of them.
//!
//! References are float64 arithmetic over weights that the `gguf` package dequantised: numpy's for the first cases and
//! those of `tests/references/weight_types.py` (`llama-iq4_nl` to `llama-mixed`), transformers' for the others
//! (`tests/references/architectures.py`).

use std::path::PathBuf;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineError, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, StepRow, Steps};
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::{Reference, nmse};
use rayon::prelude::*;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn engine(name: &str) -> Engine {
    engine_of(&Gguf::open(fixture(&format!("{name}.gguf"))).unwrap(), name, KvType::F16)
}

fn engine_of(gguf: &Gguf, name: &str, kv: KvType) -> Engine {
    let options = EngineOptions { context: Some(128), kv, ..EngineOptions::default() };
    load(gguf, name, &options, Checks::NONE)
}

fn load(gguf: &Gguf, name: &str, options: &EngineOptions, checks: Checks) -> Engine {
    let shape = ModelShape::from_gguf(gguf, name).unwrap();
    let device = open_with(Selector::Emulator, checks).unwrap().device;
    Engine::load(device, gguf, &shape, options, &|_, _| ()).unwrap()
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

/// Number of tokens of a case that are decoded unless all are.
const SOME: usize = 32;

/// NMSE of the engine's logits at the reference's positions among its first `most` tokens.
fn error(engine: &mut Engine, reference: &Reference, most: usize) -> f64 {
    let tokens = &reference.tokens[..reference.tokens.len().min(most)];
    engine.start(tokens).unwrap();
    let mut ours = Vec::new();
    for position in 0..tokens.len() as u32 {
        engine.step().unwrap();
        if reference.positions.binary_search(&position).is_ok() {
            ours.extend(engine.logits().unwrap());
        }
    }
    nmse(&ours, &reference.logits[..ours.len()]).unwrap()
}

/// NMSE of the logits at the reference's positions in the last quarter of its tokens, or the last `most` of them, after prefill
/// steps have processed the others. The first logits are those of a first-token step, if the reference has them.
fn error_after_prefill(engine: &mut Engine, reference: &Reference, most: usize) -> f64 {
    let length = reference.tokens.len() as u32;
    let prompt = length - (length / 4).min(u32::try_from(most).unwrap_or(u32::MAX));
    let mut steps = Slots::new(engine).unwrap();
    let rows = prefill(&mut steps, &reference.tokens, prompt);
    let has = |position| reference.positions.binary_search(&position).is_ok();
    let mut ours = if has(prompt - 1) { steps.logits(0).unwrap() } else { Vec::new() };
    for row in &rows {
        steps.decode(&[*row]).unwrap();
        if has(row.position) {
            ours.extend(steps.logits(0).unwrap());
        }
    }
    let before = reference.positions.partition_point(|&position| position + 1 < prompt);
    let vocab = reference.logits.len() / reference.positions.len();
    nmse(&ours, &reference.logits[before * vocab..]).unwrap()
}

/// Processes the first `prompt` tokens by prefill steps, and the last of them by a first-token step. Returns the rows of the
/// others.
fn prefill(steps: &mut Slots<'_>, tokens: &[u32], prompt: u32) -> Vec<StepRow> {
    let length = tokens.len() as u32;
    steps.start(0, tokens, &SamplingParams::default()).unwrap();
    let pages = (0..length.div_ceil(PAGE)).map(|index| PageEntry { slot: 0, index, page: index });
    steps.set_pages(&pages.collect::<Vec<_>>()).unwrap();
    let row = |position| StepRow { slot: 0, position, given: length, chooses: position + 1 >= prompt };
    let mut rows: Vec<StepRow> = (0..length).map(row).collect();
    let largest = *steps.limits().prefill.last().unwrap() as usize;
    let rest = rows.split_off(prompt as usize);
    rows.chunks(largest).for_each(|chunk| steps.prefill(chunk).unwrap());
    rest
}

/// Runs a prefill step and four decode steps under all checks of the emulator; a finding is an error of the step. A page of the
/// cache ends between the decode steps, if the case is that long.
fn run_checked(gguf: &Gguf, name: &str, reference: &Reference, arithmetic: Arithmetic) {
    let tokens = &reference.tokens[..reference.tokens.len().min(PAGE as usize + 2)];
    let options = EngineOptions { context: Some(128), arithmetic, ..EngineOptions::default() };
    let mut engine = load(gguf, name, &options, Checks::ALL);
    let mut steps = Slots::new(&mut engine).unwrap();
    let rows = prefill(&mut steps, tokens, tokens.len() as u32 - 4);
    steps.logits(0).unwrap();
    for row in rows {
        steps.decode(&[row]).unwrap();
        steps.logits(0).unwrap();
    }
}

/// Largest NMSE of any case: the engine's own rounding, of 16-bit inputs and an f16 cache.
const ROUNDING: f64 = 3e-6;

/// Largest NMSE of decode steps of f16, if llama.cpp's is smaller: of F32 weights, which they round.
const HALVES: f64 = 4e-7;

/// By how much the NMSE of some positions may be larger than that of all.
const OF_SOME: f64 = 1.5;

/// Compares the case `name`. `limit` is llama.cpp's NMSE of all positions of the same model, a limit besides [`ROUNDING`].
fn compare(name: &str, limit: f64, most: usize) {
    let reference = Reference::read(&fixture(&format!("{name}.safetensors"))).unwrap();
    let limit = if most < reference.tokens.len() { OF_SOME * limit } else { limit };
    let gguf = Gguf::open(fixture(&format!("{name}.gguf"))).unwrap();
    let context = Some(reference.tokens.len().max(128) as u32);
    let [mut engine, mut engine_of_f16] = Arithmetic::ALL.map(|arithmetic| {
        run_checked(&gguf, name, &reference, arithmetic);
        let options = EngineOptions { context, arithmetic, ..EngineOptions::default() };
        load(&gguf, name, &options, Checks::NONE)
    });
    let error = error(&mut engine, &reference, most);
    let after_prefill = error_after_prefill(&mut engine, &reference, most);
    let of_f16 = error_after_prefill(&mut engine_of_f16, &reference, most);
    println!(
        "{name} {error:.3e}, after prefill {after_prefill:.3e}, by f16 {of_f16:.3e} (limit {limit:.2e})"
    );
    let rounding = ROUNDING.min(limit);
    assert!(error <= rounding, "{name}: NMSE {error:.3e} is above {rounding:.2e}");
    assert!(after_prefill <= limit, "{name}: after prefill, NMSE {after_prefill:.3e} is above {limit:.2e}");
    let of_halves = limit.max(HALVES);
    assert!(of_f16 <= of_halves, "{name}: decode steps of f16, NMSE {of_f16:.3e} is above {of_halves:.2e}");
}

/// Defines a test for each case: name, fixture, and llama.cpp's NMSE.
macro_rules! cases {
    ($($test:ident $name:literal $limit:literal;)*) => {
        $(#[test]
        fn $test() {
            compare($name, $limit, SOME);
        })*

        #[test]
        #[ignore = "takes minutes"]
        fn all_positions() {
            [$(($name, $limit)),*].into_par_iter().for_each(|(name, limit)| compare(name, limit, usize::MAX));
        }
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
    llama_iq4_nl "llama-iq4_nl" 1.86e-4;
    llama_mxfp4 "llama-mxfp4" 2.57e-4;
    llama_iq4_xs "llama-iq4_xs" 5.00e-4;
    llama_q3_k "llama-q3_k" 4.71e-4;
    llama_q2_k "llama-q2_k" 3.78e-4;
    llama_mixed "llama-mixed" 3.47e-4;
    llama_f16 "llama-f16" 1.65e-7;
    llama_f32 "llama-f32" 2.78e-8;
    gemma2_q4_k_m "gemma2-q4_k_m" 9.28e-5;
    gemma2_q8_0 "gemma2-q8_0" 4.41e-5;
    gemma3_256_q4_0 "gemma3-256-q4_0" 2.26e-5;
    gemma3_f16_2048 "gemma3-f16-2048" 2.29e-7;
    gemma3_q8_0 "gemma3-q8_0" 5.01e-5;
    granite_iq4_xs "granite-iq4_xs" 7.37e-5;
    granite_q8_0 "granite-q8_0" 2.12e-5;
    llama_bias_bf16 "llama-bias-bf16" 6.84e-5;
    llama_linear_q5_1 "llama-linear-q5_1" 6.19e-4;
    llama_yarn_q8_0 "llama-yarn-q8_0" 1.46e-3;
    mistral_iq4_nl "mistral-iq4_nl" 6.56e-4;
    olmo2_q2_k "olmo2-q2_k" 1.40e-4;
    olmo2_q8_0 "olmo2-q8_0" 2.22e-4;
    phi3_long_q5_0 "phi3-long-q5_0" 1.25e-3;
    phi3_q4_k_m "phi3-q4_k_m" 5.32e-3;
    phi3_q8_0 "phi3-q8_0" 7.90e-4;
    qwen2_q8_0 "qwen2-q8_0" 9.33e-4;
    qwen3_mxfp4 "qwen3-mxfp4" 5.82e-4;
    smollm3_q4_1 "smollm3-q4_1" 7.10e-4;
    ernie4_5_q4_0 "ernie4_5-q4_0" 8.27e-5;
}

/// Blocks whose scales are finite but huge make no access invalid: a step gives a token, or the error that its logits are
/// not finite.
#[test]
fn blocks_of_any_finite_bits_decode() {
    let original = std::fs::read(fixture("llama-mixed.gguf")).unwrap();
    let file = Gguf::from_bytes(original.clone()).unwrap();
    for byte in [0x7B, 0xFB, 0x55, 0x00] {
        let mut bytes = original.clone();
        for matrix in file.tensors().iter().filter(|info| info.dims.len() == 2) {
            bytes[matrix.offset as usize..][..matrix.bytes as usize].fill(byte);
        }
        let mut engine = engine_of(&Gguf::from_bytes(bytes).unwrap(), "hostile", KvType::F16);
        engine.start(&[5, 17, 299]).unwrap();
        for position in 1..6 {
            engine.step().unwrap();
            engine.wait().unwrap();
            match engine.token(position) {
                Ok(token) => assert!(token < 300, "{byte:#x}, position {position}"),
                Err(error) => assert!(matches!(error, EngineError::NonFinite(_)), "{error}"),
            }
        }
    }
}

/// Defines a test for each case: name, fixture, and the NMSE with a KV cache of q8_0, rounded up from what was measured;
/// beside it, as a lower limit, the NMSE that was measured with a cache of f16.
macro_rules! cache_cases {
    ($($test:ident $name:literal f16 $f16:literal q8_0 $q8_0:literal;)*) => {
        $(#[test]
        fn $test() {
            let gguf = Gguf::open(fixture(concat!($name, ".gguf"))).unwrap();
            let reference = Reference::read(&fixture(concat!($name, ".safetensors"))).unwrap();
            let error = error(&mut engine_of(&gguf, $name, KvType::Q8_0), &reference, usize::MAX);
            println!("{} with a cache of q8_0 {error:.3e} (f16 {:.2e})", $name, $f16);
            assert!(error <= $q8_0, "NMSE {error:.3e} is above {:.2e}", $q8_0);
            assert!(error > $f16, "NMSE {error:.3e} is that of a cache of f16");
        })*
    };
}

// Without QK norms, with biases, with QK norms of heads, and with windows and heads of 256 elements.
cache_cases! {
    cache_of_llama "llama-f32" f16 1.66e-8 q8_0 1.1e-5;
    cache_of_qwen2 "qwen2-q4_k_m" f16 4.41e-7 q8_0 2.8e-4;
    cache_of_qwen3 "qwen3-q4_k_m" f16 2.94e-8 q8_0 1.8e-5;
    cache_of_gemma3 "gemma3-256-q4_0" f16 1.13e-9 q8_0 6.3e-7;
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
        (vec![1; 129], "the context is full: 129 positions are needed and the cache holds 128"),
    ] {
        assert_eq!(engine.start(&prompt).unwrap_err().to_string(), expected);
    }
    engine.start(&[1; 128]).unwrap();
    assert!(engine.require_steps(129).is_err());
}
