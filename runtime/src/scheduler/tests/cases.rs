//! One case for each rule, and for each kind of bad input.

use std::ops::ControlFlow;

use super::fake::{BAD, Fake, Toy, VOCAB, alone, alone_in};
use crate::engine::{EngineError, MAX_STEPS_AHEAD, SamplingParams};
use crate::generation::{FinishReason, Grammar, GrammarState, MissedPages, Next, Request, Summary};
use crate::scheduler::{Event, PAGE, Scheduler, SequenceId};

/// Four slots, sixteen pages, a context of 300 positions.
fn fake() -> Fake {
    Fake::new(4, 16, 300, &[16, 64])
}

fn scheduler(fake: Fake) -> Scheduler<'static, Fake> {
    Scheduler::new(fake, None)
}

fn prompt(base: u32, length: u32) -> Vec<u32> {
    (0..length).map(|i| (base + i) % 50).collect()
}

/// Adds a greedy request for `max_tokens` tokens.
fn add(scheduler: &mut Scheduler<'_, Fake>, prompt: &[u32], max_tokens: u32) -> SequenceId {
    scheduler.add(&Request { max_tokens, ..Request::new(prompt) }).unwrap()
}

/// Runs until nothing is left; the summaries by the order of the ends.
fn finish(scheduler: &mut Scheduler<'_, Fake>) -> Vec<(SequenceId, Summary)> {
    let mut summaries = Vec::new();
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Finished { id, summary } = event {
                summaries.push((id, summary));
            }
        }
    }
    summaries
}

#[test]
fn bad_requests_are_refused_and_others_go_on() {
    let mut scheduler = scheduler(Fake::new(4, 2, 300, &[16]).greedy_only());
    let neighbour = add(&mut scheduler, &prompt(0, 5), 9);
    let sampling = |change: fn(&mut SamplingParams)| {
        let mut params = SamplingParams::default();
        change(&mut params);
        params
    };
    let good = prompt(0, 3);
    let (long, longer) = (prompt(0, 301), prompt(0, 129));
    for (request, message) in [
        (Request::new(&[]), "the prompt is empty: give at least one token"),
        (Request::new(&[3, VOCAB]), "token 100 is not in the vocabulary of 100 tokens"),
        (Request::new(&long), "the context is full: 301 positions are needed and the cache holds 300"),
        (
            Request::new(&longer),
            "the prompt of 129 tokens needs 3 pages of the KV cache, and the cache has 2: shorten the prompt, or \
             give the cache more memory",
        ),
        (
            Request { keep: Some(300), ..Request::new(&good) },
            "cannot keep 300 tokens in a context of 300 positions: keep fewer",
        ),
        (
            Request { sampling: sampling(|params| params.top_p = 2.0), ..Request::new(&good) },
            "top-p is 2; 0 to 1 is needed",
        ),
        (
            Request { sampling: sampling(|params| params.temperature = 1.0), ..Request::new(&good) },
            "the model was loaded for greedy decoding; load it with a temperature above 0, a penalty or a logit \
             bias to sample",
        ),
    ] {
        assert_eq!(scheduler.add(&request).unwrap_err().to_string(), message);
    }
    let summaries = finish(&mut scheduler);
    assert_eq!(summaries.len(), 1);
    assert_eq!((summaries[0].0, &summaries[0].1.tokens), (neighbour, &alone(&prompt(0, 5), 0, 9)));
}

