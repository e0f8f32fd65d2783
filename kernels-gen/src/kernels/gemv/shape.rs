//! A GEMV's compile-time parameters, and what follows from them.

use bespoke_codegen::dsl::WARP;
use serde::{Deserialize, Serialize};

use super::inputs;
use crate::kernels::launching::{CopyEngine, Trigger};
use crate::weights::{Layout, TILE_ROWS, WeightType};

/// One matrix of a [`GemvShape`], or several of one type and without padding between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// The weights' type.
    pub ty: WeightType,
    /// Rows: outputs.
    pub rows: u32,
}

/// What the matrices are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// x.
    Plain,
    /// RMSNorm of x: x·n / √(mean(x²) + ε). The norm's weights n, f32 `[cols]`, lie behind the matrices.
    Normed {
        /// ε.
        eps: f32,
    },
}

/// What is done with the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// y = W·x (+ b).
    Store,
    /// y += W·x (+ b): the residual connection.
    Residual,
    /// y = silu(W₀·x) · (W₁·x), of two segments of equally many rows.
    Swiglu,
    /// y = W·x, and each CTA's largest with its row.
    Argmax,
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// CTAs: each gets a share of the tiles.
    pub grid: u32,
    /// Warps that multiply; one more loads.
    pub warps: u32,
    /// Consecutive blocks that a warp multiplies at a time, so that their latencies overlap; divides the blocks of
    /// every segment's tiles.
    pub depth: u32,
    /// Groups that the warps are divided into; they take stages in turn.
    pub groups: u32,
    /// Stages of the ring in shared memory. A stage has `depth` blocks for each warp of a group.
    pub stages: u32,
    /// Stages that are loaded at a time, at most.
    pub in_flight: u32,
    /// CTAs that a multiprocessor should have room for, this one and those of neighbouring launches.
    pub resident: u32,
    /// Shared memory that a CTA takes at the least, in bytes: more than half of a multiprocessor's keeps a second CTA
    /// of the same launch away while another multiprocessor has none.
    pub reserve: u32,
    /// How weights are loaded.
    pub copy: CopyEngine,
    /// When the next launch may start.
    pub trigger: Trigger,
}

impl Schedule {
    /// One CTA of one warp: where to start from.
    pub const MINIMAL: Schedule = Schedule {
        grid: 1,
        warps: 1,
        depth: 1,
        groups: 1,
        stages: 2,
        in_flight: 2,
        resident: 1,
        reserve: 0,
        copy: CopyEngine::Async,
        trigger: Trigger::Never,
    };

    /// Units of `depth` blocks in a stage: warps of a group. Groups divide the warps where a plan was checked; before
    /// that, sizes are to be finite all the same.
    pub(super) fn units(&self) -> u32 {
        self.warps.div_ceil(self.groups)
    }

    /// Whether a run of tiles of so many blocks ends with stages that may be empty: so that all groups take as many and
    /// keep to their stages, where the next run begins.
    pub(super) fn pads(&self, blocks: u32) -> bool {
        self.groups > 1 && !(blocks / self.depth).is_multiple_of(self.warps)
    }

    /// Whether a warp has registers for the inputs of its blocks.
    pub(super) fn holds(&self) -> bool {
        self.depth * HELD_REGISTERS * (self.warps + 1) * WARP * self.resident <= SPARE_REGISTERS
    }
}

/// Matrices over the same input, stacked: y = (W₀·x, W₁·x, …).
///
/// In device memory the matrices lie one after the other, each in its [`Layout`], then the bias of all rows, then
/// the norm's weights, at the offsets of [`GemvShape::offsets`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemvShape {
    /// Inputs.
    pub cols: u32,
    /// The matrices.
    pub segments: Vec<Segment>,
    /// A bias for each row, f32.
    pub bias: bool,
    /// What is multiplied.
    pub input: Input,
    /// What becomes of the products.
    pub output: Output,
    /// How the work is divided.
    pub schedule: Schedule,
}

