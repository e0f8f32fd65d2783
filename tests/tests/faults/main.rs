//! Device calls of every command fail once: each failure is an error that says what failed, frees all memory of the request, and
//! leaves an engine whose next request has the right result. With `BESPOKE_FAULTS=all`, every call fails.

#[path = "../hooked/mod.rs"]
mod hooked;

mod device;
mod serve;

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bespoke::device::{Checks, Device, Selector, open_with};
use bespoke::engine::{
    Engine, EngineError, EngineOptions, SamplingParams, Slots, Variants, read_bandwidth, tensor_throughput,
};
use bespoke::generation::Request;
use bespoke::scheduler::{Event, Scheduler};
use bespoke::speculation::{DraftCounts, Speculation};
use bespoke_bench::{MeasuredStep, Subject, Workload, matrix_ceilings, measure, profile, timeline};
use bespoke_gguf::Gguf;
use bespoke_kernels::plan::Tuning;
use bespoke_kernels::shape::ModelShape;
use bespoke_perplexity::{Cut, Text, compare, perplexity, windows};
use bespoke_tune::{DeviceMeter, Effort, Meter};
use rayon::prelude::*;

use device::{Fault, Faults, Manner};
use hooked::{Hooked, Operation};

const CONTEXT: u32 = 8;
const PROMPT: [u32; 3] = [5, 17, 300];

fn gguf() -> Gguf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/llama-q8_0.gguf");
    Gguf::open(path).unwrap()
}

/// A model on a device whose calls can fail.
struct Model {
    subject: Subject<'static>,
    /// The same model on a device without faults, for comparisons.
    other: Option<Engine>,
    faults: Arc<Faults>,
    emulator: Arc<dyn Device>,
}

/// The emulator without the detection of races, which takes half of the time.
fn emulator() -> Arc<dyn Device> {
    let checks = Checks { races: false, ..Checks::ALL };
    open_with(Selector::Emulator, checks).unwrap().device.into()
}

fn free(device: &dyn Device) -> u64 {
    device.memory().unwrap().free
}

fn greedy() -> EngineOptions {
    let step_limit = Some(Duration::from_millis(20));
    EngineOptions { context: Some(CONTEXT), step_limit, prefill: false, ..EngineOptions::default() }
}

fn eager() -> EngineOptions {
    EngineOptions { eager: true, ..greedy() }
}

/// Two sequences at once.
fn pair() -> EngineOptions {
    EngineOptions { parallel: 2, prefill: true, ..greedy() }
}

fn sampled() -> EngineOptions {
    EngineOptions { sampling: sampling(7), ..greedy() }
}

fn sampling(seed: u64) -> SamplingParams {
    SamplingParams { temperature: 0.8, seed, logit_bias: vec![(9, 0.5)], ..SamplingParams::default() }
}

/// Loads the model on `emulator`, where `fault` strikes.
fn load(
    emulator: Arc<dyn Device>,
    options: &EngineOptions,
    fault: Option<Fault>,
) -> (Result<Engine, EngineError>, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.arm(fault);
    let gguf = gguf();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let device = Hooked::over(emulator, faults.clone());
    (Engine::load(Box::new(device), &gguf, &shape, options, &|_, _| ()), faults)
}

fn model(options: &EngineOptions) -> Model {
    let emulator = emulator();
    let (engine, faults) = load(emulator.clone(), options, None);
    let gguf: &'static Gguf = Box::leak(Box::new(gguf()));
    let (name, engine) = ("fixture".to_owned(), engine.unwrap());
    let subject = Subject { name, gguf, engine, ceiling: None, tensor_ceiling: None };
    Model { subject, other: None, faults, emulator }
}

/// Words that the message of every error caused by `fault` has.
fn expected(fault: Fault) -> Vec<String> {
    match (fault.operation, fault.manner) {
        (Operation::Alloc, Manner::Refused) => vec!["out of memory on a full device: `".to_owned()],
        (_, Manner::Hangs) => vec!["did not complete within 0 s: a kernel hangs".to_owned()],
        _ => vec![format!("injected failed while {:?} {}", fault.operation, fault.number)],
    }
}

