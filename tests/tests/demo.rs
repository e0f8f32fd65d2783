//! Accuracy of the demo model on the emulator: as before quantisation.

use std::ops::ControlFlow;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, Slots};
use bespoke::generation::{FinishReason, Request};
use bespoke::scheduler::Scheduler;
use bespoke::tokenizer::Tokenizer;
use bespoke_demo::{self as demo, Question};
use bespoke_kernels::shape::ModelShape;

/// Number of questions.
const QUESTIONS: usize = 200;
/// Correct answers of the float model (`demo/README.md`).
const FLOAT_RIGHT: usize = 198;

fn demo(checks: Checks) -> (Engine, Tokenizer) {
    let gguf = demo::model().unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let shape = ModelShape::from_gguf(&gguf, demo::NAME).unwrap();
    let device = open_with(Selector::Emulator, checks).unwrap().device;
    let options = EngineOptions { no_jit: true, prefill: false, ..EngineOptions::default() };
    (Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap(), tokenizer)
}

#[test]
fn two_hundred_held_out_questions() {
    // Two thousand steps without checks: this test is about the model's answers; other tests check the kernels.
    let questions = Question::held_out(4, QUESTIONS);
    let wrong_of = |questions: &[Question]| -> Vec<String> {
        let (mut engine, tokenizer) = demo(Checks::NONE);
        let wrong = questions.iter().filter_map(|question| {
            let said = demo::ask(&mut engine, &tokenizer, question).unwrap();
            (said != question.answer().to_string()).then(|| format!("{question} {said}"))
        });
        wrong.collect()
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let halves: Vec<_> =
            questions.chunks(QUESTIONS / 2).map(|half| scope.spawn(|| wrong_of(half))).collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    println!("{} of {QUESTIONS} wrong: {wrong:?}", wrong.len());
    // Within one percentage point.
    assert!(QUESTIONS - wrong.len() + QUESTIONS / 100 >= FLOAT_RIGHT, "wrong: {wrong:?}");
}

/// Completes `text` up to the end-of-text token.
fn completed(engine: &mut Engine, tokenizer: &Tokenizer, text: &str) -> String {
    let mut tokens = tokenizer.encode(text).unwrap();
    let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), None);
    let request = Request { stop_tokens: tokenizer.end_tokens(), ..Request::new(&tokens) };
    let summary = scheduler.generate(&request, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(summary.reason, FinishReason::StopToken, "the story ends");
    tokens.extend(summary.tokens.iter().filter(|&&token| !tokenizer.is_end(token)));
    tokenizer.decode(&tokens)
}

/// In a story verbs and pronouns agree with the subject, and the animals find what they wanted (`demo/data.py`).
#[test]
fn stories_are_consistent() {
    let (mut engine, tokenizer) = demo(Checks::ALL);
    for (start, verb, pronoun) in [
        ("The old fox", "lives", "It"),
        ("The curious mouse", "lives", "It"),
        ("The three young owls", "live", "They"),
        ("The two lazy geese", "live", "They"),
    ] {
        let story = completed(&mut engine, &tokenizer, start);
        println!("{story}");
        let sentences: Vec<&str> = story.strip_suffix('.').expect("a full stop").split(". ").collect();
        let [home, wish, find, end] = sentences[..] else { panic!("four sentences: {story}") };
        assert!(home.starts_with(&format!("{start} {verb} ")), "{home}");
        let s = if pronoun == "It" { "s" } else { "" };
        let thing = wish.strip_prefix(&format!("{pronoun} want{s} a ")).unwrap_or_else(|| panic!("{wish}"));
        let lower = pronoun.to_lowercase();
        assert!(find.contains(&format!(" {lower} find{s} the {thing} ")), "{find}");
        assert!(find.ends_with(&format!(" and bring{s} it home")), "{find}");
        assert!(
            end.starts_with(&format!("Now {lower} {} ", if s.is_empty() { "are" } else { "is" })),
            "{end}"
        );
    }
}
