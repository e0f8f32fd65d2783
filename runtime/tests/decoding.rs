//! Single steps of an engine's own sequence, on the emulator.

use std::ops::ControlFlow;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions, Slots};
use bespoke::generation::Request;
use bespoke::scheduler::Scheduler;
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 32;

fn engine(eager: bool) -> Engine {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q8_0.gguf");
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    // Single steps process prompts, too.
    let options = EngineOptions { context: Some(CONTEXT), eager, prefill: false, ..EngineOptions::default() };
    Engine::load(open(Selector::Emulator).unwrap().device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Decodes `n` tokens by single steps, waiting for each step.
fn stepped(engine: &mut Engine, prompt: &[u32], n: u32) -> Vec<u32> {
    engine.start(prompt).unwrap();
    for _ in 1..prompt.len() {
        engine.step().unwrap();
    }
    (0..n)
        .map(|_| {
            engine.step().unwrap();
            engine.wait().unwrap();
            engine.token(engine.position()).unwrap()
        })
        .collect()
}

#[test]
fn tokens_of_a_scheduler_are_those_of_single_steps() {
    let mut replayed = engine(false);
    let prompt = [5, 17, 300];
    let expected = stepped(&mut replayed, &prompt, 12);
    for engine in [&mut replayed, &mut engine(true)] {
        let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), None);
        let request = Request { max_tokens: 12, ..Request::new(&prompt) };
        let summary = scheduler.generate(&request, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(summary.tokens, expected);
        drop(scheduler);
        // The engine has its own page table again.
        assert_eq!(stepped(engine, &prompt, 12), expected);
    }
}

#[test]
fn a_new_start_clears_the_host_tokens() {
    let mut engine = engine(false);
    let expected = stepped(&mut engine, &[9], 4);
    stepped(&mut engine, &[5, 17, 300], 12);
    engine.start(&[9]).unwrap();
    let error = engine.token(1).unwrap_err();
    assert!(matches!(error, EngineError::NoToken { position: 1 }), "{error}");
    assert_eq!(stepped(&mut engine, &[9], 4), expected);
    engine.start_at_depth(20).unwrap();
    engine.step().unwrap();
    assert_eq!(engine.position(), 21);
}

#[test]
fn the_whole_cache_is_used_and_no_more() {
    let mut engine = engine(false);
    engine.start(&[1, 2, 3]).unwrap();
    (0..CONTEXT).for_each(|_| engine.step().unwrap());
    let error = engine.step().unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { needed: 33, context: CONTEXT }), "{error}");
}