#[test]
fn loading_fails_with_an_error_and_frees_its_memory() {
    for (name, options) in [("greedy", greedy()), ("eager", eager()), ("sampled", sampled())] {
        let emulator = emulator();
        let all = free(&*emulator);
        let (engine, faults) = load(emulator.clone(), &options, None);
        drop(engine.unwrap());
        assert_eq!(free(&*emulator), all, "{name}");
        let injected = Fault::chosen(&faults.counts());
        injected.par_iter().for_each(|&fault| {
            let emulator = self::emulator();
            let error = load(emulator.clone(), &options, Some(fault)).0.err();
            let error = error.unwrap_or_else(|| panic!("{name}, {fault:?}: the model was loaded"));
            let text = error.to_string();
            assert!(expected(fault).iter().all(|words| text.contains(words)), "{name}, {fault:?}: {text}");
            assert_eq!(free(&*emulator), all, "{name}, {fault:?}: memory is not freed");
        });
        println!("load, {name}: {} faults in {:?}", injected.len(), faults.counts());
    }
}

#[test]
fn a_failed_upload_names_the_buffer() {
    let fault = Fault { operation: Operation::Upload, number: 2, manner: Manner::Refused };
    let error = load(emulator(), &greedy(), Some(fault)).0.err().unwrap().to_string();
    assert!(error.starts_with("cannot upload `token_embd` ("), "{error}");
}

/// Result of a request as text, equal for equal results.
type Outcome = Result<String, Box<dyn Error>>;

/// A request to a loaded engine.
type Run = fn(&mut Model) -> Outcome;

