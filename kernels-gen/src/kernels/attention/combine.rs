//! Combination of partial results: of warps in shared memory, then of splits (runs of pages) in device memory.
//!
//! A partial result of a head is the numerator of its softmax-weighted sum (head_dim elements), then the maximum of its
//! scores and the denominator, both relative to that maximum.

use bespoke_codegen::prelude::*;

use super::shape::{AttentionShape, CONSUMERS, WARPS};
use super::tile::RunningSoftmax;
use super::work::{CONSUMER_BARRIER, Results, Run, Work};
use crate::kernels::gemv::UNIT;
use crate::kernels::gemv::tokens::store_unit;

/// Four elements of a partial result's numerator, with the maximum and the denominator of the partial result.
#[derive(Clone, Copy, Carry)]
struct Partial {
    numerator: [Val<f32>; 4],
    largest: Val<f32>,
    denominator: Val<f32>,
}

impl Partial {
    /// Loads four elements, from `element` on, of the partial result at `from`.
    fn load<S: Space>(from: Ptr<S, f32>, element: Val<u32>, cache: Cache, s: &AttentionShape) -> Partial {
        let [largest, denominator] = from.at(s.head_dim).load_vector_cached::<2>(cache);
        let numerator = from.at(element).load_vector_cached::<4>(cache);
        Partial { numerator, largest, denominator }
    }

    /// Adds partial results, rescaled to their common maximum.
    fn sum(parts: &[Partial]) -> Partial {
        let largest = parts[1..].iter().fold(parts[0].largest, |largest, part| largest.max(part.largest));
        let mut total = Partial { numerator: [val(0.0f32); 4], largest, denominator: val(0.0f32) };
        for part in parts {
            let weight = (part.largest - largest).exp2_approx();
            total.denominator = fma(part.denominator, weight, total.denominator);
            total.numerator = std::array::from_fn(|i| fma(part.numerator[i], weight, total.numerator[i]));
        }
        total
    }

    /// Four elements of the output.
    fn quotients(&self) -> [Val<f32>; 4] {
        self.numerator.map(|sum| sum.div_approx(self.denominator))
    }
}

impl Results {
    /// Stores four elements of the output, from `element` of head `head`, among the CTA's, on. If [`quantise_output`] follows, they
    /// are stored in shared memory, in place of those of the first warp's partial result.
    #[device]
    fn store_four(
        &self,
        four: [Val<f32>; 4],
        head: Val<u32>,
        element: Val<u32>,
        work: &Work,
        s: &AttentionShape,
    ) {
        match self.y {
            Some(y) => y.at((work.token.first_head + head) * s.head_dim + element).store_vector(four),
            None => partial_at(0, head, s).at(element).store_vector(four),
        }
    }

