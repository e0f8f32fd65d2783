//! Compile-time parameters of a GEMV, and the sizes derived from them.

use bespoke_codegen::dsl::WARP;
use serde::{Deserialize, Serialize};

use super::layout::NextInputs;
use super::product::{Arithmetic, Input, Output, Segment};
use super::schedule::{QUAD, Schedule, TokenSchedule};
use crate::weights::{Layout, TILE_ROWS, WeightType};

/// A stack of matrices with the same inputs: y = (W₀·x, W₁·x, …), for each token's x.
///
/// Device memory holds the matrices one after the other, each in its [`Layout`], then the biases of all rows, then the
/// weights of the norm, at the offsets of [`GemvShape::offsets`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemvShape {
    /// Number of tokens: rows of x and y.
    pub tokens: u32,
    /// Number of inputs.
    pub cols: u32,
    /// The matrices.
    pub segments: Vec<Segment>,
    /// Whether each row has a bias, f32.
    pub bias: bool,
    /// The vector that the matrices are multiplied with.
    pub input: Input,
    /// The epilogue.
    pub output: Output,
    /// Factor of the result W·x + b (of f(W₀·x + b₀) · (W₁·x + b₁), with [`Output::Glu`]), before the residual is added; normally 1.
    pub scale: f32,
    /// Soft cap of the scaled result, before the residual is added: cap · tanh(result / cap).
    pub softcap: Option<f32>,
    /// Operands of the multiplications.
    #[serde(default, skip_serializing_if = "Arithmetic::is_default")]
    pub arithmetic: Arithmetic,
    /// Whether the previous product writes the inputs, as its [`GemvShape::next`]. For products of f16.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub received: bool,
    /// What the epilogue writes for the next product, in place of a launch of `prepare`. For products of f16; see `tokens/next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextInputs>,
    /// Whether the factors of this product's norm are stored, and the sums of squares of the next norm set to zero: a later product
    /// needs both when it writes the inputs of that norm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stores_factors: bool,
    /// Division of the work among CTAs and warps.
    pub schedule: Schedule,
}

/// Offsets of the parts of a stack, in bytes from its start; multiples of 16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of each matrix.
    pub segments: Vec<u64>,
    /// Offset of the biases.
    pub bias: u64,
    /// Offset of the norm's weights.
    pub norm: u64,
    /// Size of the stack, in bytes.
    pub bytes: u64,
}

/// Offsets in a CTA's dynamic shared memory, in bytes. The ring comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedMap {
    /// Offset of the input vector; see [`super::inputs`].
    pub inputs: u32,
    /// Offset of the sums of squares of the input, one per [`SQUARES_GROUP`] columns, f32.
    pub squares: u32,
    /// Offset of the factors of normalised inputs, f32 `[token]`.
    pub factors: u32,
    /// Offset of the partial sums of the products, f32 `[tile][step][16]`, or `[tile][step][16][token]`.
    pub partial: u32,
    /// Total size, in bytes.
    pub bytes: u32,
}

/// Registers per thread that hold the inputs of a block: 16 words of fragments, a scale and two sums.
const HELD_REGISTERS: u32 = 20;

/// As [`HELD_REGISTERS`], for the inputs of a pair of tokens.
const HELD_REGISTERS_OF_PAIR: u32 = 24;

/// Registers of a multiprocessor, of 64 Ki, that held inputs may use; weights, sums and addresses need the rest. Enough for the
/// inputs of four tokens with eight warps: a step of Qwen3-4B 4.5% faster on an H200, of Llama-3.1-8B 1.3%.
const SPARE_REGISTERS: u32 = 28 * 1024;

/// Maximum number of tiles per batch; see [`GemvShape::batch`].
const BATCH: u32 = 16;

/// Maximum size of the partial sums of a batch of several tiles, in bytes.
const BATCH_BYTES: u32 = 16 * 1024;

/// [`BATCH_BYTES`] of gate and up together: more, since each batch ends with a barrier for both.
const GATED_BATCH_BYTES: u32 = 64 * 1024;

/// Maximum number of tiles of a matrix whose columns have two parts ([`GemvShape::column_parts`]): enough for 8,192
/// rows.
const MAX_PARTED_TILES: u32 = 512;

/// Largest number of tokens of a product in the loop of one token; see [`super::few`].
pub(crate) const FEW: u32 = 4;

