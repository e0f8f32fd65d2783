//! The filters, the draw, and the step to the next position.

use bespoke_codegen::prelude::*;

use super::all::{Keys, Work};
use super::philox::philox;
use super::search::{Aim, Measure, Search};
use super::weight::Scale;
use super::{MIN_P_MARGIN, SEED, SampleShape, TEMPERATURE, TOP_K, TOP_P, few, float, key};
use crate::kernels::state;

/// The next token, drawn unless the prompt gives it; then the position advances.
///
/// `keys` and `tops` as [`sample_keys`](super::sample_keys) wrote them, `sampling` see [`super`], `sequence`, `finished`
/// and `state` as in [`choose_greedy`](crate::kernels::argmax::choose_greedy). If all logits are −∞ or NaN, token 0.
///
/// One CTA. A lower bound of what top-k keeps is known from the largest keys of the groups: k of them are at least as large
/// as the k-th largest of them; of what min-p keeps, from the largest of all. For top-p alone a bound is guessed, which
/// takes a pass over all keys for the sum of their weights. The tokens above the bound are gathered from the groups that
/// have any, and if they are few, each is compared with each. Otherwise all keys are searched, with the same result.
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
    let next = state::position(state) + 1;
    let mut token = val(0u32);
    if next < state.at(state::PROMPT).load() {
        token = sequence.at(next).load();
    } else {
        let threads = s.choose_threads;
        let scratch = shared_array::<u64>(threads / WARP);
        let work = Work { threads, scratch, found: shared_array::<u64>(Work::FOUND) };
        let settings = Settings::load(sampling);
        let tops = Tops::load(tops, s);
        // Behind the barriers of all that follows.
        if thread_index() == 0 {
            work.found.at(Work::RANDOM).store(settings.random(next));
        }
        let extremes = tops.extremes(work);
        if extremes[0] > key::LOWEST {
            let filters = settings.filters(extremes[0], s);
            token = choose(&Keys { keys, count: s.padded(), work }, &tops, extremes, &filters);
        }
    }
    // Every thread has read the state.
    barrier();
    if thread_index() == 0 {
        sequence.at(next).store(token);
        finished.at(next).store_relaxed(token, Scope::Sys);
        state.at(state::POSITION).store(next);
    }
}

/// The largest keys of the groups: those that a thread holds.
pub(super) struct Tops {
    /// The thread's groups are its index and, the CTA's width apart, more; 0 past the last.
    pub values: Vec<Val<u32>>,
}

impl Tops {
    #[device]
    fn load(tops: Ptr<Global, u32>, s: &SampleShape) -> Tops {
        let mut values = Vec::new();
        for turn in 0..s.groups().div_ceil(s.choose_threads) {
            let group = thread_index() + turn * s.choose_threads;
            let inside = group < s.groups();
            values.push(select(inside, tops.at(select(inside, group, 0u32)).load(), 0u32));
        }
        Tops { values }
    }

    /// The largest and the smallest of all.
    #[device]
    fn extremes(&self, work: Work) -> [Val<u32>; 2] {
        let mut largest = val(0u32);
        // The largest complement.
        let mut smallest = val(0u32);
        for &top in &self.values {
            largest = largest.max(top);
            smallest = smallest.max(select(top == 0, 0u32, !top));
        }
        let warps = work.threads / WARP;
        let by_warp = shared_array::<u32>(2 * warps);
        let (largest, smallest) = (warp_max(largest), warp_max(smallest));
        if lane() == 0 {
            by_warp.at(warp_index()).store(largest);
            by_warp.at(warp_index() + warps).store(smallest);
        }
        barrier();
        let from = lane() & (warps - 1);
        [warp_max(by_warp.at(from).load()), !warp_max(by_warp.at(from + warps).load())]
    }
}

/// Logits that are smaller than the largest by this weigh nothing: e^-28 is below 2^-40.
const FAINT: f32 = 28.0;

/// The parameters in device memory.
#[derive(Clone, Copy, Carry)]
struct Settings {
    temperature: Val<f32>,
    k: Val<u32>,
    p: Val<f32>,
    margin: Val<f32>,
    seed: [Val<u32>; 2],
}

