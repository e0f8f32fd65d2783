//! The choice among few candidates, by comparing them pairwise.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Workspace};
use super::filters::{Filters, Tops};
use super::key::{self, TOKEN_BITS};
use super::scan::{eight_lanes, eight_lanes_words};

/// Result of [`choose`] if it cannot decide among few candidates.
pub(super) const NONE: u32 = u32::MAX;

/// Number of lanes that together compare one candidate with all others.
const LANES: u32 = 8;

/// Candidates in shared memory, unordered.
#[derive(Clone, Copy)]
struct Few {
    /// Orderings of the candidates, u64 [capacity].
    orderings: Ptr<Shared, u64>,
    /// Weights at temperature 1, which top-p adds up, u64 [capacity].
    plain: Ptr<Shared, u64>,
    /// Weights at the set temperature, for the draw, u64 [capacity]; zero for candidates that a filter removes.
    warm: Ptr<Shared, u64>,
    /// Number of candidates.
    count: Val<u32>,
    workspace: Workspace,
}

/// Maximum number of candidates that a CTA of `threads` threads compares pairwise.
pub(super) fn capacity(threads: u32) -> u32 {
    threads / 2
}

/// Draws a token from the candidates: the tokens with keys of at least `least`. Returns [`NONE`] if there are too many
/// candidates, or if top-p keeps tokens below `least`. `total` is the weight of all tokens if top-k is off, else 0.
#[device]
pub(super) fn choose(
    keys: &Keys,
    tops: &Tops,
    (least, total): (Val<u32>, Val<u64>),
    filters: &Filters,
) -> Val<u32> {
    let workspace = keys.workspace;
    let capacity = capacity(workspace.threads);
    let array = || shared_array::<u64>(capacity);
    let mut few = Few { orderings: array(), plain: array(), warm: array(), count: val(0u32), workspace };
    few.count = gather(keys, tops, least, few.orderings);
    if few.count > capacity {
        return val(NONE);
    }
    if thread_index() < few.count {
        let key = key::key_of(few.orderings.at(thread_index()).load());
        few.plain.at(thread_index()).store(filters.plain.weight(key));
        few.warm.at(thread_index()).store(filters.warm.weight(key));
    }
    barrier();
    if !few.filter(filters, total) {
        return val(NONE);
    }
    few.draw()
}

/// Gathers the orderings of all tokens with keys of at least `least`. Returns the number of these tokens, or a number
/// above the capacity if there are too many.
#[device]
fn gather(keys: &Keys, tops: &Tops, least: Val<u32>, orderings: Ptr<Shared, u64>) -> Val<u32> {
    let (threads, capacity) = (keys.workspace.threads, capacity(keys.workspace.threads));
    let hits = shared_array::<u32>(capacity);
    let counts = shared_array::<u32>(2);
    if thread_index() < 2 {
        counts.at(thread_index()).store(0);
    }
    barrier();
    // The groups of 32 tokens that have such a token.
    for (pass, &top) in tops.values.iter().enumerate() {
        if top >= least {
            let index = counts.atomic_add(1, Scope::Cta);
            if index < capacity {
                hits.at(index).store(thread_index() + pass as u32 * threads);
            }
        }
    }
    barrier();
    let groups = counts.load();
    if groups > capacity {
        return groups;
    }
    // The tokens of these groups, one group per warp.
    let mut hit = warp_index();
    while hit < groups {
        let token = hits.at(hit).load() * WARP + lane();
        let key = keys.keys.at(token).load();
        let mask = ballot(key >= least);
        let mut first = val(0u32);
        if lane() == 0 {
            first = counts.at(1).atomic_add(mask.count_ones(), Scope::Cta);
        }
        let index = shuffle_lane(first, 0) + (mask & ((val(1u32) << lane()) - 1)).count_ones();
        if key >= least && index < capacity {
            orderings.at(index).store(key::ordering(key, token));
        }
        hit += threads / WARP;
    }
    barrier();
    counts.at(1).load()
}

