//! The bits of logits depend on the sequence alone: random schedules of steps on the emulator, compared with the sequence
//! alone in steps of one row.

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, StepRow, Steps};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 192;
const SLOTS: u32 = 5;

fn load(parallel: u32, prefill: bool) -> Engine {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), parallel, prefill, ..EngineOptions::default() };
    Engine::load(open(Selector::Emulator).unwrap().device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

/// Numbers below a bound, by a linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// A sequence of given tokens, and how many of them have been processed.
struct Sequence {
    tokens: Vec<u32>,
    done: u32,
}

/// Logits after every token of a sequence, as bits.
fn alone(engine: &mut Engine, tokens: &[u32]) -> Vec<Vec<u32>> {
    engine.start(tokens).unwrap();
    let mut logits = Vec::new();
    for _ in tokens {
        engine.step().unwrap();
        logits.push(engine.logits().unwrap().into_iter().map(f32::to_bits).collect());
    }
    logits
}

/// Rows of a random step: for a decode step one token each of random sequences; for a prefill step random chunks, the last
/// tokens of which choose, as far as the step has outputs.
fn random_rows(random: &mut Random, sequences: &[Sequence], decode: bool) -> Vec<StepRow> {
    let (mut chooses, mut others) = (Vec::new(), Vec::new());
    for (slot, sequence) in (0u32..).zip(sequences) {
        let (left, prompt) = (sequence.tokens.len() as u32 - sequence.done, sequence.tokens.len() as u32);
        if left == 0 || random.below(4) == 0 {
            continue;
        }
        let count = if decode { 1 } else { 1 + random.below(left.min(12)) };
        for position in sequence.done..sequence.done + count {
            let last = position + 1 == sequence.done + count;
            let row = StepRow { slot, position, prompt, chooses: last };
            (if last { &mut chooses } else { &mut others }).push(row);
        }
    }
    chooses.extend(others);
    chooses
}

#[test]
fn logits_have_the_bits_of_the_sequence_alone() {
    let (mut one, mut engine) = (load(1, false), load(SLOTS, true));
    let mut steps = Slots::new(&mut engine).unwrap();
    let (pages, vocab) = (steps.limits().pages, steps.limits().vocab);
    let (mut compared, mut kinds) = (0, [0; 2]);
    for seed in 0..3 {
        let mut random = Random(seed);
        // Lengths around the borders of tiles and pages.
        let lengths = [3, 17, 31, 66, 70];
        let mut sequences: Vec<Sequence> = lengths
            .map(|length| Sequence { tokens: (0..length).map(|_| random.below(vocab)).collect(), done: 0 })
            .into();
        let expected: Vec<_> = sequences.iter().map(|sequence| alone(&mut one, &sequence.tokens)).collect();
        // A random page of the pool for each page of each sequence.
        let mut free: Vec<u32> = (0..pages).collect();
        for (slot, sequence) in (0u32..).zip(&sequences) {
            steps.start(slot, &sequence.tokens, &SamplingParams::default()).unwrap();
            let count = (sequence.tokens.len() as u32).div_ceil(PAGE);
            let entry = |index| {
                let at = random.below(free.len() as u32) as usize;
                PageEntry { slot, index, page: free.swap_remove(at) }
            };
            steps.set_pages(&(0..count).map(entry).collect::<Vec<_>>()).unwrap();
        }
        while sequences.iter().any(|sequence| (sequence.done as usize) < sequence.tokens.len()) {
            let decode = random.below(2) == 0;
            let rows = random_rows(&mut random, &sequences, decode);
            if rows.is_empty() {
                continue;
            }
            kinds[usize::from(decode)] += 1;
            if decode { steps.decode(&rows) } else { steps.prefill(&rows) }.unwrap();
            for row in &rows {
                sequences[row.slot as usize].done = sequences[row.slot as usize].done.max(row.position + 1);
            }
            for (index, row) in (0u32..).zip(rows.iter().filter(|row| row.chooses)) {
                let found: Vec<u32> = steps.logits(index).unwrap().into_iter().map(f32::to_bits).collect();
                let expected = &expected[row.slot as usize][row.position as usize];
                assert!(found == *expected, "seed {seed}, {row:?} of {} rows, decode {decode}", rows.len());
                compared += 1;
            }
        }
    }
    assert!(compared > 100 && kinds.iter().all(|&count| count > 10), "{compared} rows, {kinds:?} steps");
}
