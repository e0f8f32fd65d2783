//! Prompts of one sequence in prefill steps, and the first-token step after them.

use std::ops::ControlFlow;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions, Slots, StepRows};
use bespoke::generation::{FinishReason, Request, Summary};
use bespoke::scheduler::{Event, Scheduler};
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

/// The tokens after a prompt with the bits of their log-probabilities.
fn next(scheduler: &mut Scheduler<'_, Slots<'_>>, prompt: &[u32], n: u32) -> (Vec<(u32, u64)>, Summary) {
    let mut bits = Vec::new();
    let request = Request { max_tokens: n, logprobs: Some(0), ..Request::new(prompt) };
    let summary = scheduler.generate(&request, |event| {
        if let Event::Token { token, .. } = event {
            bits.push((token.id, token.logprobs.as_ref().unwrap().logprob.to_bits()));
        }
        ControlFlow::Continue(())
    });
    (bits, summary.unwrap())
}

#[test]
fn a_prompt_has_prefill_steps_and_a_first_token_step() {
    let engine = engine(true);
    assert_eq!(engine.prompt_steps(1), []);
    let of = |tokens, depth| StepRows::Prompt { tokens, depth };
    assert_eq!(engine.prompt_steps(70), [of(70, 0), StepRows::FirstToken { depth: 69 }]);
}

#[test]
fn a_prompt_of_one_token_is_decoded() {
    let [mut prefilling, mut decoding] = [true, false].map(engine);
    let [first, second] = [&mut prefilling, &mut decoding]
        .map(|engine| next(&mut Scheduler::new(Slots::new(engine).unwrap(), None), &[9], 3).0);
    assert_eq!(first, second);
}

/// The last position of the context is that of the prompt's last token, and no further token has one.
#[test]
fn a_prompt_may_fill_the_context() {
    let mut engine = engine(true);
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
    let (tokens, summary) = next(&mut scheduler, &prompt(CONTEXT), 9);
    assert_eq!((tokens.len(), summary.reason), (1, FinishReason::ContextFull));
}

/// A prefix in the cache has the same bits as one that is processed again, also if only the last token is left.
#[test]
fn the_first_token_does_not_depend_on_the_cache() {
    let mut engine = engine(true);
    let prompt = prompt(70);
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
    let (expected, first) = next(&mut scheduler, &prompt, 1);
    let (again, second) = next(&mut scheduler, &prompt, 1);
    assert_eq!((again, first.reused, second.reused), (expected.clone(), 0, 69));
    drop(scheduler);
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
    next(&mut scheduler, &prompt[..33], 1);
    let (longer, summary) = next(&mut scheduler, &prompt, 1);
    assert_eq!((longer, summary.reused), (expected, 32));
}
