//! Repetition penalty, and the conversion of logits to keys.

use bespoke_codegen::prelude::*;

use super::key;
use super::shape::{LAST_N, PENALTY, SampleShape, float};
use crate::kernels::state;

/// `keys[i] = key(penalised logits[i])`, and `tops[g]` = the largest key of each group of 32 tokens.
///
/// `logits` f32 [vocab], `sequence` u32 by position, `sampling`: see [`super`], `state`: see [`state`]; `keys` u32
/// [padded], 0 past the vocabulary, `tops` u32 [groups]. Within the prompt nothing is written.
///
/// The grid strides over the logits; a warp takes 32 consecutive ones at a time. A thread has several loads in flight,
/// and issues the first before the position is known. Each CTA marks its own tokens that are in the penalty's window.
#[kernel(threads = s.threads)]
pub fn sample_keys(
    logits: Ptr<Global, f32>,
    sequence: Ptr<Global, u32>,
    sampling: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    keys: Ptr<Global, u32>,
    tops: Ptr<Global, u32>,
    s: &SampleShape,
) {
    let first = load(logits, 0, s);
    let next = state::position(state) + 1;
    if next >= state.at(state::PROMPT).load() {
        let penalty = float(sampling, PENALTY);
        let window = select(penalty == 1.0, 0u32, sampling.at(LAST_N).load().min(next));
        let marks = shared_array::<u32>(s.rounds() * s.threads);
        for round in 0..s.rounds() {
            marks.at(thread_index() + round * s.threads).store(0);
        }
        if window > 0 {
            barrier();
            mark(sequence.at(next - window), window, marks, s);
            barrier();
        }
        for batch in 0..s.rounds().div_ceil(IN_FLIGHT) {
            let loaded = if batch == 0 { first.clone() } else { load(logits, batch, s) };
            for (i, logit) in loaded.into_iter().enumerate() {
                let round = batch * IN_FLIGHT + i as u32;
                let token = token_of(round, s);
                let penalised = select(logit > 0.0, logit / penalty, logit * penalty);
                let marked = marks.at(thread_index() + round * s.threads).load() != 0;
                let key = key::key(select(marked, penalised, logit));
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

/// Number of loads that a thread has in flight.
const IN_FLIGHT: u32 = 8;

/// The token that this thread processes in round `round`.
#[device]
fn token_of(round: u32, s: &SampleShape) -> Val<u32> {
    (block_index() + round * s.blocks) * s.threads + thread_index()
}

/// Loads the logits of this thread's tokens in batch `batch`, which is [`IN_FLIGHT`] rounds.
#[device]
fn load(logits: Ptr<Global, f32>, batch: u32, s: &SampleShape) -> Vec<Val<f32>> {
    let start = batch * IN_FLIGHT;
    let mut loaded = Vec::new();
    for round in start..(start + IN_FLIGHT).min(s.rounds()) {
        let token = token_of(round, s);
        loaded.push(logits.at(select(token < s.vocab, token, 0u32)).load());
    }
    loaded
}

/// Marks the tokens of this CTA that are among the `window` tokens at `sequence`.
#[device]
fn mark(sequence: Ptr<Global, u32>, window: Val<u32>, marks: Ptr<Shared, u32>, s: &SampleShape) {
    let mut i = thread_index();
    while i < window {
        let token = sequence.at(i).load();
        let tile = token / s.threads;
        if tile % s.blocks == block_index() {
            marks.at(tile / s.blocks * s.threads + token % s.threads).atomic_or(1u32, Scope::Cta);
        }
        i += s.threads;
    }
}