/// Where the parts of a stack lie, in bytes from its start; multiples of 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The matrices.
    pub segments: Vec<u64>,
    /// The bias.
    pub bias: u64,
    /// The norm's weights.
    pub norm: u64,
    /// The size of all.
    pub bytes: u64,
}

/// Where things lie in a CTA's dynamic shared memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedMap {
    /// The activations; the ring lies before.
    pub inputs: u32,
    /// Each warp's part of the sum of squares.
    pub squares: u32,
    /// Partial sums: f32 `[tile][warp][16]`.
    pub partial: u32,
    /// The size of all.
    pub bytes: u32,
}

/// Registers of a thread that hold the inputs of a block: 16 words of fragments, scales and sums.
const HELD_REGISTERS: u32 = 20;

/// Of a multiprocessor's 64 Ki registers those that inputs may take: the rest is for weights, sums and addresses.
const SPARE_REGISTERS: u32 = 24 * 1024;

/// Tiles whose partial sums are kept before they are joined, where a CTA has only one run of tiles.
const BATCH: u32 = 16;

impl GemvShape {
    /// Rows of all segments.
    pub fn rows(&self) -> u32 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Outputs.
    pub fn outputs(&self) -> u32 {
        if self.output == Output::Swiglu { self.segments[0].rows } else { self.rows() }
    }

    /// The layouts of the segments.
    ///
    /// # Panics
    /// If a type's blocks do not divide `cols`; a plan checks that first.
    pub fn layouts(&self) -> Vec<Layout> {
        let layout = |segment: &Segment| Layout::new(segment.ty, segment.rows, self.cols);
        self.segments.iter().map(|segment| layout(segment).expect("whole blocks a row")).collect()
    }

    /// Where everything lies.
    pub fn offsets(&self) -> Offsets {
        let mut at = 0;
        let mut segments = Vec::new();
        for layout in self.layouts() {
            segments.push(at);
            at += layout.bytes;
        }
        let (bias, bias_bytes) = (at, if self.bias { u64::from(self.rows()) * 4 } else { 0 });
        let norm = (bias + bias_bytes).next_multiple_of(16);
        let norm_bytes = if self.normed() { u64::from(self.cols) * 4 } else { 0 };
        Offsets { segments, bias, norm, bytes: norm + norm_bytes }
    }

    /// Bytes of weights that a launch reads, as they are in the file.
    pub fn file_bytes(&self) -> u64 {
        self.layouts().iter().map(Layout::file_bytes).sum()
    }

    /// The input is normalised.
    pub fn normed(&self) -> bool {
        matches!(self.input, Input::Normed { .. })
    }

    /// Threads a CTA.
    pub fn threads(&self) -> u32 {
        self.consumers() + WARP
    }

    /// Threads that multiply.
    pub(super) fn consumers(&self) -> u32 {
        self.schedule.warps * WARP
    }

    /// Bytes of a stage of the ring.
    pub fn stage_bytes(&self) -> u32 {
        let block = self.segments.iter().map(|segment| segment.ty.block_bytes()).max().unwrap_or(0);
        (block * self.schedule.units() * self.schedule.depth).next_multiple_of(128)
    }

