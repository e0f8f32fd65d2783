//! The most likely token, and the step to the next position.

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::state;

/// Argmax' compile-time parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgmaxShape {
    /// Logits.
    pub vocab: u32,
    /// CTAs of the first launch, at most `threads`.
    pub blocks: u32,
    /// Threads a CTA: a multiple of 32, at most 1024.
    pub threads: u32,
}

/// A logit and its token.
#[derive(Clone, Copy, Carry)]
struct Candidate {
    value: Val<f32>,
    token: Val<u32>,
}

/// The larger of two, of equals the one with the smaller token; a NaN never wins.
#[device]
fn better(a: Candidate, b: Candidate) -> Candidate {
    let take = b.value > a.value || (b.value == a.value && b.token < a.token);
    Candidate { value: select(take, b.value, a.value), token: select(take, b.token, a.token) }
}

/// The best candidate of a CTA of `threads` threads, in warp 0.
#[device]
fn block_best(mine: Candidate, threads: u32) -> Candidate {
    let mut best = warp_best(mine);
    let warps = threads / WARP;
    if warps > 1 {
        let values = shared_array::<f32>(warps);
        let tokens = shared_array::<u32>(warps);
        if lane() == 0 {
            values.at(warp_index()).store(best.value);
            tokens.at(warp_index()).store(best.token);
        }
        barrier();
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

/// The best logit of each CTA's share: `values[block]`, `tokens[block]`.
///
/// `logits` f32 [vocab], `values` f32 and `tokens` u32 [blocks]. CTAs take the logits in turn, a CTA's width at a
/// time.
#[kernel(threads = s.threads)]
pub fn argmax(logits: Ptr<Global, f32>, values: Ptr<Global, f32>, tokens: Ptr<Global, u32>, s: &ArgmaxShape) {
    let mut best = Candidate { value: val(f32::NEG_INFINITY), token: val(0u32) };
    let mut token = block_index() * s.threads + thread_index();
    while token < s.vocab {
        best = better(best, Candidate { value: logits.at(token).load(), token });
        token += s.blocks * s.threads;
    }
    let best = block_best(best, s.threads);
    if thread_index() == 0 {
        values.at(block_index()).store(best.value);
        tokens.at(block_index()).store(best.token);
    }
}

/// The best of the CTAs' candidates becomes the next token, unless the prompt gives it; then the position advances.
///
/// `values` and `tokens` as [`argmax`] wrote them; `sequence` u32 by position, `state` see [`state`]. `finished` u32
/// by position is for the host: it gets the next token, given or chosen. One CTA. Of equal logits the smallest token
/// wins; if all are NaN, token 0.
#[kernel(threads = s.threads)]
pub fn choose_greedy(
    values: Ptr<Global, f32>,
    tokens: Ptr<Global, u32>,
    sequence: Ptr<Global, u32>,
    finished: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    s: &ArgmaxShape,
) {
    let mine = thread_index();
    let from = select(mine < s.blocks, mine, 0u32);
    let best =
        block_best(Candidate { value: values.at(from).load(), token: tokens.at(from).load() }, s.threads);
    if thread_index() == 0 {
        let next = state.at(state::POSITION).load() + 1;
        let mut token = best.token;
        if next < state.at(state::PROMPT).load() {
            token = sequence.at(next).load();
        } else {
            sequence.at(next).store(token);
        }
        finished.at(next).store(token);
        state.at(state::POSITION).store(next);
    }
}
