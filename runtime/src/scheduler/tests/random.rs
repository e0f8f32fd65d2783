//! Random schedules: every sequence gets the tokens that it gets alone, whatever its neighbours do.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::fake::{BAD, Fake, Toy, alone, alone_in};
use crate::engine::SamplingParams;
use crate::generation::{FinishReason, Grammar, Request, Summary};
use crate::scheduler::{Event, Scheduler, SequenceId};
use crate::speculation::Speculation;

/// Token that ends some sequences.
const STOP: u32 = 7;

#[derive(Clone, Debug)]
struct Sequence {
    /// Steps before the sequence is added, after the one before it.
    gap: usize,
    /// Prompt: tokens `base`, `base + 1`, … modulo 50, so that sequences with the same base share a prefix.
    base: u32,
    length: u32,
    /// Whether the last prompt token is not finite.
    bad: bool,
    max_tokens: u32,
    stops: bool,
    keep: Option<u32>,
    logprobs: bool,
    /// Most drafted tokens, and whether always so many are drafted.
    speculation: Speculation,
    /// Length of the answers of a grammar.
    grammar: Option<usize>,
    seed: u64,
    /// Number of steps after which the sequence is cancelled.
    cancel: Option<usize>,
}

impl Sequence {
    fn prompt(&self) -> Vec<u32> {
        let tokens = (0..self.length).map(|i| (self.base * 31 + i * (self.base + 1)) % 50);
        tokens.chain(self.bad.then_some(BAD)).collect()
    }
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let rare = |value: std::ops::Range<usize>| prop_oneof![4 => Just(None), 1 => value.prop_map(Some)];
    let length = prop_oneof![2 => 1u32..20, 2 => 60u32..70, 2 => 120u32..260];
    let max_tokens = prop_oneof![3 => 0u32..12, 2 => 30u32..150, 1 => Just(u32::MAX)];
    let rarely = || prop::bool::weighted(0.1);
    (
        (prop_oneof![2 => Just(0usize), 1 => 0usize..6], 0u32..3, length, rarely(), max_tokens),
        (
            any::<bool>(),
            prop_oneof![8 => Just(None), 1 => (0u32..20).prop_map(Some)],
            rarely(),
            prop_oneof![3 => Just(None), 2 => (1usize..60).prop_map(Some)],
            0u64..3,
            rare(0..40),
            (prop_oneof![Just(0u32), 1u32..9], prop::bool::weighted(0.7)),
        ),
    )
        .prop_map(
            |(
                (gap, base, length, bad, max_tokens),
                (stops, keep, logprobs, grammar, seed, cancel, (most, always)),
            )| {
                Sequence {
                    gap,
                    base,
                    length,
                    bad,
                    max_tokens: if keep.is_some() { max_tokens.min(400) } else { max_tokens },
                    stops,
                    keep,
                    logprobs,
                    grammar: grammar.filter(|_| keep.is_none()),
                    seed,
                    cancel,
                    speculation: Speculation { most, always, lookup: true },
                }
            },
        )
}

#[derive(Clone, Debug)]
struct Schedule {
    slots: u32,
    pages: u32,
    prefill: Vec<u32>,
    speed: Option<u32>,
    /// Whether the engine has verify steps.
    verifies: bool,
    draft_model: Option<DraftEngine>,
    sequences: Vec<Sequence>,
}

/// A draft model. It is the model of sequences with seed 0.
#[derive(Clone, Debug)]
struct DraftEngine {
    pages: u32,
    context: u32,
    speed: Option<u32>,
    verifies: bool,
}

fn draft_engine() -> impl Strategy<Value = DraftEngine> {
    let speed = prop_oneof![Just(None), Just(Some(1)), Just(Some(3))];
    (1u32..20, prop_oneof![Just(CONTEXT), Just(100)], speed, any::<bool>())
        .prop_map(|(pages, context, speed, verifies)| DraftEngine { pages, context, speed, verifies })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let prefill = prop_oneof![Just(vec![16, 64]), Just(vec![1]), Just(vec![7]), Just(vec![512]),];
    let speed = prop_oneof![Just(None), Just(Some(1)), Just(Some(3)), Just(Some(20))];
    // With sixteen slots prompts wait for others for some steps. Five pages hold the longest prompt.
    let slots = prop_oneof![4 => 1u32..7, 1 => Just(16)];
    let sizes = (slots, 5u32..20, prefill, speed, any::<bool>(), prop::option::of(draft_engine()));
    (sizes, prop::collection::vec(sequence(), 1..20)).prop_map(
        |((slots, pages, prefill, speed, verifies, draft_model), sequences)| Schedule {
            slots,
            pages,
            prefill,
            speed,
            verifies,
            draft_model,
            sequences,
        },
    )
}