/// What the filters do in a step.
#[derive(Clone, Copy, Carry)]
pub(super) struct Filters {
    /// k, if `limited`.
    pub k: Val<u32>,
    /// Top-k cuts something off.
    pub limited: Val<bool>,
    /// p·2⁶⁴, if `nucleus`.
    p: Val<u64>,
    /// Top-p may cut something off.
    pub nucleus: Val<bool>,
    /// What min-p keeps is at or above this.
    pub margin: Val<u64>,
    /// What lies below this weighs nothing before the temperature.
    faint: Val<u64>,
    /// Weights before the temperature.
    pub plain: Scale,
    /// Weights of the draw.
    pub warm: Scale,
}

impl Settings {
    #[device]
    fn load(sampling: Ptr<Global, u32>) -> Settings {
        Settings {
            temperature: float(sampling, TEMPERATURE),
            k: sampling.at(TOP_K).load(),
            p: float(sampling, TOP_P),
            margin: float(sampling, MIN_P_MARGIN),
            seed: [sampling.at(SEED).load(), sampling.at(SEED + 1).load()],
        }
    }

    /// 64 random bits for the token at a position.
    #[device]
    fn random(&self, position: Val<u32>) -> Val<u64> {
        let words = philox([position, val(0u32), val(0u32), val(0u32)], self.seed);
        words[0].cast::<u64>() | (words[1].cast::<u64>() << 32)
    }

    /// The filters, by the largest key.
    #[device]
    fn filters(&self, top: Val<u32>, s: &SampleShape) -> Filters {
        // Without temperature: the one most likely token.
        let greedy = self.temperature == 0.0;
        let k = select(greedy, 1u32, self.k);
        let largest = key::logit(top);
        Filters {
            k,
            limited: (k > 0) & (k < s.vocab),
            p: (self.p * 2.0f32.powi(64)).cast::<u64>(),
            nucleus: (self.p < 1.0) & !greedy,
            margin: key::lowest_with(key::key(largest - self.margin).min(top)),
            faint: key::lowest_with(key::key(largest - FAINT)),
            plain: Scale::new(top, val(1.0f32)),
            warm: Scale::new(top, select(greedy, 1.0f32, self.temperature)),
        }
    }
}

impl Filters {
    /// The weight that the nucleus reaches, of `total`: ⌈p·total⌉, at least 1.
    #[device]
    pub fn nucleus_of(&self, total: Val<u64>) -> Val<u64> {
        let rest = select(self.p * total > 0, 1u64, 0u64);
        (mul_high(self.p, total) + rest).max(1u64)
    }
}

/// The token chosen.
#[device]
fn choose(keys: &Keys, tops: &Tops, extremes: [Val<u32>; 2], filters: &Filters) -> Val<u32> {
    let work = keys.work;
    let search = Search::new(keys.count, work);
    // A key that what is kept is not below, or 0. For top-p alone it is a guess.
    let mut least = val(0u32);
    let likely = select(filters.limited, filters.k, few::capacity(work.threads) / 2);
    if (filters.limited | filters.nucleus) && likely <= keys.count / WARP {
        least = search.guess(&tops.values, extremes, likely);
    }
    // Top-p asks for the weight of all that top-k keeps.
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

/// The token chosen, by searching all keys. What is kept is at or above `bound`; `total` as for [`few::choose`].
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
        bound = search.run(keys, &Aim { by: Measure::Count, target, low: bound, top });
    }
    if filters.nucleus {
        if total == 0 {
            let share =
                keys.share(|key, ordering| select(ordering >= bound, filters.plain.weight(key), 0u64));
            total = search.total(share);
        }
        let (target, low) = (filters.nucleus_of(total), bound.max(filters.faint));
        bound = bound.max(search.run(keys, &Aim { by: Measure::Weight(filters.plain), target, low, top }));
    }
    bound = bound.max(filters.margin);
    let random = keys.work.found.at(Work::RANDOM).load();
    keys.draw(|key, ordering| select(ordering >= bound, filters.warm.weight(key), 0u64), random)
}
