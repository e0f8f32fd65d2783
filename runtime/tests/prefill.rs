//! Prompts of one sequence in prefill steps, and the first-token step after them.

use std::ops::ControlFlow;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions, StepRows};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 80;

fn engine(prefill: bool) -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q8_0.gguf");
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), prefill, ..EngineOptions::default() };
    Engine::load(open(Selector::Emulator).unwrap().device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| (7 + 13 * i) % 300).collect()
}

fn generate(engine: &mut Engine, n: u32) -> Vec<u32> {
    engine.generate(n).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Bits of the logits from which the next token is chosen.
fn next_logits(engine: &mut Engine) -> Vec<u32> {
    generate(engine, 1);
    engine.logits().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn a_prompt_has_prefill_steps_and_a_first_token_step() {
    let engine = engine(true);
    assert_eq!(engine.prompt_steps(1), []);
    let of = |tokens, depth| StepRows::Prompt { tokens, depth };
    assert_eq!(engine.prompt_steps(70), [of(70, 0), StepRows::FirstToken { depth: 69 }]);
}

/// A prompt of one token and a start at a depth for timing have decode steps alone.
#[test]
fn single_tokens_are_decoded() {
    let [mut prefilling, mut decoding] = [true, false].map(engine);
    for engine in [&mut prefilling, &mut decoding] {
        engine.start(&[9]).unwrap();
    }
    assert!(next_logits(&mut prefilling) == next_logits(&mut decoding), "a prompt of one token");
    for engine in [&mut prefilling, &mut decoding] {
        engine.start_at_depth(20).unwrap();
    }
    assert!(next_logits(&mut prefilling) == next_logits(&mut decoding), "a depth");
}

/// The last position of the context is that of the prompt's last token, and no further token has one.
#[test]
fn a_prompt_may_fill_the_context() {
    let mut engine = engine(true);
    engine.start(&prompt(CONTEXT)).unwrap();
    assert_eq!(generate(&mut engine, 1).len(), 1);
    assert_eq!(engine.position(), CONTEXT);
    assert!(engine.generate(1).is_err());
}

/// The callback ends generation after the step that has chosen the first token. The next call returns this token.
#[test]
fn a_break_at_the_end_of_a_prompt_loses_no_token() {
    let mut engine = engine(true);
    let prompt = prompt(20);
    engine.start(&prompt).unwrap();
    let expected = generate(&mut engine, 4);
    engine.start(&prompt).unwrap();
    let stop = |position| if position == 19 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    assert_eq!(engine.generate_with_progress(4, Some(&stop)).unwrap().count(), 0);
    assert_eq!(generate(&mut engine, 4), expected);
}

/// A prefix in the cache has the same bits as one that is processed again, also if only the last token is left.
#[test]
fn the_first_token_does_not_depend_on_the_cache() {
    let mut engine = engine(true);
    let prompt = prompt(70);
    engine.start(&prompt).unwrap();
    let expected = next_logits(&mut engine);
    assert_eq!(engine.start_from_cache(&prompt).unwrap(), 69);
    assert!(next_logits(&mut engine) == expected, "the same prompt");
    engine.start(&prompt[..33]).unwrap();
    next_logits(&mut engine);
    assert_eq!(engine.start_from_cache(&prompt).unwrap(), 32);
    assert!(next_logits(&mut engine) == expected, "a longer prompt");
}
