//! The epilogue: reduces partial sums to outputs.

use bespoke_codegen::prelude::*;

use super::operands::{CONSUMER_BARRIER, Operands};
use super::product::{Input, Output, Segment};
use super::shape::GemvShape;
use crate::kernels::activation::{Activation, softcap};
use crate::kernels::argmax::{Candidate, best_of_each, better, block_best};
use crate::weights::{Layout, TILE_ROWS};

/// Computes the outputs of a CTA, one row and token per thread. With several tokens, consecutive threads have the tokens of
/// a row, and `operands.y` is the output vector of the thread's token.
pub(super) struct Epilogue<'a> {
    operands: Operands,
    /// Biases and residuals of this thread's first rows, per segment; loaded before the products.
    early: Vec<Vec<EarlyRow>>,
    s: &'a GemvShape,
}

/// Bias and residual of one row.
#[derive(Clone, Copy)]
struct EarlyRow {
    row: Val<u32>,
    /// Whether the row is one of the CTA's rows.
    inside: Val<bool>,
    bias: Option<Val<f32>>,
    residual: Option<Val<f32>>,
}

/// The rows that a CTA has of one segment (matrix), as a run of tiles.
#[derive(Clone, Copy)]
struct Rows<'a> {
    layout: &'a Layout,
    /// Half-open range of tiles: the first tile, and the one after the last.
    tiles: [Val<u32>; 2],
    /// Index of the segment's first row among the rows of all segments.
    first: u32,
    /// The partial sums of the run, f32 `[tile][step][row][token]`; with several tokens, those of the thread's token.
    partial: Ptr<Shared, f32>,
    /// Factor 1 / √(mean(x²) + ε) of the sums, if the input is normalised.
    scale: Option<Val<f32>>,
}

/// The initial value of the argmax: smaller than any output.
pub(super) fn no_candidate() -> Candidate {
    Candidate { value: val(f32::NEG_INFINITY), token: val(0u32) }
}

