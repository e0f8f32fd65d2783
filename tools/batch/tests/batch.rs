//! Batches over an engine whose model counts: the token after t is t + 1, modulo the vocabulary.

use std::ops::ControlFlow;
use std::time::Duration;

use bespoke::engine::{EngineError, NonFiniteLogits, SamplingParams};
use bespoke::scheduler::{Draft, Limits, PageEntry, Scheduler, StepRow, Steps};
use bespoke_batch::{Defaults, Failure, Job, Kept, Record, parse, run};

const VOCAB: u32 = 50;
/// Token whose logits are not finite.
const BAD: u32 = 49;

struct Counting {
    limits: Limits,
    tokens: Vec<Vec<u32>>,
    last: Vec<StepRow>,
    /// Largest number of rows of a decode step.
    most_rows: usize,
}

fn counting(slots: u32) -> Counting {
    let limits = Limits {
        slots,
        pages: 16,
        context: 100,
        vocab: VOCAB,
        sampling: false,
        decode: vec![1, 4],
        verify: Vec::new(),
        prefill: vec![16],
    };
    Counting { limits, tokens: vec![Vec::new(); slots as usize], last: Vec::new(), most_rows: 0 }
}

impl Steps for Counting {
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn start(&mut self, slot: u32, tokens: &[u32], _: &SamplingParams) -> Result<(), EngineError> {
        self.tokens[slot as usize] = tokens.to_vec();
        Ok(())
    }
    fn set_pages(&mut self, _: &[PageEntry]) -> Result<(), EngineError> {
        Ok(())
    }
    fn give_tokens(&mut self, _: u32, _: u32, _: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }
    fn discard(&mut self, slot: u32, _: u32, _: u32) -> Result<(), EngineError> {
        panic!("slot {slot} has no drafts")
    }
    fn set_masks(&mut self, _: &[(u32, Vec<u32>)]) -> Result<(), EngineError> {
        Ok(())
    }
    fn clear_pages(&mut self, _: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }
    fn prefill(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        for row in rows.iter().filter(|row| row.chooses && row.position + 1 >= row.given) {
            let tokens = &mut self.tokens[row.slot as usize];
            let next = (tokens[row.position as usize] + 1) % VOCAB;
            tokens.push(next);
        }
        self.last = rows.to_vec();
        Ok(())
    }
    fn decode(&mut self, rows: &[StepRow]) -> Result<(), EngineError> {
        self.most_rows = self.most_rows.max(rows.len());
        self.prefill(rows)
    }
    fn verify(&mut self, rows: &[StepRow], _: &[Draft]) -> Result<(), EngineError> {
        panic!("there are no verify steps: {rows:?}")
    }
    fn decode_again(&mut self) -> Result<(), EngineError> {
        let rows: Vec<StepRow> =
            self.last.iter().map(|row| StepRow { position: row.position + 1, ..*row }).collect();
        self.decode(&rows)
    }
    fn token(&self, slot: u32, position: u32) -> Result<Option<u32>, EngineError> {
        match self.tokens[slot as usize].get(position as usize) {
            Some(&BAD) => Err(NonFiniteLogits { position: position - 1, first: None }.into()),
            token => Ok(token.copied()),
        }
    }
    fn logits(&mut self, _: u32) -> Result<Vec<f32>, EngineError> {
        Ok(vec![0.0; VOCAB as usize])
    }
    fn busy(&self, _: Duration, _: u32) -> Result<bool, EngineError> {
        Ok(false)
    }
    fn reset(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

fn jobs(lines: &[&str], ends: &[u32]) -> Vec<Job> {
    let sampling = SamplingParams::default();
    let defaults = Defaults { max_tokens: Some(4), ignore_eos: false, stop: Vec::new(), sampling };
    let job = |line: &&str| {
        let parsed = parse(line).unwrap();
        let bespoke_batch::Prompt::Tokens(tokens) = parsed.prompt() else { panic!("{line}") };
        let tokens = tokens.to_vec();
        parsed.job(tokens, ends, &defaults).unwrap().with_fingerprint("counting", line)
    };
    lines.iter().map(job).collect()
}

const LINES: [&str; 5] = [
    r#"{"tokens": [10, 11], "n": 9, "id": "long"}"#,
    r#"{"tokens": [20]}"#,
    r#"{"tokens": [30], "n": 8, "id": 7}"#,
    r#"{"tokens": [46], "n": 8}"#,
    r#"{"tokens": [30], "n": 2, "ignore_eos": true}"#,
];

/// Runs until `most` records are there; returns the lines that they make, and whether all jobs ended.
fn run_some(jobs: &[Job], kept: &mut Kept, parallel: u32, most: usize) -> (Vec<String>, bool) {
    let mut scheduler = Scheduler::new(counting(parallel), None);
    let indices = kept.missing();
    let count = std::cell::Cell::new(0);
    let mut lines = Vec::new();
    let mut done = |record: Record| -> Result<(), std::convert::Infallible> {
        count.set(count.get() + 1);
        lines.push(kept.add(&record, &jobs[record.index]).unwrap());
        Ok(())
    };
    let mut progress =
        |_| if count.get() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let all =
        run(&mut scheduler, jobs, &indices, parallel as usize, false, &mut progress, &mut done).unwrap();
    assert_eq!(scheduler.steps().most_rows, parallel.min(3) as usize);
    (lines, all)
}

/// The output without timings.
fn output(kept: &Kept) -> Vec<serde_json::Value> {
    let value = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["timings"]["total_seconds"].as_f64().unwrap() >= 0.0);
        value.as_object_mut().unwrap().remove("timings");
        value
    };
    kept.lines().lines().map(value).collect()
}