/// Number of columns per sum of squares, and per scale of the quantised inputs: eight for each lane of a warp. The sums are
/// added in the order of columns.
pub(super) const SQUARES_GROUP: u32 = 8 * WARP;

impl GemvShape {
    /// The product of one token with matrices of `cols` columns, by one warp, without bias, norm or epilogue.
    pub fn new(cols: u32, segments: Vec<Segment>) -> GemvShape {
        GemvShape {
            tokens: 1,
            cols,
            segments,
            bias: false,
            input: Input::Plain,
            output: Output::Store,
            scale: 1.0,
            softcap: None,
            arithmetic: Arithmetic::Integers,
            received: false,
            next: None,
            stores_factors: false,
            schedule: Schedule::MINIMAL,
        }
    }

    /// Whether this is a product of a few tokens in the loop of one token (`gemv/few.rs`).
    pub fn is_few(&self) -> bool {
        !self.is_f16() && (2..=FEW).contains(&self.tokens) && self.schedule.several == TokenSchedule::ONE
    }

    /// Whether weights and inputs are multiplied as f16.
    pub fn is_f16(&self) -> bool {
        self.arithmetic == Arithmetic::F16
    }

    /// Whether the product goes over the columns in slices ([`super::tokens`]): of several tokens, or of f16.
    pub fn is_sliced(&self) -> bool {
        self.is_f16() || self.tokens > 1 && !self.is_few()
    }

    /// Number of tokens that partial sums have room for, unless the product is sliced: a power of two.
    pub(crate) fn token_slots(&self) -> u32 {
        self.tokens.next_power_of_two()
    }

    /// Number of parts of the columns: each part's sums are added in order, then those of the parts. 2 for products of f16 with few
    /// rows, so that two CTAs can divide the columns. It depends on the matrix and the output alone.
    pub(crate) fn column_parts(&self) -> u32 {
        let is_parted = self.is_f16() && self.output == Output::Residual && self.segments.len() == 1;
        let fits = |layout: &Layout| layout.tiles <= MAX_PARTED_TILES && self.steps(layout) > 1;
        if is_parted && self.layouts().iter().all(fits) { 2 } else { 1 }
    }

    /// Number of steps of the first part of the columns: all of them if there is one part.
    pub(super) fn first_part(&self, layout: &Layout) -> u32 {
        self.steps(layout) / self.column_parts()
    }

    /// Number of CTAs of a cluster: each has a part of the columns.
    pub fn cluster(&self) -> u32 {
        if self.has_warpgroups() { self.column_parts() } else { 1 }
    }

    /// Number of rows of all segments.
    pub fn rows(&self) -> u32 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Number of outputs.
    pub fn outputs(&self) -> u32 {
        if self.is_gated() { self.segments[0].rows } else { self.rows() }
    }

    /// The layouts of the segments.
    ///
    /// # Panics
    /// If the block size of a type does not divide `cols`; plans check that first.
    pub fn layouts(&self) -> Vec<Layout> {
        let layout = |segment: &Segment| Layout::new(segment.ty, segment.rows, self.cols);
        self.segments.iter().map(|segment| layout(segment).expect("whole blocks a row")).collect()
    }

    /// Offsets of the stack's parts in device memory.
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

    /// Bytes of weights that a launch reads, in the file's layout, which has no padding.
    pub fn file_bytes(&self) -> u64 {
        self.layouts().iter().map(Layout::file_bytes).sum()
    }

    /// Whether the outputs are stored as f32: all but those that are only the next product's inputs.
    pub fn stores_outputs(&self) -> bool {
        self.next.is_none() || self.output == Output::Residual
    }

    /// Whether the epilogue writes inputs of the next product for a norm.
    pub fn next_is_normed(&self) -> bool {
        self.next.is_some_and(|next| next.normed)
    }

    /// Whether the kernel applies RMSNorm to its input; otherwise it multiplies by the input as it is.
    pub fn normed(&self) -> bool {
        matches!(self.input, Input::Normed { .. })
    }

    /// Whether the outputs combine the products of two segments ([`Output::Glu`]).
    pub fn is_gated(&self) -> bool {
        matches!(self.output, Output::Glu(_))
    }

    /// Threads per CTA.
    pub fn threads(&self) -> u32 {
        self.consumers() + self.producers()
    }

    /// Number of consumer threads.
    pub(super) fn consumers(&self) -> u32 {
        self.schedule.warps * WARP
    }

