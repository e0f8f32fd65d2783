//! From partial sums to outputs.

use bespoke_codegen::prelude::*;

use super::shape::{GemvShape, Input, Output, Segment};
use super::{CONSUMERS, Operands};
use crate::kernels::argmax::{Candidate, better, block_best};
use crate::weights::{Layout, TILE_ROWS};

/// What the outputs of a CTA are made with, a thread a row.
pub(super) struct Epilogue<'a> {
    operands: Operands,
    /// What this thread's first rows of each segment need besides the sums, loaded before the sums are there.
    early: Vec<Vec<Early>>,
    s: &'a GemvShape,
}

/// What one row needs.
#[derive(Clone, Copy)]
struct Early {
    row: Val<u32>,
    inside: Val<bool>,
    bias: Option<Val<f32>>,
    residual: Option<Val<f32>>,
}

/// The rows of a run of tiles of one segment.
#[derive(Clone, Copy)]
struct Rows<'a> {
    layout: &'a Layout,
    /// The run.
    tiles: [Val<u32>; 2],
    /// The segment's first row among the rows of all segments.
    first: u32,
    /// The partial sums of the run.
    partial: Ptr<Shared, f32>,
    /// What the sums are multiplied with.
    scale: Option<Val<f32>>,
}

/// No output yet.
pub(super) fn nothing() -> Candidate {
    Candidate { value: val(f32::NEG_INFINITY), token: val(0u32) }
}

