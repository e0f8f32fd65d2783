//! Generation on the emulator: text, stop conditions and finish reasons.

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions};
use bespoke::generation::{FinishReason, Generation, Request, Summary};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 24;

fn load() -> (Engine, Tokenizer) {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), ..EngineOptions::default() };
    let device = open(Selector::Emulator).unwrap().device;
    let engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    (engine, Tokenizer::from_gguf(&gguf).unwrap())
}

/// Runs a request to its end, and returns the text of all tokens with the summary.
fn run(engine: &mut Engine, tokenizer: &Tokenizer, request: &Request<'_>) -> (String, Summary) {
    let mut generation = Generation::start(engine, Some(tokenizer), request).unwrap();
    let text = (&mut generation).map(|token| token.unwrap().text).collect();
    (text, generation.finish())
}

#[test]
fn generation_ends_for_the_reason_it_reports() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let stopping = Request { stop_tokens: tokenizer.end_tokens(), ..Request::new(&prompt) };

    let (text, summary) = run(&mut engine, &tokenizer, &stopping);
    assert_eq!((text.as_str(), summary.reason), (" 42", FinishReason::StopToken));
    assert!(tokenizer.is_end(*summary.tokens.last().unwrap()), "{:?}", summary.tokens);
    assert_eq!(tokenizer.decode(&summary.tokens), text);

    let (text, limited) = run(&mut engine, &tokenizer, &Request { max_tokens: 1, ..stopping.clone() });
    assert_eq!((text.as_str(), limited.reason), (" 4", FinishReason::MaxTokens));
    assert_eq!(limited.tokens, summary.tokens[..1]);

    // Without stop tokens, until the cache is full: the last token needs no position.
    let (_, full) = run(&mut engine, &tokenizer, &Request::new(&prompt));
    assert_eq!(full.reason, FinishReason::ContextFull);
    assert_eq!(full.tokens.len() as u32, CONTEXT - prompt.len() as u32 + 1);
    assert_eq!(full.tokens[..summary.tokens.len()], summary.tokens);
}

#[test]
fn a_cancelled_generation_keeps_its_tokens_and_does_not_disturb_the_next() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    let request = Request::new(&prompt);
    let (_, expected) = run(&mut engine, &tokenizer, &request);

    let mut generation = Generation::start(&mut engine, None, &request).unwrap();
    let first = generation.next().unwrap().unwrap();
    assert_eq!((first.id, first.text.as_str()), (expected.tokens[0], ""), "no text without a tokenizer");
    let summary = generation.finish();
    assert_eq!((summary.reason, summary.tokens), (FinishReason::Cancelled, vec![first.id]));

    // Also at the limit of tokens.
    let limited = Request { max_tokens: 1, ..request.clone() };
    let mut generation = Generation::start(&mut engine, None, &limited).unwrap();
    assert_eq!(generation.next().unwrap().unwrap().id, first.id);
    assert_eq!(generation.cancel().reason, FinishReason::Cancelled);

    let (_, again) = run(&mut engine, &tokenizer, &request);
    assert_eq!(again.tokens, expected.tokens);
}

#[test]
fn prompt_tokens_are_reported_and_a_long_prompt_is_refused() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    let reported = std::cell::RefCell::new(Vec::new());
    let report = |position| reported.borrow_mut().push(position);
    let request = Request { max_tokens: 1, on_prompt_token: Some(&report), ..Request::new(&prompt) };
    run(&mut engine, &tokenizer, &request);
    assert_eq!(*reported.borrow(), (1..prompt.len() as u32).collect::<Vec<_>>());

    let long = vec![1; CONTEXT as usize + 1];
    let error = Generation::start(&mut engine, None, &Request::new(&long)).err().unwrap();
    assert!(matches!(error, EngineError::ContextFull { needed: 25, context: CONTEXT }), "{error}");
}