#[test]
fn more_sequences_than_slots_wait_in_the_order_of_arrival() {
    let mut scheduler = scheduler(fake().with_speed(1));
    let ids: Vec<SequenceId> = (0..10).map(|base| add(&mut scheduler, &prompt(base, 5), 6)).collect();
    assert_eq!((scheduler.waiting(), scheduler.running()), (10, 0));
    scheduler.step().unwrap();
    assert_eq!((scheduler.waiting(), scheduler.running()), (6, 4));
    let summaries = finish(&mut scheduler);
    assert_eq!(summaries.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    for (base, (_, summary)) in (0..).zip(&summaries) {
        assert_eq!(summary.tokens, alone(&prompt(base, 5), 0, 6));
        assert_eq!(summary.reason, FinishReason::MaxTokens);
    }
}

#[test]
fn prompts_are_packed_and_decode_steps_come_between_chunks() {
    let mut scheduler = scheduler(fake());
    // Three prompts of 16 tokens: a chunk of three groups of rows, which chooses the first token; then a step for another.
    for base in 0..3 {
        add(&mut scheduler, &prompt(base, 16), 2);
    }
    assert_eq!(finish(&mut scheduler).len(), 3);
    assert_eq!(scheduler.steps().steps, 2);
    // While a prompt of four chunks is processed, the other sequence decodes between them.
    let short = add(&mut scheduler, &prompt(7, 3), 20);
    scheduler.step().unwrap();
    let long = add(&mut scheduler, &prompt(9, 250), 1);
    let mut before = 0;
    loop {
        let events = scheduler.step().unwrap();
        let is = |id, event: &Event| matches!(event, Event::Token { id: of, .. } if *of == id);
        before += events.iter().filter(|event| is(short, event)).count();
        if events.iter().any(|event| is(long, event)) {
            break;
        }
    }
    assert_eq!(before, 4, "a decode step before each chunk");
    finish(&mut scheduler);
}

/// Sixteen slots, so that prompts share prefill steps.
fn many_slots() -> Scheduler<'static, Fake> {
    scheduler(Fake::new(16, 64, 300, &[16, 64]).with_decode_steps_of(16).with_speed(1))
}

#[test]
fn while_sequences_wait_prompts_share_prefill_steps() {
    let mut scheduler = many_slots();
    let prompts: Vec<Vec<u32>> = (0..80).map(|base| prompt(base, 5)).collect();
    for (i, prompt) in prompts.iter().enumerate() {
        add(&mut scheduler, prompt, 10 + (i as u32 * 7) % 40);
    }
    let mut summaries = finish(&mut scheduler);
    summaries.sort_by_key(|(id, _)| *id);
    for (prompt, (_, summary)) in prompts.iter().zip(&summaries) {
        assert_eq!(summary.tokens, alone(prompt, 0, summary.tokens.len()));
    }
    // Four steps for the first sixteen prompts: each prompt takes 16 rows of a step of 64. Later steps have two prompts on average,
    // or more.
    let steps = scheduler.step_counts().prefill_steps;
    assert!((4..=4 + 64 / 2).contains(&steps), "{steps} prefill steps");
}

#[test]
fn a_prompt_waits_for_others_for_a_bounded_number_of_steps() {
    let mut scheduler = many_slots();
    add(&mut scheduler, &prompt(0, 5), 6);
    for base in 1..16 {
        add(&mut scheduler, &prompt(base, 5), 150);
    }
    let next = add(&mut scheduler, &prompt(20, 5), 3);
    let last = add(&mut scheduler, &prompt(21, 5), 3);
    let (mut begun, mut first) = (None, None);
    while first.is_none() {
        begun = begun.or((scheduler.waiting() == 1).then(|| scheduler.step_counts().decode_steps));
        let is_first = |event: &Event| matches!(event, Event::Token { id, .. } if *id == next);
        if scheduler.step().unwrap().iter().any(is_first) {
            first = Some(scheduler.step_counts().decode_steps);
        }
    }
    let waited = first.unwrap() - begun.unwrap();
    // It misses a quarter of the tokens that the 15 others get in a step.
    assert!((4..=7).contains(&waited), "{waited} decode steps");
    // Nothing waits behind the last one.
    while scheduler.waiting() > 0 {
        scheduler.step().unwrap();
    }
    let begun = scheduler.step_counts().decode_steps;
    while !scheduler
        .step()
        .unwrap()
        .iter()
        .any(|event| matches!(event, Event::Token { id, .. } if *id == last))
    {}
    assert!(scheduler.step_counts().decode_steps - begun <= 10);
    finish(&mut scheduler);
}

