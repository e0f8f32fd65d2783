//! From partial results to the output.

use bespoke_codegen::prelude::*;

use super::query;
use super::shape::{AttentionShape, CONSUMERS, WARPS};
use super::tile::Running;
use super::{BARRIER, LOWEST, Operands, Work};

/// One element of a softmax numerator, with its denominator and maximum.
#[derive(Clone, Copy, Carry)]
struct Part {
    numerator: Val<f32>,
    largest: Val<f32>,
    denominator: Val<f32>,
}

impl Part {
    /// Element `element` of the part at `from`.
    fn load<S: Space>(from: Ptr<S, f32>, element: Val<u32>, cache: Cache, s: &AttentionShape) -> Part {
        Part {
            numerator: from.at(element).load_cached(cache),
            largest: from.at(s.head_dim).load_cached(cache),
            denominator: from.at(s.head_dim + 1).load_cached(cache),
        }
    }

    /// All parts together, at their common maximum.
    fn sum(parts: &[Part]) -> Part {
        let largest = parts[1..].iter().fold(parts[0].largest, |largest, part| largest.max(part.largest));
        let (mut numerator, mut denominator) = (val(0.0f32), val(0.0f32));
        for part in parts {
            let weight = (part.largest - largest).exp2();
            numerator = fma(part.numerator, weight, numerator);
            denominator = fma(part.denominator, weight, denominator);
        }
        Part { numerator, largest, denominator }
    }

    fn quotient(self) -> Val<f32> {
        self.numerator.div_approx(self.denominator)
    }
}

/// Where warp `warp`'s part of head `head` lies.
fn slot(warp: impl IntoVal<u32>, head: Val<u32>, s: &AttentionShape) -> Ptr<Shared, f32> {
    let parts = dynamic_shared::<u8>().bytes(s.shared_map().partial).cast::<f32>();
    parts.at((warp.into_val() * s.heads_per_block + head) * s.shared_stride())
}

fn new_score(head: impl IntoVal<u32>, s: &AttentionShape) -> Ptr<Shared, f32> {
    dynamic_shared::<u8>().bytes(s.shared_map().scores).cast::<f32>().at(head.into_val())
}

/// Puts a warp's part where the others find it.
#[device]
pub(super) fn keep(running: &Running, s: &AttentionShape) {
    let pair = running.denominator + shuffle_xor(running.denominator, 1);
    let denominator = pair + shuffle_xor(pair, 2);
    let (group, place) = (lane() >> 2, lane() & 3);
    if group < s.heads_per_block {
        let to = slot(warp_index(), group, s);
        for (eight, sum) in (0u32..).zip(&running.numerator) {
            let at = to.at(place * 2 + eight * 8);
            at.store_vector([sum.0[0] + sum.0[2], sum.0[1] + sum.0[3]]);
        }
        if place == 0 {
            to.at(s.head_dim).store_vector([running.largest, denominator]);
        }
    }
}

/// The scores of the new key; by one warp.
#[device]
pub(super) fn new_scores(s: &AttentionShape) {
    let key = query::head(s.heads_per_block, s);
    let mut sums = vec![val(0.0f32); s.heads_per_block as usize];
    for pass in 0..s.head_dim.div_ceil(WARP) {
        let element = lane() + pass * WARP;
        if element < s.head_dim {
            let key = key.at(element).load();
            for (head, sum) in (0u32..).zip(sums.iter_mut()) {
                *sum = fma(query::head(head, s).at(element).load(), key, *sum);
            }
        }
    }
    for (head, sum) in (0u32..).zip(sums) {
        let score = warp_sum(sum);
        if lane() == 0 {
            new_score(head, s).store(score);
        }
    }
}

