//! The bits of logits depend on the sequence alone: random schedules of steps on the emulator, compared with the sequence
//! alone. The optional checks of the emulator are off; `schedules` runs the same kernels with all of them.

use std::num::NonZeroU32;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::{PAGE, PageEntry, StepRow, Steps};
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::shape::ModelShape;

const CONTEXT: u32 = 192;
const SLOTS: u32 = 5;

fn load(parallel: u32) -> Engine {
    load_for(parallel, None, Arithmetic::Integers)
}

fn load_for(parallel: u32, multiprocessors: Option<NonZeroU32>, arithmetic: Arithmetic) -> Engine {
    let gguf = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "demo").unwrap();
    let options = EngineOptions { context: Some(CONTEXT), parallel, ..EngineOptions::default() };
    let options = EngineOptions { multiprocessors, arithmetic, ..options };
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
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
    /// Number of first tokens that prefill steps process, and a first-token step after the last of them; decode steps process
    /// the others.
    prefilled: u32,
    done: u32,
}

impl Sequence {
    fn is_done(&self) -> bool {
        self.done as usize == self.tokens.len()
    }

    /// Position of the first row that chooses.
    fn first_choice(&self) -> u32 {
        self.prefilled.saturating_sub(1)
    }

    fn row(&self, slot: u32, position: u32) -> StepRow {
        StepRow { slot, position, given: self.tokens.len() as u32, chooses: position >= self.first_choice() }
    }
}

/// Rows of a prefill step of a sequence alone.
const CHUNK: usize = 24;

/// Logits after every row of a sequence that chooses, as bits: the sequence alone.
fn alone(steps: &mut Slots<'_>, sequence: &Sequence) -> Vec<Vec<u32>> {
    last_of(1, steps, sequence)
}

/// Logits after every row that chooses of `count` equal sequences, as bits: those of the last one, whose first-token steps have
/// one row.
fn last_of(count: u32, steps: &mut Slots<'_>, sequence: &Sequence) -> Vec<Vec<u32>> {
    let length = sequence.tokens.len() as u32;
    let pages = length.div_ceil(PAGE);
    for slot in 0..count {
        steps.start(slot, &sequence.tokens, &SamplingParams::default()).unwrap();
        let entries = (0..pages).map(|index| PageEntry { slot, index, page: slot * pages + index });
        steps.set_pages(&entries.collect::<Vec<_>>()).unwrap();
        let prompt: Vec<StepRow> =
            (0..sequence.prefilled).map(|position| sequence.row(slot, position)).collect();
        prompt.chunks(CHUNK).for_each(|rows| steps.prefill(rows).unwrap());
    }
    let bits = |logits: Vec<f32>| logits.into_iter().map(f32::to_bits).collect();
    let first = (sequence.prefilled > 0).then(|| bits(steps.logits(0).unwrap()));
    let decode = |position| {
        steps.decode(&(0..count).map(|slot| sequence.row(slot, position)).collect::<Vec<_>>()).unwrap();
        bits(steps.logits(count - 1).unwrap())
    };
    first.into_iter().chain((sequence.prefilled..length).map(decode)).collect()
}

/// Rows of a random step: for a decode step the next token of random sequences, for a prefill step random chunks.
fn random_rows(random: &mut Random, sequences: &[Sequence], decode: bool) -> Vec<StepRow> {
    let mut rows = Vec::new();
    for (slot, sequence) in (0u32..).zip(sequences) {
        let end = if decode { sequence.tokens.len() as u32 } else { sequence.prefilled };
        let left = end.saturating_sub(sequence.done);
        if left == 0 || decode != (sequence.done >= sequence.prefilled) || random.below(4) == 0 {
            continue;
        }
        let count = if decode { 1 } else { 1 + random.below(left) };
        rows.extend((sequence.done..sequence.done + count).map(|position| sequence.row(slot, position)));
    }
    rows
}

#[test]
fn logits_have_the_bits_of_the_sequence_alone() {
    let (mut one, mut engine) = (load(1), load(SLOTS));
    let (mut one, mut steps) = (Slots::new(&mut one).unwrap(), Slots::new(&mut engine).unwrap());
    let (pages, vocab) = (steps.limits().pages, steps.limits().vocab);
    let (mut compared, mut kinds) = (0, [0; 2]);
    for seed in 0..3 {
        let mut random = Random(seed);
        // Lengths around the borders of tiles, pages and blocks of tokens.
        let lengths = [(3, 0), (17, 9), (72, 64), (75, 65), (140, 131)];
        let mut sequences: Vec<Sequence> = lengths
            .map(|(length, prefilled)| {
                let tokens = (0..length).map(|_| random.below(vocab)).collect();
                Sequence { tokens, prefilled, done: 0 }
            })
            .into();
        let expected: Vec<_> = sequences.iter().map(|sequence| alone(&mut one, sequence)).collect();
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
        while !sequences.iter().all(Sequence::is_done) {
            let decode = random.below(2) == 0;
            let rows = random_rows(&mut random, &sequences, decode);
            if rows.is_empty() {
                continue;
            }
            kinds[usize::from(decode)] += 1;
            if decode { steps.decode(&rows) } else { steps.prefill(&rows) }.unwrap();
            for row in &rows {
                sequences[row.slot as usize].done = row.position + 1;
            }
            for (index, row) in (0u32..).zip(rows.iter().filter(|row| row.chooses)) {
                let found: Vec<u32> = steps.logits(index).unwrap().into_iter().map(f32::to_bits).collect();
                let sequence = &sequences[row.slot as usize];
                let expected =
                    &expected[row.slot as usize][(row.position - sequence.first_choice()) as usize];
                assert!(found == *expected, "seed {seed}, {row:?} of {} rows", rows.len());
                compared += 1;
            }
        }
    }
    assert!(compared > 80 && kinds.iter().all(|&count| count > 8), "{compared} rows, {kinds:?} steps");
}

/// Work is divided differently for every number of multiprocessors; one has all work in a single CTA where that is possible.
#[test]
fn logits_have_the_same_bits_on_every_gpu() {
    let tokens: Vec<u32> = (0..70).map(|i| 3 * i % 300).collect();
    let sequence = Sequence { tokens, prefilled: 65, done: 0 };
    let logits = |multiprocessors| {
        let mut engine = load_for(1, multiprocessors, Arithmetic::Integers);
        alone(&mut Slots::new(&mut engine).unwrap(), &sequence)
    };
    let expected = logits(None);
    for count in [1, 20, 58, 188] {
        assert!(logits(NonZeroU32::new(count)) == expected, "{count} multiprocessors");
    }
}

/// f16: warps multiply two rows; 20 rows are those of warpgroups where a CTA has enough tiles, and two CTAs of a cluster
/// divide the columns of down.
#[test]
fn logits_by_f16_have_the_same_bits_for_all_numbers_of_rows() {
    let sequence = Sequence { tokens: vec![5, 210, 17], prefilled: 0, done: 0 };
    let logits = |rows, multiprocessors| {
        let mut engine = load_for(rows, NonZeroU32::new(multiprocessors), Arithmetic::F16);
        last_of(rows, &mut Slots::new(&mut engine).unwrap(), &sequence)
    };
    let expected = logits(1, 132);
    for (rows, multiprocessors) in [(9, 132), (20, 132), (20, 4)] {
        let found = logits(rows, multiprocessors);
        assert!(found == expected, "{rows} rows, {multiprocessors} multiprocessors");
    }
    let integers = last_of(1, &mut Slots::new(&mut load(1)).unwrap(), &sequence);
    assert!(integers != expected, "f16 has the bits of integers");
}