#[test]
fn steps_run_ahead_unless_sequences_wait() {
    let mut alone = scheduler(fake().with_speed(1));
    add(&mut alone, &prompt(0, 3), 50);
    finish(&mut alone);
    assert_eq!(alone.steps().most_ahead, MAX_STEPS_AHEAD as usize);
    let mut busy = scheduler(fake().with_speed(1));
    for base in 0..40 {
        add(&mut busy, &prompt(base, 3), 10);
    }
    while busy.waiting() > 0 {
        assert!(busy.steps().most_ahead <= 2);
        busy.step().unwrap();
    }
    // On a device that completes a step inside the call, no step is enqueued too much.
    let mut synchronous = scheduler(fake());
    let id = add(&mut synchronous, &prompt(0, 3), 50);
    for _ in 0..5 {
        synchronous.step().unwrap();
    }
    assert_eq!(synchronous.steps().steps, 5);
    // The step of the prompt chooses a token, too.
    assert_eq!(synchronous.cancel(id).unwrap().tokens, super::fake::alone(&prompt(0, 3), 0, 5));
}

#[test]
fn the_next_turn_of_a_chat_reuses_the_prompt() {
    let mut scheduler = scheduler(fake());
    let first = prompt(0, 150);
    add(&mut scheduler, &first, 60);
    let summary = finish(&mut scheduler).remove(0).1;
    assert_eq!(summary.reused, 0);
    // Two pages of the prompt are full. The third one, with generated tokens behind the prompt's, is taken over; the prompt's last
    // token has the bits of a first-token step.
    let turn: Vec<u32> = [&first[..], &summary.tokens, &prompt(20, 10)].concat();
    add(&mut scheduler, &turn, 5);
    let summary = finish(&mut scheduler).remove(0).1;
    assert_eq!((summary.reused, summary.tokens), (149, alone(&turn, 0, 5)));
    // The last prompt token is processed again, and with it its page.
    add(&mut scheduler, &first[..128], 1);
    assert_eq!(finish(&mut scheduler)[0].1.reused, PAGE);
}

/// A page that is filled in part is used by one sequence; others process its tokens themselves.
#[test]
fn the_end_of_a_prompt_is_reused_up_to_the_first_other_token() {
    let mut scheduler = scheduler(fake().with_speed(3));
    let first = prompt(0, 100);
    add(&mut scheduler, &first, 3);
    finish(&mut scheduler);
    let other = [&first[..90], &prompt(5, 30)].concat();
    // Of the other's 55 tokens fewer than half are the first's, so that its page is left to it.
    for (tokens, reused) in [(&other, 90), (&first, 64), (&other, 119)] {
        add(&mut scheduler, tokens, 3);
        let summary = finish(&mut scheduler).remove(0).1;
        assert_eq!(
            (summary.reused, summary.tokens),
            (reused, alone(tokens, 0, 3)),
            "{} tokens",
            tokens.len()
        );
    }
    for tokens in [&first, &first] {
        add(&mut scheduler, tokens, 3);
    }
    let mut reused: Vec<u32> = finish(&mut scheduler).iter().map(|(_, summary)| summary.reused).collect();
    reused.sort_unstable();
    assert_eq!(reused, [64, 99]);
    // A prompt with few of the page's tokens leaves it, too.
    add(&mut scheduler, &[&first[..70], &prompt(5, 30)].concat(), 3);
    assert_eq!(finish(&mut scheduler)[0].1.reused, 64);
    add(&mut scheduler, &[&first[..], &prompt(20, 30)].concat(), 3);
    assert_eq!(finish(&mut scheduler)[0].1.reused, 99);
    assert_eq!(scheduler.pages().used, 0);
}

/// Another sequence continues, and its events come later.
#[test]
fn one_request_beside_another_has_its_own_events() {
    let mut scheduler = scheduler(fake().with_speed(2));
    let other = add(&mut scheduler, &prompt(7, 30), 4);
    let long = prompt(0, 200);
    let (mut progress, mut tokens) = (Vec::new(), Vec::new());
    let summary = scheduler.generate(&Request { max_tokens: 30, ..Request::new(&long) }, |event| {
        match event {
            Event::Prompt { processed, .. } => progress.push(*processed),
            Event::Token { token, .. } => tokens.push(token.id),
            Event::Finished { .. } | Event::Failed { .. } => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    });
    assert_eq!((&summary.unwrap().tokens, &tokens), (&tokens, &alone(&long, 0, 30)));
    assert_eq!(progress.last(), Some(&200));
    let mut of_other = 0;
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            assert_eq!(event.id(), other);
            of_other += u32::from(matches!(event, Event::Token { .. }));
        }
    }
    assert_eq!(of_other, 4);
}