    /// Weights of a quantised type are among the segments.
    pub(super) fn quantised(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.is_quantised())
    }

    /// Weights with an offset are among the segments.
    pub(super) fn has_offsets(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.has_offset())
    }

    /// Weights of a float type are among the segments.
    pub(super) fn floats(&self) -> bool {
        self.segments.iter().any(|segment| !segment.ty.is_quantised())
    }

    /// Columns padded to whole blocks of every segment.
    pub(super) fn padded_cols(&self) -> u32 {
        let padded = |segment: &Segment| self.cols.next_multiple_of(segment.ty.block_cols());
        self.segments.iter().map(padded).max().unwrap_or(self.cols)
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_map().bytes.max(self.schedule.reserve)
    }

    pub(super) fn shared_map(&self) -> SharedMap {
        let inputs = self.stage_bytes() * self.schedule.stages;
        let squares = inputs + inputs::bytes(self);
        let partial = squares + self.schedule.warps.next_multiple_of(4) * 4;
        let kept = if self.batched() { BATCH } else { self.most_tiles() };
        SharedMap { inputs, squares, partial, bytes: partial + kept * self.schedule.warps * TILE_ROWS * 4 }
    }

    /// The tiles of a CTA are taken in batches: so many at a time.
    pub(super) fn batch(&self) -> u32 {
        BATCH
    }

    /// Whether a CTA has too many tiles to keep all their partial sums.
    pub(super) fn batched(&self) -> bool {
        self.segments.len() == 1 && self.most_tiles() > BATCH
    }

    /// Bias and residual are loaded before the sums are there.
    pub(super) fn loads_early(&self) -> bool {
        self.output != Output::Swiglu && !self.batched()
    }

    /// Rows of a segment for which a thread loads bias and residual before the sums are there, at most.
    pub(super) fn early_passes(&self) -> u32 {
        if self.bias || self.output == Output::Residual { self.passes().min(2) } else { 0 }
    }

    /// Rows of a CTA a thread, at most.
    pub(super) fn passes(&self) -> u32 {
        (self.most_tiles() * TILE_ROWS).div_ceil(self.consumers())
    }

    /// How the tiles are divided.
    pub(super) fn cut(&self) -> Cut {
        let layouts = self.layouts();
        let whole = self.output == Output::Swiglu;
        let divisor = layouts.iter().map(Layout::tile_bytes).fold(0, gcd).max(1);
        let weights = layouts.iter().map(|layout| if whole { 1 } else { layout.tile_bytes() / divisor });
        let mut base = 0;
        let mut segments = Vec::new();
        for (layout, weight) in layouts.iter().zip(weights) {
            segments.push(CutSegment { base, weight, tiles: layout.tiles });
            // Gate and up are cut alike.
            base += if whole { 0 } else { layout.tiles * weight };
        }
        Cut { segments, total: if whole { layouts[0].tiles } else { base }, grid: self.schedule.grid }
    }

    /// The rows of all segments that a CTA computes.
    pub fn rows_of(&self, cta: u32) -> impl Iterator<Item = u32> {
        let cut = self.cut();
        let (start, end) = (cut.boundary(cta), cut.boundary(cta + 1));
        let mut first = 0;
        let mut ranges = Vec::new();
        for (segment, part) in self.segments.iter().zip(&cut.segments) {
            let row = |boundary| first + (part.end(boundary) * TILE_ROWS).min(segment.rows);
            ranges.push(row(start)..row(end));
            first += segment.rows;
        }
        ranges.into_iter().flatten()
    }

    /// Tiles of a CTA, at most.
    fn most_tiles(&self) -> u32 {
        let cut = self.cut();
        let before = |cta: u32| -> u32 {
            let boundary = cut.boundary(cta);
            cut.segments.iter().map(|segment| segment.end(boundary)).sum()
        };
        (0..self.schedule.grid).map(|cta| before(cta + 1) - before(cta)).max().unwrap_or(0)
    }
}

/// How the tiles of all segments are divided among CTAs: laid out on a line, each as long as its bytes, and cut into
/// equal parts; a tile belongs to the part that it begins in.
pub(super) struct Cut {
    pub segments: Vec<CutSegment>,
    /// The line's length.
    pub total: u32,
    pub grid: u32,
}

pub(super) struct CutSegment {
    /// Where the segment begins on the line.
    pub base: u32,
    /// The length of a tile.
    pub weight: u32,
    pub tiles: u32,
}

impl Cut {
    /// Where part `cta` begins.
    fn boundary(&self, cta: u32) -> u32 {
        (u64::from(self.total) * u64::from(cta) / u64::from(self.grid)) as u32
    }
}

impl CutSegment {
    /// Tiles that begin before `boundary`.
    fn end(&self, boundary: u32) -> u32 {
        boundary.saturating_sub(self.base).div_ceil(self.weight).min(self.tiles)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
