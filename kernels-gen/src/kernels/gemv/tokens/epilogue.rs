//! The epilogue of a product of several tokens: reduces sums of steps to outputs.

use bespoke_codegen::prelude::*;

use super::inputs::GROUP;
use super::load::units_in;
use super::next::{Early, clear_squares, finish_inputs, sum_of_received_squares};
use super::outputs::{
    Element, OUTPUTS_AT_ONCE, Rows, TILE_GROUP, TILE_PAIR, lane_sums, own_items, residuals, result, sum,
    totals,
};
use crate::kernels::argmax::{Candidate, better};
use crate::kernels::gemv::epilogue::{finite_or_infinity, first_rows, no_candidate};
use crate::kernels::gemv::operands::Operands;
use crate::kernels::gemv::product::{Input, Output};
use crate::kernels::gemv::shape::GemvShape;
use crate::weights::Layout;

/// Computes the outputs of a CTA. A thread has one row of a tile and one token at a time; with warpgroups two rows and two tokens.
pub(super) struct TokenEpilogue<'a> {
    operands: Operands,
    /// The values that the residual connection adds to this thread's outputs, if they are loaded before the products.
    early: Option<EarlyResiduals>,
    s: &'a GemvShape,
}

/// Residuals that are loaded before the products.
enum EarlyResiduals {
    /// Those of the thread's outputs.
    OfThread(Vec<Val<f32>>),
    /// Those of the items of the thread's warp.
    OfItems(Early),
}

impl<'a> TokenEpilogue<'a> {
    pub fn new(operands: Operands, s: &'a GemvShape) -> TokenEpilogue<'a> {
        TokenEpilogue { operands, early: None, s }
    }

    /// Loads the residuals of `tiles` now, if a thread has all of its outputs at once. Earlier launches must have completed.
    pub fn with_residual(self, tiles: [Val<u32>; 2]) -> TokenEpilogue<'a> {
        let (operands, s) = (&self.operands, self.s);
        let early = s.loads_residual_early().then(|| {
            let rows = Rows { layout: s.layouts()[0], first: 0, place: 0 };
            if s.next.is_some() {
                return EarlyResiduals::OfItems(Early::load(&rows, tiles, operands, s));
            }
            let elements = elements(thread_index(), &rows, tiles, s);
            EarlyResiduals::OfThread(residuals(&elements, &rows, operands, s))
        });
        TokenEpilogue { early, ..self }
    }

    /// Computes the factors 1 / √(mean(x²) + ε) of normalised inputs, and initialises the largest outputs. The inputs must
    /// be complete. A barrier among the consumer warps must follow.
    pub fn compute_factors(&self) {
        if let Input::Normed { eps } = self.s.input {
            compute_factors(&self.operands, eps, self.s);
        }
        clear_squares(&self.operands, self.s);
        if self.s.output == Output::Argmax {
            initialise_best(self.s);
        }
    }

    /// Adds the sums of the steps of a slice, in the order of columns, to the totals of `tiles` tiles of segment `place` of
    /// a batch. The sums must be complete. A barrier among the consumer warps must follow.
    pub fn add_slice(&self, place: u32, layout: &Layout, tiles: Val<u32>, slice: Val<u32>) {
        add_slice(place, layout, tiles, slice, self.s);
    }

    /// Writes the outputs of a range of tiles of the segments of a batch.
    pub fn finish(&self, batch: &[usize], tiles: [Val<u32>; 2]) {
        let (s, layouts, firsts) = (self.s, self.s.layouts(), first_rows(self.s));
        let rows = |place: usize| {
            let layout = layouts[batch[place]];
            Rows { layout, first: firsts[batch[place]], place: place as u32 }
        };
        let batch: Vec<Rows> = (0..batch.len()).map(rows).collect();
        let batch: Vec<&Rows> = batch.iter().collect();
        if s.next.is_some() {
            let early = match &self.early {
                Some(EarlyResiduals::OfItems(early)) => Some(early),
                _ => None,
            };
            finish_inputs(&batch, tiles, early, &self.operands, s);
        } else if s.output != Output::Argmax {
            let early = match &self.early {
                Some(EarlyResiduals::OfThread(residuals)) => Some(&residuals[..]),
                _ => None,
            };
            finish_rows(&batch, tiles, early, &self.operands, s);
        } else if s.has_warpgroups() {
            finish_lane_logits(batch[0], tiles, &self.operands, s);
        } else {
            finish_logits(batch[0], tiles, &self.operands, s);
        }
    }

