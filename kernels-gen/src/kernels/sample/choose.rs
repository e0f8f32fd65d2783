//! The choice of a token by sampling, and the step to the next position.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Workspace};
use super::filters::{Filters, Settings, Tops};
use super::search::{Measure, Search, Target};
use super::shape::{SampleShape, WORDS};
use super::{few, key};
use crate::kernels::state;

/// Appends the next token to the sequence of each row that chooses, and advances the row's position. Within the prompt the next token is the prompt's;
/// after it, the token is drawn.
///
/// `keys` and `tops`: outputs of [`sample_keys`](super::sample_keys); `sampling`: see [`super`]; `sequence`, `finished`
/// and `state`: as in [`choose_greedy`](crate::kernels::argmax::choose_greedy). If all logits are −∞, token 0. If one of the
/// model's logits is not finite, `sequence` gets token 0, and `finished` [`state::NOT_FINITE`].
///
/// A CTA has a row. The largest keys of the groups give a lower bound of the keys that top-k keeps (the k-th largest of them);
/// the largest key gives a lower bound for min-p. For top-p alone a bound is guessed, after a pass over all keys for
/// the sum of their weights. The tokens above the bound are gathered from their groups and, if they are few, compared
/// pairwise. Otherwise all keys are searched. Pairwise comparison and search give the same token.
#[kernel(threads = s.choose_threads, min_blocks = 1)]
pub fn choose_sampled(
    keys: Ptr<Global, u32>,
    tops: Ptr<Global, u32>,
    sampling: Ptr<Global, u32>,
    sequence: Ptr<Global, u32>,
    finished: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    s: &SampleShape,
) {
    let record = state::record(state, block_index(), s.tokens);
    if state::chooses(record) {
        let row = |elements: u32| if s.tokens == 1 { val(0u32) } else { block_index() * elements };
        let (keys, tops) = (keys.at(row(s.padded())), tops.at(row(s.groups())));
        let sampling = sampling.at(record.at(state::SLOT).load() * WORDS);
        let first = record.at(state::TOKENS).load();
        advance(keys, tops, sampling, sequence.at(first), finished.at(first), record, s);
    }
}

/// The choice of [`choose_sampled`] for the row of a record.
#[device]
fn advance(
    keys: Ptr<Global, u32>,
    tops: Ptr<Global, u32>,
    sampling: Ptr<Global, u32>,
    sequence: Ptr<Global, u32>,
    finished: Ptr<Global, u32>,
    record: Ptr<Global, u32>,
    s: &SampleShape,
) {
    let next = state::position(record) + 1;
    let mut token = val(0u32);
    let mut told = val(0u32);
    if next < record.at(state::PROMPT).load() {
        token = sequence.at(next).load();
        told = token;
    } else {
        let threads = s.choose_threads;
        let scratch = shared_array::<u64>(threads / WARP);
        let workspace = Workspace { threads, scratch, mailbox: shared_array::<u64>(Workspace::MAILBOX) };
        let settings = Settings::load(sampling);
        let tops = Tops::load(tops, s);
        // Visible to all threads after the barriers below.
        if thread_index() == 0 {
            workspace.mailbox.at(Workspace::RANDOM).store(settings.random(next));
        }
        let extremes = tops.extremes(workspace);
        if extremes[0] > key::LOWEST && extremes[0] < key::NOT_FINITE {
            let filters = settings.filters(extremes[0], s);
            token = choose(&Keys { keys, count: s.padded(), workspace }, &tops, extremes, &filters);
        }
        told = select(extremes[0] < key::NOT_FINITE, token, state::NOT_FINITE);
    }
    // All threads have read the state.
    barrier();
    if thread_index() == 0 {
        sequence.at(next).store(token);
        finished.at(next).store_relaxed(told, Scope::Sys);
        record.at(state::POSITION).store(next);
    }
}

/// Draws a token from those that the filters keep.
#[device]
fn choose(keys: &Keys, tops: &Tops, extremes: [Val<u32>; 2], filters: &Filters) -> Val<u32> {
    let workspace = keys.workspace;
    let search = Search::new(keys.count, workspace);
    // Lower bound of the keys that the filters keep, or 0; a guess for top-p alone.
    let mut least = val(0u32);
    let likely = select(filters.limited, filters.k, few::capacity(workspace.threads) / 2);
    if (filters.limited | filters.nucleus) && likely <= keys.count / WARP {
        least = search.guess(&tops.values, extremes, likely);
    }
    // Top-p needs the weight of all tokens that top-k keeps, so the margin of min-p must not remove any of these tokens
    // yet.
    if !filters.nucleus {
        least = least.max(key::key_of(filters.margin));
    }
    let mut total = val(0u64);
    if filters.nucleus && !filters.limited {
        total = search.total(keys.share(|key, _| filters.plain.weight(key)));
    }
    let mut token = val(few::NONE);
    if least > 0 {
        token = few::choose(keys, tops, (least, total), filters);
    }
    if token == few::NONE {
        let bound = select(total > 0, 0u64, key::lowest_with(least));
        token = choose_among_all(keys, &search, filters, (bound, total));
    }
    token
}

/// Draws a token by searching the keys of all tokens. `bound` is a lower bound of the orderings that the filters keep;
/// `total` is the weight of all tokens if top-k is off, else 0.
#[device]
fn choose_among_all(
    keys: &Keys,
    search: &Search,
    filters: &Filters,
    (bound, total): (Val<u64>, Val<u64>),
) -> Val<u32> {
    let (mut bound, mut total, top) = (bound, total, filters.plain.top);
    barrier();
    if filters.limited {
        let target = filters.k.cast::<u64>();
        bound = search.run(keys, &Target { measure: Measure::Count, sum: target, low: bound, top });
    }
    if filters.nucleus {
        if total == 0 {
            let share =
                keys.share(|key, ordering| select(ordering >= bound, filters.plain.weight(key), 0u64));
            total = search.total(share);
        }
        let (sum, low) = (filters.nucleus_of(total), bound.max(filters.zero_weight));
        let measure = Measure::Weight(filters.plain);
        bound = bound.max(search.run(keys, &Target { measure, sum, low, top }));
    }
    bound = bound.max(filters.margin);
    let random = keys.workspace.mailbox.at(Workspace::RANDOM).load();
    keys.draw(|key, ordering| select(ordering >= bound, filters.warm.weight(key), 0u64), random)
}
