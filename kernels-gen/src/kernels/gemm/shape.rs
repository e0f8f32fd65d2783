//! Compile-time parameters of a product of many tokens, and the sizes derived from them.

use bespoke_codegen::dsl::WARP;
use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use crate::kernels::gemv::GemvShape;
use crate::kernels::launching::CopyEngine;
use crate::weights::{Layout, TILE_ROWS, WeightType};

/// Tokens of a fragment.
pub(super) const GROUP: u32 = 8;

/// Division of a product of many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tiling {
    /// Consumer warps of a CTA: along rows, and along tokens.
    pub warps: [u32; 2],
    /// Tiles of 16 rows of a warp: 1 or 2. With a gated output and 2, a warp has one of gate and one of up. With a gated
    /// output and 1, the first half of the warps along rows has tiles of gate, the second half tiles of up.
    #[serde(default = "two", skip_serializing_if = "is_two")]
    pub warp_tiles: u32,
    /// Tokens of a warp, a multiple of 8.
    pub warp_tokens: u32,
    /// Stages of the ring of weights, and of the ring of inputs: with warpgroups at least two of inputs.
    pub stages: [u32; 2],
    /// Largest number of columns of a stage of inputs: 32, 64 or 128.
    pub stage_cols: u32,
    /// The instruction that copies data to shared memory.
    pub copy: CopyEngine,
    /// Blocks of rows at the end whose blocks of tokens are divided between two CTAs each, so that the last CTAs of a
    /// launch occupy more multiprocessors. Only for one matrix, or gate and up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub halved: u32,
    /// Whether warpgroups multiply, with `wgmma`, instead of warps: on devices of compute capability 9.0 only. The warps
    /// along rows are then a multiple of four.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warpgroups: bool,
}

fn two() -> u32 {
    2
}

fn is_two(tiles: &u32) -> bool {
    *tiles == 2
}

fn is_zero(blocks: &u32) -> bool {
    *blocks == 0
}

/// A product of the stack of matrices of a [`GemvShape`] with many tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmShape {
    /// Number of tokens, matrices, inputs and epilogue. Its schedule is not used.
    pub product: GemvShape,
    /// Division of the work.
    pub tiling: Tiling,
}

/// Blocks of rows of a matrix, or of gate and up, whose blocks of tokens are divided alike.
pub(super) struct BlockOfRows {
    /// Index along y of the grid of the first block.
    pub first: u32,
    /// Number of blocks.
    pub count: u32,
    /// Number of CTAs that divide a block of tokens: 1 or 2, which are consecutive along y.
    pub ctas: u32,
    /// Number of the matrix's blocks of rows before the first one.
    pub row_blocks_before: u32,
    /// Layout of the matrix, or of gate and up.
    pub layouts: Vec<Layout>,
    /// Offset of each.
    pub offsets: Vec<u64>,
    /// Index of the matrix's first row among the rows of all.
    pub first_row: u32,
}

impl BlockOfRows {
    /// Bytes of a block of tile `tile` of a stage.
    pub fn block_bytes(&self, tile: u32, s: &GemmShape) -> u32 {
        self.layouts[s.place(tile).0].ty.block_bytes()
    }

    /// Number of indices along y of the grid.
    pub fn height(&self) -> u32 {
        self.count * self.ctas
    }

    /// Tokens of a warp.
    pub fn warp_tokens(&self, s: &GemmShape) -> u32 {
        s.tiling.warp_tokens / self.ctas
    }

    /// Tokens of a CTA.
    pub fn tokens(&self, s: &GemmShape) -> u32 {
        s.block_tokens() / self.ctas
    }

    /// Type of the weights of a warp's tile.
    pub fn type_of(&self, tile: u32) -> WeightType {
        self.layouts[(tile as usize).min(self.layouts.len() - 1)].ty
    }
}

impl GemmShape {
    /// Whether products of many tokens support a stack: blocks of gate and up must have the same number of columns.
    pub fn supports(product: &GemvShape) -> bool {
        let mut cols = product.segments.iter().map(|segment| segment.ty.block_cols());
        let first = cols.next();
        !product.is_gated() || cols.all(|cols| Some(cols) == first)
    }

    /// Whether gate and up may be tiles of different warps: the warps run the same code, so both have the same type.
    pub fn may_exchange_sums(product: &GemvShape) -> bool {
        let mut types = product.segments.iter().map(|segment| segment.ty);
        let first = types.next();
        product.is_gated() && types.all(|ty| Some(ty) == first)
    }

    /// Whether the kernel itself waits for earlier launches: its producers load weights before. Devices that copy in bulk have
    /// programmatic launches.
    pub fn waits(&self) -> bool {
        self.tiling.copy == CopyEngine::Bulk
    }

    /// Tokens of a CTA.
    pub fn block_tokens(&self) -> u32 {
        self.tiling.warps[1] * self.tiling.warp_tokens
    }

    /// Consumer warps of a CTA.
    pub(super) fn warps(&self) -> u32 {
        self.tiling.warps[0] * self.tiling.warps[1]
    }

    /// Threads of a CTA: the consumer warps and one producer warp, or a producer warpgroup with `setmaxnreg`, which applies
    /// to warpgroups.
    pub fn threads(&self) -> u32 {
        (self.warps() + if self.gives_registers() { 4 } else { 1 }) * WARP
    }

