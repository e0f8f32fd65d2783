//! Requests one at a time on the emulator: text, stop conditions and finish reasons.

use std::ops::ControlFlow;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineError, EngineOptions, Slots};
use bespoke::generation::{FinishReason, Request, Summary, Token};
use bespoke::scheduler::{Event, Scheduler};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 24;

fn load() -> (Engine, Tokenizer) {
    load_with(EngineOptions::default())
}

/// An engine whose decode steps process prompts.
fn load_without_prefill() -> (Engine, Tokenizer) {
    load_with(EngineOptions { prefill: false, ..EngineOptions::default() })
}

fn load_with(options: EngineOptions) -> (Engine, Tokenizer) {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), ..options };
    let device = open(Selector::Emulator).unwrap().device;
    let engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    (engine, Tokenizer::from_gguf(&gguf).unwrap())
}

type OneEngine<'a> = Scheduler<'a, Slots<'a>>;

fn scheduler<'a>(engine: &'a mut Engine, tokenizer: &'a Tokenizer) -> OneEngine<'a> {
    Scheduler::new(Slots::new(engine).unwrap(), Some(tokenizer))
}

/// Runs a request until `most` tokens were chosen or it ends. Returns the tokens and the summary.
fn run_up_to(most: usize, scheduler: &mut OneEngine<'_>, request: &Request<'_>) -> (Vec<Token>, Summary) {
    let mut tokens = Vec::new();
    let summary = scheduler.generate(request, |event| {
        if let Event::Token { token, .. } = event {
            tokens.push(token.clone());
        }
        if tokens.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (tokens, summary.unwrap())
}

/// Runs a request to its end, and returns the text of all tokens with the summary.
fn run(scheduler: &mut OneEngine<'_>, request: &Request<'_>) -> (String, Summary) {
    let (tokens, summary) = run_up_to(usize::MAX, scheduler, request);
    (tokens.into_iter().map(|token| token.text).collect(), summary)
}

#[test]
fn generation_ends_for_the_reason_it_reports() {
    let (mut engine, tokenizer) = load();
    let mut scheduler = scheduler(&mut engine, &tokenizer);
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let stopping = Request { stop_tokens: tokenizer.end_tokens(), ..Request::new(&prompt) };

    let (text, summary) = run(&mut scheduler, &stopping);
    assert_eq!((text.as_str(), summary.reason), (" 42", FinishReason::StopToken));
    assert!(tokenizer.is_end(*summary.tokens.last().unwrap()), "{:?}", summary.tokens);
    assert_eq!(tokenizer.decode(&summary.tokens), text);

    let (text, limited) = run(&mut scheduler, &Request { max_tokens: 1, ..stopping.clone() });
    assert_eq!((text.as_str(), limited.reason), (" 4", FinishReason::MaxTokens));
    assert_eq!(limited.tokens, summary.tokens[..1]);

    // Without stop tokens, until the cache is full: the last token needs no position.
    let (_, full) = run(&mut scheduler, &Request::new(&prompt));
    assert_eq!(full.reason, FinishReason::ContextFull);
    assert_eq!(full.tokens.len() as u32, CONTEXT - prompt.len() as u32 + 1);
    assert_eq!(full.tokens[..summary.tokens.len()], summary.tokens);
}

#[test]
fn a_cancelled_generation_keeps_its_tokens_and_does_not_disturb_the_next() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    let request = Request::new(&prompt);
    let expected = run(&mut scheduler(&mut engine, &tokenizer), &request).1.tokens;

    let mut without_text = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
    let (tokens, summary) = run_up_to(2, &mut without_text, &request);
    assert_eq!((summary.reason, &summary.tokens[..]), (FinishReason::Cancelled, &expected[..2]));
    assert!(tokens.iter().all(|token| token.text.is_empty()) && summary.text.is_empty());
    assert_eq!(run(&mut without_text, &request).1.tokens, expected);
    drop(without_text);
    assert_eq!(run(&mut scheduler(&mut engine, &tokenizer), &request).1.tokens, expected);
}

#[test]
fn the_progress_of_a_prompt_is_reported_and_a_long_prompt_is_refused() {
    let (mut engine, tokenizer) = load_without_prefill();
    let mut scheduler = scheduler(&mut engine, &tokenizer);
    let prompt = tokenizer.encode("The old fox").unwrap();
    let (mut reported, length) = (Vec::new(), prompt.len() as u32);
    let report = |event: &Event| {
        if let Event::Prompt { processed, total, .. } = event {
            reported.push((*processed, *total));
        }
        ControlFlow::Continue(())
    };
    scheduler.generate(&Request { max_tokens: 1, ..Request::new(&prompt) }, report).unwrap();
    // Decode steps process one token each.
    assert_eq!(reported, (1..=length).map(|processed| (processed, length)).collect::<Vec<_>>());

    let long = vec![1; CONTEXT as usize + 1];
    let error = scheduler.generate(&Request::new(&long), |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { needed: 25, context: CONTEXT }), "{error}");
}

