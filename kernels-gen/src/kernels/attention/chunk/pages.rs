//! Loops over the pages of a pass, of warps and of warpgroups.

use bespoke_codegen::prelude::*;

use super::Block;
use super::pass::{Feed, load_next};
use super::ranges::Ranges;
use super::unit::{
    Running, SoftmaxWeights, add_values, clear_stale_values, scores, start_adding_values, start_scores, weigh,
};
use crate::kernels::attention::shape::PAGE;

/// State of the loop over the pages.
#[derive(Clone, Carry)]
pub(super) struct Progress {
    /// Pages that are not loaded yet.
    pub feed: Feed,
    /// Stage of the ring with the current page.
    pub consumer: Consumer,
    /// Online softmax of the warp's rows.
    pub running: Running,
}

type Query = [FragmentA<f16, 4>];

/// Attends to the pages of a half-open range, which is not empty. Loads a page after each.
#[device]
pub(super) fn attend_to_pages(
    pages: [Val<u32>; 2],
    query: &Query,
    ranges: &Ranges,
    progress: &mut Progress,
    block: &Block<'_>,
) {
    if block.s.warpgroups {
        // A weight of zero does not mask the values of another sequence: 0 · NaN is NaN.
        if ranges.has_rows() {
            by_warpgroup(pages, query, ranges, progress, block);
        } else {
            skip_pages(pages, ranges, progress, block);
        }
    } else {
        by_warp(pages, query, ranges, progress, block);
    }
}

/// Attends to the pages with the products of warps (`mma`), a unit of positions at a time.
#[device]
fn by_warp(pages: [Val<u32>; 2], query: &Query, ranges: &Ranges, progress: &mut Progress, block: &Block<'_>) {
    let (s, a) = (block.s, &block.s.attention);
    let [mut page, end] = pages;
    while page < end {
        progress.consumer.wait();
        let mut within = val(0u32);
        while within < PAGE {
            let first = page * PAGE + within;
            let at = progress.consumer.data().byte_add(within * a.position_bytes());
            if ranges.some_attend(first, s.unit()) {
                attend_to_unit(at, first, query, ranges, &mut progress.running, block);
            }
            within += s.unit();
        }
        progress.consumer.release();
        progress.consumer.advance();
        load_next(&mut progress.feed, block);
        page += 1;
    }
}

/// Attends to the positions of a unit from `first` on, whose keys are at `at`.
#[device]
fn attend_to_unit(
    at: Ptr<Shared, u8>,
    first: Val<u32>,
    query: &Query,
    ranges: &Ranges,
    running: &mut Running,
    block: &Block<'_>,
) {
    let (s, a) = (block.s, &block.s.attention);
    let scores = scores(at, query, a);
    let attend = |ranges: Option<&Ranges>, running: &mut Running| {
        let weights = weigh(&scores, first, ranges, running, a);
        running.rescale(&weights);
        add_values(at, first, &weights.tiles, ranges, running, a);
    };
    if ranges.all_attend(first, s.unit()) {
        attend(None, running);
    } else {
        attend(Some(ranges), running);
    }
}

/// Attends to the pages with the products of warpgroups (`wgmma`). The softmax of a page overlaps with the product of the weights and values of
/// the page before.
#[device]
fn by_warpgroup(
    pages: [Val<u32>; 2],
    query: &Query,
    ranges: &Ranges,
    progress: &mut Progress,
    block: &Block<'_>,
) {
    let a = &block.s.attention;
    let [mut page, end] = pages;
    wait_for_page(page, ranges, &progress.consumer, block);
    let scores = start_scores(progress.consumer.data(), query, a).wait();
    let mut weights = weigh_page(scores.fragments(), page, ranges, &mut progress.running, block);
    progress.running.rescale(&weights);
    while page + 1 < end {
        let previous = progress.consumer;
        progress.consumer.advance();
        wait_for_page(page + 1, ranges, &progress.consumer, block);
        let scores = start_scores(progress.consumer.data(), query, a);
        let sums = start_adding_values(previous.data(), &weights.tiles, &mut progress.running, a);
        let scores = scores.wait_for_older(1);
        page += 1;
        weights = weigh_page(scores.fragments(), page, ranges, &mut progress.running, block);
        progress.running.numerators = sums.wait().fragments().to_vec();
        progress.running.rescale(&weights);
        previous.release();
        load_next(&mut progress.feed, block);
    }
    let sums = start_adding_values(progress.consumer.data(), &weights.tiles, &mut progress.running, a);
    progress.running.numerators = sums.wait().fragments().to_vec();
    progress.consumer.release();
    progress.consumer.advance();
    load_next(&mut progress.feed, block);
}

/// Releases the pages of a pass in which the warpgroup has no rows.
#[device]
fn skip_pages(pages: [Val<u32>; 2], ranges: &Ranges, progress: &mut Progress, block: &Block<'_>) {
    let [mut page, end] = pages;
    while page < end {
        wait_for_page(page, ranges, &progress.consumer, block);
        progress.consumer.release();
        progress.consumer.advance();
        load_next(&mut progress.feed, block);
        page += 1;
    }
}

/// Waits until a page is loaded, then sets its stale values to zero.
#[device]
fn wait_for_page(page: Val<u32>, ranges: &Ranges, consumer: &Consumer, block: &Block<'_>) {
    consumer.wait();
    if ranges.has_stale(page * PAGE, PAGE) {
        clear_stale_values(consumer.data(), page * PAGE, ranges, block.s);
        barrier();
    }
}

/// Softmax weights of the positions of page `page`, masked only if a row does not attend to all of them. See [`weigh`].
#[device]
fn weigh_page(
    scores: &[FragmentC<f32>],
    page: Val<u32>,
    ranges: &Ranges,
    running: &mut Running,
    block: &Block<'_>,
) -> SoftmaxWeights {
    let a = &block.s.attention;
    let mut weights = SoftmaxWeights::zero(PAGE);
    if ranges.all_attend(page * PAGE, PAGE) {
        weights = weigh(scores, page * PAGE, None, running, a);
    } else {
        weights = weigh(scores, page * PAGE, Some(ranges), running, a);
    }
    weights
}