/// The context's positions.
const CONTEXT: u32 = 300;

/// Outcome of a sequence.
#[derive(Default)]
struct Outcome {
    /// Tokens of the events.
    tokens: Vec<u32>,
    summary: Option<Summary>,
    failed: bool,
}

/// Checks what the fake cannot see: references are counted, and only full pages with the same prefix are shared.
fn check_pages(scheduler: &Scheduler<'_, Fake>) {
    let mut uses: HashMap<u32, Vec<bool>> = HashMap::new();
    for slot in scheduler.slots.iter().flatten() {
        for (index, &page) in slot.pages.iter().enumerate() {
            uses.entry(page).or_default().push(index < slot.full_pages());
        }
    }
    for (page, full) in &uses {
        assert!(full.len() == 1 || full.iter().all(|&full| full), "page {page} is shared and not full");
    }
    let counts = scheduler.pages();
    assert_eq!(counts.used as usize, uses.len(), "{counts:?}");
    assert_eq!(counts.free + counts.cached + counts.used, scheduler.limits.pages);
    for page in 0..scheduler.limits.pages {
        assert_eq!(scheduler.pool.references(page) as usize, uses.get(&page).map_or(0, Vec::len));
    }
}

fn run(schedule: &Schedule) -> Vec<Outcome> {
    let mut fake =
        Fake::new(schedule.slots, schedule.pages, CONTEXT, &schedule.prefill).with_decode_steps_of(16);
    if let Some(speed) = schedule.speed {
        fake = fake.with_speed(speed);
    }
    if schedule.verifies {
        fake = fake.with_verify_steps();
    }
    let mut scheduler = Scheduler::new(fake, None);
    if let Some(DraftEngine { pages, context, speed, verifies }) = schedule.draft_model {
        let mut draft = Fake::new(schedule.slots, pages, context.min(CONTEXT), &schedule.prefill)
            .with_decode_steps_of(16)
            .greedy_only();
        if let Some(speed) = speed {
            draft = draft.with_speed(speed);
        }
        let draft = if verifies { draft.with_verify_steps() } else { draft };
        scheduler = scheduler.with_draft_model(Box::new(draft));
    }
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut ids: Vec<SequenceId> = Vec::new();
    let mut steps_of = vec![0; schedule.sequences.len()];
    let mut next = 0;
    let mut gap = 0;
    let mut calls = 0;
    while next < schedule.sequences.len() || !scheduler.is_idle() {
        calls += 1;
        assert!(calls < 100_000, "no end");
        while let Some(sequence) = schedule.sequences.get(next).filter(|sequence| gap >= sequence.gap) {
            let prompt = sequence.prompt();
            let grammar = sequence.grammar.map(|length| Toy { length });
            let request = Request {
                grammar: grammar.as_ref().map(|grammar| grammar as &dyn Grammar),
                max_tokens: sequence.max_tokens,
                keep: sequence.keep,
                stop_tokens: if sequence.stops { &[STOP] } else { &[] },
                logprobs: sequence.logprobs.then_some(1),
                speculation: sequence.speculation,
                sampling: SamplingParams { seed: sequence.seed, ..SamplingParams::default() },
                ..Request::new(&prompt)
            };
            ids.push(scheduler.add(&request).unwrap());
            outcomes.push(Outcome::default());
            (next, gap) = (next + 1, 0);
        }
        gap += 1;
        for index in 0..next {
            if schedule.sequences[index].cancel == Some(steps_of[index])
                && let Some(summary) = scheduler.cancel(ids[index])
            {
                outcomes[index].summary = Some(summary);
            }
            steps_of[index] += 1;
        }
        for event in scheduler.step().unwrap() {
            let outcome = &mut outcomes[ids.iter().position(|&id| id == event.id()).unwrap()];
            assert!(outcome.summary.is_none() && !outcome.failed, "an event after the end: {event:?}");
            match event {
                Event::Prompt { processed, total, .. } => assert!(processed <= total),
                Event::Token { token, .. } => outcome.tokens.push(token.id),
                Event::Finished { summary, .. } => outcome.summary = Some(summary),
                Event::Failed { .. } => outcome.failed = true,
            }
        }
        check_pages(&scheduler);
        assert!(scheduler.flights.len() <= 8);
    }
    let counts = scheduler.pages();
    assert_eq!(counts.used, 0, "{counts:?}");
    let of_drafts = scheduler.draft_model.as_ref().map_or(0, |model| model.used_pages());
    assert_eq!(of_drafts, 0, "the draft model has pages of no sequence");
    outcomes
}