/// On a device whose steps take a while, each chunk of a prompt is reported before the next one, and a break ends the prompt.
#[test]
fn a_prompt_alone_reports_each_chunk_and_can_be_cancelled() {
    let long = prompt(0, 250);
    for (stop_at, chunks) in [(u32::MAX, &[64, 128, 192, 250][..]), (128, &[64, 128])] {
        let mut scheduler = scheduler(fake().with_speed(1));
        let mut progress = Vec::new();
        let summary = scheduler.generate(&Request { max_tokens: 2, ..Request::new(&long) }, |event| {
            let Event::Prompt { processed, .. } = event else { return ControlFlow::Continue(()) };
            progress.push(*processed);
            if *processed < stop_at { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!(progress, chunks);
        let cancelled = stop_at < 250;
        assert_eq!(summary.unwrap().reason == FinishReason::Cancelled, cancelled);
        finish(&mut scheduler);
        assert_eq!(scheduler.pages().used, 0);
    }
}

#[test]
fn sequences_that_arrive_together_share_their_prefix() {
    let mut scheduler = scheduler(fake().with_speed(3));
    let prompts: Vec<Vec<u32>> = (0..4).map(|last| [prompt(0, 200), vec![90 + last]].concat()).collect();
    for prompt in &prompts {
        add(&mut scheduler, prompt, 3);
    }
    let mut summaries = finish(&mut scheduler);
    summaries.sort_by_key(|(id, _)| *id);
    let reused: Vec<u32> = summaries.iter().map(|(_, summary)| summary.reused).collect();
    assert_eq!(reused, [0, 192, 192, 192]);
    for (prompt, (_, summary)) in prompts.iter().zip(summaries) {
        assert_eq!(summary.tokens, alone(prompt, 0, 3));
    }
}

#[test]
fn a_sequence_alone_that_finds_no_page_ends_and_keeps_its_tokens() {
    // Two pages: 128 positions, and a token after the last one.
    let mut single = scheduler(Fake::new(4, 2, 300, &[16]).with_speed(1));
    add(&mut single, &prompt(0, 100), u32::MAX);
    let summary = finish(&mut single).remove(0).1;
    assert_eq!(summary.reason, FinishReason::OutOfPages);
    assert_eq!(summary.tokens, alone(&prompt(0, 100), 0, 29));
}

#[test]
fn of_sequences_that_find_no_page_the_youngest_is_processed_again_later() {
    for speed in [None, Some(1), Some(4)] {
        let fake = Fake::new(4, 3, 300, &[64]);
        let mut pair =
            scheduler(speed.map_or_else(|| Fake::new(4, 3, 300, &[64]), |speed| fake.with_speed(speed)));
        let older = add(&mut pair, &prompt(0, 60), 80);
        let younger = add(&mut pair, &prompt(5, 60), 80);
        let summaries = finish(&mut pair);
        let ends: Vec<_> = summaries.iter().map(|(id, it)| (*id, it.reason, it.reused)).collect();
        assert_eq!(ends, [(older, FinishReason::MaxTokens, 0), (younger, FinishReason::MaxTokens, 0)]);
        assert_eq!(summaries[0].1.tokens, alone(&prompt(0, 60), 0, 80));
        assert_eq!(summaries[1].1.tokens, alone(&prompt(5, 60), 0, 80));
        let counts = pair.step_counts();
        assert_eq!(counts.preemptions, 1);
        // 60 prompt tokens of each, and of one again. The five tokens that it had are processed again, too.
        assert_eq!((counts.prefill_rows, pair.pages().used), (3 * 60, 0));
    }
}

#[test]
fn steps_of_prompts_are_small_while_sequences_decode() {
    // Prefill steps of a prompt of 2,000 tokens, alone and beside a sequence that decodes, whose prompt of one token has none.
    for (neighbour, steps) in [(None, 1), (Some(200), 4)] {
        let mut scheduler = scheduler(Fake::new(4, 60, 2500, &[64, 512, 2048]));
        if let Some(max_tokens) = neighbour {
            add(&mut scheduler, &prompt(3, 1), max_tokens);
            scheduler.step().unwrap();
        }
        add(&mut scheduler, &prompt(0, 2000), 5);
        finish(&mut scheduler);
        assert_eq!(scheduler.step_counts().prefill_steps, steps, "{neighbour:?}");
    }
}

#[test]
fn a_grammar_that_lets_nothing_follow_ends_with_the_prompt() {
    let grammar = Toy { length: 0 };
    let mut scheduler = scheduler(fake());
    let neighbour = add(&mut scheduler, &prompt(0, 5), 9);
    let tokens = prompt(9, 70);
    let empty = scheduler.add(&Request { grammar: Some(&grammar), ..Request::new(&tokens) }).unwrap();
    let mut summaries = finish(&mut scheduler);
    summaries.sort_by_key(|(id, _)| *id);
    let found: Vec<_> = summaries.iter().map(|(id, it)| (*id, it.reason, it.tokens.len())).collect();
    assert_eq!(found, [(neighbour, FinishReason::MaxTokens, 9), (empty, FinishReason::Complete, 0)]);
    assert_eq!(scheduler.pages().used, 0);
}

#[test]
fn a_grammar_decides_among_tokens_and_certain_tokens_do_not_wait() {
    let grammar = Toy { length: 40 };
    for (neighbours, logprobs) in [(0, None), (3, None), (0, Some(1))] {
        let mut scheduler = scheduler(fake().with_speed(2));
        for base in 0..neighbours {
            add(&mut scheduler, &prompt(base, 30), 60);
        }
        let tokens = prompt(9, 70);
        let request = Request { grammar: Some(&grammar), logprobs, ..Request::new(&tokens) };
        let id = scheduler.add(&request).unwrap();
        let summaries = finish(&mut scheduler);
        let summary = &summaries.iter().find(|it| it.0 == id).unwrap().1;
        assert_eq!(summary.tokens, alone_in(&grammar, &tokens, 0, 99));
        assert_eq!(summary.reason, FinishReason::Complete);
        assert!(summary.tokens.len() >= 40 && scheduler.steps().given >= 3);
        assert!(logprobs.is_some() || scheduler.steps().most_ahead > 1);
    }
    // The limit may come within certain tokens.
    let most = 1 + alone_in(&grammar, &[1, 2], 0, 40).iter().position(|&token| token == 11).unwrap() as u32;
    let mut scheduler = scheduler(fake());
    let request = Request { grammar: Some(&grammar), max_tokens: most, ..Request::new(&[1, 2]) };
    scheduler.add(&request).unwrap();
    let summary = finish(&mut scheduler).remove(0).1;
    assert_eq!(summary.reason, FinishReason::MaxTokens);
    assert_eq!(summary.tokens, alone_in(&grammar, &[1, 2], 0, most as usize));
}

/// A grammar that allows a token, and fails then.
struct Broken;

impl Grammar for Broken {
    fn start(&self) -> Box<dyn GrammarState> {
        Box::new(Broken)
    }
}

impl GrammarState for Broken {
    fn next(&mut self) -> Result<Next, String> {
        Ok(Next::Any(vec![1 << 5]))
    }
    fn accept(&mut self, token: u32) -> Result<(), String> {
        Err(format!("it does not like {token}"))
    }
    fn is_complete(&self) -> bool {
        false
    }
}

#[test]
fn a_grammar_that_fails_ends_one_sequence() {
    let mut scheduler = scheduler(fake());
    let good = add(&mut scheduler, &prompt(0, 10), 10);
    let bad = scheduler.add(&Request { grammar: Some(&Broken), ..Request::new(&[1, 2]) }).unwrap();
    let mut ends = Vec::new();
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            match event {
                Event::Failed { id, error } => ends.push((id, error.to_string())),
                Event::Finished { id, summary } => ends.push((id, format!("{:?}", summary.reason))),
                Event::Prompt { .. } | Event::Token { .. } => {}
            }
        }
    }
    let message = "the grammar failed: it does not like 5".to_owned();
    assert_eq!(ends, [(bad, message), (good, "MaxTokens".to_owned())]);
    let error = Scheduler::new(fake().greedy_only(), None)
        .add(&Request { grammar: Some(&Broken), ..Request::new(&[1]) })
        .unwrap_err();
    assert!(matches!(error, EngineError::OnlyGreedy), "{error}");
}

#[test]
fn missed_pages_have_a_reason() {
    // Six pages, of which a prompt of 200 tokens fills three.
    let mut scheduler = scheduler(Fake::new(1, 6, 300, &[64]));
    let missed = |scheduler: &mut Scheduler<'_, Fake>, tokens: &[u32]| {
        add(scheduler, tokens, 60);
        let summary = finish(scheduler).remove(0).1;
        (summary.missed, summary.reused, summary.tokens)
    };
    let pages = |new, evicted, generated| MissedPages { new, evicted, generated };
    let first = prompt(0, 200);
    let (reasons, reused, answer) = missed(&mut scheduler, &first);
    assert_eq!((reasons, reused), (pages(3, 0, 0), 0));
    // The next turn: the fourth page has the end of the prompt, which is reused, and the answer.
    let turn: Vec<u32> = [&first[..], &answer, &prompt(20, 20)].concat();
    let (reasons, reused, _) = missed(&mut scheduler, &turn);
    assert_eq!((reasons, reused), (pages(0, 0, 1), 199));
    // Another text takes all pages but one.
    assert_eq!(missed(&mut scheduler, &prompt(31, 240)).0, pages(3, 0, 0));
    let (reasons, reused, _) = missed(&mut scheduler, &first);
    assert_eq!(reasons.new + reasons.generated, 0);
    assert_eq!(reasons.evicted, 3 - reused / PAGE);
    assert!(reasons.evicted > 0);
}

