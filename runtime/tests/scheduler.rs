//! The scheduler over an engine on the emulator: a sequence has the same tokens alone and beside others. The optional checks of the emulator are off;
//! `schedules` runs the same kernels with all of them.

use std::ops::ControlFlow;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::generation::{FinishReason, Grammar, GrammarState, Next, Request, Summary, Token};
use bespoke::scheduler::{Event, PAGE, Scheduler, Steps};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 200;

fn load() -> (Engine, Tokenizer) {
    load_with(options())
}

fn options() -> EngineOptions {
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    EngineOptions { context: Some(CONTEXT), sampling, ..EngineOptions::default() }
}

fn load_with(options: EngineOptions) -> (Engine, Tokenizer) {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    let engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    (engine, Tokenizer::from_gguf(&gguf).unwrap())
}

/// Runs requests one after another, and returns their summaries in the order of the requests.
fn run<S: Steps>(scheduler: &mut Scheduler<'_, S>, requests: &[Request<'_>]) -> Vec<Summary> {
    let ids: Vec<_> = requests.iter().map(|request| scheduler.add(request).unwrap()).collect();
    let mut summaries = Vec::new();
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Finished { id, summary } = event {
                assert_eq!(id, ids[summaries.len()]);
                summaries.push(summary);
            }
        }
    }
    summaries
}

#[test]
fn a_scheduler_that_reuses_pages_has_the_tokens_of_fresh_ones() {
    let (mut engine, tokenizer) = load();
    let long: Vec<u32> = tokenizer.encode(&"The old fox lives in the tower. ".repeat(9)).unwrap();
    assert!(long.len() as u32 > PAGE && long.len() as u32 + 70 < CONTEXT);
    let sum = tokenizer.encode("17 + 25 =").unwrap();
    let sampling = SamplingParams { temperature: 0.9, seed: 3, ..SamplingParams::default() };
    let stop = ["bread".to_owned()];
    let requests = [
        Request { stop_tokens: tokenizer.end_tokens(), ..Request::new(&sum) },
        Request { max_tokens: 30, sampling, ..Request::new(&long) },
        // Pages of the sequence before are reused, at other places of the page table.
        Request { max_tokens: 70, ..Request::new(&long) },
        Request { max_tokens: 2, logprobs: Some(2), ..Request::new(&sum) },
        Request { stop_strings: &stop, max_tokens: 40, ..Request::new(&long) },
        // The context is full before the last token.
        Request { max_tokens: CONTEXT - long.len() as u32 + 9, keep: Some(70), ..Request::new(&long) },
    ];
    let mut expected = Vec::new();
    for request in &requests {
        expected.push(run_one(&mut engine, &tokenizer, request));
    }
    let steps = Slots::new(&mut engine).unwrap();
    let mut scheduler = Scheduler::new(steps, Some(&tokenizer));
    let summaries = run(&mut scheduler, &requests);
    assert_eq!(scheduler.pages().used, 0);
    for (summary, expected) in summaries.iter().zip(&expected) {
        assert_eq!((&summary.tokens, &summary.text), (&expected.tokens, &expected.text));
        assert_eq!((summary.reason, summary.shifts), (expected.reason, expected.shifts));
    }
    assert_eq!(summaries.iter().map(|summary| summary.shifts).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);
    assert_eq!(summaries[0].reason, FinishReason::StopToken);
    let reused: Vec<u32> = summaries.iter().map(|summary| summary.reused).collect();
    // All tokens but the last; those that the shift reuses do not count.
    let [sum, long] = [&sum, &long].map(|prompt| prompt.len() as u32 - 1);
    assert_eq!(reused, [0, 0, long, sum, long, long]);

    drop(scheduler);
    assert_eq!(run_one(&mut engine, &tokenizer, &requests[2]).tokens, expected[2].tokens);
}

/// Prompts of several lengths, and the answers of each alone.
#[test]
fn sequences_side_by_side_have_the_tokens_that_they_have_alone() {
    let (mut alone, tokenizer) = load();
    let texts =
        ["17 + 25 =", "The old fox lives in the tower.", "3 + 4 =", "The baker has bread. ", "12 + 9 ="];
    let prompts: Vec<Vec<u32>> = (0..7)
        .map(|i| tokenizer.encode(&texts[i % texts.len()].repeat(1 + 3 * i)).unwrap())
        .map(|tokens| tokens[..tokens.len().min(CONTEXT as usize - 40)].to_vec())
        .collect();
    let mut requests = Vec::new();
    for (seed, prompt) in (0u32..).zip(&prompts) {
        let sampling = SamplingParams { temperature: 0.9, seed: seed.into(), ..SamplingParams::default() };
        requests.push(Request { max_tokens: 12 + seed, sampling, ..Request::new(prompt) });
    }
    let expected: Vec<Summary> =
        requests.iter().map(|request| run_one(&mut alone, &tokenizer, request)).collect();

    let (mut engine, _) = load_with(EngineOptions { parallel: 5, ..options() });
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), Some(&tokenizer));
    let ids: Vec<_> = requests.iter().map(|request| scheduler.add(request).unwrap()).collect();
    let mut found = 0;
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Finished { id, summary } = event {
                let index = ids.iter().position(|&other| other == id).unwrap();
                assert_eq!(summary.tokens, expected[index].tokens, "prompt {index}");
                found += 1;
            }
        }
    }
    assert_eq!(found, requests.len());

    // The engine alone again.
    drop(scheduler);
    for (request, expected) in requests.iter().zip(&expected) {
        assert_eq!(run_one(&mut engine, &tokenizer, request).tokens, expected.tokens);
    }
}

