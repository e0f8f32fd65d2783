//! Random schedules, each from a seed.

use std::ops::Range;

use bespoke::engine::SamplingParams;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Positions of a sequence: three pages.
pub const CONTEXT: u32 = 192;
/// Slots of the engine. Nine rows need a decode step of 16.
pub const SLOTS: u32 = 9;
/// Most drafted tokens of a sequence in a step of the engine.
pub const DRAFTS: u32 = 4;
/// Pages of the engine.
pub const PAGES: u32 = 27;

/// A sequence of a schedule.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Number of steps between the arrival of the sequence before it and its own.
    pub gap: usize,
    /// Text of the prompt. Prompts of the same text begin with the same tokens.
    pub text: u32,
    /// Number of prompt tokens.
    pub length: u32,
    /// Seed of the sampling; 0 for greedy decoding.
    pub seed: u64,
    pub max_tokens: u32,
    /// Number of first tokens that stay when the context is full; none if the sequence ends then.
    pub keep: Option<u32>,
    /// Number of steps after its arrival when the sequence is cancelled.
    pub cancel: Option<usize>,
    /// Most drafted tokens in a step.
    pub drafts: u32,
}

impl Sequence {
    /// Tokens of the prompt.
    pub fn prompt(&self, vocab: u32) -> Vec<u32> {
        if self.text == 2 {
            // " lives in the tower" again and again, so that there is something to draft.
            return [501, 443, 350, 281, 415].into_iter().cycle().take(self.length as usize).collect();
        }
        (0..self.length).map(|i| (97 * self.text + (2 * self.text + 3) * i * i + 11 * i) % vocab).collect()
    }

    /// Parameters of the choice of tokens.
    pub fn sampling(&self) -> SamplingParams {
        let temperature = if self.seed == 0 { 0.0 } else { 0.9 };
        SamplingParams { temperature, seed: self.seed, ..SamplingParams::default() }
    }
}

/// Requests, and the sizes of the engine that processes them.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The engine's slots that are used, in the order in which the scheduler numbers them.
    pub slots: Vec<u32>,
    /// The engine's pages that are used, in the order in which the scheduler numbers them.
    pub pages: Vec<u32>,
    /// Rows of a prefill step.
    pub chunk: u32,
    /// Rows after which prefill steps are cut into two.
    pub cuts: Vec<usize>,
    pub sequences: Vec<Sequence>,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Schedule {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        schedule().new_tree(&mut runner).expect("no value is rejected").current()
    }
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let rare = |of: u32, value: Range<usize>| prop_oneof![of => Just(None), 1 => value.prop_map(Some)];
    // Around the borders of groups of rows, tiles and pages; few different ones, whose logits alone are computed once.
    let length = prop::sample::select(vec![1u32, 2, 16, 18, 33, 63, 64, 65, 66, 75, 129, 140]);
    let usual = (length, prop_oneof![3 => 1u32..8, 1 => 20u32..40], Just(None));
    // Until the context is full, and beyond.
    let full = (Just(CONTEXT - 6), 5u32..20, prop_oneof![Just(None), Just(Some(3))]);
    let sizes = prop_oneof![8 => usual, 1 => full];
    let gap = prop_oneof![2 => Just(0), 1 => 1usize..6];
    let cancel = rare(4, 0..12);
    (gap, 0u32..3, sizes, 0u64..2, cancel).prop_map(
        |(gap, text, (length, max_tokens, keep), seed, cancel)| Sequence {
            gap,
            text,
            length,
            seed,
            max_tokens,
            keep,
            cancel,
            drafts: (length + max_tokens) % (DRAFTS + 1),
        },
    )
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let some = |of: u32, count: Range<usize>| {
        (count, Just((0..of).collect::<Vec<u32>>()).prop_shuffle()).prop_map(|(count, mut all)| {
            all.truncate(count);
            all
        })
    };
    // Three pages hold the longest sequence: with a few more, sequences give their pages to others.
    let pages = prop_oneof![1 => some(PAGES, 2..6), 2 => some(PAGES, 6..PAGES as usize + 1)];
    let slots = some(SLOTS, 1..SLOTS as usize + 1);
    let chunk = prop::sample::select(vec![13u32, 16, 40, 64, 512]);
    let cuts = prop::collection::vec(0usize..200, 3..6);
    (slots, pages, chunk, cuts, prop::collection::vec(sequence(), 2..14))
        .prop_map(|(slots, pages, chunk, cuts, sequences)| Schedule { slots, pages, chunk, cuts, sequences })
}
