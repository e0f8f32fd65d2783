//! Few candidates: each is compared with each.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Work};
use super::choose::{Filters, Tops};
use super::key::{self, TOKEN_BITS};
use super::scan::{eight_lanes, eight_lanes_words};

/// Stands for no token.
pub(super) const NONE: u32 = u32::MAX;

/// Lanes that share one candidate's comparisons.
const LANES: u32 = 8;

/// Candidates in shared memory, in no order.
#[derive(Clone, Copy)]
struct Few {
    /// u64 [capacity].
    orderings: Ptr<Shared, u64>,
    /// Weights before the temperature, u64 [capacity].
    plain: Ptr<Shared, u64>,
    /// Weights of the draw, 0 of what is not kept, u64 [capacity].
    warm: Ptr<Shared, u64>,
    /// How many.
    count: Val<u32>,
    work: Work,
}

/// Candidates that there is room for.
pub(super) fn capacity(threads: u32) -> u32 {
    threads / 2
}

/// The token chosen among those whose keys are `least` or more, or [`NONE`] if they are too many, or if top-p keeps others
/// besides. `total` is the weight of all tokens if top-k is off, else 0.
#[device]
pub(super) fn choose(
    keys: &Keys,
    tops: &Tops,
    (least, total): (Val<u32>, Val<u64>),
    filters: &Filters,
) -> Val<u32> {
    let work = keys.work;
    let room = capacity(work.threads);
    let array = || shared_array::<u64>(room);
    let mut few = Few { orderings: array(), plain: array(), warm: array(), count: val(0u32), work };
    few.count = gather(keys, tops, least, few.orderings);
    if few.count > room {
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

/// The orderings of all tokens whose keys are `least` or more: their number, or one above the capacity.
#[device]
fn gather(keys: &Keys, tops: &Tops, least: Val<u32>, orderings: Ptr<Shared, u64>) -> Val<u32> {
    let (threads, room) = (keys.work.threads, capacity(keys.work.threads));
    let hits = shared_array::<u32>(room);
    let counts = shared_array::<u32>(2);
    if thread_index() < 2 {
        counts.at(thread_index()).store(0);
    }
    barrier();
    // Which groups have any.
    for (turn, &top) in tops.values.iter().enumerate() {
        if top >= least {
            let place = counts.atomic_add(1, Scope::Cta);
            if place < room {
                hits.at(place).store(thread_index() + turn as u32 * threads);
            }
        }
    }
    barrier();
    let groups = counts.load();
    if groups > room {
        return groups;
    }
    // Which of their tokens: a warp a group.
    let mut hit = warp_index();
    while hit < groups {
        let token = hits.at(hit).load() * WARP + lane();
        let number = keys.keys.at(token).load();
        let mask = ballot(number >= least);
        let mut first = val(0u32);
        if lane() == 0 {
            first = counts.at(1).atomic_add(mask.count_ones(), Scope::Cta);
        }
        let place = shuffle_lane(first, 0) + (mask & ((val(1u32) << lane()) - 1)).count_ones();
        if number >= least && place < room {
            orderings.at(place).store(key::ordering(number, token));
        }
        hit += threads / WARP;
    }
    barrier();
    counts.at(1).load()
}

impl Few {
    /// The candidate that this thread's eight lanes compare with the others, from `base` on, and the lane among the eight.
    #[device]
    fn mine(&self, base: Val<u32>) -> (Val<u32>, Val<u32>) {
        (base + thread_index() / LANES, thread_index() % LANES)
    }

    /// Sets the weight of what the filters cut off to 0. False if they keep more than the candidates.
    ///
    /// How many tokens rank above a candidate, and what they weigh, decide whether it is kept.
    #[device]
    fn filter(&self, filters: &Filters, total: Val<u64>) -> Val<bool> {
        let (work, count) = (self.work, self.count);
        let ranks = shared_array::<u32>(capacity(work.threads));
        let weights_above = shared_array::<u64>(capacity(work.threads));
        let last = select(filters.limited, filters.k.min(count), count) - 1;
        let mut base = val(0u32);
        while base < count {
            let (mine, part) = self.mine(base);
            let own = self.orderings.at(mine.min(count - 1)).load();
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
            if part == 0 && mine < count {
                ranks.at(mine).store(rank);
                weights_above.at(mine).store(above);
                if rank == last {
                    work.found.store(above + self.plain.at(mine).load());
                }
            }
            base += work.threads / LANES;
        }
        barrier();
        // What top-k keeps, or all candidates.
        let weight = work.found.load();
        let target = filters.nucleus_of(select(total > 0, total, weight));
        let enough = !filters.nucleus | (weight >= target);
        if thread_index() < count {
            let mine = thread_index();
            let kept = (!filters.limited | (ranks.at(mine).load() < filters.k))
                & (!filters.nucleus | (weights_above.at(mine).load() < target))
                & (self.orderings.at(mine).load() >= filters.margin);
            if !kept {
                self.warm.at(mine).store(0u64);
            }
        }
        barrier();
        enough
    }

    /// The token at which the running sum of weights, in the order of tokens, first exceeds the draw.
    #[device]
    fn draw(&self) -> Val<u32> {
        let (work, count) = (self.work, self.count);
        let inverse = |ordering: Val<u64>| ordering.cast::<u32>() & ((1 << TOKEN_BITS) - 1);
        let random = work.found.at(Work::RANDOM).load();
        let mut base = val(0u32);
        while base < count {
            let (mine, part) = self.mine(base);
            let own = self.orderings.at(mine.min(count - 1)).load();
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
            let weight = self.warm.at(mine.min(count - 1)).load();
            if part == 0 && mine < count && before <= point && point < before + weight {
                work.found.at(1).store(key::token_of(own).cast::<u64>());
            }
            base += work.threads / LANES;
        }
        barrier();
        work.found.at(1).load().cast::<u32>()
    }
}