/// The tokens of requests one after another, which share pages.
fn generated<const N: usize>(model: &mut Model, requests: [Request<'_>; N]) -> Outcome {
    let mut scheduler = Scheduler::new(Slots::new(&mut model.subject.engine)?, None);
    let mut text = String::new();
    for request in &requests {
        let summary = scheduler.generate(request, |event| {
            if let Event::Token { token, .. } = event {
                text += &format!("{token:?}");
            }
            ControlFlow::Continue(())
        })?;
        text += &format!("{:?} {}\n", summary.reason, summary.reused);
    }
    Ok(text)
}

fn decode(model: &mut Model) -> Outcome {
    generated(model, [Request { max_tokens: 5, ..Request::new(&PROMPT) }])
}

/// A turn, and the next one, which reuses its keys and values.
fn turns(model: &mut Model) -> Outcome {
    let next = [&PROMPT[..], &[40, 41, 42]].concat();
    let turn = |prompt| Request { max_tokens: 2, ..Request::new(prompt) };
    generated(model, [turn(&PROMPT), turn(&next)])
}

fn sample(model: &mut Model) -> Outcome {
    let request = |seed| Request { max_tokens: 4, sampling: sampling(seed), ..Request::new(&PROMPT) };
    generated(model, [request(1), request(2)])
}

fn logprobs(model: &mut Model) -> Outcome {
    generated(model, [Request { max_tokens: 3, logprobs: Some(2), ..Request::new(&PROMPT) }])
}

/// More tokens than the context has room for.
fn shift(model: &mut Model) -> Outcome {
    generated(model, [Request { max_tokens: 7, keep: Some(2), ..Request::new(&PROMPT) }])
}

fn logits(model: &mut Model) -> Outcome {
    model.subject.engine.start(&PROMPT)?;
    let mut sums = Vec::new();
    for _ in PROMPT {
        model.subject.engine.step()?;
        sums.push(model.subject.engine.logits()?.iter().map(|&logit| f64::from(logit)).sum::<f64>());
    }
    Ok(format!("{sums:?}"))
}

fn steps(model: &mut Model) -> Outcome {
    model.subject.engine.start(&PROMPT)?;
    for _ in 0..5 {
        model.subject.engine.step()?;
    }
    model.subject.engine.wait()?;
    Ok(format!("{}", model.subject.engine.token(5)?))
}

fn scored(model: &mut Model) -> Outcome {
    let tokens: Vec<u32> = (0..12).map(|i| 40 + i * 7 % 50).collect();
    let windows = windows(tokens.len(), Cut { context: 6, stride: None }, None)?;
    let text = Text { tokens: &tokens, windows: &windows, bos: None };
    let mut proceed = |_| std::ops::ControlFlow::Continue(());
    let other = model.other.get_or_insert_with(|| self::model(&greedy()).subject.engine);
    let compared = compare(&mut model.subject.engine, other, text, &mut proceed)?;
    let result = perplexity(&mut model.subject.engine, text, &mut proceed)?;
    assert_eq!(compared.divergence.mean.value, 0.0, "the models are equal");
    Ok(format!("{:?}", result.score))
}

fn bench(model: &mut Model) -> Outcome {
    let subject = &mut model.subject;
    measure(subject, 0, Workload { tokens: 2, repetitions: 1 }, &|_| ())?;
    Ok(String::new())
}

fn profiled(model: &mut Model) -> Outcome {
    let subject = &mut model.subject;
    let step = MeasuredStep::decode(&subject.engine, 1, 3)?;
    let launches = profile(subject, step)?.launches.len();
    assert_eq!(timeline(subject, step)?.launches.len(), launches);
    Ok(format!("{launches} launches, {} matrices", matrix_ceilings(subject)?.len()))
}

fn bandwidth(model: &mut Model) -> Outcome {
    read_bandwidth(model.subject.engine.device())?;
    tensor_throughput(model.subject.engine.device())?;
    Ok(String::new())
}

/// Three sequences, of which two run at the same time, so that prompts, decode steps of one row and of several, and waiting
/// sequences occur.
fn batch(model: &mut Model) -> Outcome {
    let mut scheduler = Scheduler::new(Slots::new(&mut model.subject.engine)?, None);
    let prompts: [&[u32]; 3] = [&PROMPT, &[40, 41], &[7, 8, 9, 10]];
    let mut ids = Vec::new();
    for (prompt, max_tokens) in prompts.into_iter().zip([5, 2, 3]) {
        ids.push(scheduler.add(&Request { max_tokens, ..Request::new(prompt) })?);
    }
    let mut answers = vec![Vec::new(); ids.len()];
    while !scheduler.is_idle() {
        for event in scheduler.step()? {
            if let Event::Finished { id, summary } = event {
                answers[ids.iter().position(|&other| other == id).unwrap()] = summary.tokens;
            }
        }
    }
    assert_eq!(scheduler.pages().used, 0);
    Ok(format!("{answers:?}"))
}

/// Options of an engine that verifies drafts.
fn verifying() -> EngineOptions {
    EngineOptions { drafts: 2, ..pair() }
}

/// Drafts of a draft model whose device fails.
fn drafted(model: &mut Model) -> Outcome {
    let mut target = match model.other.take() {
        Some(target) => target,
        None => load(emulator(), &verifying(), None).0?,
    };
    let outcome = speculate(&mut target, &mut model.subject.engine);
    model.other = Some(target);
    outcome
}

/// Steps that verify drafts of a draft model, on a device that fails.
fn verified(model: &mut Model) -> Outcome {
    let mut draft = match model.other.take() {
        Some(draft) => draft,
        None => load(emulator(), &pair(), None).0?,
    };
    let outcome = speculate(&mut model.subject.engine, &mut draft);
    model.other = Some(draft);
    outcome
}

fn speculate(target: &mut Engine, draft: &mut Engine) -> Outcome {
    let draft = Box::new(Slots::new(draft)?);
    let mut scheduler = Scheduler::new(Slots::new(target)?, None).with_draft_model(draft);
    let speculation = Speculation { most: 2, always: true, lookup: false };
    scheduler.add(&Request { max_tokens: 6, speculation, ..Request::new(&PROMPT) })?;
    let mut answer = Vec::new();
    while !scheduler.is_idle() {
        for event in scheduler.step()? {
            if let Event::Finished { summary, .. } = event {
                answer = summary.tokens;
            }
        }
    }
    assert_eq!(scheduler.pages().used, 0);
    // The draft model is the same one.
    assert_eq!(scheduler.step_counts().drafts.total(), DraftCounts { drafted: 3, accepted: 3 });
    Ok(format!("{answer:?}"))
}

/// Two variants of the plan, timed and compared as `tune` does.
fn tune(model: &mut Model) -> Outcome {
    let effort = Effort { depths: vec![3], replays: 2, turns: 1 };
    let mut meter = DeviceMeter::new(Variants::new(&mut model.subject.engine, 1)?, effort);
    let rules = "version = 1\n[[rule]]\nrole = \"attention\"\nmin_pages = 1\nsplits = 2\n";
    let [present, other] =
        [Tuning::default(), Tuning::parse(rules)?].map(|tuning| meter.plan(&tuning).expect("a plan"));
    assert!(meter.compare(&present, &other)?.is_some());
    let [before, after] = meter.logits(&present, &other, &PROMPT)?;
    Ok(format!("{} {}", before.len(), after.len()))
}

/// Fails every device call of a request in every manner.
fn check(name: &str, options: EngineOptions, run: Run) {
    let mut model = model(&options);
    // Steps of several rows are loaded when they are first needed.
    run(&mut model).unwrap();
    model.subject.engine.start_at_depth(0).unwrap();
    model.faults.arm(None);
    let outcome = run(&mut model).unwrap();
    let counts = model.faults.counts();
    let used = free(&*model.emulator);
    assert_eq!(run(&mut model).unwrap(), outcome, "{name}: the result changes without a fault");
    let injected = Fault::chosen(&counts);
    for &fault in &injected {
        // Each run begins from the same state, so that it makes the same device calls.
        model.faults.arm(None);
        model.subject.engine.start_at_depth(0).unwrap();
        model.faults.arm(Some(fault));
        let text = match run(&mut model) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{name}, {fault:?}: no error"),
        };
        assert!(expected(fault).iter().all(|words| text.contains(words)), "{name}, {fault:?}: {text}");
        assert_eq!(model.faults.abandoned(), fault.manner == Manner::Hangs, "{name}, {fault:?}");
        assert_eq!(free(&*model.emulator), used, "{name}, {fault:?}: memory is not freed");
        if model.faults.abandoned() {
            let text = run(&mut model).unwrap_err().to_string();
            assert!(text.contains("is not used any more"), "{name}, {fault:?}: {text}");
        }
        model.faults.arm(None);
        let next = run(&mut model);
        let next = next.unwrap_or_else(|error| panic!("{name}, after {fault:?}: {error}"));
        assert_eq!(next, outcome, "{name}, after {fault:?}");
    }
    println!("{name}: {} faults in {counts:?}", injected.len());
}