#[test]
fn the_output_is_in_the_order_of_the_input() {
    let jobs = jobs(&LINES, &[33]);
    let mut kept = Kept::default();
    assert!(kept.is_empty());
    for parallel in [1, 3] {
        kept = Kept::read(&[], &jobs).unwrap();
        assert!(run_some(&jobs, &mut kept, parallel, usize::MAX).1);
        let expected = [
            r#"{"index": 0, "id": "long", "tokens": [12, 13, 14, 15, 16, 17, 18, 19, 20], "text": null,
                "finish_reason": "max_tokens", "prompt_tokens": 2}"#,
            r#"{"index": 1, "id": null, "tokens": [21, 22, 23, 24], "text": null, "finish_reason": "max_tokens",
                "prompt_tokens": 1}"#,
            r#"{"index": 2, "id": 7, "tokens": [31, 32, 33], "text": null, "finish_reason": "stop_token",
                "prompt_tokens": 1}"#,
            r#"{"index": 3, "id": null, "tokens": [], "text": null, "finish_reason": "error",
                "error": "ERROR", "prompt_tokens": 1}"#,
            r#"{"index": 4, "id": null, "tokens": [31, 32], "text": null, "finish_reason": "max_tokens",
                "prompt_tokens": 1}"#,
        ];
        let mut lines = output(&kept);
        let error = lines[3]["error"].as_str().unwrap().to_owned();
        assert!(error.contains("not finite") || error.contains("NaN"), "{error}");
        lines[3]["error"] = "ERROR".into();
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(*line, serde_json::from_str::<serde_json::Value>(expected).unwrap());
        }
    }
}

#[test]
fn an_interrupted_batch_is_continued() {
    let jobs = jobs(&LINES, &[33]);
    let mut whole = Kept::read(&[], &jobs).unwrap();
    run_some(&jobs, &mut whole, 3, usize::MAX);
    let mut first = Kept::read(&[], &jobs).unwrap();
    let (lines, all) = run_some(&jobs, &mut first, 3, 2);
    assert!(!all && lines.len() >= 2 && lines.len() < 5);
    let mut second = Kept::read(&lines, &jobs).unwrap();
    assert_eq!((second.len(), second.missing().len()), (lines.len(), 5 - lines.len()));
    let (rest, all) = {
        let indices = second.missing().len() as u32;
        run_some(&jobs, &mut second, indices.min(3), usize::MAX)
    };
    assert!(all && rest.len() + lines.len() == 5 && second.missing().is_empty());
    assert_eq!(output(&second), output(&whole));
}

#[test]
fn records_of_another_input_are_refused() {
    let jobs = jobs(&LINES, &[33]);
    let mut kept = Kept::read(&[], &jobs).unwrap();
    let (lines, _) = run_some(&jobs, &mut kept, 3, usize::MAX);
    let others = &jobs[..2];
    let error = Kept::read(&lines, others).unwrap_err().to_string();
    assert!(error.ends_with("is a record of another input, model or options"), "{error}");
    for bad in ["", "abc 1", "abc x {}", &lines[0][..lines[0].len() - 1]] {
        let error = Kept::read(&[lines[0].clone(), bad.to_owned()], &jobs).unwrap_err().to_string();
        assert_eq!(error, "line 2 is no record of a batch", "{bad}");
    }
}

#[test]
fn a_job_that_the_engine_refuses_is_named_before_anything_runs() {
    let jobs = jobs(&[r#"{"tokens": [1]}"#, r#"{"tokens": [1], "temperature": 1}"#], &[]);
    let mut scheduler = Scheduler::new(counting(2), None);
    let mut done = |_| -> Result<(), ()> { panic!("nothing runs") };
    let failure =
        run(&mut scheduler, &jobs, &[0, 1], 2, false, &mut |_| ControlFlow::Continue(()), &mut done)
            .unwrap_err();
    assert!(matches!(failure, Failure::Refused { index: 1, error: EngineError::OnlyGreedy }), "{failure:?}");
}

/// Two answers need a second page each, and no page is left: the younger one gives its page away and goes on later.
#[test]
fn an_answer_that_finds_no_page_goes_on_after_the_other() {
    let prompt = vec!["5"; 60].join(",");
    let line = format!("{{\"tokens\": [{prompt}], \"n\": 20}}");
    let jobs = jobs(&[&line, &line.replace('5', "7")], &[]);
    let mut steps = counting(2);
    steps.limits.pages = 2;
    let mut kept = Kept::read(&[], &jobs).unwrap();
    let mut done = |record: Record| kept.add(&record, &jobs[record.index]).map(drop);
    let mut progress = |_| ControlFlow::Continue(());
    let mut scheduler = Scheduler::new(steps, None);
    assert!(run(&mut scheduler, &jobs, &[0, 1], 2, false, &mut progress, &mut done).unwrap());
    let lines = output(&kept);
    let reasons = [0, 1].map(|index| lines[index]["finish_reason"].as_str().unwrap());
    assert_eq!(reasons, ["max_tokens", "max_tokens"]);
    assert_eq!(scheduler.step_counts().preemptions, 1);
    let tokens = |index: usize| lines[index]["tokens"].as_array().unwrap().len();
    assert_eq!((tokens(0), tokens(1)), (20, 20));
    assert_eq!((&lines[0]["tokens"][0], &lines[1]["tokens"][19]), (&6.into(), &27.into()));
}
