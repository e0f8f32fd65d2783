//! The products of warpgroups: weights decoded in registers times inputs in shared memory, with `wgmma`.

use bespoke_codegen::prelude::*;

use super::shape::{BlockOfRows, GemmShape};
use super::{Rings, Sums, decoders};
use crate::kernels::gemv::LaneMap;

/// Consumer warps: the sums of this warp's tiles and its warpgroup's part of the tokens. Each tile of a warp belongs to
/// a tile of 64 rows of the warpgroup.
///
/// The last products of a block of columns run while the first weights of the next block are decoded.
#[device]
pub(super) fn multiply(rings: Rings, block: &BlockOfRows, s: &GemmShape) -> Sums {
    let zero = WarpgroupSums::<f32>::zero(block.warp_tokens(s)).into_running();
    let mut sums: Vec<RunningSums> = vec![zero; s.tiling.warp_tiles as usize];
    let map = LaneMap::new();
    let (mut weights, mut inputs) = (rings.weights.consumer(), rings.inputs.consumer());
    let mut last = inputs;
    let mut column = val(0u32);
    while column < block.layouts[0].blocks {
        weights.wait();
        let columns = Columns { weights: weights.data(), is_first: column == 0 };
        sums = add_columns(sums, &columns, &mut inputs, &mut last, &map, block, s);
        weights.release();
        weights.advance();
        column += 1;
    }
    sums.into_iter().flat_map(|sums| sums.wait().fragments().to_vec()).collect()
}

/// A block of columns.
struct Columns {
    /// Its weights.
    weights: Ptr<Shared, u8>,
    /// Whether it is the first one, with no products before it.
    is_first: Val<bool>,
}

/// Starts to add the products of a block of columns. `last` is the stage of inputs of the last products, which may run.
fn add_columns(
    mut sums: Vec<RunningSums>,
    columns: &Columns,
    inputs: &mut Consumer,
    last: &mut Consumer,
    map: &LaneMap,
    block: &BlockOfRows,
    s: &GemmShape,
) -> Vec<RunningSums> {
    let [row, part] = s.warp_position(warp_index());
    let mut decoders = decoders(columns.weights, row, map, block, s);
    let ty = block.layouts[0].ty;
    let stage_chunks = s.stage_cols(ty) / 32;
    let matrices = block.tokens(s) * 16;
    for stage in 0..ty.block_cols() / s.stage_cols(ty) {
        inputs.wait();
        let from = inputs.data().byte_add(part * (block.warp_tokens(s) * 16));
        let from = MatrixDescriptor::new(from.cast::<f16>(), matrices, 128);
        for (tile, decoder) in decoders.iter_mut().enumerate() {
            for chunk in 0..stage_chunks {
                let at = from.byte_add(chunk * (4 * matrices));
                let fragments = decoder.chunk(stage * stage_chunks + chunk);
                let products: Vec<(FragmentA<f16, 4>, _)> = (0u32..)
                    .zip(fragments)
                    .map(|(half, words)| (FragmentA::from_registers(words), at.byte_add(half * 2 * matrices)))
                    .collect();
                sums[tile] = sums[tile].clone().multiply(&products);
                // The registers of A of earlier products are free, and the stage of inputs that they read.
                wait_for_products(1);
                if tile == 0 && chunk == 0 {
                    if stage == 0 {
                        release_unless(columns.is_first, *last);
                    } else {
                        last.release();
                    }
                }
            }
        }
        *last = *inputs;
        inputs.advance();
    }
    if s.tiling.warp_tiles * ty.block_cols() == 32 {
        // The block has one product. The loop's next iteration writes the same registers of A.
        wait_for_products(0);
    }
    sums
}

/// Releases a stage unless no products have read it.
#[device]
fn release_unless(is_unread: Val<bool>, stage: Consumer) {
    if !is_unread {
        stage.release();
    }
}
