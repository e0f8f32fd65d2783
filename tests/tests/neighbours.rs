//! Steps are batch-invariant: three of eight sequences have the same tokens and log-probabilities alone as beside the others, in
//! every conformance model and arithmetic. `runtime/tests/schedules` compares more schedules, of one model.

use std::fs;
use std::path::{Path, PathBuf};

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, Slots};
use bespoke::generation::{Request, Token};
use bespoke::scheduler::{Event, Scheduler};
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::shape::ModelShape;
use rayon::prelude::*;

const SEQUENCES: u32 = 8;
const CONTEXT: u32 = 32;
const TOKENS: u32 = 2;

/// Prompts of different lengths.
fn prompts(vocab: u32) -> Vec<Vec<u32>> {
    let prompt = |index: u32| (0..1 + 2 * index).map(|at| (7 + 31 * index + 17 * at) % vocab).collect();
    (0..SEQUENCES).map(prompt).collect()
}

/// Chosen tokens of each prompt with their log-probabilities as bits, if all prompts are added at the same time.
fn answers(engine: &mut Engine, prompts: &[Vec<u32>]) -> Vec<Vec<(u32, u64)>> {
    let mut scheduler = Scheduler::new(Slots::new(engine).unwrap(), None);
    let request = |prompt| Request { max_tokens: TOKENS, logprobs: Some(0), ..Request::new(prompt) };
    let ids: Vec<_> = prompts.iter().map(|prompt| scheduler.add(&request(prompt)).unwrap()).collect();
    let mut answers = vec![Vec::new(); ids.len()];
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Token { id, token: Token { id: chosen, logprobs, .. } } = event {
                let index = ids.iter().position(|&other| other == id).unwrap();
                answers[index].push((chosen, logprobs.unwrap().logprob.to_bits()));
            }
        }
    }
    answers
}

/// Describes the first prompt whose answer beside the others differs from that alone.
fn differing(path: &Path, arithmetic: Arithmetic) -> Option<String> {
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    let options =
        EngineOptions { context: Some(CONTEXT), parallel: SEQUENCES, arithmetic, ..EngineOptions::default() };
    let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    let prompts = prompts(shape.dimensions.vocab);
    let together = answers(&mut engine, &prompts);
    assert!(together.iter().all(|answer| answer.len() == TOKENS as usize));
    // Every third sequence: alone they take most of the time.
    prompts.iter().zip(together).step_by(3).find_map(|(prompt, together)| {
        let alone = answers(&mut engine, std::slice::from_ref(prompt)).remove(0);
        (alone != together).then(|| {
            format!(
                "{path:?}, {arithmetic}, a prompt of {}: {alone:?}, beside others {together:?}",
                prompt.len()
            )
        })
    })
}

#[test]
fn sequences_do_not_depend_on_their_neighbours() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let models: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "gguf")).collect();
    assert!(models.len() > 30, "{} models", models.len());
    let cases: Vec<_> = models.iter().flat_map(|path| Arithmetic::ALL.map(|it| (path, it))).collect();
    let failures: Vec<String> = cases.par_iter().filter_map(|(path, it)| differing(path, *it)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