/// Defines a test for each kind of request.
macro_rules! cases {
    ($($test:ident $options:ident;)*) => {
        $(mod $test {
            #[test]
            fn survives_faults() {
                super::check(stringify!($test), super::$options(), super::$test);
            }
        })*
    };
}

cases! {
    decode greedy;
    turns greedy;
    sample sampled;
    logprobs greedy;
    shift greedy;
    logits greedy;
    steps eager;
    scored greedy;
    bench greedy;
    profiled greedy;
    bandwidth greedy;
    tune greedy;
    batch pair;
    drafted pair;
    verified verifying;
}

/// A batch that cannot load a step of several rows frees the memory, and the next one has the right result.
#[test]
fn loading_the_steps_of_a_batch_survives_faults() {
    let mut whole = model(&pair());
    whole.faults.arm(None);
    drop(Slots::loaded(&mut whole.subject.engine).unwrap());
    let counts = whole.faults.counts();
    assert!(counts[&Operation::Load] > 0 && counts[&Operation::Capture] > 0, "{counts:?}");
    let outcome = batch(&mut whole).unwrap();
    let mut injected = Fault::chosen(&counts);
    injected.retain(|fault| {
        let last = counts[&fault.operation] - 1;
        matches!(fault.operation, Operation::Load | Operation::Bind | Operation::Capture)
            && [0, last / 2, last].contains(&fault.number)
    });
    for fault in injected {
        let mut model = model(&pair());
        model.faults.arm(Some(fault));
        let text = Slots::loaded(&mut model.subject.engine).err().expect("an error").to_string();
        assert!(expected(fault).iter().all(|words| text.contains(words)), "{fault:?}: {text}");
        model.faults.arm(None);
        assert_eq!(batch(&mut model).unwrap(), outcome, "after {fault:?}");
    }
}

#[test]
fn steps_without_a_sequence_are_refused() {
    let mut engine = model(&greedy()).subject.engine;
    let refused = |engine: &mut Engine| {
        let error = engine.step().unwrap_err();
        assert!(matches!(error, EngineError::NotStarted), "{error}");
    };
    refused(&mut engine);
    engine.start(&PROMPT).unwrap();
    engine.step().unwrap();
    engine.launches();
    refused(&mut engine);
}

/// The upload of sampling parameters would wait for the step for ever.
#[test]
fn sampling_parameters_wait_for_a_hanging_step_up_to_the_limit() {
    let mut model = model(&sampled());
    let engine = &mut model.subject.engine;
    engine.start(&PROMPT).unwrap();
    model.faults.arm(Some(Fault { operation: Operation::Replay, number: 0, manner: Manner::Hangs }));
    engine.step().unwrap();
    let error = engine.set_sampling(&sampling(8)).unwrap_err().to_string();
    assert!(error.contains("did not complete within 0 s: a kernel hangs"), "{error}");
}

/// One step is in flight, so the scheduler waits for the time of one.
#[test]
fn a_scheduler_waits_for_one_step_up_to_the_limit_of_one() {
    let options = EngineOptions { step_limit: Some(Duration::from_secs(1)), ..greedy() };
    let mut model = model(&options);
    let mut scheduler = Scheduler::new(Slots::new(&mut model.subject.engine).unwrap(), None);
    scheduler.add(&Request { max_tokens: 1, ..Request::new(&PROMPT[..1]) }).unwrap();
    model.faults.arm(Some(Fault { operation: Operation::Replay, number: 0, manner: Manner::Hangs }));
    let error = scheduler.step().unwrap_err().to_string();
    assert!(error.contains("did not complete within 1 s: a kernel hangs"), "{error}");
}