    /// Size of a stage of the ring, in bytes.
    pub fn stage_bytes(&self) -> u32 {
        let block = self.segments.iter().map(|segment| segment.ty.block_bytes()).max().unwrap_or(0);
        let units = if self.is_sliced() { self.strip() } else { self.schedule.units_per_stage() };
        (block * units * self.depth()).next_multiple_of(128)
    }

    /// Number of units that the ring of weights holds, unless the product is sliced.
    pub(crate) fn ring_units(&self) -> u32 {
        self.schedule.stages * self.schedule.units_per_stage()
    }

    /// Number of blocks per unit: the consecutive blocks of a tile that a warp multiplies together, so that their latencies
    /// overlap. 1 if a tile of a segment has an odd number of blocks, or if the product is sliced and each unit is one step
    /// (`GemvShape::step`); else 2.
    pub fn depth(&self) -> u32 {
        let one_step = |layout: &Layout| layout.ty.block_cols() == SQUARES_GROUP;
        if self.is_sliced() && self.layouts().iter().all(one_step) { 1 } else { self.even_depth() }
    }

    /// 2, or 1 if a tile of a segment has an odd number of blocks.
    fn even_depth(&self) -> u32 {
        if self.layouts().iter().all(|layout| layout.blocks.is_multiple_of(2)) { 2 } else { 1 }
    }

    /// Number of blocks in a step of the sum over a row of a segment: one superblock, or smaller blocks of at most 256
    /// columns. Sums of steps are added in the order of columns. A step depends on the matrices alone, and so do the bits of
    /// the outputs.
    pub(super) fn step(&self, ty: WeightType) -> u32 {
        if ty.block_cols() == SQUARES_GROUP { 1 } else { self.even_depth() }
    }

    /// Number of steps per unit of a segment.
    pub(super) fn unit_steps(&self, ty: WeightType) -> u32 {
        self.depth() / self.step(ty)
    }

    /// Number of steps per tile of a segment.
    pub(super) fn steps(&self, layout: &Layout) -> u32 {
        layout.blocks / self.step(layout.ty)
    }

    /// Number of units per tile of a segment.
    pub(crate) fn units(&self, layout: &Layout) -> u32 {
        layout.blocks / self.depth()
    }

    /// Whether registers suffice for a warp to keep the inputs of a unit.
    pub(super) fn fits_inputs_in_registers(&self) -> bool {
        let schedule = &self.schedule;
        let of_block = if self.is_few() { HELD_REGISTERS_OF_PAIR * self.pairs() } else { HELD_REGISTERS };
        self.depth() * of_block * (schedule.warps + 1) * WARP * schedule.resident <= SPARE_REGISTERS
    }

