//! Random schedules through the scheduler on the emulator: every bit of every sequence's logits is that of the sequence
//! alone, whatever arrives, ends, shares pages or runs out of them beside it, and whatever is drafted; with products of integers
//! and of f16.
//!
//! `BESPOKE_SCHEDULES=1000` sets the number of schedules, `BESPOKE_SCHEDULES_SEED=17` runs only the schedule of this seed.

mod alone;
mod recording;
mod schedule;

use alone::Reference;
use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::generation::{FinishReason, Request, Summary};
use bespoke::scheduler::{Event, Scheduler, Steps};
use bespoke::speculation::Speculation;
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::shape::ModelShape;
use recording::{Counts, Recorded, Recording};
use schedule::{CONTEXT, DRAFTS, PAGES, SLOTS, Schedule, Sequence};

/// Default number of schedules.
const SCHEDULES: u64 = 4;

fn load(parallel: u32, drafts: u32, arithmetic: Arithmetic, checks: Checks) -> Engine {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let options =
        EngineOptions { context: Some(CONTEXT), parallel, drafts, sampling, ..EngineOptions::default() };
    let options = EngineOptions { arithmetic, ..options };
    let device = open_with(Selector::Emulator, checks).unwrap().device;
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Calls of the scheduler after which a schedule counts as endless.
const MAX_CALLS: usize = 10_000;

/// Runs a schedule. Returns the summaries of its sequences, how often a sequence gave its pages to others, and the recording.
fn run<'e>(schedule: &Schedule, recording: Recording<'e>) -> (Vec<Summary>, u64, Recording<'e>) {
    let vocab = recording.limits().vocab;
    let mut scheduler = Scheduler::new(recording, None);
    let sequences = &schedule.sequences;
    let mut summaries: Vec<Option<Summary>> = sequences.iter().map(|_| None).collect();
    let (mut ids, mut ages, mut calls) = (Vec::new(), vec![0; sequences.len()], 0);
    let mut since = 0;
    while ids.len() < sequences.len() || !scheduler.is_idle() {
        calls += 1;
        assert!(calls < MAX_CALLS, "{schedule:?} does not end");
        while let Some(sequence) = sequences.get(ids.len()).filter(|sequence| since >= sequence.gap) {
            let prompt = sequence.prompt(vocab);
            let &Sequence { max_tokens, keep, .. } = sequence;
            // As long as possible: on the emulator the times of steps would forbid drafts.
            let speculation = Speculation { most: sequence.drafts, always: true, lookup: true };
            let sampling = sequence.sampling();
            let request = Request { max_tokens, keep, sampling, speculation, ..Request::new(&prompt) };
            match scheduler.add(&request) {
                Ok(id) => ids.push(id),
                Err(error) => panic!("{sequence:?}: {error}"),
            }
            since = 0;
        }
        since += 1;
        for (index, &id) in ids.iter().enumerate() {
            if sequences[index].cancel == Some(ages[index]) {
                summaries[index] = summaries[index].take().or_else(|| scheduler.cancel(id));
            }
            ages[index] += 1;
        }
        for event in scheduler.step().unwrap() {
            let index = ids.iter().position(|&id| id == event.id()).unwrap();
            match event {
                Event::Finished { summary, .. } => summaries[index] = Some(summary),
                Event::Failed { error, .. } => panic!("sequence {index}: {error}"),
                Event::Prompt { .. } | Event::Token { .. } => (),
            }
        }
    }
    assert_eq!(scheduler.pages().used, 0);
    let preemptions = scheduler.step_counts().preemptions;
    let summaries = summaries.into_iter().map(|summary| summary.expect("every sequence ends")).collect();
    (summaries, preemptions, scheduler.into_steps())
}

/// Compares what was recorded in a sequence with the sequence alone.
fn compare(recorded: &Recorded, reference: &mut Reference<'_>) -> Result<(), String> {
    if recorded.rows.is_empty() {
        return Ok(());
    }
    let Some(prompt) = recorded.prompt() else {
        return Err("the first decode step is behind the tokens that were written".to_owned());
    };
    let alone = reference.of(prompt, &recorded.sampling, recorded.rows.len());
    let (first, given) = (prompt.len() as u32 - 1, &recorded.tokens[prompt.len()..]);
    let count = given.len().min(recorded.rows.len());
    if alone.tokens[..count] != given[..count] {
        return Err("the tokens written after a loss of the pages differ from those alone".to_owned());
    }
    for ((row, expected), position) in recorded.rows.iter().zip(&alone.logits).zip(first..) {
        let (index, of) = row.place;
        let place = format!("position {position}, row {index} of {of} that choose");
        if row.position != position {
            return Err(format!("{place}: the step is at position {}", row.position));
        }
        let differing: Vec<usize> = (0..expected.len()).filter(|&i| row.logits[i] != expected[i]).collect();
        if let Some(&first) = differing.first() {
            let [found, alone] = [row.logits[first], expected[first]];
            return Err(format!(
                "{place}: logit {first} is {} ({found:#010x}), alone {} ({alone:#010x}); {} of {} logits differ",
                f32::from_bits(found),
                f32::from_bits(alone),
                differing.len(),
                expected.len()
            ));
        }
    }
    Ok(())
}

