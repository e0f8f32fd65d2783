//! Greedy choice of the next token, and the step to the next position.
//!
//! The LM head finds the largest logit of each of its CTAs ([`super::gemv::Output::Argmax`]), a candidate;
//! [`choose_greedy`] finds the largest candidate. A logit that is not finite is a candidate of value ∞.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// Compile-time parameters of [`choose_greedy`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChooseShape {
    /// Number of rows of the step that may choose.
    pub tokens: u32,
    /// Number of candidates: one per CTA of the LM head, at most `threads`.
    pub candidates: u32,
    /// Threads per CTA: a multiple of 32, at most 1024.
    pub threads: u32,
}

/// A logit and its token.
#[derive(Clone, Copy, Carry)]
pub(crate) struct Candidate {
    pub value: Val<f32>,
    pub token: Val<u32>,
}

/// The candidate with the larger value; if the values are equal, the one with the smaller token. A NaN in `b` never
/// wins.
#[device]
pub(crate) fn better(a: Candidate, b: Candidate) -> Candidate {
    let take = b.value > a.value || (b.value == a.value && b.token < a.token);
    Candidate { value: select(take, b.value, a.value), token: select(take, b.token, a.token) }
}

/// The best candidate of `threads` threads, valid in the lanes of warp 0. The threads synchronise at named barrier
/// `id`.
#[device]
pub(crate) fn block_best(mine: Candidate, threads: u32, id: u8) -> Candidate {
    let mut best = warp_best(mine);
    let warps = threads / WARP;
    if warps > 1 {
        let values = shared_array::<f32>(warps);
        let tokens = shared_array::<u32>(warps);
        if lane() == 0 {
            values.at(warp_index()).store(best.value);
            tokens.at(warp_index()).store(best.token);
        }
        named_barrier(id, threads);
        if warp_index() == 0 {
            let from = select(lane() < warps, lane(), 0u32);
            best = warp_best(Candidate { value: values.at(from).load(), token: tokens.at(from).load() });
        }
    }
    best
}

/// The best candidate of each of `sets` sets of threads, valid in threads 0 to `sets` - 1: thread i belongs to set i mod
/// `sets`, a power of two of at most 32. The threads synchronise at named barrier `id`.
#[device]
pub(crate) fn best_of_each(mine: Candidate, sets: u32, threads: u32, id: u8) -> Candidate {
    let mut best = mine;
    for step in [16u32, 8, 4, 2, 1].into_iter().filter(|&step| step >= sets) {
        best = better(
            best,
            Candidate { value: shuffle_xor(best.value, step), token: shuffle_xor(best.token, step) },
        );
    }
    let warps = threads / WARP;
    if warps > 1 {
        let values = shared_array::<f32>(warps * sets);
        let tokens = shared_array::<u32>(warps * sets);
        if lane() < sets {
            let at = warp_index() * sets + lane();
            values.at(at).store(best.value);
            tokens.at(at).store(best.token);
        }
        named_barrier(id, threads);
        if thread_index() < sets {
            for warp in 1..warps {
                let at = thread_index() + warp * sets;
                best = better(best, Candidate { value: values.at(at).load(), token: tokens.at(at).load() });
            }
        }
    }
    best
}

/// The best candidate of a warp, in all lanes.
#[device]
fn warp_best(mine: Candidate) -> Candidate {
    let mut best = mine;
    for step in [16u32, 8, 4, 2, 1] {
        best = better(
            best,
            Candidate { value: shuffle_xor(best.value, step), token: shuffle_xor(best.token, step) },
        );
    }
    best
}

/// Appends the next token to the sequence of each row that chooses, and advances the row's position. Within the prompt the
/// next token is the prompt's; after it, the best candidate.
///
/// `values` f32 and `tokens` u32 [rows of the step, candidates]: largest logits and their tokens, from the output
/// projection; `sequence` u32: the tokens of each sequence by position; `finished` u32: a copy of the tokens that the
/// host polls while kernels run; `state`: see [`state`]. A CTA has a row. Of equal logits the smallest token wins. If the best candidate is ∞, `finished` gets
/// [`state::NOT_FINITE`] instead of the token.
#[kernel(threads = s.threads)]
pub fn choose_greedy(
    values: Ptr<Global, f32>,
    tokens: Ptr<Global, u32>,
    sequence: Ptr<Global, u32>,
    finished: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    s: &ChooseShape,
) {
    let mine = thread_index();
    let from = select(mine < s.candidates, mine, 0u32);
    let from = if s.tokens == 1 { from } else { from + block_index() * s.candidates };
    let best =
        block_best(Candidate { value: values.at(from).load(), token: tokens.at(from).load() }, s.threads, 0);
    let record = state::record(state, block_index(), s.tokens);
    if thread_index() == 0 && state::chooses(record) {
        let first = record.at(state::TOKENS).load();
        let (sequence, finished) = (sequence.at(first), finished.at(first));
        let next = state::position(record) + 1;
        let mut told = val(0u32);
        if next < record.at(state::PROMPT).load() {
            told = sequence.at(next).load();
        } else {
            sequence.at(next).store(best.token);
            told = select(best.value < f32::INFINITY, best.token, state::NOT_FINITE);
        }
        finished.at(next).store_relaxed(told, Scope::Sys);
        record.at(state::POSITION).store(next);
    }
}