/// The first `count` tokens of a sequence alone that keeps `keep` tokens and the newer half of the others when the context is
/// full.
fn alone_with_shifts(prompt: &[u32], keep: usize, seed: u64, count: usize) -> Vec<u32> {
    let (mut context, mut tokens) = (prompt.to_vec(), Vec::new());
    while tokens.len() < count {
        let room = CONTEXT as usize - context.len() + 1;
        let more = alone(&context, seed, room.min(count - tokens.len()));
        tokens.extend(&more);
        context.extend(more);
        let (first, others) = context.split_at(context.len().min(keep));
        context = [first, &others[others.len() / 2..]].concat();
    }
    tokens
}

/// Checks the outcomes of a schedule. Returns how many sequences shifted their contexts.
fn check(schedule: &Schedule) -> usize {
    let outcomes = run(schedule);
    let mut shifted = 0;
    for (sequence, outcome) in schedule.sequences.iter().zip(outcomes) {
        let prompt = sequence.prompt();
        let Some(summary) = outcome.summary else {
            assert!(outcome.failed && sequence.bad && outcome.tokens.is_empty(), "{sequence:?}");
            continue;
        };
        assert_eq!(summary.tokens, outcome.tokens);
        assert!(!sequence.bad || summary.tokens.is_empty());
        assert!(summary.reused < prompt.len() as u32);
        if let (1.., Some(keep)) = (summary.shifts, sequence.keep) {
            let expected = alone_with_shifts(&prompt, keep as usize, sequence.seed, summary.tokens.len());
            assert_eq!(summary.tokens, expected, "{sequence:?}");
            shifted += 1;
        }
        if summary.shifts == 0 {
            let room = (CONTEXT - prompt.len() as u32 + 1).min(sequence.max_tokens) as usize;
            let mut expected = match sequence.grammar {
                None => alone(&prompt, sequence.seed, room),
                Some(length) => alone_in(&Toy { length }, &prompt, sequence.seed, room),
            };
            if let Some(stop) = expected.iter().position(|&token| sequence.stops && token == STOP) {
                expected.truncate(stop + 1);
            }
            match summary.reason {
                FinishReason::Cancelled => {
                    assert!(sequence.cancel.is_some() && expected.starts_with(&summary.tokens))
                }
                // A sequence gives its pages away, but it does not end: five pages hold a context.
                FinishReason::OutOfPages => panic!("{sequence:?}"),
                FinishReason::Complete => {
                    assert_eq!(summary.tokens, expected, "{sequence:?}");
                    assert!(sequence.grammar.is_some_and(|length| length <= expected.len()));
                }
                reason => {
                    assert_eq!(summary.tokens, expected, "{sequence:?}");
                    let by_token = reason == FinishReason::StopToken;
                    assert_eq!(by_token, sequence.stops && expected.last() == Some(&STOP));
                    let full = sequence.max_tokens > CONTEXT - prompt.len() as u32 + 1;
                    assert!(by_token || (reason == FinishReason::ContextFull) == full);
                }
            }
        }
    }
    shifted
}

#[test]
fn neighbours_do_not_change_the_tokens() {
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 300, ..ProptestConfig::with_source_file(file!()) });
    let shifted = Cell::new(0);
    let checked = runner.run(&schedule(), |schedule| {
        shifted.set(shifted.get() + check(&schedule));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    assert!(shifted.get() > 0, "no context was full");
}