/// Checks the logits and the tokens of all sequences of a schedule that ran.
fn check(
    seed: u64,
    schedule: &Schedule,
    recorded: &[Recorded],
    summaries: &[Summary],
    reference: &mut Reference<'_>,
    vocab: u32,
) -> Result<(), String> {
    let sequences = &schedule.sequences;
    for (order, recorded) in recorded.iter().enumerate() {
        let is_it = |sequence: &&Sequence| {
            recorded.prompt() == Some(&sequence.prompt(vocab)) && sequence.sampling() == recorded.sampling
        };
        let of: Vec<String> = (sequences.iter().enumerate())
            .filter(|(_, sequence)| is_it(sequence))
            .map(|(index, _)| format!("sequence {index}"))
            .collect();
        let of = if of.is_empty() { "a shifted sequence".to_owned() } else { of.join(" or ") };
        let mut compared = compare(recorded, reference);
        let shifts = sequences.iter().any(|sequence| sequence.keep.is_some());
        if !shifts && !recorded.rows.is_empty() && !sequences.iter().any(|sequence| is_it(&sequence)) {
            compared = Err("the first row that chooses is not that of the last prompt token".to_owned());
        }
        compared.map_err(|error| {
            let length = recorded.tokens.len();
            format!("seed {seed}, {of} (start {order}, {length} tokens): {error}\n{schedule:#?}")
        })?;
    }
    for (index, (sequence, summary)) in sequences.iter().zip(summaries).enumerate() {
        let alone = reference.of(&sequence.prompt(vocab), &sequence.sampling(), 0);
        let count =
            if summary.shifts == 0 { summary.tokens.len() } else { (CONTEXT + 1 - sequence.length) as usize };
        if summary.tokens.get(..count) != alone.tokens.get(..count) {
            return Err(format!(
                "seed {seed}, sequence {index}: the tokens differ from those of its logits\n{schedule:#?}"
            ));
        }
    }
    Ok(())
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Seed of a schedule that clears pages: a sequence with pages of a cancelled prompt is the next one.
const CLEARS_PAGES: u64 = 50;

fn seeds() -> Vec<u64> {
    match (setting("BESPOKE_SCHEDULES_SEED"), setting("BESPOKE_SCHEDULES")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (0..count).collect(),
        (None, None) => (0..SCHEDULES).chain([CLEARS_PAGES]).collect(),
    }
}

#[test]
fn logits_have_the_bits_of_the_sequence_alone() {
    let seeds = seeds();
    // Even seeds multiply integers, odd ones f16, each on a thread of their own.
    let (mut total, mut ended, mut sequences) = (Counts::default(), Ends::default(), 0);
    std::thread::scope(|scope| {
        let parts = [(0, Arithmetic::Integers), (1, Arithmetic::F16)].map(|(rest, arithmetic)| {
            let seeds: Vec<u64> = seeds.iter().copied().filter(|seed| seed % 2 == rest).collect();
            scope.spawn(move || run_all(&seeds, arithmetic))
        });
        for part in parts {
            let (counts, ends, count) = part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            total.add(&counts);
            ended.add_all(&ends);
            sequences += count;
        }
    });
    println!("{} schedules, {sequences} sequences: {total:?}, {ended:?}", seeds.len());
    if setting("BESPOKE_SCHEDULES_SEED").is_none() {
        assert!(total.rows > 300 && ended.usual_happened(), "{total:?}, {ended:?}");
        assert!(total.accepted > 0 && total.accepted < total.drafted, "{total:?}");
        assert!(total.decode_again > 0 && total.shared_prefill > 0 && total.cleared > 0, "{total:?}");
        // Steps of every size up to 8 rows.
        for rows in [1..=1, 2..=2, 3..=4, 5..=8] {
            assert!(total.decode_rows.range(rows.clone()).next().is_some(), "{rows:?}: {total:?}");
        }
        assert!(total.first_tokens.len() > 2, "{total:?}");
    }
}

/// Runs and checks schedules, and counts what happened in how many sequences. The first schedule runs under all checks of the
/// emulator, the others without optional ones.
fn run_all(seeds: &[u64], arithmetic: Arithmetic) -> (Counts, Ends, usize) {
    let mut one = load(1, 0, arithmetic, Checks::NONE);
    let mut reference = Reference::new(Slots::new(&mut one).unwrap());
    let (mut total, mut ended, mut sequences) = (Counts::default(), Ends::default(), 0);
    let (first, others) = seeds.split_at(seeds.len().min(1));
    for (seeds, checks) in [(first, Checks::ALL), (others, Checks::NONE)] {
        if seeds.is_empty() {
            continue;
        }
        let mut engine = load(SLOTS, DRAFTS, arithmetic, checks);
        for &seed in seeds {
            let schedule = Schedule::of(seed);
            let steps = Slots::new(&mut engine).unwrap();
            assert_eq!(steps.limits().pages, PAGES);
            let vocab = steps.limits().vocab;
            let (summaries, preemptions, recording) = run(&schedule, Recording::new(steps, &schedule));
            let checked = check(seed, &schedule, &recording.sequences, &summaries, &mut reference, vocab);
            checked.unwrap_or_else(|error| panic!("{error}"));
            sequences += summaries.len();
            summaries.iter().for_each(|summary| ended.add(summary));
            ended.preempted += preemptions;
            total.add(&recording.counts);
        }
    }
    (total, ended, sequences)
}

/// How sequences ended.
#[derive(Debug, Default)]
struct Ends {
    cancelled_in_prompt: usize,
    cancelled_later: usize,
    out_of_pages: usize,
    full: usize,
    /// Times that a sequence gave its pages to others and was processed again.
    preempted: u64,
    shifted: usize,
    /// Sequences that had pages of other sequences.
    reused: usize,
}

impl Ends {
    fn add(&mut self, summary: &Summary) {
        let cancelled = summary.reason == FinishReason::Cancelled;
        self.cancelled_in_prompt += usize::from(cancelled && summary.tokens.is_empty());
        self.cancelled_later += usize::from(cancelled && !summary.tokens.is_empty());
        self.out_of_pages += usize::from(summary.reason == FinishReason::OutOfPages);
        self.full += usize::from(summary.reason == FinishReason::ContextFull);
        self.shifted += usize::from(summary.shifts > 0);
        self.reused += usize::from(summary.reused > 0);
    }

    fn add_all(&mut self, other: &Ends) {
        self.cancelled_in_prompt += other.cancelled_in_prompt;
        self.cancelled_later += other.cancelled_later;
        self.out_of_pages += other.out_of_pages;
        self.full += other.full;
        self.preempted += other.preempted;
        self.shifted += other.shifted;
        self.reused += other.reused;
    }

    fn usual_happened(&self) -> bool {
        [self.cancelled_in_prompt, self.cancelled_later, self.full, self.shifted, self.reused]
            .iter()
            .all(|&count| count > 0)
    }
}

/// A page that is cleared while a sequence uses it changes logits: the comparison names the first one.
#[test]
fn a_lost_page_is_noticed() {
    let [mut one, mut engine] = [1, 2].map(|parallel| load(parallel, 0, Arithmetic::Integers, Checks::NONE));
    let mut reference = Reference::new(Slots::new(&mut one).unwrap());
    let sequence =
        Sequence { gap: 0, text: 1, length: 20, seed: 0, max_tokens: 4, keep: None, cancel: None, drafts: 0 };
    let schedule = Schedule {
        slots: vec![1, 0],
        pages: vec![4, 2, 3],
        chunk: 16,
        cuts: vec![5],
        sequences: vec![sequence],
    };
    let steps = Slots::new(&mut engine).unwrap();
    let vocab = steps.limits().vocab;
    let mut recording = Recording::new(steps, &schedule);
    recording.clear_after = Some(2);
    let (summaries, _, recording) = run(&schedule, recording);
    let error = check(7, &schedule, &recording.sequences, &summaries, &mut reference, vocab).unwrap_err();
    let start = "seed 7, sequence 0 (start 0, 20 tokens): position 22, row 0 of 1 that choose: logit 0 is ";
    assert!(error.starts_with(start), "{error}");
}
