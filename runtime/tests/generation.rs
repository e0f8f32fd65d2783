//! Generation on the emulator: text, stop conditions and finish reasons.

use std::ops::ControlFlow;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions};
use bespoke::generation::{FinishReason, Generation, Request, Summary};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 24;

fn load() -> (Engine, Tokenizer) {
    load_with(EngineOptions::default())
}

/// An engine whose generations process prompts like single steps.
fn load_without_prefill(kv: KvType) -> (Engine, Tokenizer) {
    load_with(EngineOptions { kv, prefill: false, ..EngineOptions::default() })
}

fn load_with(options: EngineOptions) -> (Engine, Tokenizer) {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), ..options };
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
    let report = |position| {
        reported.borrow_mut().push(position);
        ControlFlow::Continue(())
    };
    let request = Request { max_tokens: 1, on_prompt_token: Some(&report), ..Request::new(&prompt) };
    run(&mut engine, &tokenizer, &request);
    assert_eq!(*reported.borrow(), (1..prompt.len() as u32).collect::<Vec<_>>());

    let long = vec![1; CONTEXT as usize + 1];
    let error = Generation::start(&mut engine, None, &Request::new(&long)).err().unwrap();
    assert!(matches!(error, EngineError::ContextFull { needed: 25, context: CONTEXT }), "{error}");
}

#[test]
fn a_generation_can_be_cancelled_within_the_prompt() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    let expected = run(&mut engine, &tokenizer, &Request::new(&prompt)).1.tokens;
    let other = [prompt.clone(), vec![5; 9]].concat();
    let stop = |position| if position == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    for prompt in [&other[1..], &other] {
        let request = Request { on_prompt_token: Some(&stop), ..Request::new(prompt) };
        let mut generation = Generation::start(&mut engine, Some(&tokenizer), &request).unwrap();
        assert!(generation.next().is_none() && generation.next().is_none());
        let summary = generation.finish();
        assert_eq!((summary.reason, summary.tokens), (FinishReason::Cancelled, vec![]));
    }
    assert_eq!(run(&mut engine, &tokenizer, &Request::new(&prompt)).1.tokens, expected);
}

#[test]
fn text_ends_before_a_stop_string() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    let request = Request { max_tokens: 12, ..Request::new(&prompt) };
    let (whole, summary) = run(&mut engine, &tokenizer, &request);
    assert_eq!(
        (whole.as_str(), summary.text.as_str()),
        (" lives in the tower. It wants a loaf o", whole.as_str())
    );
    for (stops, text, reason) in [
        (&["tower"][..], " lives in the ", FinishReason::StopString),
        // Across the borders of tokens.
        (&["e to"], " lives in th", FinishReason::StopString),
        (&["loaf", "t w"], " lives in the tower. I", FinishReason::StopString),
        (&[" lives"], "", FinishReason::StopString),
        (&["castle", ""], &whole, FinishReason::MaxTokens),
        // The start of a stop string at the end.
        (&["loaf of bread"], &whole, FinishReason::MaxTokens),
    ] {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let request = Request { stop_strings: &stops, ..request.clone() };
        let (streamed, stopped) = run(&mut engine, &tokenizer, &request);
        assert_eq!((stopped.text.as_str(), stopped.reason), (text, reason), "{stops:?}");
        assert_eq!(streamed + &stopped.rest, text, "{stops:?}");
        assert_eq!(stopped.tokens, summary.tokens[..stopped.tokens.len()], "{stops:?}");
    }
}

#[test]
fn logprobs_are_those_of_the_logits() {
    let (mut engine, tokenizer) = load_without_prefill(KvType::F16);
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let request = Request { max_tokens: 4, logprobs: Some(3), ..Request::new(&prompt) };
    let generation = Generation::start(&mut engine, Some(&tokenizer), &request).unwrap();
    let tokens: Vec<_> = generation.map(Result::unwrap).collect();
    engine.start(&prompt).unwrap();
    let log_softmax = |logits: &[f32]| -> Vec<f64> {
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        logits.iter().map(|&logit| f64::from(logit) - sum.ln()).collect()
    };
    (1..prompt.len()).for_each(|_| engine.step().unwrap());
    for token in tokens {
        engine.step().unwrap();
        let expected = log_softmax(&engine.logits().unwrap());
        let logprobs = token.logprobs.unwrap();
        assert_eq!(logprobs.top[0], (token.id, logprobs.logprob), "the greedy token is the most likely one");
        assert_eq!(logprobs.top.len(), 3);
        for (id, logprob) in logprobs.top {
            assert!(
                (logprob - expected[id as usize]).abs() < 1e-9,
                "{logprob} for {}",
                expected[id as usize]
            );
            assert!(expected.iter().filter(|&&other| other > logprob + 1e-9).count() < 3);
        }
    }
}

