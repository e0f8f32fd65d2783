//! Products of many tokens with the same matrices, for prompts: Y = X·Wᵀ on tensor cores, with operands of type f16.
//!
//! [`convert()`] rounds the inputs to f16, scaled by a power of two per token, in the order of `mma` fragments. [`gemm()`]
//! decodes the packed weights in registers to f16 fragments and multiplies. Sums are f32.
//!
//! A CTA has a *block of rows* of a matrix (the same rows of gate and up, if they are combined) and a *block of tokens*. The
//! producer warp streams the weights and the inputs, each through a ring. A consumer warp has one or two tiles of 16 rows
//! and a part of the tokens: it decodes 32 columns of its tiles, and multiplies them with groups of eight tokens.
//!
//! An output is one sum in the order of columns, 16 at a time, so its bits depend on the matrix and on the token's inputs
//! alone: neither on the other tokens, nor on their number, nor on the division of the work.

mod convert;
mod epilogue;
mod shape;
mod warpgroup;

use bespoke_codegen::prelude::*;

pub use convert::{ConvertShape, convert};
pub use shape::{GemmShape, Tiling};

use crate::kernels::gemv::{BlockDecoder, LaneMap, Pairs};
use crate::kernels::state;
use epilogue::Epilogue;
use shape::{BlockOfRows, GROUP};

/// Registers of a producer thread and of a consumer thread with `setmaxnreg`. The CTA starts with 168 registers for each of
/// its 384 threads, as many as (56 + 2 · 224) · 128.
const PRODUCER_REGISTERS: u32 = 56;
const CONSUMER_REGISTERS: u32 = 224;

/// The sums of a warp: `[tile][group of tokens]`, each a fragment of 16 rows and 8 tokens.
type Sums = Vec<FragmentC<f32>>;

/// The pointers of the kernel.
#[derive(Clone, Copy)]
struct Operands {
    /// Weights and biases, at the offsets of [`crate::kernels::gemv::GemvShape::offsets`].
    w: Ptr<Global, u8>,
    /// Inputs and factors, as [`convert()`] writes them.
    x: Ptr<Global, u8>,
    /// Outputs, f32 `[token][output]`.
    y: Ptr<Global, f32>,
}

/// The rings of a CTA.
#[derive(Clone, Copy)]
struct Rings {
    weights: Pipeline,
    inputs: Pipeline,
}

/// Y = X·Wᵀ and an epilogue, as [`crate::kernels::gemv::GemvShape`] describes them, for each token.
///
/// `w`: the stack of matrices; `x`: the inputs from [`convert()`], [`ConvertShape::bytes`] bytes; `y`: f32 `[token][output]`;
/// `state`: the records of the step's rows (see [`state`]). Rows that exist come first; blocks of tokens without any are
/// skipped.
///
/// Relative to the sum of |x·w|, the rounding of inputs to f16 and that of weights each give an output an error of
/// about 2⁻¹².
#[kernel(threads = s.threads(), min_blocks = 1)]
pub fn gemm(
    w: Ptr<Global, u8>,
    x: Ptr<Global, u8>,
    y: Ptr<Global, f32>,
    state: Ptr<Global, u32>,
    s: &GemmShape,
) {
    let operands = Operands { w, x, y };
    if s.waits() {
        launch_dependents();
    }
    let blocks = s.blocks_of_rows();
    // Blocks of rows with halved blocks of tokens are the last ones.
    let mut token = block_index() * s.block_tokens();
    if let Some(halved) = blocks.iter().find(|block| block.ctas > 1) {
        token = select(block_index_y() >= halved.first, first_token(halved, s), token);
    }
    // Of tokens that are used, the first one exists. There is no record of tokens past the last one.
    let is_whole = s.product.tokens.is_multiple_of(s.block_tokens());
    let token = if is_whole { token } else { token.min(s.product.tokens - 1) };
    if state::exists(state, token) {
        let rings = rings(s);
        barrier();
        for block in blocks {
            if (block_index_y() >= block.first) & (block_index_y() < block.first + block.height()) {
                multiply_block(&operands, rings, &block, s);
            }
        }
    } else if s.waits() {
        wait_for_dependencies();
    }
}

/// Places and initialises the rings. A CTA barrier must follow.
#[device]
fn rings(s: &GemmShape) -> Rings {
    let ring = |stages, stage_bytes, at: u32| {
        let shape = PipelineShape {
            stages,
            stage_bytes,
            consumers: Consumers::Threads(s.warps() * WARP),
            copy: s.tiling.copy.engine(),
        };
        Pipeline::new(shape, dynamic_shared().byte_add(at), mbarrier_array(shape.barriers()))
    };
    let [weights, inputs] = s.tiling.stages;
    let rings = Rings {
        weights: ring(weights, s.weight_stage(), 0),
        inputs: ring(inputs, s.input_stage(), weights * s.weight_stage()),
    };
    if thread_index() == 0 {
        rings.weights.init();
        rings.inputs.init();
    }
    rings
}