#[test]
fn a_sequence_waits_for_pages_that_others_will_release() {
    let mut scheduler = scheduler(Fake::new(4, 4, 300, &[64]));
    let first = add(&mut scheduler, &prompt(0, 190), 2);
    let second = add(&mut scheduler, &prompt(9, 190), 2);
    scheduler.step().unwrap();
    assert_eq!((scheduler.waiting(), scheduler.running()), (1, 1));
    let ids: Vec<SequenceId> = finish(&mut scheduler).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [first, second]);
    assert_eq!(scheduler.pages().used, 0);
}

#[test]
fn a_cancelled_sequence_gives_its_pages_back_at_every_stage() {
    for calls in 0..12 {
        let mut scheduler = scheduler(Fake::new(1, 4, 300, &[16]).with_speed(1));
        let cancelled = add(&mut scheduler, &prompt(0, 100), 100);
        let waiting = add(&mut scheduler, &prompt(1, 10), 5);
        let next = add(&mut scheduler, &prompt(2, 10), 5);
        let mut tokens = Vec::new();
        for _ in 0..calls {
            for event in scheduler.step().unwrap() {
                if let Event::Token { id, token } = event {
                    assert_eq!(id, cancelled);
                    tokens.push(token.id);
                }
            }
        }
        let summary = scheduler.cancel(cancelled).unwrap();
        assert_eq!((summary.reason, &summary.tokens), (FinishReason::Cancelled, &tokens));
        assert!(scheduler.cancel(cancelled).is_none());
        assert!(scheduler.cancel(waiting).unwrap().tokens.is_empty());
        let summaries = finish(&mut scheduler);
        assert_eq!(summaries.len(), 1);
        assert_eq!((summaries[0].0, &summaries[0].1.tokens), (next, &alone(&prompt(2, 10), 0, 5)));
        assert_eq!(scheduler.pages().used, 0);
    }
}