/// Runs a request in a scheduler of its own.
fn run_one(engine: &mut Engine, tokenizer: &Tokenizer, request: &Request<'_>) -> Summary {
    let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), Some(tokenizer));
    scheduler.generate(request, |_| ControlFlow::Continue(())).unwrap()
}

/// Tokens with the bits of their log-probabilities.
type Bits = Vec<(u32, u64)>;

fn bits(token: &Token) -> (u32, u64) {
    (token.id, token.logprobs.as_ref().map_or(0, |logprobs| logprobs.logprob.to_bits()))
}

/// Tokens of each request alone.
fn alone(requests: &[Request<'_>]) -> Vec<Bits> {
    let (mut engine, tokenizer) = load();
    let run = |request: &Request<'_>| {
        let mut tokens = Bits::new();
        let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), Some(&tokenizer));
        let summary = scheduler.generate(request, |event| {
            if let Event::Token { token, .. } = event {
                tokens.push(bits(token));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(summary.unwrap().tokens.len(), tokens.len());
        tokens
    };
    requests.iter().map(run).collect()
}

/// Tokens of requests side by side, in the order of the requests, with the number of pre-emptions.
fn together(options: EngineOptions, requests: &[Request<'_>]) -> (Vec<Bits>, u64) {
    let (mut engine, tokenizer) = load_with(options);
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), Some(&tokenizer));
    let ids: Vec<_> = requests.iter().map(|request| scheduler.add(request).unwrap()).collect();
    let mut found = vec![Bits::new(); requests.len()];
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Token { id, token } = &event {
                found[ids.iter().position(|other| other == id).unwrap()].push(bits(token));
            }
        }
    }
    assert_eq!(scheduler.pages().used, 0);
    (found, scheduler.step_counts().preemptions)
}

#[test]
fn a_sequence_that_gives_its_pages_away_has_the_same_bits() {
    let (engine, tokenizer) = load();
    let page = engine.plan().kv_bytes() * u64::from(PAGE);
    drop(engine);
    let text: Vec<u32> = tokenizer.encode(&"The old fox lives in the tower. ".repeat(11)).unwrap();
    let prompts = [&text[..105], &text[3..110], &text[5..115]];
    let sampling = |seed| SamplingParams { temperature: 0.9, seed, ..SamplingParams::default() };
    let request = |index: usize| Request {
        max_tokens: 35 + index as u32,
        sampling: sampling(index as u64),
        // Log-probabilities show the bits of the logits.
        logprobs: Some(0),
        ..Request::new(prompts[index])
    };
    let requests = [0, 1, 2].map(request);
    let expected = alone(&requests);
    // Each sequence needs three pages in the end; four are there.
    let options = EngineOptions { parallel: 3, kv_memory: Some(4 * page), ..options() };
    let (found, preemptions) = together(options, &requests);
    assert_eq!(found, expected);
    assert!(preemptions > 0);
}

/// Tokens whose numbers leave the same remainder as the number of tokens so far, modulo 7; after every fourth token come
/// three certain ones. Thirty tokens are complete.
struct Sevens;

struct InSevens(u32);

impl Grammar for Sevens {
    fn start(&self) -> Box<dyn GrammarState> {
        Box::new(InSevens(0))
    }
}

impl GrammarState for InSevens {
    fn next(&mut self) -> Result<Next, String> {
        if self.0 % 7 == 4 {
            self.0 += 3;
            return Ok(Next::Only(vec![300, 301, 302]));
        }
        let word =
            |word: u32| (0..32).fold(0, |bits, i| bits | u32::from((32 * word + i) % 7 == self.0 % 7) << i);
        // The last tokens of the vocabulary have no word.
        Ok(Next::Any((0..12).map(word).collect()))
    }
    fn accept(&mut self, token: u32) -> Result<(), String> {
        assert_eq!(token % 7, self.0 % 7);
        self.0 += 1;
        Ok(())
    }
    fn is_complete(&self) -> bool {
        self.0 >= 30
    }
}

#[test]
fn a_grammar_has_the_same_tokens_alone_and_beside_others() {
    let (_, tokenizer) = load();
    let prompt = tokenizer.encode("The old fox lives in the tower.").unwrap();
    let warm = |seed| SamplingParams { temperature: 0.9, seed, ..SamplingParams::default() };
    let free = Request { max_tokens: 20, sampling: warm(5), ..Request::new(&prompt) };
    let requests = [
        Request { grammar: Some(&Sevens), ..Request::new(&prompt) },
        Request { grammar: Some(&Sevens), sampling: warm(1), ..Request::new(&prompt) },
        Request { grammar: Some(&Sevens), sampling: warm(2), logprobs: Some(0), ..Request::new(&prompt) },
        free.clone(),
        Request { sampling: SamplingParams::default(), ..free },
    ];
    let expected = alone(&requests);
    for (tokens, grammar) in expected.iter().zip([true, true, true, false, false]) {
        let fits = |(at, &(token, _)): (usize, &(u32, u64))| match at % 7 {
            last @ 4.. => token == 296 + last as u32,
            at => token as usize % 7 == at,
        };
        assert_eq!(tokens.len(), if grammar { 30 } else { 20 });
        assert_eq!(tokens.iter().enumerate().all(fits), grammar, "{tokens:?}");
    }
    let (found, _) = together(EngineOptions { parallel: 4, ..options() }, &requests);
    // Log-probabilities alone are those of the same logits.
    assert_eq!(found, expected);
}