/// The product of a block of rows, by the roles of the warps.
#[device]
fn multiply_block(operands: &Operands, rings: Rings, block: &BlockOfRows, s: &GemmShape) {
    if warp_index() >= s.warps() {
        if s.gives_registers() {
            decrease_registers(PRODUCER_REGISTERS);
            if (warp_index() == s.warps()) & s.tiling.copy.takes_lane() {
                load(operands, rings, block, s);
            }
        } else if s.tiling.copy.takes_lane() {
            load(operands, rings, block, s);
        }
    } else if s.tiling.warpgroups {
        if s.gives_registers() {
            increase_registers(CONSUMER_REGISTERS);
        }
        let sums = warpgroup::multiply(rings, block, s);
        finish(&sums, operands, block, s);
    } else {
        let sums = multiply(rings, block, s);
        finish(&sums, operands, block, s);
    }
}

/// The epilogue of a consumer warp, which may read what earlier launches wrote.
fn finish(sums: &Sums, operands: &Operands, block: &BlockOfRows, s: &GemmShape) {
    if s.waits() {
        wait_for_dependencies();
    }
    Epilogue { operands, block, s }.finish(sums);
}

/// Index of the first of the tiles that a CTA has of each matrix of its block of rows.
#[device]
fn first_tile(block: &BlockOfRows, s: &GemmShape) -> Val<u32> {
    let within = block_index_y() - block.first;
    let within = if block.ctas == 1 { within } else { within / block.ctas };
    (within + block.row_blocks_before) * s.tiles_of_matrix()
}

/// Index of the CTA's first token.
#[device]
fn first_token(block: &BlockOfRows, s: &GemmShape) -> Val<u32> {
    let of_block = block_index() * s.block_tokens();
    if block.ctas == 1 { of_block } else { of_block + half_of_tokens(block) * block.tokens(s) }
}

/// Index of the half of its block of tokens that the CTA has.
#[device]
fn half_of_tokens(block: &BlockOfRows) -> Val<u32> {
    (block_index_y() - block.first) % block.ctas
}

/// Addresses of the CTA's tiles.
fn tiles(operands: &Operands, block: &BlockOfRows, s: &GemmShape) -> Vec<Ptr<Global, u8>> {
    let first = first_tile(block, s);
    let tile = |tile: u32| {
        let (matrix, within) = s.place(tile);
        let layout = &block.layouts[matrix];
        // Tiles after the last one are not stored.
        let index = (first + within).min(layout.tiles - 1);
        operands.w.byte_add(block.offsets[matrix]).byte_add(mul_wide(index, layout.tile_bytes()))
    };
    (0..s.tiles()).map(tile).collect()
}

/// Loads a stage of weights: the blocks of column `column` of the CTA's tiles.
#[device]
fn load_weights(
    stage: &mut Producer,
    tiles: &[Ptr<Global, u8>],
    column: Val<u32>,
    block: &BlockOfRows,
    s: &GemmShape,
) {
    stage.acquire((0..s.tiles()).map(|tile| block.block_bytes(tile, s)).sum::<u32>());
    for (tile, from) in (0u32..).zip(tiles) {
        let bytes = block.block_bytes(tile, s);
        stage.copy(tile * s.tile_bytes(), from.byte_add(column * bytes), bytes, None);
    }
    stage.commit();
    stage.advance();
}

