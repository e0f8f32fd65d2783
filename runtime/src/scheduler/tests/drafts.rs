//! A draft model beside the fake engine. Its model is that of sequences with seed 0: it drafts what they choose.

use super::fake::{BAD, Fake, alone};
use crate::engine::SamplingParams;
use crate::generation::{FinishReason, Request};
use crate::scheduler::draft_model::{DraftModel, Wanted};
use crate::scheduler::{Event, PAGE, Scheduler, SequenceId, StepCounts};
use crate::speculation::{Source, Speculation, StepCosts};

/// Positions of a context.
const CONTEXT: u32 = 300;

/// A scheduler over an engine of four slots, with a draft model of `pages` pages.
fn scheduler(pages: u32) -> Scheduler<'static, Fake> {
    let draft = Fake::new(4, pages, CONTEXT, &[16, 64]).greedy_only().with_verify_steps();
    let engine = Fake::new(4, 20, CONTEXT, &[16, 64]).with_verify_steps();
    Scheduler::new(engine, None).with_draft_model(Box::new(draft))
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| 7 + i % 41).collect()
}

/// Adds a request whose drafts are as long as possible, by the draft model alone.
fn add(scheduler: &mut Scheduler<'_, Fake>, prompt: &[u32], seed: u64, max_tokens: u32) -> SequenceId {
    let speculation = Speculation { most: 3, always: true, lookup: false };
    let sampling = SamplingParams { seed, ..SamplingParams::default() };
    scheduler.add(&Request { max_tokens, speculation, sampling, ..Request::new(prompt) }).unwrap()
}

/// Runs until nothing is left. Returns the tokens of the sequences in the order of their ids.
fn finish(scheduler: &mut Scheduler<'_, Fake>) -> Vec<Vec<u32>> {
    let mut answers = Vec::new();
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Finished { id, summary } = event {
                answers.push((id, summary.tokens));
            }
        }
    }
    answers.sort_by_key(|(id, _)| *id);
    answers.into_iter().map(|(_, tokens)| tokens).collect()
}

fn used_pages(scheduler: &Scheduler<'_, Fake>) -> u32 {
    scheduler.draft_model.as_ref().unwrap().used_pages()
}

#[test]
fn drafts_of_the_same_model_are_all_accepted_and_of_another_one_few() {
    for (seed, least, most) in [(0, 1.0, 1.0), (1, 0.3, 0.95)] {
        let mut scheduler = scheduler(20);
        for length in [1, 2, 3, 64, 65, 66, 150] {
            let prompt = prompt(length);
            add(&mut scheduler, &prompt, seed, 41);
            assert_eq!(finish(&mut scheduler), [alone(&prompt, seed, 41)]);
        }
        let StepCounts { drafts, decode_steps, .. } = scheduler.step_counts();
        let counts = drafts[Source::Model];
        let share = counts.accepted as f64 / counts.drafted as f64;
        assert!((least..=most).contains(&share), "{counts:?}");
        assert_eq!(drafts[Source::Lookup].drafted, 0);
        // After the first token, ten steps of four tokens. After the prompt of one token, eleven.
        assert!(seed > 0 || decode_steps == 7 * 10 + 1, "{decode_steps}");
        assert_eq!(used_pages(&scheduler), 0);
    }
}

#[test]
fn sequences_that_draft_side_by_side_get_their_tokens() {
    let mut scheduler = scheduler(20);
    let prompts: Vec<Vec<u32>> = [5, 80, 1, 130].map(prompt).into();
    for (seed, prompt) in (0..).zip(&prompts) {
        add(&mut scheduler, prompt, seed % 2, 60);
    }
    let expected: Vec<Vec<u32>> =
        (0..).zip(&prompts).map(|(seed, prompt)| alone(prompt, seed % 2, 60)).collect();
    assert_eq!(finish(&mut scheduler), expected);
}

