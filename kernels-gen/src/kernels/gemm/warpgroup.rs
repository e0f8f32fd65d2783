//! The products of warpgroups: weights decoded in registers times inputs in shared memory, with `wgmma`.

use bespoke_codegen::prelude::*;

use super::shape::{BlockOfRows, GemmShape};
use super::{Rings, Sums, decoders};
use crate::kernels::gemv::LaneMap;

/// Consumer warps: the sums of this warp's tiles and its warpgroup's part of the tokens. Each tile of a warp belongs to
/// a tile of 64 rows of the warpgroup.
#[device]
pub(super) fn multiply(rings: Rings, block: &BlockOfRows, s: &GemmShape) -> Sums {
    let mut sums = vec![WarpgroupSums::zero(s.tiling.warp_tokens); s.tiling.warp_tiles as usize];
    let map = LaneMap::new();
    let (mut weights, mut inputs) = (rings.weights.consumer(), rings.inputs.consumer());
    let mut column = val(0u32);
    while column < block.layouts[0].blocks {
        weights.wait();
        sums = add_columns(sums, weights.data(), &mut inputs, &map, block, s);
        weights.release();
        weights.advance();
        column += 1;
    }
    sums.iter().flat_map(|sums| sums.fragments().to_vec()).collect()
}

/// Adds the products of a block of columns, whose weights are at `weights`.
fn add_columns(
    sums: Vec<WarpgroupSums>,
    weights: Ptr<Shared, u8>,
    inputs: &mut Consumer,
    map: &LaneMap,
    block: &BlockOfRows,
    s: &GemmShape,
) -> Vec<WarpgroupSums> {
    let [row, part] = s.warp_position(warp_index());
    let mut decoders = decoders(weights, row, map, block, s);
    let ty = block.layouts[0].ty;
    let stage_chunks = s.stage_cols(ty) / 32;
    let matrices = s.block_tokens() * 16;
    let mut sums: Vec<State> = sums.into_iter().map(State::Complete).collect();
    let mut unreleased = None;
    for stage in 0..ty.block_cols() / s.stage_cols(ty) {
        inputs.wait();
        let from = inputs.data().bytes(part * (s.tiling.warp_tokens * 16));
        let from = MatrixDescriptor::new(from.cast::<f16>(), matrices, 128);
        for (decoder, sums) in decoders.iter_mut().zip(&mut sums) {
            for chunk in 0..stage_chunks {
                let at = from.bytes(chunk * s.halve().chunk_bytes());
                let fragments = decoder.chunk(stage * stage_chunks + chunk);
                let products: Vec<_> = (0u32..)
                    .zip(fragments)
                    .map(|(half, words)| (FragmentA::from_registers(words), at.bytes(half * 2 * matrices)))
                    .collect();
                *sums = State::Running(sums.multiply(&products));
                // The registers of A of earlier products are free, and the stage of inputs that they read.
                wait_for_products(1);
                if let Some(stage) = unreleased.take() {
                    let stage: Consumer = stage;
                    stage.release();
                }
            }
        }
        unreleased = Some(*inputs);
        inputs.advance();
    }
    let sums = sums.into_iter().map(State::wait).collect();
    if let Some(stage) = unreleased {
        stage.release();
    }
    sums
}

/// Sums before and after the first product of a block.
enum State {
    Complete(WarpgroupSums),
    Running(RunningSums),
}

impl State {
    fn multiply(&self, products: &[(FragmentA<f16, 4>, MatrixDescriptor<f16>)]) -> RunningSums {
        match self {
            State::Complete(sums) => sums.clone().multiply(products),
            State::Running(sums) => sums.clone().multiply(products),
        }
    }

    fn wait(self) -> WarpgroupSums {
        match self {
            State::Complete(sums) => sums,
            State::Running(sums) => sums.wait(),
        }
    }
}
