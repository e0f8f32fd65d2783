//! A draft model on the emulator: answers have the tokens that they have without it. The optional checks of the emulator are off;
//! `schedules` runs the same kernels with all of them.

use std::fs;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::generation::{FinishReason, Request};
use bespoke::scheduler::{Event, PAGE, Scheduler};
use bespoke::speculation::{DraftCounts, Source, Speculation};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 200;

fn demo() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap()
}

/// The demo model with the matrices of its first and its last layer exchanged: another model of the same vocabulary.
fn other() -> Vec<u8> {
    let mut bytes = demo();
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let last = ModelShape::from_gguf(&gguf, "demo").unwrap().layers.len() - 1;
    let mut exchanged = 0;
    for matrix in ["attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"] {
        let data = |layer: usize| {
            let tensor = gguf.require(&format!("blk.{layer}.{matrix}.weight")).unwrap();
            gguf.data(tensor).unwrap().into_owned()
        };
        let (first, second) = (data(0), data(last));
        if first.len() == second.len() {
            let place = |data: &[u8]| bytes.windows(data.len()).position(|window| window == data).unwrap();
            let (at_first, at_second) = (place(&first), place(&second));
            bytes[at_first..][..second.len()].copy_from_slice(&second);
            bytes[at_second..][..first.len()].copy_from_slice(&first);
            exchanged += 1;
        }
    }
    assert!(exchanged > 0, "the layers have matrices of other types");
    bytes
}

fn load(model: Vec<u8>, options: &EngineOptions) -> (Engine, Tokenizer) {
    let gguf = Gguf::from_bytes(model).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    let engine = Engine::load(device, &gguf, &shape, options, &|_, _| ()).unwrap();
    (engine, Tokenizer::from_gguf(&gguf).unwrap())
}

fn target(drafts: u32) -> (Engine, Tokenizer) {
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    load(
        demo(),
        &EngineOptions { context: Some(CONTEXT), parallel: 4, drafts, sampling, ..Default::default() },
    )
}

fn draft(model: Vec<u8>, kv_memory: Option<u64>) -> Engine {
    load(
        model,
        &EngineOptions { context: Some(CONTEXT), parallel: 4, drafts: 1, kv_memory, ..Default::default() },
    )
    .0
}

/// Answers to prompts of several lengths side by side, greedy and sampled, and the drafts of the model.
fn answers(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    draft: Option<&mut Engine>,
) -> (Vec<Vec<u32>>, DraftCounts) {
    let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), Some(tokenizer));
    if let Some(draft) = draft {
        scheduler = scheduler.with_draft_model(Box::new(Slots::new(draft).unwrap()));
    }
    let texts = ["17 + 25 =", "The old fox lives in the tower. It"];
    let mut ids = Vec::new();
    for (index, text) in (0..).zip(texts.iter().chain(&texts)) {
        let prompt = tokenizer.encode(&text.repeat(1 + 5 * (index % 2))).unwrap();
        // The first two are greedy.
        let temperature = if index < 2 { 0.0 } else { 0.8 };
        let sampling = SamplingParams { temperature, seed: index as u64, ..SamplingParams::default() };
        // As long as possible: on the emulator the times of steps would forbid drafts.
        let speculation = Speculation { most: 3, always: true, lookup: false };
        let request = Request { max_tokens: 18, sampling, speculation, ..Request::new(&prompt) };
        ids.push(scheduler.add(&request).unwrap());
    }
    let mut answers = vec![Vec::new(); ids.len()];
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            match event {
                Event::Token { id, token } => {
                    answers[ids.iter().position(|&other| other == id).unwrap()].push(token.id);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                Event::Finished { .. } | Event::Prompt { .. } => {}
            }
        }
    }
    assert_eq!(scheduler.pages().used, 0);
    (answers, scheduler.step_counts().drafts[Source::Model])
}

#[test]
fn answers_do_not_depend_on_the_draft_model() {
    let (mut plain, tokenizer) = target(0);
    let (expected, none) = answers(&mut plain, &tokenizer, None);
    assert_eq!(none, DraftCounts::default());
    let (mut engine, _) = target(3);
    let share = |counts: DraftCounts| counts.accepted as f64 / counts.drafted as f64;
    let mut shares = Vec::new();
    for model in [demo(), other()] {
        let mut draft = draft(model, None);
        let (found, counts) = answers(&mut engine, &tokenizer, Some(&mut draft));
        assert_eq!(found, expected);
        assert!(counts.drafted > 40, "{counts:?}");
        shares.push(share(counts));
    }
    // Half of the answers are sampled: the draft model is greedy.
    assert!(shares[0] > 0.6 && shares[1] < shares[0] / 2.0, "{shares:?}");
}

#[test]
fn a_draft_model_with_pages_for_one_context_drafts_for_some() {
    let (mut plain, tokenizer) = target(0);
    let (expected, _) = answers(&mut plain, &tokenizer, None);
    let bytes = plain.plan().kv_bytes() * u64::from(PAGE) * u64::from(CONTEXT.div_ceil(PAGE));
    let mut draft = draft(demo(), Some(bytes));
    assert_eq!(draft.plan().params.pages, 4);
    let (mut engine, _) = target(3);
    let (found, counts) = answers(&mut engine, &tokenizer, Some(&mut draft));
    assert_eq!(found, expected);
    assert!(counts.drafted > 20, "{counts:?}");
}

#[test]
fn the_same_model_drafts_all_tokens_of_a_greedy_answer_until_it_is_cancelled() {
    let (mut engine, tokenizer) = target(3);
    let mut draft = draft(demo(), None);
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), Some(&tokenizer))
        .with_draft_model(Box::new(Slots::new(&mut draft).unwrap()));
    let prompt = tokenizer.encode("The old fox lives in the tower.").unwrap();
    let speculation = Speculation { most: 3, always: true, lookup: false };
    let id = scheduler.add(&Request { speculation, ..Request::new(&prompt) }).unwrap();
    while scheduler.step_counts().drafts.total().drafted < 30 {
        scheduler.step().unwrap();
    }
    let summary = scheduler.cancel(id).unwrap();
    assert_eq!(summary.reason, FinishReason::Cancelled);
    // On the emulator the last draft is complete, too.
    assert_eq!(summary.drafts[Source::Model], DraftCounts { drafted: 30, accepted: 30 });
    while !scheduler.is_idle() {
        scheduler.step().unwrap();
    }
    assert_eq!(scheduler.pages().used, 0);
}