impl<'a> Epilogue<'a> {
    /// Epilogue of a CTA that has `tiles` of each segment. Loads the biases, which depend on no earlier launch.
    pub fn new(operands: Operands, tiles: &[[Val<u32>; 2]], s: &'a GemvShape) -> Epilogue<'a> {
        let y = operands.outputs().at(token_offset(s.outputs(), s));
        let operands = Operands { y: Some(y), ..operands };
        let bias = operands.w.byte_add(s.offsets().bias).cast::<f32>();
        let segments = s.segments.iter().zip(tiles).zip(first_rows(s));
        let early = if s.loads_early() {
            segments.map(|((segment, tiles), first)| early_rows(segment, tiles, bias.at(first), s)).collect()
        } else {
            Vec::new()
        };
        Epilogue { operands, early, s }
    }

    /// Loads the residuals, which earlier launches write; these must have completed.
    pub fn load_residual(&mut self) {
        if self.s.output == Output::Residual {
            for (early, first) in self.early.iter_mut().zip(first_rows(self.s)) {
                for one in early {
                    one.residual = Some(load_if(self.operands.outputs().at(first), one.row, one.inside));
                }
            }
        }
    }

    /// Reduces the partial sums of one run of tiles per segment and writes the outputs. The partial sums must be
    /// complete. `best` is this thread's largest output so far; [`Output::Argmax`] updates it.
    pub fn finish(&self, tiles: &[[Val<u32>; 2]], best: &mut Candidate) {
        let s = self.s;
        let scale = norm_scale(s);
        let layouts = s.layouts();
        let partial = dynamic_shared::<u8>().byte_add(s.shared_map().partial).cast::<f32>();
        let mut partial = match token_slot(s) {
            Some(slot) => partial.at(slot),
            None => partial,
        };
        let mut runs = Vec::new();
        for ((layout, &tiles), first) in layouts.iter().zip(tiles).zip(first_rows(s)) {
            runs.push(Rows { layout, tiles, first, partial, scale });
            partial = partial.at((tiles[1] - tiles[0]) * (s.steps(layout) * s.step_sums()));
        }
        if let Output::Glu(activation) = s.output {
            gated(activation, runs[0], runs[1], &self.operands, s);
        } else {
            for (index, rows) in runs.into_iter().enumerate() {
                let early = self.early.get(index).map_or(&[][..], |early| early);
                finish_segment(rows, early, self, best);
            }
        }
    }

    /// Writes the CTA's largest output, with [`Output::Argmax`]. All tiles must be finished.
    pub fn end(&self, best: Candidate) {
        if let Some((values, tokens)) = self.operands.best {
            if self.s.is_few() {
                let best = best_of_each(best, self.s.token_slots(), self.s.consumers(), CONSUMER_BARRIER);
                store_best_of_tokens(best, values, tokens, self.s);
            } else {
                let best = block_best(best, self.s.consumers(), CONSUMER_BARRIER);
                store_best(best, values, tokens);
            }
        }
    }
}

/// Index of the thread's first row in a run of tiles.
#[device]
fn first_index(s: &GemvShape) -> Val<u32> {
    if s.is_few() { thread_index() / s.token_slots() } else { thread_index() }
}

/// The place of the thread's token among the partial sums of a row; `None` with one token.
fn token_slot(s: &GemvShape) -> Option<Val<u32>> {
    s.is_few().then(|| slot_of_thread(s))
}

#[device]
fn slot_of_thread(s: &GemvShape) -> Val<u32> {
    thread_index() % s.token_slots()
}

/// Offset of the thread's token in an array with `stride` elements for each token. A thread without a token has that of the
/// last token.
#[device]
fn token_offset(stride: u32, s: &GemvShape) -> Val<u32> {
    match token_slot(s) {
        None => val(0u32),
        Some(slot) => slot.min(s.tokens - 1) * stride,
    }
}

/// Whether `inside` holds and the thread has a token.
#[device]
fn has_token(inside: Val<bool>, s: &GemvShape) -> Val<bool> {
    if s.is_few() && s.token_slots() != s.tokens { inside & (slot_of_thread(s) < s.tokens) } else { inside }
}

/// Index of each segment's first row among the rows of all segments.
pub(super) fn first_rows(s: &GemvShape) -> Vec<u32> {
    let firsts = s.segments.iter().scan(0, |end, segment| {
        *end += segment.rows;
        Some(*end - segment.rows)
    });
    firsts.collect()
}

/// This thread's first rows of a segment, with the biases of these rows.
#[device]
fn early_rows(
    segment: &Segment,
    tiles: &[Val<u32>; 2],
    bias: Ptr<Global, f32>,
    s: &GemvShape,
) -> Vec<EarlyRow> {
    let end = (tiles[1] * TILE_ROWS).min(segment.rows);
    let one = |pass: u32| {
        let row = tiles[0] * TILE_ROWS + first_index(s) + pass * s.rows_at_once();
        let inside = has_token(row < end, s);
        EarlyRow { row, inside, bias: s.bias.then(|| load_if(bias, row, inside)), residual: None }
    };
    (0..s.early_passes()).map(one).collect()
}

/// Loads element `row` of `from`, or 0 if `inside` is false.
#[device]
pub(super) fn load_if(from: Ptr<Global, f32>, row: Val<u32>, inside: Val<bool>) -> Val<f32> {
    if inside { from.at(row).load() } else { val(0.0f32) }
}

/// Factors 1 / √(mean(x²) + ε) of the tokens' normalised inputs.
fn factors(s: &GemvShape) -> Ptr<Shared, f32> {
    dynamic_shared::<u8>().byte_add(s.shared_map().factors).cast()
}

/// Computes the [`factors`] from the sums of squares, if the input is normalised: one thread of the first warp for each token.
/// That warp's group takes its last stage before the other groups do, so it has time while they multiply. The barrier before the
/// epilogue must follow.
#[device]
pub(super) fn store_factors(s: &GemvShape) {
    if let Input::Normed { eps } = s.input {
        let token = thread_index();
        if token < s.tokens {
            let squares = dynamic_shared::<u8>().byte_add(s.shared_map().squares).cast::<f32>();
            let squares = squares.at(token * s.squares_groups());
            let sum =
                (1..s.squares_groups()).fold(squares.load(), |sum, group| sum + squares.at(group).load());
            factors(s).at(token).store((sum * (1.0 / s.cols as f32) + eps).rsqrt_approx());
        }
    }
}

/// The factor of the thread's token, if the input is normalised.
fn norm_scale(s: &GemvShape) -> Option<Val<f32>> {
    s.normed().then(|| factors(s).at(token_offset(1, s)).load())
}

/// Writes y = f(gate) · up for a run of tiles.
#[device]
fn gated(activation: Activation, gate: Rows<'_>, up: Rows<'_>, operands: &Operands, s: &GemvShape) {
    let rows = (gate.tiles[1] - gate.tiles[0]) * TILE_ROWS;
    let mut index = first_index(s);
    while index < rows {
        let row = gate.tiles[0] * TILE_ROWS + index;
        if has_token(row < gate.layout.rows, s) {
            let [gate, up] = [gate, up].map(|rows| {
                let sum = row_sum(&rows, index, s);
                if s.bias { sum + bias(row + rows.first, operands.w, s) } else { sum }
            });
            let gate = activation.apply(gate);
            operands.outputs().at(row).store(scaled(gate * up, s));
        }
        index += s.rows_at_once();
    }
}

/// Writes the outputs of one segment's rows.
#[device]
fn finish_segment(rows: Rows<'_>, early: &[EarlyRow], epilogue: &Epilogue<'_>, best: &mut Candidate) {
    let s = epilogue.s;
    for (pass, early) in (0u32..).zip(early) {
        if early.inside {
            finish_row(&rows, first_index(s) + pass * s.rows_at_once(), Some(*early), epilogue, best);
        }
    }
    let passes = early.len() as u32;
    if passes < s.passes() {
        let start = rows.tiles[0] * TILE_ROWS;
        let count = (rows.tiles[1] * TILE_ROWS).min(rows.layout.rows).max(start) - start;
        let mut index = first_index(s) + passes * s.rows_at_once();
        if s.token_slots() == s.tokens {
            while index < count {
                finish_row(&rows, index, None, epilogue, best);
                index += s.rows_at_once();
            }
        } else {
            while index < count {
                if has_token(index < count, s) {
                    finish_row(&rows, index, None, epilogue, best);
                }
                index += s.rows_at_once();
            }
        }
    }
}

/// Computes and writes the output of one row.
#[device]
fn finish_row(
    rows: &Rows<'_>,
    index: Val<u32>,
    early: Option<EarlyRow>,
    epilogue: &Epilogue<'_>,
    best: &mut Candidate,
) {
    let s = epilogue.s;
    let row = rows.tiles[0] * TILE_ROWS + index + rows.first;
    let mut value = row_sum(rows, index, s);
    if s.bias {
        value += match early.and_then(|early| early.bias) {
            Some(bias) => bias,
            None => bias(row, epilogue.operands.w, s),
        };
    }
    value = scaled(value, s);
    let to = epilogue.operands.outputs().at(row);
    if s.output == Output::Residual {
        value += match early.and_then(|early| early.residual) {
            Some(residual) => residual,
            None => to.load(),
        };
    }
    to.store(value);
    if s.output == Output::Argmax {
        *best = better(*best, Candidate { value: finite_or_infinity(value), token: row });
    }
}

/// A logit as a candidate: any logit that is not finite wins, so that the choice sees it.
#[device]
pub(super) fn finite_or_infinity(value: Val<f32>) -> Val<f32> {
    select(value.abs() < f32::INFINITY, value, f32::INFINITY)
}

/// The bias of row `row` among the rows of all segments of the stack at `w`.
pub(crate) fn bias(row: Val<u32>, w: Ptr<Global, u8>, s: &GemvShape) -> Val<f32> {
    w.byte_add(s.offsets().bias).cast::<f32>().at(row).load()
}

/// Multiplies a result by the shape's scale and applies its soft cap.
pub(crate) fn scaled(value: Val<f32>, s: &GemvShape) -> Val<f32> {
    let value = if s.scale == 1.0 { value } else { value * s.scale };
    s.softcap.map_or(value, |cap| softcap(value, cap))
}

#[device]
fn store_best(best: Candidate, values: Ptr<Global, f32>, rows: Ptr<Global, u32>) {
    if thread_index() == 0 {
        values.at(block_index()).store(best.value);
        rows.at(block_index()).store(best.token);
    }
}

/// Stores the largest output of each token, which is in thread `token`.
#[device]
fn store_best_of_tokens(best: Candidate, values: Ptr<Global, f32>, rows: Ptr<Global, u32>, s: &GemvShape) {
    let token = thread_index();
    if token < s.tokens {
        let at = token * s.schedule.grid + block_index();
        values.at(at).store(best.value);
        rows.at(at).store(best.token);
    }
}

/// Maximum number of partial sums that are added in straight-line code, so that the latencies of their loads overlap.
const UNROLLED: u32 = 32;

/// Adds up the partial sums of row `index` of a run of tiles, in the order of columns.
#[device]
fn row_sum(rows: &Rows<'_>, index: Val<u32>, s: &GemvShape) -> Val<f32> {
    let steps = s.steps(rows.layout);
    let (tile, row) = (index / TILE_ROWS, index % TILE_ROWS);
    let sums = s.step_sums();
    let parts = rows.partial.at(tile * (steps * sums) + row * s.token_slots());
    let sum = add_steps(parts, sums, steps);
    rows.scale.map_or(sum, |scale| sum * scale)
}

/// Adds up `steps` partial sums in their order. The first is at `from`, and each is `stride` elements after the one
/// before.
#[device]
pub(super) fn add_steps(from: Ptr<Shared, f32>, stride: u32, steps: u32) -> Val<f32> {
    let mut parts = from;
    let unrolled = (steps - 1) % UNROLLED + 1;
    let add = |sum: Val<f32>, from: Ptr<Shared, f32>, count: u32| {
        (0..count).fold(sum, |sum, step| sum + from.at(step * stride).load())
    };
    let mut sum = add(parts.load(), parts.at(stride), unrolled - 1);
    if unrolled < steps {
        parts = parts.at(unrolled * stride);
        let mut left = val(steps - unrolled);
        while left > 0 {
            sum = add(sum, parts, UNROLLED);
            parts = parts.at(UNROLLED * stride);
            left -= UNROLLED;
        }
    }
    sum
}