    /// Adds the totals of the other CTA of a cluster to those of the outputs that this CTA writes. `finish` follows.
    pub fn add_other_part(&self, tiles: [Val<u32>; 2]) {
        add_other_part(&Rows { layout: self.s.layouts()[0], first: 0, place: 0 }, tiles, self.s);
    }

    /// Writes the CTA's largest output of each token, with [`Output::Argmax`]. All tiles must be finished, and a barrier
    /// among the consumer warps must precede.
    pub fn end(&self) {
        if let Some((values, rows)) = self.operands.best {
            store_best(values, rows, self.s);
        }
    }
}

#[device]
fn compute_factors(operands: &Operands, eps: f32, s: &GemvShape) {
    let (shared, map, layout) = (dynamic_shared::<u8>(), s.token_map(), s.input_layout());
    let mut token = thread_index();
    let squares = layout.squares();
    while token < s.tokens {
        let mut sum = val(0.0f32);
        if let Some(received) = operands.squares {
            sum = sum_of_received_squares(token, operands.x.cast(), received, s);
        } else if s.is_prepared() {
            let at = operands.x.cast::<u8>().byte_add(layout.bytes()).cast::<f32>().at(token * squares);
            sum = (1..squares).fold(at.load(), |sum, group| sum + at.at(group).load());
        } else {
            let at = shared.byte_add(map.squares).cast::<f32>().at(token * squares);
            sum = (1..squares).fold(at.load(), |sum, group| sum + at.at(group).load());
        }
        let factor = (sum * (1.0 / s.cols as f32) + eps).rsqrt_approx();
        shared.byte_add(map.factors).cast::<f32>().at(token).store(factor);
        if s.stores_factors {
            let factors = operands.factors.expect("the factors have a place");
            if (block_index() == 0) & (block_index_y() == 0) {
                factors.at(token).store(factor);
            }
        }
        token += s.consumers();
    }
}

/// Number of steps whose sums are loaded at once, to overlap the latencies.
const STEPS_AT_ONCE: u32 = 4;

#[device]
fn add_slice(place: u32, layout: &Layout, tiles: Val<u32>, slice: Val<u32>, s: &GemvShape) {
    let (shared, map) = (dynamic_shared::<u8>(), s.token_map());
    let (of_tile, held) = (s.tile_sums(), s.schedule.several.tiles);
    let steps = units_in(slice, layout, s) * s.unit_steps(layout.ty);
    let most = s.stored_steps();
    let partial = shared.byte_add(map.partial).cast::<f32>().at(place * held * most * of_tile);
    let totals = shared.byte_add(map.totals).cast::<f32>().at(place * held * of_tile);
    for part in 0..s.column_parts() {
        // The part's steps among those of the slice; `earlier` is 0 if none of its steps are in earlier slices.
        let [mut first, mut end, mut earlier] = [val(0u32), steps, slice];
        if s.column_parts() > 1 {
            let before = slice * most;
            let border = before.max(s.first_part(layout)) - before;
            if part == 0 {
                end = steps.min(border);
            } else {
                first = border;
                earlier = border + before - s.first_part(layout);
            }
        }
        // Four sums at a time.
        let mut index = thread_index() * 4;
        if s.column_parts() > 1 {
            index = select(first < end, index, tiles * of_tile);
        }
        while index < tiles * of_tile {
            let from = partial.at(index / of_tile * (most * of_tile) + index % of_tile);
            let to = totals.at(index + part * s.totals());
            let mut step = first;
            let mut sums = [val(0.0f32); 4];
            if earlier == 0 {
                sums = from.at(first * of_tile).load_vector::<4>();
                step += 1;
            } else {
                sums = to.load_vector::<4>();
            }
            for count in [STEPS_AT_ONCE, 1] {
                while step + count <= end {
                    let at = from.at(step * of_tile);
                    let next: Vec<_> =
                        (0..count).map(|step| at.at(step * of_tile).load_vector::<4>()).collect();
                    for next in next {
                        sums = std::array::from_fn(|i| sums[i] + next[i]);
                    }
                    step += count;
                }
            }
            to.store_vector(sums);
            index += s.consumers() * 4;
        }
    }
}