/// Joins the warps' parts and the present position, and writes the output or, if there are more runs, this run's
/// part.
#[device]
pub(super) fn join_warps(operands: &Operands, work: &Work, s: &AttentionShape) {
    let value = query::head(s.heads_per_block + 1, s);
    for pass in 0..(s.heads_per_block * s.head_dim).div_ceil(CONSUMERS) {
        let index = thread_index() + pass * CONSUMERS;
        if index < s.heads_per_block * s.head_dim {
            let (head, element) = (index / s.head_dim, index % s.head_dim);
            let mut parts: Vec<Part> =
                (0..WARPS).map(|warp| Part::load(slot(warp, head, s), element, Cache::Default, s)).collect();
            // Where the present position is another CTA's, it weighs nothing.
            let [largest, denominator] = [(new_score(head, s).load(), LOWEST), (val(1.0f32), 0.0)]
                .map(|(new, none)| select(work.last, new, none));
            let numerator = select(work.last, value.at(element).load(), 0.0f32);
            parts.push(Part { numerator, largest, denominator });
            let total = Part::sum(&parts);
            let row = work.first_head + head;
            if work.runs == 1 {
                operands.y.at(row * s.head_dim + element).store(total.quotient());
            } else {
                let to = operands.partial.at((row * s.splits + block_index_y()) * s.partial_stride());
                to.at(element).store(total.numerator);
                if element == 0 {
                    to.at(s.head_dim).store_vector([total.largest, total.denominator]);
                }
            }
        }
    }
}

/// Runs whose parts a thread loads at a time.
const RUNS_AT_A_TIME: u32 = 8;

/// The last CTA to arrive joins the runs of its heads.
#[device]
pub(super) fn join_runs(operands: &Operands, work: &Work, s: &AttentionShape) {
    let counter = operands.counters.at(block_index());
    let arrived = shared_array::<u32>(1);
    named_barrier(BARRIER, CONSUMERS);
    if thread_index() == 0 {
        // Behind the barrier, so that it speaks for all threads of the CTA.
        fence(Scope::Gpu);
        let before = counter.atomic_add(1u32, Scope::Gpu);
        fence(Scope::Gpu);
        arrived.store(before + 1);
    }
    named_barrier(BARRIER, CONSUMERS);
    if arrived.load() == work.runs {
        // Four elements a thread.
        let fours = s.heads_per_block * s.head_dim / 4;
        for pass in 0..fours.div_ceil(CONSUMERS) {
            let index = (thread_index() + pass * CONSUMERS) * 4;
            if index < fours * 4 {
                let (head, element) = (index / s.head_dim, index % s.head_dim);
                let row = work.first_head + head;
                let from = operands.partial.at(row * s.splits * s.partial_stride());
                let mut total = Four::load(from, element, val(0u32), val(true), s);
                let mut first = val(1u32);
                while first < work.runs {
                    let mut parts = vec![total.clone()];
                    for i in 0..RUNS_AT_A_TIME {
                        let run = first + i;
                        parts.push(Four::load(from, element, run.min(work.runs - 1), run < work.runs, s));
                    }
                    total = Four::sum(&parts);
                    first += RUNS_AT_A_TIME;
                }
                let y = operands.y.at(row * s.head_dim + element);
                y.store_vector(total.numerator.map(|sum| sum.div_approx(total.denominator)));
            }
        }
        if thread_index() == 0 {
            counter.store(0u32);
        }
    }
}

/// As [`Part`], of four elements.
#[derive(Clone, Carry)]
struct Four {
    numerator: [Val<f32>; 4],
    largest: Val<f32>,
    denominator: Val<f32>,
}

impl Four {
    /// Elements from `element` of run `run`; one that weighs nothing unless `counts`. Other multiprocessors wrote them:
    /// the first-level cache may have what was there before.
    fn load(
        from: Ptr<Global, f32>,
        element: Val<u32>,
        run: Val<u32>,
        counts: Val<bool>,
        s: &AttentionShape,
    ) -> Four {
        let from = from.at(run * s.partial_stride());
        let [largest, denominator] = from.at(s.head_dim).load_vector_cached::<2>(Cache::L2);
        Four {
            numerator: from.at(element).load_vector_cached::<4>(Cache::L2),
            largest: select(counts, largest, f32::NEG_INFINITY),
            denominator,
        }
    }

    /// All parts together, at their common maximum.
    fn sum(parts: &[Four]) -> Four {
        let largest = parts[1..].iter().fold(parts[0].largest, |largest, part| largest.max(part.largest));
        let mut total = Four { numerator: [val(0.0f32); 4], largest, denominator: val(0.0f32) };
        for part in parts {
            let weight = (part.largest - largest).exp2();
            total.denominator = fma(part.denominator, weight, total.denominator);
            total.numerator = std::array::from_fn(|i| fma(part.numerator[i], weight, total.numerator[i]));
        }
        total
    }
}