/// Logits after the prompt and after each of `steps` tokens.
fn logits(engine: &mut Engine, prompt: &[u32], steps: u32) -> Vec<Vec<u32>> {
    while engine.position() + 1 < prompt.len() as u32 {
        engine.step().unwrap();
    }
    let step = |_| {
        engine.step().unwrap();
        engine.logits().unwrap().into_iter().map(f32::to_bits).collect()
    };
    (0..steps).map(step).collect()
}

/// The demo model's cache has tiles of 16 positions, so that prefixes end within a tile, at its end and in the next.
#[test]
fn a_reused_prefix_gives_the_same_bits() {
    let (mut plain, mut quantised) =
        (load_without_prefill(KvType::F16).0, load_without_prefill(KvType::Q8_0).0);
    let first: Vec<u32> = (0..18).map(|i| 40 + i * 7 % 50).collect();
    for (kv, common, reused) in
        [("f16", 5, 5), ("f16", 16, 16), ("f16", 18, 17), ("q8_0", 5, 5), ("q8_0", 18, 17)]
    {
        let engine = if kv == "f16" { &mut plain } else { &mut quantised };
        let mut second = first.clone();
        second.iter_mut().skip(common).for_each(|token| *token += 3);
        engine.start(&second).unwrap();
        let expected = logits(engine, &second, 3);
        // Fills the whole cache with another sequence.
        engine.start(&first).unwrap();
        logits(engine, &first, CONTEXT - 17);
        assert_eq!(engine.start_from_cache(&second).unwrap(), reused);
        assert_eq!(engine.position(), reused);
        assert!(logits(engine, &second, 3) == expected, "{common} tokens in common, {kv}");
    }
}

#[test]
fn a_next_turn_reuses_the_last_one() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let request = Request { max_tokens: 5, ..Request::new(&prompt) };
    let (_, first) = run(&mut engine, &tokenizer, &request);
    assert_eq!(first.reused, 0);
    let turn = [prompt.clone(), first.tokens.clone(), tokenizer.encode(" 3 + 4 =").unwrap()].concat();
    let next = Request { max_tokens: 5, ..Request::new(&turn) };
    let (_, second) = run(&mut engine, &tokenizer, &next);
    // What decode steps have processed is a part of the prompt now, and prefill steps process it again.
    assert_eq!(second.reused as usize, prompt.len() - 1);
    assert_eq!(engine.cached_tokens().unwrap()[..turn.len()], turn);

    // The same prompt again, a shorter one, and one after a start for timing.
    let (_, again) = run(&mut engine, &tokenizer, &next);
    assert_eq!((again.reused as usize, &again.tokens), (turn.len() - 1, &second.tokens));
    let (_, short) = run(&mut engine, &tokenizer, &request);
    assert_eq!((short.reused as usize, &short.tokens), (prompt.len() - 1, &first.tokens));
    engine.start_at_depth(9).unwrap();
    engine.step().unwrap();
    assert!(engine.cached_tokens().unwrap().is_empty());
    let (_, fresh) = run(&mut engine, &tokenizer, &request);
    assert_eq!((fresh.reused, &fresh.tokens), (0, &first.tokens));
}

/// When the context is full, the first tokens and the newer half of the others are a new prompt.
#[test]
fn a_shifted_context_continues_like_a_fresh_run_over_the_kept_tokens() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    for (keep, max_tokens, logprobs) in [(0, 40, None), (3, 40, None), (CONTEXT - 6, 28, Some(1))] {
        let request = Request { max_tokens, keep: Some(keep), logprobs, ..Request::new(&prompt) };
        let (text, shifted) = run(&mut engine, &tokenizer, &request);
        assert_eq!((shifted.reason, shifted.tokens.len() as u32), (FinishReason::MaxTokens, max_tokens));
        assert_eq!(text, tokenizer.decode(&shifted.tokens));
        let (mut context, mut expected, mut shifts) = (prompt.clone(), Vec::new(), 0);
        while expected.len() < shifted.tokens.len() {
            // A step without reuse of the cache, so that nothing remains of the sequence before.
            engine.start_at_depth(0).unwrap();
            let left = (shifted.tokens.len() - expected.len()) as u32;
            let (_, fresh) =
                run(&mut engine, &tokenizer, &Request { max_tokens: left, ..Request::new(&context) });
            assert_eq!(fresh.reused, 0);
            expected.extend(&fresh.tokens);
            context.extend(&fresh.tokens);
            if fresh.reason == FinishReason::ContextFull {
                let others = context.split_off(keep as usize);
                context.extend(&others[others.len() / 2..]);
                shifts += 1;
            }
        }
        assert_eq!((shifted.tokens, shifted.shifts), (expected, shifts), "keep {keep}");
        assert!(shifts >= 2);
    }

    let request = Request { keep: Some(CONTEXT), ..Request::new(&prompt) };
    let error = Generation::start(&mut engine, None, &request).err().unwrap();
    assert_eq!(error.to_string(), "cannot keep 24 tokens in a context of 24 positions: keep fewer");
}