#[test]
fn logits_that_are_not_finite_end_one_sequence() {
    let mut scheduler = scheduler(fake().with_speed(1));
    let bad = add(&mut scheduler, &[1, 2, BAD, 4], 10);
    let good = add(&mut scheduler, &prompt(0, 10), 10);
    let (mut failed, mut finished) = (Vec::new(), Vec::new());
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            match event {
                Event::Failed { id, error } => failed.push((id, error)),
                Event::Finished { id, summary } => finished.push((id, summary.tokens)),
                Event::Prompt { .. } | Event::Token { .. } => {}
            }
        }
    }
    assert_eq!(finished, [(good, alone(&prompt(0, 10), 0, 10))]);
    assert!(matches!(&failed[..], [(id, EngineError::NonFinite(_))] if *id == bad), "{failed:?}");
    assert_eq!(scheduler.steps().cleared, 1, "its page is cleared");
}

#[test]
fn a_failure_of_the_device_ends_all_sequences_and_the_next_call_recovers() {
    for polls in [0, 3, 20] {
        let mut scheduler = scheduler(fake().with_speed(1));
        scheduler.steps().polls_left.set(Some(polls));
        for base in 0..6 {
            add(&mut scheduler, &prompt(base, 30), 30);
        }
        let error = loop {
            match scheduler.step() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "the kernel faulted");
        assert!(scheduler.is_idle());
        let next = prompt(3, 70);
        add(&mut scheduler, &next, 5);
        assert_eq!(finish(&mut scheduler)[0].1.tokens, alone(&next, 0, 5));
        assert_eq!(scheduler.steps().resets, 1);
    }
}