    /// If the shape has an `output_layout`, quantises the output of the CTA's heads, and stores it for the next product. The
    /// elements are divided into units of eight, of which a thread has one at a time; `values` gives the elements of a unit, by its
    /// index in the CTA. Called by the first `threads` threads of the CTA.
    #[device]
    fn store_inputs(
        &self,
        threads: u32,
        work: &Work,
        s: &AttentionShape,
        values: impl Fn(Val<u32>) -> Vec<Val<f32>>,
    ) {
        if let Some((inputs, layout)) = self.inputs.zip(s.output_layout) {
            let units = s.heads_per_block * s.head_dim / UNIT;
            let first = work.token.first_head * s.head_dim / UNIT;
            for pass in 0..units.div_ceil(threads) {
                let unit = thread_index() + pass * threads;
                if unit < units {
                    store_unit(&values(unit), first + unit, self.row, inputs, &layout);
                    if layout.padded_tokens() > s.tokens {
                        // Tokens that complete the last group or block.
                        if self.row == s.tokens - 1 {
                            for token in s.tokens..layout.padded_tokens() {
                                let zeros = vec![val(0.0f32); UNIT as usize];
                                store_unit(&zeros, first + unit, val(token), inputs, &layout);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Quantises the output of the CTA's heads, which [`Results::store_four`] has stored in shared memory. Called by the consumer
/// warps, if the shape has an `output_layout`.
#[device]
pub(super) fn quantise_output(results: &Results, work: &Work, s: &AttentionShape) {
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    results.store_inputs(CONSUMERS, work, s, |unit| {
        let (head, element) = (unit * UNIT / s.head_dim, unit * UNIT % s.head_dim);
        let from = partial_at(0, head, s).at(element);
        [from.load_vector::<4>(), from.at(4).load_vector()].concat()
    });
}

/// Calls `combine` with the head, among the CTA's, and the first element of every four elements of the thread.
#[device]
fn for_each_four(s: &AttentionShape, combine: impl Fn(Val<u32>, Val<u32>)) {
    let elements = s.heads_per_block * s.head_dim;
    for pass in 0..(elements / 4).div_ceil(CONSUMERS) {
        let index = (thread_index() + pass * CONSUMERS) * 4;
        if index < elements {
            combine(index / s.head_dim, index % s.head_dim);
        }
    }
}

/// Address of the partial result of warp `warp` for head `head`, in shared memory.
fn partial_at(warp: impl IntoVal<u32>, head: Val<u32>, s: &AttentionShape) -> Ptr<Shared, f32> {
    let parts = dynamic_shared::<u8>().byte_add(s.shared_map().partial).cast::<f32>();
    parts.at((warp.into_val() * s.heads_per_block + head) * s.shared_stride())
}

/// Stores a warp's partial results to shared memory.
#[device]
pub(super) fn store_partial(running: &RunningSoftmax, s: &AttentionShape) {
    let pair = running.denominator + shuffle_xor(running.denominator, 1);
    let denominator = pair + shuffle_xor(pair, 2);
    let (group, quarter) = (lane() >> 2, lane() & 3);
    if group < s.heads_per_block {
        let to = partial_at(warp_index(), group, s);
        for (eight, sum) in (0u32..).zip(&running.numerator) {
            let at = to.at(quarter * 2 + eight * 8);
            at.store_vector([sum.0[0] + sum.0[2], sum.0[1] + sum.0[3]]);
        }
        if quarter == 0 {
            to.at(s.head_dim).store_vector([running.largest, denominator]);
        }
    }
}

/// Combines the warps' partial results. Writes the output if the context has one split, else
/// the run's partial result, to device memory.
pub(super) fn combine_warps(results: &Results, work: &Work, run: &Run, s: &AttentionShape) {
    for_each_four(s, |head, element| combine_warps_of_four(head, element, results, work, run, s));
}

#[device]
fn combine_warps_of_four(
    head: Val<u32>,
    element: Val<u32>,
    results: &Results,
    work: &Work,
    run: &Run,
    s: &AttentionShape,
) {
    let of_warp = |warp: u32| Partial::load(partial_at(warp, head, s), element, Cache::Default, s);
    let total = Partial::sum(&(0..WARPS).map(of_warp).collect::<Vec<_>>());
    if work.runs.count == 1 {
        results.store_four(total.quotients(), head, element, work, s);
    } else {
        let head = work.token.first_head + head;
        let to = results.partial.at((head * s.splits + run.index) * s.partial_stride());
        to.at(element).store_vector(total.numerator);
        if element == 0 {
            to.at(s.head_dim).store_vector([total.largest, total.denominator]);
        }
    }
}

/// Writes zeros to the output of a row that does not exist; called by the CTAs without pages.
#[device]
pub(super) fn clear_inactive(results: &Results, work: &Work, s: &AttentionShape) {
    if !work.token.exists && work.share.first == 0 {
        if let Some(y) = results.y {
            for pass in 0..(s.heads_per_block * s.head_dim).div_ceil(s.threads()) {
                let index = thread_index() + pass * s.threads();
                if index < s.heads_per_block * s.head_dim {
                    y.at(work.token.first_head * s.head_dim + index).store(0.0f32);
                }
            }
        }
        results.store_inputs(s.threads(), work, s, |_| vec![val(0.0f32); UNIT as usize]);
    }
}

/// Number of splits whose partial results a thread loads at once.
const RUNS_IN_FLIGHT: u32 = 8;

/// Combines the partial results of all splits for this CTA's query heads, in the last CTA of these heads to arrive. Returns
/// whether it is this one.
#[device]
pub(super) fn combine_runs(results: &Results, work: &Work, s: &AttentionShape) -> Val<bool> {
    let counter = results.counters.at(block_index());
    let arrived = shared_array::<u32>(1);
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    if thread_index() == 0 {
        // The release includes the writes of the whole CTA, which happen before the barrier.
        let before = counter.atomic_add(1u32, Order::AcqRel.among(Scope::Gpu));
        arrived.store(before + 1);
    }
    named_barrier(CONSUMER_BARRIER, CONSUMERS);
    let is_last = arrived.load() == work.runs.count.min(work.share.ctas);
    if is_last {
        for_each_four(s, |head, element| combine_runs_of_four(head, element, results, work, s));
        if thread_index() == 0 {
            counter.store(0u32);
        }
    }
    is_last
}

#[device]
fn combine_runs_of_four(
    head: Val<u32>,
    element: Val<u32>,
    results: &Results,
    work: &Work,
    s: &AttentionShape,
) {
    let from = results.partial.at((work.token.first_head + head) * s.splits * s.partial_stride());
    let mut total = load_run(from, element, val(0u32), val(true), s);
    let mut first = val(1u32);
    while first < work.runs.count {
        let mut parts = vec![total];
        for i in 0..RUNS_IN_FLIGHT {
            let run = first + i;
            parts.push(load_run(from, element, run.min(work.runs.count - 1), run < work.runs.count, s));
        }
        total = Partial::sum(&parts);
        first += RUNS_IN_FLIGHT;
    }
    results.store_four(total.quotients(), head, element, work, s);
}

/// Loads four elements, from `element` on, of the partial result of split `run`; with weight zero unless `counts`.
/// CTAs on other multiprocessors wrote the result, so the loads bypass L1, which may hold stale lines.
fn load_run(
    from: Ptr<Global, f32>,
    element: Val<u32>,
    run: Val<u32>,
    counts: Val<bool>,
    s: &AttentionShape,
) -> Partial {
    let part = Partial::load(from.at(run * s.partial_stride()), element, Cache::L2, s);
    Partial { largest: select(counts, part.largest, f32::NEG_INFINITY), ..part }
}