/// Adds the other CTA's totals to those that this CTA finishes, each in the lane that finishes it.
#[device]
fn add_other_part(rows: &Rows, tiles: [Val<u32>; 2], s: &GemvShape) {
    let [first, end] = own_items((tiles[1] - tiles[0]) * (s.tile_sums() / TILE_PAIR), s);
    let mut item = first + warp_index();
    while item < end {
        let own = totals(rows, val(0), item * TILE_PAIR + lane() * OUTPUTS_AT_ONCE, s);
        let (sums, others) = (own.load_vector::<4>(), own.of_block(cluster_rank() ^ 1).load_vector::<4>());
        let joined: [Val<f32>; 4] = std::array::from_fn(|i| sums[i] + others[i]);
        own.store_vector(joined);
        item += s.schedule.warps;
    }
}

/// The outputs that a thread has at once, from index `first` of a range of tiles on.
fn elements(first: Val<u32>, rows: &Rows, tiles: [Val<u32>; 2], s: &GemvShape) -> Vec<Element> {
    let of_tile = s.tile_sums();
    if s.has_warpgroups() {
        let within = first % of_tile;
        let lane = within % TILE_PAIR / OUTPUTS_AT_ONCE;
        return Element::of_lane(first / of_tile, within / TILE_PAIR, lane, rows, tiles, s);
    }
    let element = |pass: u32| {
        let index = first + pass * s.consumers();
        let within = index % of_tile;
        Element::of_group(index / of_tile, within / TILE_GROUP, within % TILE_GROUP, rows, tiles, s)
    };
    (0..s.outputs_at_once()).map(element).collect()
}

impl GemvShape {
    /// Number of outputs that a thread has at once.
    fn outputs_at_once(&self) -> u32 {
        OUTPUTS_AT_ONCE.min((self.schedule.several.tiles * self.tile_sums()).div_ceil(self.consumers()))
    }

    /// Whether the residuals are loaded before the products: if a thread has all of its outputs at once. Warpgroups have no registers
    /// for that.
    fn loads_residual_early(&self) -> bool {
        let tiles = self.schedule.several.tiles;
        self.output == Output::Residual
            && self.segments.len() == 1
            && !self.has_warpgroups()
            && self.most_tiles() <= tiles
            && tiles * self.tile_sums() <= OUTPUTS_AT_ONCE * self.consumers()
    }
}

/// Writes the outputs of a range of tiles: of one segment, or of gate and up.
#[device]
fn finish_rows(
    batch: &[&Rows],
    tiles: [Val<u32>; 2],
    early: Option<&[Val<f32>]>,
    operands: &Operands,
    s: &GemvShape,
) {
    let (of_tile, rows) = (s.tile_sums(), batch[0]);
    let mut end = (tiles[1] - tiles[0]) * of_tile;
    let mut first = thread_index() * if s.has_warpgroups() { OUTPUTS_AT_ONCE } else { 1 };
    if s.cluster() > 1 {
        let [first_item, end_item] = own_items(end / TILE_PAIR, s);
        first += first_item * TILE_PAIR;
        end = end_item * TILE_PAIR;
    }
    while first < end {
        let some = elements(first, rows, tiles, s);
        let of_lane: Option<Vec<_>> =
            s.has_warpgroups().then(|| batch.iter().map(|rows| lane_sums(rows, &some[0], s)).collect());
        let before: Vec<Val<f32>> = match (early, s.output) {
            (Some(early), _) => early.to_vec(),
            (None, Output::Residual) => residuals(&some, rows, operands, s),
            _ => Vec::new(),
        };
        for (pass, at) in some.iter().enumerate() {
            if at.inside {
                let sums: Vec<_> = match &of_lane {
                    Some(segments) => segments.iter().map(|sums| sums[pass]).collect(),
                    None => batch.iter().map(|rows| sum(rows, at, s)).collect(),
                };
                let mut value = result(at, batch, &sums, operands, s);
                if s.output == Output::Residual {
                    value += before[pass];
                }
                at.output(rows, operands, s).store(value);
            }
        }
        first += OUTPUTS_AT_ONCE * s.consumers();
    }
}