    /// Whether a segment has a quantised type.
    pub(super) fn quantised(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.is_quantised())
    }

    /// Whether a segment's type has an offset per chunk: weight = scale · integer + offset.
    pub(super) fn has_offsets(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.has_offset() && !segment.ty.has_half_chunks())
    }

    /// Whether a segment's type has an offset per half chunk.
    pub(super) fn has_half_offsets(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.has_offset() && segment.ty.has_half_chunks())
    }

    /// Whether a segment has a type whose products are added up as integers ([`WeightType::exact_groups`]).
    pub(super) fn is_exact(&self) -> bool {
        self.segments.iter().any(|segment| segment.ty.exact_groups() > 0)
    }

    /// Whether a segment has a float type.
    pub(super) fn floats(&self) -> bool {
        self.segments.iter().any(|segment| !segment.ty.is_quantised())
    }

    /// Number of columns, padded to whole blocks of every segment.
    pub(crate) fn padded_cols(&self) -> u32 {
        let padded = |segment: &Segment| self.cols.next_multiple_of(segment.ty.block_cols());
        self.segments.iter().map(padded).max().unwrap_or(self.cols)
    }

    /// Dynamic shared memory, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        let bytes = if self.is_sliced() { self.token_map().bytes } else { self.shared_map().bytes };
        bytes.max(self.schedule.reserve)
    }

    pub(super) fn shared_map(&self) -> SharedMap {
        let inputs = self.stage_bytes() * self.schedule.stages;
        let squares = inputs + self.tokens * self.input_stride();
        let factors = squares + (self.tokens * self.squares_groups()).next_multiple_of(4) * 4;
        let partial = factors + if self.normed() { self.tokens.next_multiple_of(4) * 4 } else { 0 };
        let steps = if self.batched() {
            self.batch() * self.layouts().iter().map(|layout| self.steps(layout)).sum::<u32>()
        } else {
            self.most(|layout| self.steps(layout))
        };
        SharedMap { inputs, squares, factors, partial, bytes: partial + steps * self.step_sums() * 4 }
    }

    /// Number of partial sums of a step: `[row][token]`.
    pub(super) fn step_sums(&self) -> u32 {
        TILE_ROWS * self.token_slots()
    }

    /// Number of sums of squares of the input; see [`SQUARES_GROUP`].
    pub(super) fn squares_groups(&self) -> u32 {
        self.padded_cols().div_ceil(SQUARES_GROUP)
    }

    /// Number of 32-column chunks of the padded input.
    pub(super) fn input_chunks(&self) -> u32 {
        self.padded_cols().div_ceil(32)
    }

    /// Offset of the scales, which follow the quantised inputs, in bytes; see [`super::inputs`].
    pub(super) fn input_scales(&self) -> u32 {
        self.input_chunks() * 64
    }

    /// Offset of the sums of chunks, in bytes; see [`super::inputs`].
    pub(super) fn chunk_sums(&self) -> u32 {
        self.input_scales() + self.squares_groups() * 4
    }

    /// Offset of the sums of half chunks, in bytes; see [`super::inputs`].
    pub(super) fn half_sums(&self) -> u32 {
        self.chunk_sums() + if self.has_offsets() { self.input_chunks() * 4 } else { 0 }
    }

    /// Offset of the f32 inputs, which follow the quantised ones, in bytes; see [`super::inputs`].
    pub(super) fn float_inputs(&self) -> u32 {
        let half_sums = if self.has_half_offsets() { self.input_chunks() * 8 } else { 0 };
        if self.quantised() { (self.half_sums() + half_sums).next_multiple_of(16) } else { 0 }
    }

    /// Size of the input vector in shared memory, in bytes.
    fn input_bytes(&self) -> u32 {
        self.float_inputs() + if self.floats() { self.padded_cols() * 4 } else { 0 }
    }

    /// Distance of the input vectors of consecutive tokens in shared memory, in bytes.
    pub(super) fn input_stride(&self) -> u32 {
        let bytes = self.input_bytes();
        // An odd multiple of 64, so that the operands of two tokens are in different banks.
        if self.tokens > 1 { (bytes + 63) / 128 * 128 + 64 } else { bytes }
    }

    /// Number of tiles of each segment per batch. If a CTA has more tiles of its only segment, or of gate and of up, shared
    /// memory holds the partial sums of one batch at a time; otherwise, of all tiles of the CTA.
    pub(super) fn batch(&self) -> u32 {
        let steps: u32 = self.layouts().iter().map(|layout| self.steps(layout)).sum();
        let bytes = if self.is_gated() { GATED_BATCH_BYTES } else { BATCH_BYTES };
        (bytes / (steps * self.step_sums() * 4)).clamp(1, BATCH)
    }

    /// Whether a CTA has more tiles than shared memory can hold partial sums for, and processes the tiles in batches.
    pub(super) fn batched(&self) -> bool {
        let segments = self.segments.len() as u32;
        (segments == 1 || self.is_gated()) && self.most_tiles() > segments * self.batch()
    }

    /// Whether biases and residuals of a thread's first rows are loaded before the products, to hide their latency.
    pub(super) fn loads_early(&self) -> bool {
        !self.is_gated() && !self.batched()
    }

    /// Number of rows per segment for which a thread loads biases and residuals before the products.
    pub(super) fn early_passes(&self) -> u32 {
        if self.bias || self.output == Output::Residual { self.passes().min(2) } else { 0 }
    }

    /// Number of rows per thread in the CTA with the most tiles, rounded up.
    pub(super) fn passes(&self) -> u32 {
        (self.most_tiles() * TILE_ROWS).div_ceil(self.rows_at_once())
    }

    /// Number of rows that the consumer threads reduce at once: each thread has a row and a token.
    pub(super) fn rows_at_once(&self) -> u32 {
        self.consumers() / self.token_slots()
    }

    /// The division of the tiles among CTAs.
    pub(super) fn cut(&self) -> Cut {
        let layouts = self.layouts();
        let whole = self.is_gated();
        let divisor = layouts.iter().map(Layout::tile_bytes).fold(0, gcd).max(1);
        // If there is a CTA for every tile, each has one.
        let equal = whole || self.shared_tiles() <= self.schedule.grid;
        let lengths = layouts.iter().map(|layout| if equal { 1 } else { layout.tile_bytes() / divisor });
        let mut start = 0;
        let mut segments = Vec::new();
        for (layout, tile_length) in layouts.iter().zip(lengths) {
            segments.push(CutSegment { start, tile_length, tiles: layout.tiles });
            // A CTA needs the same rows of gate and up, so the two are cut at the same tiles.
            start += if whole { 0 } else { layout.tiles * tile_length };
        }
        Cut { segments, total: if whole { layouts[0].tiles } else { start }, grid: self.schedule.grid }
    }

    /// Rows that CTA `cta` computes, as indices among the rows of all segments.
    pub fn rows_of(&self, cta: u32) -> impl Iterator<Item = u32> {
        let cut = self.cut();
        let (start, end) = (cut.boundary(cta), cut.boundary(cta + 1));
        let mut first = 0;
        let mut ranges = Vec::new();
        for (segment, part) in self.segments.iter().zip(&cut.segments) {
            let row = |boundary| first + (part.tiles_before(boundary) * TILE_ROWS).min(segment.rows);
            ranges.push(row(start)..row(end));
            first += segment.rows;
        }
        ranges.into_iter().flatten()
    }

    /// Number of tiles that the CTAs share: those of all segments, and of a gated product those of gate or up.
    pub(crate) fn shared_tiles(&self) -> u32 {
        let tiles = self.layouts().into_iter().map(|layout| layout.tiles);
        if self.is_gated() { tiles.max().unwrap_or(0) } else { tiles.sum() }
    }

    /// Number of tiles of the CTA with the most tiles.
    pub(crate) fn most_tiles(&self) -> u32 {
        self.most(|_| 1)
    }

    /// Number of quads of the CTA with the most: the tiles of each segment, or of gate and up together, are multiplied four at a time.
    pub(crate) fn most_quads(&self) -> u32 {
        let cut = self.cut();
        let quads = |cta: u32| -> u32 {
            let (start, end) = (cut.boundary(cta), cut.boundary(cta + 1));
            let tiles = cut.segments.iter().map(|it| it.tiles_before(end) - it.tiles_before(start));
            if self.mixes_segments() {
                return tiles.sum::<u32>().div_ceil(QUAD);
            }
            tiles.map(|tiles| tiles.div_ceil(QUAD)).sum()
        };
        (0..self.schedule.grid).map(quads).max().unwrap_or(0)
    }

    /// Largest sum over a CTA's tiles of `weight`, a function of the tile's segment.
    fn most(&self, weight: impl Fn(&Layout) -> u32) -> u32 {
        let cut = self.cut();
        let weights: Vec<u32> = self.layouts().iter().map(weight).collect();
        let before = |cta: u32| -> u32 {
            let boundary = cut.boundary(cta);
            let tiles = cut.segments.iter().map(|segment| segment.tiles_before(boundary));
            tiles.zip(&weights).map(|(tiles, weight)| tiles * weight).sum()
        };
        (0..self.schedule.grid).map(|cta| before(cta + 1) - before(cta)).max().unwrap_or(0)
    }
}

