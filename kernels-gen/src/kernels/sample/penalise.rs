//! Logits to keys, with the repetition penalty.

use bespoke_codegen::prelude::*;

use super::{LAST_N, PENALTY, SampleShape, float, key};
use crate::kernels::state;

/// `keys[i] = key(penalised logits[i])`, and the largest of every 32 of them.
///
/// `logits` f32 [vocab], `sequence` u32 by position, `sampling` see [`super`], `state` see [`state`]; `keys` u32
/// [padded], 0 behind the vocabulary, `tops` u32 [groups]. While the prompt gives the next token nothing is written.
///
/// CTAs take the logits in turn, a CTA's width at a time, a warp 32 in a row; a thread has several loads in flight, from
/// before it knows the position. Each CTA marks those of its own tokens that the penalty's window contains.
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
        for turn in 0..s.rounds().div_ceil(IN_FLIGHT) {
            let loaded = if turn == 0 { first.clone() } else { load(logits, turn, s) };
            for (i, logit) in loaded.into_iter().enumerate() {
                let round = turn * IN_FLIGHT + i as u32;
                let token = token_of(round, s);
                let penalised = select(logit > 0.0, logit / penalty, logit * penalty);
                let marked = marks.at(thread_index() + round * s.threads).load() != 0;
                let number = key::key(select(marked, penalised, logit));
                let number = select(token < s.vocab, number, 0u32);
                let largest = warp_max(number);
                // For all lanes of a warp alike: a warp has a whole group.
                if token < s.padded() {
                    keys.at(token).store(number);
                    if lane() == 0 {
                        tops.at(token / WARP).store(largest);
                    }
                }
            }
        }
    }
}

/// Loads that a thread has in flight.
const IN_FLIGHT: u32 = 8;

/// The thread's token in a round.
#[device]
fn token_of(round: u32, s: &SampleShape) -> Val<u32> {
    (block_index() + round * s.blocks) * s.threads + thread_index()
}

/// The thread's logits in the rounds of a turn.
#[device]
fn load(logits: Ptr<Global, f32>, turn: u32, s: &SampleShape) -> Vec<Val<f32>> {
    let start = turn * IN_FLIGHT;
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
        let turn = token / s.threads;
        if turn % s.blocks == block_index() {
            marks.at(turn / s.blocks * s.threads + token % s.threads).atomic_or(1u32, Scope::Cta);
        }
        i += s.threads;
    }
}