impl<'a> Epilogue<'a> {
    /// Loads what constants the outputs need.
    pub fn new(operands: Operands, tiles: &[[Val<u32>; 2]], s: &'a GemvShape) -> Epilogue<'a> {
        let bias = operands.w.bytes(s.offsets().bias).cast::<f32>();
        let segments = s.segments.iter().zip(tiles).zip(first_rows(s));
        let early = if s.loads_early() {
            segments.map(|((segment, tiles), first)| early(segment, tiles, bias.at(first), s)).collect()
        } else {
            Vec::new()
        };
        Epilogue { operands, early, s }
    }

    /// Loads what the residual connection adds to; the launches before this one must be over.
    pub fn load_residual(&mut self) {
        if self.s.output == Output::Residual {
            for (early, first) in self.early.iter_mut().zip(first_rows(self.s)) {
                for one in early {
                    one.residual = Some(load_if(self.operands.y.at(first), one.row, one.inside));
                }
            }
        }
    }

    /// Makes outputs of these tiles of each segment, whose partial sums are complete.
    pub fn finish(&self, tiles: &[[Val<u32>; 2]], best: &mut Candidate) {
        let s = self.s;
        let scale = norm_scale(s);
        let layouts = s.layouts();
        let mut partial = dynamic_shared::<u8>().bytes(s.shared_map().partial).cast::<f32>();
        let mut runs = Vec::new();
        for ((layout, &tiles), first) in layouts.iter().zip(tiles).zip(first_rows(s)) {
            runs.push(Rows { layout, tiles, first, partial, scale });
            partial = partial.at((tiles[1] - tiles[0]) * (s.schedule.warps * TILE_ROWS));
        }
        if s.output == Output::Swiglu {
            swiglu(runs[0], runs[1], self.operands.y, s);
        } else {
            for (index, rows) in runs.into_iter().enumerate() {
                let early = self.early.get(index).map_or(&[][..], |early| early);
                segment(rows, early, self, best);
            }
        }
    }

    /// What remains when all tiles are done: the CTA's largest output.
    pub fn end(&self, best: Candidate) {
        if let Some((values, tokens)) = self.operands.best {
            let best = block_best(best, self.s.consumers(), CONSUMERS);
            store_best(best, values, tokens);
        }
    }
}

/// The first row of each segment among the rows of all.
fn first_rows(s: &GemvShape) -> Vec<u32> {
    let firsts = s.segments.iter().scan(0, |end, segment| {
        *end += segment.rows;
        Some(*end - segment.rows)
    });
    firsts.collect()
}

/// This thread's first rows of a segment, with their bias.
#[device]
fn early(segment: &Segment, tiles: &[Val<u32>; 2], bias: Ptr<Global, f32>, s: &GemvShape) -> Vec<Early> {
    let end = (tiles[1] * TILE_ROWS).min(segment.rows);
    let one = |pass: u32| {
        let row = tiles[0] * TILE_ROWS + thread_index() + pass * s.consumers();
        let inside = row < end;
        Early { row, inside, bias: s.bias.then(|| load_if(bias, row, inside)), residual: None }
    };
    (0..s.early_passes()).map(one).collect()
}

/// The element of row `row`, or 0.
#[device]
fn load_if(from: Ptr<Global, f32>, row: Val<u32>, inside: Val<bool>) -> Val<f32> {
    if inside { from.at(row).load() } else { val(0.0f32) }
}

/// 1 / √(mean(x²) + ε), if the input is normalised.
fn norm_scale(s: &GemvShape) -> Option<Val<f32>> {
    let Input::Normed { eps } = s.input else { return None };
    let squares = dynamic_shared::<u8>().bytes(s.shared_map().squares).cast::<f32>();
    let sum = (1..s.schedule.warps).fold(squares.load(), |sum, warp| sum + squares.at(warp).load());
    Some((sum * (1.0 / s.cols as f32) + eps).rsqrt())
}

#[device]
fn swiglu(gate: Rows<'_>, up: Rows<'_>, y: Ptr<Global, f32>, s: &GemvShape) {
    let rows = (gate.tiles[1] - gate.tiles[0]) * TILE_ROWS;
    let mut index = thread_index();
    while index < rows {
        let row = gate.tiles[0] * TILE_ROWS + index;
        if row < gate.layout.rows {
            let (gate, up) = (total(&gate, index, s), total(&up, index, s));
            // silu(g) = g / (1 + e^-g).
            let denominator = 1.0f32 + (gate * -std::f32::consts::LOG2_E).exp2();
            y.at(row).store(gate.div_approx(denominator) * up);
        }
        index += s.consumers();
    }
}

/// The rows of one segment.
#[device]
fn segment(rows: Rows<'_>, early: &[Early], epilogue: &Epilogue<'_>, best: &mut Candidate) {
    let s = epilogue.s;
    for (pass, early) in (0u32..).zip(early) {
        if early.inside {
            output(&rows, thread_index() + pass * s.consumers(), Some(*early), epilogue, best);
        }
    }
    let passes = early.len() as u32;
    if passes < s.passes() {
        let start = rows.tiles[0] * TILE_ROWS;
        let count = (rows.tiles[1] * TILE_ROWS).min(rows.layout.rows).max(start) - start;
        let mut index = thread_index() + passes * s.consumers();
        while index < count {
            output(&rows, index, None, epilogue, best);
            index += s.consumers();
        }
    }
}

/// One row.
#[device]
fn output(
    rows: &Rows<'_>,
    index: Val<u32>,
    early: Option<Early>,
    epilogue: &Epilogue<'_>,
    best: &mut Candidate,
) {
    let s = epilogue.s;
    let row = rows.tiles[0] * TILE_ROWS + index + rows.first;
    let mut value = total(rows, index, s);
    if s.bias {
        value += match early.and_then(|early| early.bias) {
            Some(bias) => bias,
            None => epilogue.operands.w.bytes(s.offsets().bias).cast::<f32>().at(row).load(),
        };
    }
    let to = epilogue.operands.y.at(row);
    if s.output == Output::Residual {
        value += match early.and_then(|early| early.residual) {
            Some(residual) => residual,
            None => to.load(),
        };
    }
    to.store(value);
    if s.output == Output::Argmax {
        *best = better(*best, Candidate { value, token: row });
    }
}

#[device]
fn store_best(best: Candidate, values: Ptr<Global, f32>, rows: Ptr<Global, u32>) {
    if thread_index() == 0 {
        values.at(block_index()).store(best.value);
        rows.at(block_index()).store(best.token);
    }
}

/// The sum of a row's parts: of the warps that had a block of its tile, in the order of columns.
fn total(rows: &Rows<'_>, index: Val<u32>, s: &GemvShape) -> Val<f32> {
    let (warps, units) = (s.schedule.warps, rows.layout.blocks / s.schedule.depth);
    let (tile, row) = (index / TILE_ROWS, index % TILE_ROWS);
    let part = |unit: u32| {
        let warp = if units % warps == 0 { val(unit) } else { (tile * units + unit) % warps };
        rows.partial.at((tile * warps + warp) * TILE_ROWS + row).load()
    };
    let sum = (1..warps.min(units)).fold(part(0), |sum, unit| sum + part(unit));
    rows.scale.map_or(sum, |scale| sum * scale)
}
