//! Compile-time parameters of a product of several tokens, and the sizes derived from them.

use bespoke_codegen::prelude::*;

use super::inputs::{GRANULE, GROUP};
use super::prepare::PrepareShape;
use crate::kernels::gemv::half_step::has_mins;
use crate::kernels::gemv::half_weights::has_long_runs;
use crate::kernels::gemv::layout::{InputForms, InputLayout};
use crate::kernels::gemv::product::Output;
use crate::kernels::gemv::schedule::QUAD;
use crate::kernels::gemv::shape::GemvShape;
use crate::kernels::launching::Trigger;
use crate::weights::{Layout, TILE_ROWS, WeightType};

/// Offsets in a CTA's dynamic shared memory, in bytes. The ring of weights comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenMap {
    /// Offset of the inputs of a slice, or of several; see [`InputLayout`].
    pub inputs: u32,
    /// Offset of the sums of squares, f32 `[token][256 columns]`, unless the inputs are prepared.
    pub squares: u32,
    /// Offset of the factors of a normalised input, f32 `[token]`.
    pub factors: u32,
    /// Offset of the sums of steps of a slice, or of all slices, unless they are added to the totals at once, f32
    /// `[segment of a batch][tile][step][group of tokens][16][4]`.
    pub partial: u32,
    /// Offset of the sums of the slices so far, f32 `[part of the columns][segment of a batch][tile][group of tokens][16][4]`. With
    /// warpgroups, `[segment of a batch][tile][pair of groups][lane][4]`: lane 4g + t has rows g and g + 8, each for token t of both
    /// groups.
    pub totals: u32,
    /// Offset of the largest output of each warp, f32 `[warp][token]`, and of the rows of these outputs, u32.
    pub best: u32,
    /// Total size, in bytes.
    pub bytes: u32,
}

impl GemvShape {
    /// Layout of the inputs of several tokens.
    pub fn input_layout(&self) -> InputLayout {
        let any = |is: fn(WeightType) -> bool| self.segments.iter().any(|segment| is(segment.ty));
        let forms = if self.is_f16() {
            let short_halves = any(|ty| !has_long_runs(ty));
            InputForms {
                short_halves,
                long_halves: any(has_long_runs),
                mins: any(has_mins),
                ..InputForms::NONE
            }
        } else {
            InputForms {
                chunks: self.quantised(),
                mins: self.is_exact(),
                sums: any(|ty| ty.has_offset() && !ty.has_half_chunks() && ty.exact_groups() == 0),
                half_sums: self.has_half_offsets(),
                floats: self.floats(),
                ..InputForms::NONE
            }
        };
        let granules = self.padded_cols().div_ceil(GRANULE);
        InputLayout { tokens: self.tokens, granules, forms, block_tokens: self.block_tokens() }
    }

    /// Whether warpgroups multiply.
    pub fn has_warpgroups(&self) -> bool {
        self.is_prepared() && self.schedule.several.warpgroups > 0
    }

    /// Tokens of a block of a product of warpgroups, in whole pairs of groups. 0 if warps multiply.
    fn block_tokens(&self) -> u32 {
        if !self.has_warpgroups() {
            return 0;
        }
        self.tokens.div_ceil(self.schedule.several.blocks).next_multiple_of(2 * GROUP)
    }

    /// Number of groups of tokens of a CTA.
    pub(crate) fn cta_groups(&self) -> u32 {
        if self.has_warpgroups() { self.block_tokens() / GROUP } else { self.input_layout().groups() }
    }

    /// Index of the first token of this CTA.
    pub(super) fn first_token(&self) -> Val<u32> {
        if self.schedule.several.blocks > 1 { block_index_y() * self.block_tokens() } else { val(0) }
    }

    /// The launch that prepares the inputs, if the product needs one.
    pub fn prepare(&self) -> Option<PrepareShape> {
        let trigger = match self.schedule.trigger {
            Trigger::Never => Trigger::Never,
            Trigger::AtStart | Trigger::AfterWait | Trigger::AfterLoads => Trigger::AtStart,
        };
        let layout = self.input_layout();
        let shape = || PrepareShape { cols: self.cols, normed: self.normed(), layout, trigger };
        (self.is_prepared() && !self.received).then(shape)
    }

    /// Whether the inputs come from a launch of [`prepare`](super::prepare()), or from the product before.
    pub fn is_prepared(&self) -> bool {
        self.is_sliced() && self.schedule.several.prepared
    }

    /// Least number of columns of a slice: a whole number of units of every segment.
    pub fn least_slice(&self) -> u32 {
        self.layouts().iter().map(|layout| self.unit_cols(layout)).fold(GRANULE, u32::max)
    }

    /// Number of columns of a unit of a segment: a power of two.
    pub(super) fn unit_cols(&self, layout: &Layout) -> u32 {
        self.depth() * layout.ty.block_cols()
    }

    /// Number of slices.
    pub(crate) fn slices(&self) -> u32 {
        if self.is_prepared() { self.padded_cols().div_ceil(self.schedule.several.slice) } else { 1 }
    }

    /// Number of units per tile and slice of a segment; the last slice may have fewer.
    pub(super) fn slice_units(&self, layout: &Layout) -> u32 {
        if self.is_prepared() {
            self.schedule.several.slice / self.unit_cols(layout)
        } else {
            self.units(layout)
        }
    }

    /// Largest number of steps per tile whose sums are in shared memory side by side.
    pub(super) fn stored_steps(&self) -> u32 {
        if self.accumulates() {
            return 1;
        }
        let holds = self.schedule.several.holds;
        let steps = |layout: &Layout| {
            let units = if holds { self.units(layout) } else { self.slice_units(layout) };
            units * self.unit_steps(layout.ty)
        };
        self.layouts().iter().map(steps).max().unwrap_or(1)
    }