#[test]
fn log_probabilities_are_those_of_the_token() {
    let mut scheduler = scheduler(fake().with_speed(1));
    let tokens = prompt(0, 30);
    add(&mut scheduler, &prompt(4, 3), 9);
    let id = scheduler.add(&Request { max_tokens: 5, logprobs: Some(1), ..Request::new(&tokens) }).unwrap();
    let mut count = 0;
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Token { id: of, token } = event {
                assert_eq!(token.logprobs.is_some(), of == id);
                if let Some(logprobs) = token.logprobs {
                    assert_eq!(logprobs.top, [(token.id, logprobs.logprob)]);
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 5);
}

#[test]
fn a_full_context_keeps_its_first_tokens_and_goes_on() {
    let mut scheduler = scheduler(fake().with_speed(3));
    let tokens = prompt(0, 280);
    scheduler.add(&Request { max_tokens: 100, keep: Some(70), ..Request::new(&tokens) }).unwrap();
    let summary = finish(&mut scheduler).remove(0).1;
    assert_eq!((summary.reason, summary.shifts, summary.tokens.len()), (FinishReason::MaxTokens, 1, 100));
    // The context is full after 21 tokens; 70 and the newer half of the other 231 stay.
    let first = alone(&tokens, 0, 21);
    let sequence = [&tokens[..], &first].concat();
    let kept = [&sequence[..70], &sequence[70 + 231 / 2..]].concat();
    assert_eq!(summary.tokens, [first, alone(&kept, 0, 79)].concat());
    assert_eq!(summary.context_used as usize, kept.len() + 79);
    // The page that the shift reused is none of the prompt's.
    assert_eq!(summary.reused, 0);
}

#[test]
fn an_engine_serves_one_scheduler_after_another() {
    let mut fake = fake().with_speed(1);
    for base in 0..2 {
        let tokens = prompt(base, 70);
        let mut scheduler = Scheduler::new(fake, None);
        let request = |logprobs| Request { max_tokens: 9, logprobs, ..Request::new(&tokens) };
        let ids = [None, Some(1)].map(|logprobs| scheduler.add(&request(logprobs)).unwrap());
        let mut lengths = Vec::new();
        while !scheduler.is_idle() {
            for event in scheduler.step().unwrap() {
                if let Event::Finished { id, summary } = event {
                    assert!(ids.contains(&id) && summary.tokens == alone(&tokens, 0, 9));
                    lengths.push(summary.tokens.len());
                }
            }
        }
        assert_eq!(lengths, [9, 9]);
        fake = scheduler.into_steps();
    }
}