#[test]
fn a_sequence_that_is_cancelled_after_a_draft_frees_the_pages_of_both_models() {
    let mut scheduler = scheduler(20);
    let id = add(&mut scheduler, &prompt(100), 1, 100);
    let kept = add(&mut scheduler, &prompt(10), 0, 30);
    while scheduler.step_counts().drafts.total().drafted < 12 {
        scheduler.step().unwrap();
    }
    let before = used_pages(&scheduler);
    assert_eq!(scheduler.cancel(id).unwrap().reason, FinishReason::Cancelled);
    assert_eq!(before - used_pages(&scheduler), 2);
    assert_eq!(finish(&mut scheduler), [alone(&prompt(10), 0, 30)], "{kept}");
    assert_eq!((used_pages(&scheduler), scheduler.pages().used), (0, 0));
}

#[test]
fn without_pages_for_drafts_sequences_go_on() {
    // Two pages: 128 positions.
    for (pages, drafts) in [(2, true), (1, false)] {
        let mut scheduler = scheduler(pages);
        add(&mut scheduler, &prompt(100), 0, 90);
        add(&mut scheduler, &prompt(70), 0, 90);
        assert_eq!(finish(&mut scheduler), [100, 70].map(|length| alone(&prompt(length), 0, 90)));
        let counts = scheduler.step_counts().drafts.total();
        assert_eq!(counts.drafted > 0, drafts, "{counts:?}");
        assert!(counts.drafted < 60, "{counts:?}");
    }
}

#[test]
fn a_failure_of_the_draft_model_ends_all_sequences_and_the_next_ones_get_drafts_again() {
    let draft = Fake::new(4, 20, CONTEXT, &[16]).with_verify_steps().with_speed(1);
    draft.polls_left.set(Some(30));
    let engine = Fake::new(4, 20, CONTEXT, &[16]).with_verify_steps();
    let mut scheduler = Scheduler::new(engine, None).with_draft_model(Box::new(draft));
    add(&mut scheduler, &prompt(20), 0, 100);
    let error = (0..200).find_map(|_| scheduler.step().err()).unwrap();
    assert!(error.to_string().contains("the kernel faulted"), "{error}");
    assert_eq!((used_pages(&scheduler), scheduler.pages().used), (0, 0));
    add(&mut scheduler, &prompt(20), 0, 40);
    assert_eq!(finish(&mut scheduler), [alone(&prompt(20), 0, 40)]);
    assert_eq!(scheduler.steps().resets, 1);
}

#[test]
fn a_draft_whose_logits_are_not_finite_is_empty_and_its_pages_are_cleared() {
    let mut scheduler = scheduler(20);
    let bad: Vec<u32> = prompt(70).into_iter().chain([BAD]).collect();
    add(&mut scheduler, &bad, 0, 10);
    let mut failed = 0;
    while !scheduler.is_idle() {
        let events = scheduler.step().unwrap();
        failed += events.iter().filter(|event| matches!(event, Event::Failed { .. })).count();
    }
    assert_eq!((failed, scheduler.step_counts().drafts.total().drafted), (1, 0));
    // The fake engine refuses a page that is used again and was not cleared.
    add(&mut scheduler, &prompt(100), 0, 30);
    assert_eq!(finish(&mut scheduler), [alone(&prompt(100), 0, 30)]);
}

#[test]
fn an_offer_says_how_many_tokens_the_model_has_not_seen_and_how_many_it_can_draft() {
    let mut model = DraftModel::new(Box::new(Fake::new(2, 4, CONTEXT, &[16, 64]).greedy_only()));
    let (sequence, other) = (SequenceId(3), SequenceId(4));
    let offer = |model: &DraftModel<'_>, sequence, known| {
        let offer = model.offer(0, sequence, known);
        (offer.behind, offer.most)
    };
    assert_eq!(offer(&model, sequence, 100), (99, 4 * PAGE - 99));
    let tokens = [prompt(100), alone(&prompt(100), 0, 60)].concat();
    let wanted = Wanted { slot: 0, sequence, tokens: &tokens[..100], count: 3 };
    let drafts = model.draft(&[wanted], &mut StepCosts::default()).unwrap();
    assert_eq!(drafts, [&tokens[100..103]]);
    // Accepted tokens of the draft and one more are no reason to catch up.
    assert_eq!([101, 104, 150].map(|known| offer(&model, sequence, known).0), [0, 0, 46]);
    // The pages of another sequence are not free.
    assert_eq!(offer(&model, other, 100), (99, 2 * PAGE - 99));
    model.release(0);
    assert_eq!(offer(&model, sequence, 150), (149, 4 * PAGE - 149));
}