#[test]
fn a_generation_can_be_cancelled_within_the_prompt() {
    let (mut engine, tokenizer) = load_without_prefill();
    let mut scheduler = scheduler(&mut engine, &tokenizer);
    let prompt = tokenizer.encode("The old fox").unwrap();
    let expected = run(&mut scheduler, &Request::new(&prompt)).1.tokens;
    let other = [prompt.clone(), vec![5; 9]].concat();
    for other in [&other[1..], &other] {
        let stop = |event: &Event| match event {
            Event::Prompt { processed, total, .. } if processed + 1 < *total => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let summary = scheduler.generate(&Request::new(other), stop).unwrap();
        assert_eq!((summary.reason, summary.tokens), (FinishReason::Cancelled, vec![]));
    }
    assert_eq!(run(&mut scheduler, &Request::new(&prompt)).1.tokens, expected);
}

#[test]
fn text_ends_before_a_stop_string() {
    let (mut engine, tokenizer) = load();
    let mut scheduler = scheduler(&mut engine, &tokenizer);
    let prompt = tokenizer.encode("The old fox").unwrap();
    let request = Request { max_tokens: 12, ..Request::new(&prompt) };
    let (whole, summary) = run(&mut scheduler, &request);
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
        let (streamed, stopped) = run(&mut scheduler, &request);
        assert_eq!((stopped.text.as_str(), stopped.reason), (text, reason), "{stops:?}");
        assert_eq!(streamed + &stopped.rest, text, "{stops:?}");
        assert_eq!(stopped.tokens, summary.tokens[..stopped.tokens.len()], "{stops:?}");
    }
}

#[test]
fn logprobs_are_those_of_the_logits() {
    let (mut engine, tokenizer) = load_without_prefill();
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let request = Request { max_tokens: 4, logprobs: Some(3), ..Request::new(&prompt) };
    let (tokens, _) = run_up_to(4, &mut scheduler(&mut engine, &tokenizer), &request);
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

/// Tokens with the bits of their log-probabilities.
fn bits(tokens: &[Token]) -> Vec<(u32, u64)> {
    let bits = |token: &Token| (token.id, token.logprobs.as_ref().unwrap().logprob.to_bits());
    tokens.iter().map(bits).collect()
}

/// The keys and values of a prompt's tokens but the last are reused, up to the first other token. A tile of the cache has 16
/// positions: prefixes end within a tile and at its end.
#[test]
fn a_reused_prefix_gives_the_same_bits() {
    let first: Vec<u32> = (0..18).map(|i| 40 + i * 7 % 50).collect();
    for kv in KvType::ALL {
        let (mut engine, tokenizer) = load_with(EngineOptions { kv, ..EngineOptions::default() });
        for (common, reused) in [(5, 5), (16, 16), (18, 17)] {
            let mut second = first.clone();
            second.iter_mut().skip(common).for_each(|token| *token += 3);
            let request = |prompt| Request { max_tokens: 3, logprobs: Some(0), ..Request::new(prompt) };
            let (expected, fresh) = run_up_to(9, &mut scheduler(&mut engine, &tokenizer), &request(&second));
            let mut scheduler = scheduler(&mut engine, &tokenizer);
            // Fills the whole cache with another sequence.
            let filling = Request { max_tokens: CONTEXT - 17, ..request(&first) };
            run_up_to(99, &mut scheduler, &filling);
            let (tokens, again) = run_up_to(9, &mut scheduler, &request(&second));
            assert_eq!((fresh.reused, again.reused), (0, reused));
            assert_eq!(bits(&tokens), bits(&expected), "{common} tokens in common, {kv}");
        }
    }
}

#[test]
fn a_next_turn_reuses_the_last_one() {
    let (mut engine, tokenizer) = load();
    let mut scheduler = scheduler(&mut engine, &tokenizer);
    let prompt = tokenizer.encode("17 + 25 =").unwrap();
    let request = Request { max_tokens: 5, ..Request::new(&prompt) };
    let (_, first) = run(&mut scheduler, &request);
    assert_eq!(first.reused, 0);
    let turn = [prompt.clone(), first.tokens.clone(), tokenizer.encode(" 3 + 4 =").unwrap()].concat();
    let next = Request { max_tokens: 5, ..Request::new(&turn) };
    let (_, second) = run(&mut scheduler, &next);
    // What decode steps have processed is a part of the prompt now, and prefill steps process it again.
    assert_eq!(second.reused as usize, prompt.len() - 1);

    // The same prompt again, and a shorter one.
    let (_, again) = run(&mut scheduler, &next);
    assert_eq!((again.reused as usize, &again.tokens), (turn.len() - 1, &second.tokens));
    let (_, short) = run(&mut scheduler, &request);
    assert_eq!((short.reused as usize, &short.tokens), (prompt.len() - 1, &first.tokens));
}

/// When the context is full, the first tokens and the newer half of the others are a new prompt.
#[test]
fn a_shifted_context_continues_like_a_fresh_run_over_the_kept_tokens() {
    let (mut engine, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox").unwrap();
    for (keep, max_tokens, logprobs) in [(0, 40, None), (3, 40, None), (CONTEXT - 6, 28, Some(1))] {
        let request = Request { max_tokens, keep: Some(keep), logprobs, ..Request::new(&prompt) };
        let (text, shifted) = run(&mut scheduler(&mut engine, &tokenizer), &request);
        assert_eq!((shifted.reason, shifted.tokens.len() as u32), (FinishReason::MaxTokens, max_tokens));
        assert_eq!(text, tokenizer.decode(&shifted.tokens));
        let (mut context, mut expected, mut shifts) = (prompt.clone(), Vec::new(), 0);
        while expected.len() < shifted.tokens.len() {
            let left = (shifted.tokens.len() - expected.len()) as u32;
            // A scheduler of its own reuses nothing of the sequence before.
            let (_, fresh) = run(
                &mut scheduler(&mut engine, &tokenizer),
                &Request { max_tokens: left, ..Request::new(&context) },
            );
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
    let error = scheduler(&mut engine, &tokenizer).check(&request).unwrap_err();
    assert_eq!(error.to_string(), "cannot keep 24 tokens in a context of 24 positions: keep fewer");
}