/// Writes the outputs of a range of tiles, and updates the largest output of each token.
#[device]
fn finish_logits(rows: &Rows, tiles: [Val<u32>; 2], operands: &Operands, s: &GemvShape) {
    let of_group = (tiles[1] - tiles[0]) * TILE_GROUP;
    let mut group = val(0u32);
    while group < s.cta_groups() {
        let mut best = no_candidate();
        // A thread has one token of the group.
        let mut index = thread_index();
        while index < of_group {
            let at = Element::of_group(index / TILE_GROUP, group, index % TILE_GROUP, rows, tiles, s);
            if at.inside {
                best = better(best, store_logit(&at, rows, sum(rows, &at, s), operands, s));
            }
            index += s.consumers();
        }
        update_best(best, group, s);
        group += 1;
    }
}

/// [`finish_logits`] for totals in the order of warpgroups.
#[device]
fn finish_lane_logits(rows: &Rows, tiles: [Val<u32>; 2], operands: &Operands, s: &GemvShape) {
    let lanes = (tiles[1] - tiles[0]) * WARP;
    let mut pair = val(0u32);
    while pair < s.cta_groups() / 2 {
        let mut best = [no_candidate(), no_candidate()];
        // A thread has the same place in both groups.
        let mut index = thread_index();
        while index < lanes {
            let some = Element::of_lane(index / WARP, pair, index % WARP, rows, tiles, s);
            let sums = lane_sums(rows, &some[0], s);
            for (place, at) in some.iter().enumerate() {
                if at.inside {
                    let candidate = store_logit(at, rows, sums[place], operands, s);
                    best[place % 2] = better(best[place % 2], candidate);
                }
            }
            index += s.consumers();
        }
        for (group, best) in (0u32..).zip(best) {
            update_best(best, pair * 2 + group, s);
        }
        pair += 1;
    }
}

/// Stores the logit of an output, from its sum.
#[device]
fn store_logit(at: &Element, rows: &Rows, sum: Val<f32>, operands: &Operands, s: &GemvShape) -> Candidate {
    let value = result(at, &[rows], &[sum], operands, s);
    at.output(rows, operands, s).store(value);
    Candidate { value: finite_or_infinity(value), token: at.row + rows.first }
}

/// Addresses of this warp's largest outputs and their rows, `[token]`.
#[device]
fn best_of_warp(warp: Val<u32>, s: &GemvShape) -> (Ptr<Shared, f32>, Ptr<Shared, u32>) {
    let tokens = s.input_layout().padded_tokens();
    let best = dynamic_shared::<u8>().byte_add(s.token_map().best);
    let values = best.cast::<f32>().at(warp * tokens);
    (values, best.cast::<u32>().at(s.schedule.warps * tokens).at(warp * tokens))
}

#[device]
fn initialise_best(s: &GemvShape) {
    let (values, rows) = best_of_warp(warp_index(), s);
    if lane() < GROUP {
        for group in 0..s.input_layout().groups() {
            values.at(lane() + group * GROUP).store(f32::NEG_INFINITY);
            rows.at(lane() + group * GROUP).store(0u32);
        }
    }
}

/// Compares the candidates of a warp for the tokens of a group with the warp's largest outputs so far.
#[device]
fn update_best(candidate: Candidate, group: Val<u32>, s: &GemvShape) {
    let mut best = candidate;
    for step in [16u32, 8, 4] {
        let other = Candidate { value: shuffle_xor(best.value, step), token: shuffle_xor(best.token, step) };
        best = better(best, other);
    }
    let (values, rows) = best_of_warp(warp_index(), s);
    if lane() < GROUP {
        let (value, row) = (values.at(lane() + group * GROUP), rows.at(lane() + group * GROUP));
        best = better(Candidate { value: value.load(), token: row.load() }, best);
        value.store(best.value);
        row.store(best.token);
    }
}

#[device]
fn store_best(values: Ptr<Global, f32>, rows: Ptr<Global, u32>, s: &GemvShape) {
    let mut token = thread_index();
    while token < s.tokens {
        let mut best = no_candidate();
        for warp in 0..s.schedule.warps {
            let (value, row) = best_of_warp(val(warp), s);
            best = better(best, Candidate { value: value.at(token).load(), token: row.at(token).load() });
        }
        let at = token * s.schedule.grid + block_index();
        values.at(at).store(best.value);
        rows.at(at).store(best.token);
        token += s.consumers();
    }
}