/// Producer warp: for each block of columns a stage of weights, with the block of each of the CTA's tiles, then the stages
/// of its inputs. The first stages of weights are loaded before earlier launches have completed.
#[device]
fn load(operands: &Operands, rings: Rings, block: &BlockOfRows, s: &GemmShape) {
    let layout = &block.layouts[0];
    let tiles = tiles(operands, block, s);
    let inputs = s.convert();
    let input_bytes = s.stage_cols(layout.ty) / 32 * inputs.chunk_bytes();
    let copy = |stage: &mut Producer, from| match block.ctas {
        1 => stage.copy(0, from, input_bytes, None),
        _ => copy_half(stage, from, block, s),
    };
    let mut input = operands.x.byte_add(inputs.form_offset(layout.ty));
    input = input.byte_add(mul_wide(block_index(), inputs.chunks() * inputs.chunk_bytes()));
    let (mut weight_stage, mut input_stage) = (rings.weights.producer(lane()), rings.inputs.producer(lane()));
    let early = if s.waits() { s.tiling.stages[0].min(layout.blocks) } else { 0 };
    for column in 0..early {
        load_weights(&mut weight_stage, &tiles, val(column), block, s);
    }
    if s.waits() {
        wait_for_dependencies();
    }
    let mut column = val(0u32);
    while column < layout.blocks {
        if column >= early {
            load_weights(&mut weight_stage, &tiles, column, block, s);
        }
        for _ in 0..layout.ty.block_cols() / s.stage_cols(layout.ty) {
            input_stage.acquire(input_bytes / block.ctas);
            copy(&mut input_stage, input);
            input_stage.commit();
            input_stage.advance();
            input = input.byte_add(input_bytes);
        }
        column += 1;
    }
}

/// Copies the inputs of the CTA's half of the block of tokens, in the order of core matrices, from a stage's inputs of the block.
fn copy_half(stage: &mut Producer, from: Ptr<Global, u8>, block: &BlockOfRows, s: &GemmShape) {
    let bytes = block.tokens(s) * 16;
    let from = from.byte_add(half_of_tokens(block) * bytes);
    for matrix in 0..s.stage_cols(block.layouts[0].ty) / 8 {
        stage.copy(matrix * bytes, from.byte_add(matrix * (block.ctas * bytes)), bytes, None);
    }
}

/// Consumer warps: the sums of this warp's tiles and its part of the tokens.
#[device]
fn multiply(rings: Rings, block: &BlockOfRows, s: &GemmShape) -> Sums {
    let groups = s.tiling.warp_tokens / GROUP;
    let mut sums: Sums = vec![FragmentC::zero(); (s.tiling.warp_tiles * groups) as usize];
    let map = LaneMap::new();
    let (mut weights, mut inputs) = (rings.weights.consumer(), rings.inputs.consumer());
    let mut column = val(0u32);
    while column < block.layouts[0].blocks {
        weights.wait();
        add_columns(&mut sums, weights.data(), &mut inputs, &map, block, s);
        weights.release();
        weights.advance();
        column += 1;
    }
    sums
}

/// Adds the products of a block of columns, whose weights are at `weights`.
fn add_columns(
    sums: &mut Sums,
    weights: Ptr<Shared, u8>,
    inputs: &mut Consumer,
    map: &LaneMap,
    block: &BlockOfRows,
    s: &GemmShape,
) {
    let [row, part] = s.warp_position(warp_index());
    let groups = s.tiling.warp_tokens / GROUP;
    let mut decoders = decoders(weights, row, map, block, s);
    let ty = block.layouts[0].ty;
    let stage_chunks = s.stage_cols(ty) / 32;
    for stage in 0..ty.block_cols() / s.stage_cols(ty) {
        inputs.wait();
        let from = inputs.data().byte_add(part * (groups * 512)).byte_add(lane() * 16);
        for chunk in 0..stage_chunks {
            let index = stage * stage_chunks + chunk;
            let fragments: Vec<_> = decoders.iter_mut().map(|decoder| decoder.chunk(index)).collect();
            let from = from.byte_add(chunk * s.convert().chunk_bytes());
            for group in 0..groups {
                let [a, b, c, d] = from.byte_add(group * 512).cast::<u32>().load_vector::<4>();
                for (half, words) in [[a, b], [c, d]].into_iter().enumerate() {
                    for (tile, fragments) in fragments.iter().enumerate() {
                        let sum = &mut sums[tile * groups as usize + group as usize];
                        let a = FragmentA::<f16, 4>::from_registers(fragments[half]);
                        *sum = mma(a, FragmentB::<f16, 2>::from_registers(words), *sum);
                    }
                }
            }
        }
        inputs.release();
        inputs.advance();
    }
}

/// Decoders of the tiles of the warps at position `row` along rows, for a block of columns whose weights are at `weights`.
fn decoders<'a>(
    weights: Ptr<Shared, u8>,
    row: Val<u32>,
    map: &'a LaneMap,
    block: &BlockOfRows,
    s: &GemmShape,
) -> Vec<BlockDecoder<'a>> {
    let tiles = weights.byte_add(s.first_tile_of_warp(row) * s.tile_bytes());
    let decoder = |tile: u32| {
        let at = tiles.byte_add(tile * s.tile_stride() * s.tile_bytes());
        BlockDecoder::new(at, block.type_of(tile), Pairs::Neighbours, map)
    };
    (0..s.tiling.warp_tiles).map(decoder).collect()
}
