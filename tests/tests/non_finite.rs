//! Weights and logits that are not finite: refused while loading, and named while decoding.

use std::ops::ControlFlow;
use std::path::PathBuf;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions, SamplingParams, Slots};
use bespoke::generation::{Request, Token};
use bespoke::scheduler::{Event, Scheduler};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

/// A fixture with other bytes in a tensor, from byte `at` of its data on.
fn damaged(name: &str, tensor: &str, at: u64, new: &[u8]) -> Gguf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let mut bytes = std::fs::read(path).unwrap();
    let info = Gguf::from_bytes(bytes.clone()).unwrap().require(tensor).unwrap().clone();
    bytes[(info.offset + at) as usize..][..new.len()].copy_from_slice(new);
    Gguf::from_bytes(bytes).unwrap()
}

fn load(gguf: &Gguf, sampling: SamplingParams) -> Result<Engine, EngineError> {
    load_with(gguf, EngineOptions { sampling, prefill: false, ..EngineOptions::default() })
}

fn load_with(gguf: &Gguf, options: EngineOptions) -> Result<Engine, EngineError> {
    let options = EngineOptions { context: Some(32), ..options };
    let shape = ModelShape::from_gguf(gguf, "damaged")?;
    Engine::load(open(Selector::Emulator).unwrap().device, gguf, &shape, &options, &|_, _| {})
}

#[test]
fn weights_that_are_not_finite_are_refused() {
    let (nan, infinity) = (f32::NAN.to_le_bytes(), f32::INFINITY.to_le_bytes());
    for (name, tensor, at, new, place) in [
        ("llama-f32", "blk.1.ffn_down.weight", 400, &nan[..], "element 100 (row 0, column 100)"),
        ("llama-f32", "output_norm.weight", 8, &infinity, "element 2 (row 0, column 2)"),
        ("llama-f16", "token_embd.weight", 2, &[0, 0xFC], "element 1 (row 0, column 1)"),
        ("qwen2-q8_0", "blk.0.attn_k.weight", 35, &[0x7E], "the scale of block 1 (row 0, columns 32 to 63)"),
        ("qwen3-mxfp4", "blk.0.attn_k.weight", 0, &[0xFF], "the scale of block 0 (row 0, columns 0 to 31)"),
    ] {
        let gguf = damaged(&format!("{name}.gguf"), tensor, at, new);
        let error = load(&gguf, SamplingParams::default()).err().expect("the weight is refused").to_string();
        assert_eq!(
            error,
            format!(
                "tensor {tensor}: {place} is NaN or infinite: the file is damaged, or its conversion overflowed; \
                 download or convert it again"
            )
        );
    }
}

/// A sum of products overflows in the second layer. Tokens, logits and log-probabilities are errors that name the launch,
/// with either way of choosing tokens.
#[test]
fn logits_that_are_not_finite_name_the_first_launch() {
    let huge: Vec<u8> = [3e38f32; 64].into_iter().flat_map(f32::to_le_bytes).collect();
    let gguf = damaged("llama-f32.gguf", "blk.1.ffn_gate.weight", 0, &huge);
    let expected = |position: u32| {
        format!(
            "the logits after position {position} are not finite: the first launch with such an output is blk.1."
        )
    };
    for temperature in [0.0, 0.7] {
        let sampling = SamplingParams { temperature, ..SamplingParams::default() };
        let mut engine = load(&gguf, sampling.clone()).unwrap();
        engine.start(&[5, 17]).unwrap();
        engine.step().unwrap();
        let error = engine.logits().unwrap_err().to_string();
        assert!(error.starts_with(&expected(0)), "{error}");

        for logprobs in [None, Some(2)] {
            let request = Request { sampling: sampling.clone(), logprobs, ..Request::new(&[5, 17]) };
            let error = alone(&mut engine, &request).unwrap_err();
            assert!(error.starts_with(&expected(1)), "{error}");
        }
    }
}

/// The tokens of a request alone, with their log-probabilities, or the error.
fn alone(engine: &mut Engine, request: &Request<'_>) -> Result<Vec<Token>, String> {
    let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), None);
    let mut tokens = Vec::new();
    let summary = scheduler.generate(request, |event| {
        if let Event::Token { token, .. } = event {
            tokens.push(token.clone());
        }
        ControlFlow::Continue(())
    });
    summary.map(|_| tokens).map_err(|error| error.to_string())
}

/// Of sequences side by side, those with a token whose embedding overflows end with the error that they have alone, which
/// names the launch; the others have the answers that they have alone.
#[test]
fn a_sequence_whose_logits_are_not_finite_names_the_launch_and_others_go_on() {
    const BAD: u32 = 17;
    let huge: Vec<u8> = [3e38f32; 64].into_iter().flat_map(f32::to_le_bytes).collect();
    let gguf = damaged("llama-f32.gguf", "token_embd.weight", u64::from(BAD) * 64 * 4, &huge);
    let prompts: [&[u32]; 4] = [&[5, BAD, 299], &[5, 6, 7, 8, 9], &[BAD], &[40, 41]];
    for (temperature, logprobs) in [(0.0, None), (0.7, Some(2))] {
        let sampling = SamplingParams { temperature, ..SamplingParams::default() };
        let options = EngineOptions { sampling: sampling.clone(), ..EngineOptions::default() };
        let request = |prompt: &'static [u32]| {
            let sampling = sampling.clone();
            Request { max_tokens: 6, logprobs, sampling, ..Request::new(prompt) }
        };
        let mut single = load_with(&gguf, options.clone()).unwrap();
        let expected = prompts.map(|prompt| alone(&mut single, &request(prompt)));
        assert!(expected[1].is_ok() && expected[3].is_ok(), "{expected:?}");

        let mut engine = load_with(&gguf, EngineOptions { parallel: 3, ..options }).unwrap();
        let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
        let ids = prompts.map(|prompt| scheduler.add(&request(prompt)).unwrap());
        let mut found = [const { Ok(Vec::new()) }; 4];
        while !scheduler.is_idle() {
            for event in scheduler.step().unwrap() {
                let index = ids.iter().position(|&id| id == event.id()).unwrap();
                match event {
                    Event::Token { token, .. } => found[index].as_mut().unwrap().push(token),
                    Event::Failed { error, .. } => found[index] = Err(error.to_string()),
                    Event::Prompt { .. } | Event::Finished { .. } => {}
                }
            }
        }
        assert_eq!(found, expected);
        for (index, position) in [(0, 2), (2, 0)] {
            let error = found[index].as_ref().unwrap_err();
            let start = format!(
                "the logits after position {position} are not finite: the first launch with such an output is blk.0."
            );
            assert!(error.starts_with(&start), "{error}");
        }
        assert_eq!(scheduler.pages().used, 0);
    }
}

/// A check of several rows names the launch, too.
#[test]
fn checks_of_several_rows_name_the_first_launch() {
    let huge: Vec<u8> = [3e38f32; 64].into_iter().flat_map(f32::to_le_bytes).collect();
    let gguf = damaged("llama-f32.gguf", "blk.1.ffn_gate.weight", 0, &huge);
    let shape = ModelShape::from_gguf(&gguf, "damaged").unwrap();
    let options = bespoke_check::Options { lints: false, ..bespoke_check::Options::default() };
    let error = bespoke_check::model_rows(&gguf, &shape, 2, 1, &options, &mut |_, _, _| {}).err();
    let error = error.expect("the logits are not finite").to_string();
    let start = "the logits after position 1 are not finite: the first launch with such an output is blk.1.";
    assert!(error.starts_with(start), "{error}");
}
