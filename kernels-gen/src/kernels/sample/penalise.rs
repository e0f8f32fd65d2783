//! Logit bias, mask, penalties, and the conversion of logits to keys.

use bespoke_codegen::prelude::*;

use super::key;
use super::shape::{
    BIASED, FLAGS, FREQUENCY, LAST_N, MASKED, PRESENCE, REPETITION, SampleShape, WORDS, float,
};
use crate::kernels::state;

/// `keys[i] = key(penalised(logits[i] + bias[i]))`, with −∞ for the logits that `mask` lacks, or [`key::NOT_FINITE`] if
/// `logits[i]` is not finite, and `tops[g]` = the largest key of each group of 32 tokens.
///
/// `logits` f32 [rows of the step, vocab], `bias` f32 [slots, vocab] and `mask` u32 [slots, groups], each read only if the
/// parameters say so, `sequence` u32: the tokens of each sequence by position, `sampling`: see [`super`], `state`: see [`state`]; `keys` u32 [rows, padded],
/// 0 past the vocabulary, `tops` u32 [rows, groups]. Within the prompt, and for a row that does not choose, nothing is
/// written.
///
/// The CTAs of a row (along x) stride over the logits; a warp takes 32 consecutive ones at a time. A thread has several loads in flight,
/// and issues the first before the position is known. Each CTA counts its own tokens that are in the penalties' window.
#[kernel(threads = s.threads)]
pub fn sample_keys(
    logits: Ptr<Global, f32>,
    bias: Ptr<Global, f32>,
    mask: Ptr<Global, u32>,
    sequence: Ptr<Global, u32>,
    sampling: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    keys: Ptr<Global, u32>,
    tops: Ptr<Global, u32>,
    s: &SampleShape,
) {
    let record = state::record(state, block_index_y(), s.tokens);
    let row = |elements: u32| if s.tokens == 1 { val(0u32) } else { block_index_y() * elements };
    let (logits, keys, tops) = (logits.at(row(s.vocab)), keys.at(row(s.padded())), tops.at(row(s.groups())));
    let first = load(logits, 0, s);
    let next = state::position(record) + 1;
    if state::chooses(record) & (next >= record.at(state::PROMPT).load()) {
        let slot = record.at(state::SLOT).load();
        let (sampling, bias) = (sampling.at(slot * WORDS), bias.at(slot * s.vocab));
        let mask = mask.at(slot * s.groups());
        let sequence = sequence.at(record.at(state::TOKENS).load());
        let penalties = Penalties::load(sampling);
        let window = select(penalties.are_neutral(), 0u32, sampling.at(LAST_N).load().min(next));
        let flags = sampling.at(FLAGS).load();
        let (biased, masked) = ((flags & BIASED) != 0, (flags & MASKED) != 0);
        let counts = shared_array::<u32>(s.rounds() * s.threads);
        for round in 0..s.rounds() {
            counts.at(thread_index() + round * s.threads).store(0);
        }
        if window > 0 {
            barrier();
            count(sequence.at(next - window), window, counts, s);
            barrier();
        }
        for batch in 0..s.rounds().div_ceil(IN_FLIGHT) {
            let mut loaded = if batch == 0 { first.clone() } else { load(logits, batch, s) };
            let finite: Vec<_> = loaded.iter().map(|logit| logit.abs() < f32::INFINITY).collect();
            if biased {
                for (logit, bias) in loaded.iter_mut().zip(load(bias, batch, s)) {
                    *logit += bias;
                }
            }
            if masked {
                for (i, logit) in loaded.iter_mut().enumerate() {
                    let token = token_of(batch * IN_FLIGHT + i as u32, s);
                    // A warp has the 32 tokens of a word.
                    let word = mask.at(select(token < s.vocab, token, 0u32) / WARP).load();
                    *logit = select((word >> (token % WARP)) & 1 == 0, f32::NEG_INFINITY, *logit);
                }
            }
            for (i, logit) in loaded.into_iter().enumerate() {
                let round = batch * IN_FLIGHT + i as u32;
                let token = token_of(round, s);
                let count = counts.at(thread_index() + round * s.threads).load();
                let key = key::key(penalties.apply(logit, count));
                let key = select(finite[i], key, key::NOT_FINITE);
                let key = select(token < s.vocab, key, 0u32);
                let largest = warp_max(key);
                // The condition is uniform in a warp, because a warp processes a whole group of 32 tokens.
                if token < s.padded() {
                    keys.at(token).store(key);
                    if lane() == 0 {
                        tops.at(token / WARP).store(largest);
                    }
                }
            }
        }
    }
}

/// The penalties of recent tokens.
#[derive(Clone, Copy, Carry)]
struct Penalties {
    repetition: Val<f32>,
    presence: Val<f32>,
    frequency: Val<f32>,
}

impl Penalties {
    #[device]
    fn load(sampling: Ptr<Global, u32>) -> Penalties {
        Penalties {
            repetition: float(sampling, REPETITION),
            presence: float(sampling, PRESENCE),
            frequency: float(sampling, FREQUENCY),
        }
    }

    /// Whether the penalties change no logit.
    #[device]
    fn are_neutral(&self) -> Val<bool> {
        (self.repetition == 1.0) & (self.presence == 0.0) & (self.frequency == 0.0)
    }

    /// The logit of a token that is `count` times in the window.
    #[device]
    fn apply(&self, logit: Val<f32>, count: Val<u32>) -> Val<f32> {
        let repeated = select(logit > 0.0, logit / self.repetition, logit * self.repetition);
        let penalised = repeated - (count.cast::<f32>() * self.frequency + self.presence);
        select(count > 0, penalised, logit)
    }
}

/// Number of loads that a thread has in flight.
const IN_FLIGHT: u32 = 8;

/// The token that this thread processes in round `round`.
#[device]
fn token_of(round: u32, s: &SampleShape) -> Val<u32> {
    (block_index() + round * s.blocks) * s.threads + thread_index()
}

/// Loads the values of this thread's tokens in batch `batch`, which is [`IN_FLIGHT`] rounds.
#[device]
fn load(values: Ptr<Global, f32>, batch: u32, s: &SampleShape) -> Vec<Val<f32>> {
    let start = batch * IN_FLIGHT;
    let mut loaded = Vec::new();
    for round in start..(start + IN_FLIGHT).min(s.rounds()) {
        let token = token_of(round, s);
        loaded.push(values.at(select(token < s.vocab, token, 0u32)).load());
    }
    loaded
}

/// Counts the occurrences of this CTA's tokens among the `window` tokens at `sequence`.
#[device]
fn count(sequence: Ptr<Global, u32>, window: Val<u32>, counts: Ptr<Shared, u32>, s: &SampleShape) {
    let mut i = thread_index();
    while i < window {
        let token = sequence.at(i).load();
        let tile = token / s.threads;
        if tile % s.blocks == block_index() {
            counts.at(tile / s.blocks * s.threads + token % s.threads).atomic_add(1u32, Scope::Cta);
        }
        i += s.threads;
    }
}