impl Few {
    /// Index of the candidate that this thread and seven neighbours compare with all others, and this thread's index
    /// among the eight. The CTA processes candidates from `base` on.
    #[device]
    fn own_candidate(&self, base: Val<u32>) -> (Val<u32>, Val<u32>) {
        (base + thread_index() / LANES, thread_index() % LANES)
    }

    /// Applies the filters: sets the weights of removed candidates to 0. Returns false if top-p keeps tokens that are
    /// not candidates.
    ///
    /// The number and the weight of the tokens that rank above a candidate decide whether it is kept.
    #[device]
    fn filter(&self, filters: &Filters, total: Val<u64>) -> Val<bool> {
        let (workspace, count) = (self.workspace, self.count);
        let ranks = shared_array::<u32>(capacity(workspace.threads));
        let weights_above = shared_array::<u64>(capacity(workspace.threads));
        let last = select(filters.limited, filters.k.min(count), count) - 1;
        let mut base = val(0u32);
        while base < count {
            let (own_index, part) = self.own_candidate(base);
            let own = self.orderings.at(own_index.min(count - 1)).load();
            let (mut rank, mut above) = (val(0u32), val(0u64));
            let mut start = val(0u32);
            while start < count {
                let other = (start + part).min(count - 1);
                let higher = start + part < count && self.orderings.at(other).load() > own;
                rank += select(higher, 1u32, 0u32);
                above += select(higher, self.plain.at(other).load(), 0u64);
                start += LANES;
            }
            let (rank, above) = (eight_lanes_words(rank), eight_lanes(above));
            if part == 0 && own_index < count {
                ranks.at(own_index).store(rank);
                weights_above.at(own_index).store(above);
                if rank == last {
                    workspace.mailbox.store(above + self.plain.at(own_index).load());
                }
            }
            base += workspace.threads / LANES;
        }
        barrier();
        // The weight of the tokens that top-k keeps, or of all candidates.
        let weight = workspace.mailbox.load();
        let target = filters.nucleus_of(select(total > 0, total, weight));
        let enough = !filters.nucleus | (weight >= target);
        if thread_index() < count {
            let own_index = thread_index();
            let kept = (!filters.limited | (ranks.at(own_index).load() < filters.k))
                & (!filters.nucleus | (weights_above.at(own_index).load() < target))
                & (self.orderings.at(own_index).load() >= filters.margin);
            if !kept {
                self.warm.at(own_index).store(0u64);
            }
        }
        barrier();
        enough
    }

    /// Draws a token: the one at which the running sum of weights, in the order of tokens, first exceeds the draw.
    #[device]
    fn draw(&self) -> Val<u32> {
        let (workspace, count) = (self.workspace, self.count);
        let inverse = |ordering: Val<u64>| ordering.cast::<u32>() & ((1 << TOKEN_BITS) - 1);
        let random = workspace.mailbox.at(Workspace::RANDOM).load();
        let mut base = val(0u32);
        while base < count {
            let (own_index, part) = self.own_candidate(base);
            let own = self.orderings.at(own_index.min(count - 1)).load();
            let (mut before, mut all) = (val(0u64), val(0u64));
            let mut start = val(0u32);
            while start < count {
                let other = (start + part).min(count - 1);
                let weight = select(start + part < count, self.warm.at(other).load(), 0u64);
                all += weight;
                let earlier = inverse(self.orderings.at(other).load()) > inverse(own);
                before += select(earlier, weight, 0u64);
                start += LANES;
            }
            let (before, all) = (eight_lanes(before), eight_lanes(all));
            let point = mul_high(random, all);
            let weight = self.warm.at(own_index.min(count - 1)).load();
            if part == 0 && own_index < count && before <= point && point < before + weight {
                workspace.mailbox.at(1).store(key::token_of(own).cast::<u64>());
            }
            base += workspace.threads / LANES;
        }
        barrier();
        workspace.mailbox.at(1).load().cast::<u32>()
    }
}
