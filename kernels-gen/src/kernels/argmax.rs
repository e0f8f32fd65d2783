//! The most likely token, and the step to the next position.
//!
//! The head's kernel finds the largest logit of each of its CTAs ([`super::gemv::gemv_argmax`]); [`choose_greedy`] joins
//! them.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// [`choose_greedy`]'s compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChooseShape {
    /// Candidates, at most `threads`.
    pub candidates: u32,
    /// Threads of the CTA: a multiple of 32, at most 1024.
    pub threads: u32,
}

/// A logit and its token.
#[derive(Clone, Copy, Carry)]
pub(crate) struct Candidate {
    pub value: Val<f32>,
    pub token: Val<u32>,
}

/// The larger of two, of equals the one with the smaller token; a NaN never wins.
#[device]
pub(crate) fn better(a: Candidate, b: Candidate) -> Candidate {
    let take = b.value > a.value || (b.value == a.value && b.token < a.token);
    Candidate { value: select(take, b.value, a.value), token: select(take, b.token, a.token) }
}

/// The best candidate of `threads` threads, in warp 0; they meet at barrier `id`.
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

/// The best of the CTAs' candidates becomes the next token, unless the prompt gives it; then the position advances.
///
/// `values` and `tokens` as the head wrote them; `sequence` u32 by position, `state` see [`state`]. `finished` u32
/// by position is for the host, which polls it while kernels run: it gets the next token, given or chosen. One CTA. Of
/// equal logits the smallest token wins; if all are NaN, token 0.
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
    let best =
        block_best(Candidate { value: values.at(from).load(), token: tokens.at(from).load() }, s.threads, 0);
    if thread_index() == 0 {
        let next = state.at(state::POSITION).load() + 1;
        let mut token = best.token;
        if next < state.at(state::PROMPT).load() {
            token = sequence.at(next).load();
        } else {
            sequence.at(next).store(token);
        }
        finished.at(next).store_relaxed(token, Scope::Sys);
        state.at(state::POSITION).store(next);
    }
}