    /// Whether the sums of a slice are added to totals after the slice.
    pub(crate) fn adds_slices(&self) -> bool {
        self.has_totals() && !self.accumulates()
    }

    /// Whether a warp adds the sums of its unit to the totals: sums are not held and a slice has one unit of each tile, or the warp
    /// is part of a warpgroup.
    pub(crate) fn accumulates(&self) -> bool {
        let is_unit = |layout: &Layout| self.slice_units(layout) == 1;
        self.has_warpgroups() || self.has_totals() && self.layouts().iter().all(is_unit)
    }

    /// Whether shared memory has totals, which sums of steps are added to.
    pub(super) fn has_totals(&self) -> bool {
        self.slices() > 1 && !self.schedule.several.holds || self.has_warpgroups()
    }

    /// Number of warps that share a stage of the ring.
    pub(super) fn warps_per_stage(&self) -> u32 {
        self.schedule.warps.div_ceil(self.schedule.groups)
    }

    /// Number of units in a stage of the ring, with several tokens. With warpgroups, those of four tiles in a slice.
    pub(crate) fn strip(&self) -> u32 {
        if self.has_warpgroups() {
            let units = self.layouts().iter().map(|layout| self.slice_units(layout)).max();
            return QUAD * units.unwrap_or(1);
        }
        self.warps_per_stage().div_ceil(self.schedule.several.parts)
    }

    /// The segments whose tiles are processed together. A CTA has the same tiles of all of them.
    pub(super) fn batches(&self) -> Vec<Vec<usize>> {
        if self.is_gated() { vec![vec![0, 1]] } else { (0..self.segments.len()).map(|it| vec![it]).collect() }
    }

    /// Whether a quad may have tiles of gate and of up: if these have the same type, and that gives a batch fewer quads.
    pub fn mixes_segments(&self) -> bool {
        let tiles = self.schedule.several.tiles;
        let is_same = self.segments.iter().all(|segment| segment.ty == self.segments[0].ty);
        self.has_warpgroups()
            && self.is_gated()
            && is_same
            && (2 * tiles).div_ceil(QUAD) < 2 * tiles.div_ceil(QUAD)
    }

    /// The segments of a batch whose tiles a CTA streams and multiplies as one sequence: both if quads have tiles of both.
    pub(super) fn runs<'a>(&self, batch: &'a [usize]) -> std::slice::Chunks<'a, usize> {
        batch.chunks(if self.mixes_segments() { batch.len() } else { 1 })
    }

    /// The slices of this CTA, as a half-open range: all, or with a cluster those of a part of the columns.
    pub(super) fn cta_slices(&self) -> [Val<u32>; 2] {
        let slices = self.slices();
        if self.cluster() == 1 {
            return [val(0), val(slices)];
        }
        // A slice is a step.
        let first = self.first_part(&self.layouts()[0]);
        let rank = cluster_rank();
        [rank * first, rank * (slices - first) + first]
    }

    /// Number of totals of a batch of tiles, one for each part of the columns that this CTA has.
    pub(super) fn totals(&self) -> u32 {
        let segments = if self.is_gated() { 2 } else { 1 };
        segments * self.schedule.several.tiles * self.tile_sums()
    }

    /// Number of sums per tile: of 16 rows, and of the tokens rounded up to whole groups.
    pub(super) fn tile_sums(&self) -> u32 {
        TILE_ROWS * GROUP * self.cta_groups()
    }

    /// Size of the inputs of a slice in bytes.
    pub(crate) fn slice_bytes(&self) -> u32 {
        let layout = self.input_layout();
        if self.is_prepared() {
            self.schedule.several.slice / GRANULE * layout.granule_bytes()
        } else {
            layout.bytes()
        }
    }

    pub(crate) fn token_map(&self) -> TokenMap {
        let layout = self.input_layout();
        let tokens = layout.padded_tokens();
        let several = &self.schedule.several;
        let mut end = self.stage_bytes() * self.schedule.stages;
        let mut place = |bytes: u32| {
            let start = end;
            end += bytes.next_multiple_of(16);
            start
        };
        let inputs = place(self.slice_bytes() * if several.prepared { several.buffers } else { 1 });
        let has_squares = self.normed() && !several.prepared;
        let squares = place(if has_squares { tokens * layout.squares() * 4 } else { 0 });
        let factors = place(if self.normed() { tokens * 4 } else { 0 });
        let sums = self.totals() * 4;
        let partial = place(if self.accumulates() { 0 } else { sums * self.stored_steps() });
        let parts = self.column_parts() / self.cluster();
        let totals = place(if self.has_totals() { sums * parts } else { 0 });
        let best = place(if self.output == Output::Argmax { self.schedule.warps * tokens * 8 } else { 0 });
        TokenMap { inputs, squares, factors, partial, totals, best, bytes: end }
    }

    /// Dynamic shared memory of a product of several tokens, without [`Schedule::reserve`](super::super::Schedule).
    pub fn token_bytes(&self) -> u32 {
        self.token_map().bytes
    }

    /// Threads of a CTA that stream data: a warp for the weights, and one for prepared inputs. A whole warpgroup if they give up
    /// registers, since `setmaxnreg` applies to warpgroups.
    pub(crate) fn producers(&self) -> u32 {
        match (self.is_prepared(), self.registers().is_some()) {
            (_, true) => QUAD * WARP,
            (true, _) => 2 * WARP,
            (false, _) => WARP,
        }
    }
}