    /// Whether consumers take registers from the producers (`setmaxnreg`): two consumer warpgroups with at least 128 sums a
    /// thread.
    pub(super) fn gives_registers(&self) -> bool {
        let sums = self.tiling.warp_tiles * self.tiling.warp_tokens / 2;
        self.tiling.warpgroups && self.warps() == 8 && sums >= 128
    }

    /// Tiles of a CTA.
    pub(super) fn tiles(&self) -> u32 {
        self.tiling.warps[0] * self.tiling.warp_tiles
    }

    /// Tiles of a CTA of each matrix of its block of rows.
    pub(super) fn tiles_of_matrix(&self) -> u32 {
        if self.product.is_gated() { self.tiles() / 2 } else { self.tiles() }
    }

    /// The matrix of tile `tile` of a stage, and the tile's index among the CTA's tiles of the matrix.
    pub(super) fn place(&self, tile: u32) -> (usize, u32) {
        ((tile / self.tiles_of_matrix()) as usize, tile % self.tiles_of_matrix())
    }

    /// Tiles of a stage from a warp's first tile to its second.
    pub(super) fn tile_stride(&self) -> u32 {
        if self.product.is_gated() { self.tiles_of_matrix() } else { 1 }
    }

    /// The tile of a stage that is the first of warp `row` along rows.
    pub(super) fn first_tile_of_warp(&self, row: Val<u32>) -> Val<u32> {
        if self.product.is_gated() { row } else { row * self.tiling.warp_tiles }
    }

    /// A warp's position along rows and along tokens.
    pub(super) fn warp_position(&self, warp: Val<u32>) -> [Val<u32>; 2] {
        let rows = self.tiling.warps[0];
        [warp % rows, warp / rows]
    }

    /// Columns of a stage of inputs for weights of a type.
    pub(super) fn stage_cols(&self, ty: WeightType) -> u32 {
        ty.block_cols().min(self.tiling.stage_cols)
    }

    /// Bytes of a tile in a stage of weights.
    pub(super) fn tile_bytes(&self) -> u32 {
        self.product.segments.iter().map(|segment| segment.ty.block_bytes()).max().unwrap_or(0)
    }

    /// Size of a stage of weights in bytes.
    pub(super) fn weight_stage(&self) -> u32 {
        self.tiles() * self.tile_bytes()
    }

    /// Size of a stage of inputs in bytes.
    pub(super) fn input_stage(&self) -> u32 {
        let cols = self.product.segments.iter().map(|segment| self.stage_cols(segment.ty));
        cols.max().unwrap_or(0) / 32 * self.convert().chunk_bytes()
    }

    /// Dynamic shared memory of a CTA in bytes.
    pub fn shared_bytes(&self) -> u32 {
        let rings = self.tiling.stages[0] * self.weight_stage() + self.tiling.stages[1] * self.input_stage();
        // Half of the sums of each warp.
        let exchanged =
            if self.exchanges_sums() { self.warps() * self.tiling.warp_tokens * TILE_ROWS * 2 } else { 0 };
        rings.max(exchanged)
    }

    /// Whether gate and up are sums of different warps, which the epilogue exchanges through shared memory.
    pub(super) fn exchanges_sums(&self) -> bool {
        self.product.is_gated() && self.tiling.warp_tiles == 1
    }

    /// Static shared memory of a CTA in bytes: two mbarriers for each stage.
    pub fn static_shared(&self) -> u32 {
        16 * (self.tiling.stages[0] + self.tiling.stages[1])
    }

    /// The grid: blocks of tokens along x, and blocks of rows along y.
    pub fn grid(&self) -> [u32; 3] {
        let rows = self.blocks_of_rows().iter().map(BlockOfRows::height).sum();
        [self.product.tokens.div_ceil(self.block_tokens()), rows, 1]
    }

    /// Number of blocks of rows of a matrix with `rows` rows.
    pub(crate) fn row_blocks(&self, rows: u32) -> u32 {
        rows.div_ceil(TILE_ROWS).div_ceil(self.tiles_of_matrix())
    }

    /// Whether the blocks of rows of a stack may be [`Tiling::halved`].
    pub fn may_halve(product: &GemvShape) -> bool {
        product.is_gated() || product.segments.len() == 1
    }

    /// The blocks of rows of each matrix.
    pub(super) fn blocks_of_rows(&self) -> Vec<BlockOfRows> {
        let (layouts, offsets) = (self.product.layouts(), self.product.offsets());
        let count = |layout: &Layout| self.row_blocks(layout.rows);
        if self.product.is_gated() || self.tiling.halved > 0 {
            let whole = count(&layouts[0]) - self.tiling.halved;
            let block = |first, count, ctas| BlockOfRows {
                first,
                count,
                ctas,
                row_blocks_before: first,
                layouts: layouts.clone(),
                offsets: offsets.segments.clone(),
                first_row: 0,
            };
            let blocks = [block(0, whole, 1), block(whole, self.tiling.halved, 2)];
            return blocks.into_iter().filter(|block| block.count > 0).collect();
        }
        let (mut first, mut first_row) = (0, 0);
        let mut blocks = Vec::new();
        for (layout, &offset) in layouts.into_iter().zip(&offsets.segments) {
            let count = count(&layout);
            blocks.push(BlockOfRows {
                first,
                count,
                ctas: 1,
                row_blocks_before: 0,
                layouts: vec![layout],
                offsets: vec![offset],
                first_row,
            });
            first += count;
            first_row += layout.rows;
        }
        blocks
    }
}