/// Division of the tiles of all segments among CTAs. The tiles are laid out on a line, each tile with a length
/// proportional to its bytes (or the same, if there is a CTA for each tile), and the line is cut into `grid` equal parts, one per CTA. A CTA has the tiles that begin
/// in its part.
pub(super) struct Cut {
    pub segments: Vec<CutSegment>,
    /// Length of the line on which the tiles are laid out.
    pub total: u32,
    /// Number of equal parts of the line, one per CTA.
    pub grid: u32,
}

/// A segment (matrix) on the line of a [`Cut`].
pub(super) struct CutSegment {
    /// Position of the segment's first tile on the line.
    pub start: u32,
    /// Length of a tile on the line.
    pub tile_length: u32,
    /// Number of tiles of the segment.
    pub tiles: u32,
}

impl Cut {
    /// Position on the line at which CTA `cta`'s part starts.
    fn boundary(&self, cta: u32) -> u32 {
        (u64::from(self.total) * u64::from(cta) / u64::from(self.grid)) as u32
    }
}

impl CutSegment {
    /// Number of the segment's tiles that begin before position `boundary` of the line.
    fn tiles_before(&self, boundary: u32) -> u32 {
        boundary.saturating_sub(self.start).div_ceil(self.tile_length).min(self.tiles)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
