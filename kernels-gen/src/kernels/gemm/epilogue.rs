//! The epilogue of a product of many tokens: outputs from sums.

use bespoke_codegen::prelude::*;

use super::halve::MISSING;
use super::shape::{BlockOfRows, GROUP, GemmShape};
use super::weights::down;
use super::{Operands, Sums, first_tile};
use crate::kernels::gemv::{Output, bias, scaled};
use crate::weights::TILE_ROWS;

/// Writes the outputs of a warp.
pub(super) struct Epilogue<'a> {
    pub operands: &'a Operands,
    pub block: &'a BlockOfRows,
    pub s: &'a GemmShape,
}

impl Epilogue<'_> {
    /// Writes the outputs that follow from the sums of this warp's tiles.
    pub fn finish(&self, sums: &Sums) {
        let s = self.s;
        let groups = (s.tiling.warp_tokens / GROUP) as usize;
        let [row, part] = s.warp_position(warp_index());
        let first = first_tile(self.block, s) + s.first_tile_of_warp(row);
        let token = block_index() * s.block_tokens() + part * s.tiling.warp_tokens;
        let factors = self.operands.x.bytes(s.halve().factors()).cast::<f32>().at(token);
        for group in 0..groups {
            let [low, high] = [0, 1].map(|i| FragmentC::<f32>::column(i) + group as u32 * GROUP);
            let factors = [low, high].map(|at| factors.at(at).load());
            if s.product.is_gated() {
                let (gate, up) = (&sums[group], &sums[groups + group]);
                for i in 0..4 {
                    let of =
                        |sums: &FragmentC<f32>, tile: u32| sums.0[i] * (factors[i % 2] * self.down(tile));
                    let at = [first * TILE_ROWS, token + [low, high][i % 2]];
                    self.store(at, i, of(gate, 0), Some(of(up, 1)), factors[i % 2]);
                }
            } else {
                for tile in 0..2 {
                    let sums = &sums[tile * groups + group];
                    for i in 0..4 {
                        let at = [(first + tile as u32) * TILE_ROWS, token + [low, high][i % 2]];
                        let factor = factors[i % 2];
                        self.store(at, i, sums.0[i] * (factor * self.down(0)), None, factor);
                    }
                }
            }
        }
    }

    /// Factor that undoes that of a tile's weights.
    fn down(&self, tile: u32) -> f32 {
        down(self.block.type_of(tile))
    }

    /// Stores element `i` of a fragment: the output of the product `value`, and of `up`, for a tile's first row and a token
    /// with a factor.
    fn store(
        &self,
        [first, token]: [Val<u32>; 2],
        i: usize,
        value: Val<f32>,
        up: Option<Val<f32>>,
        factor: Val<f32>,
    ) {
        let row = first + FragmentC::<f32>::row(i as u32);
        store([row, token], value, up, is_missing(factor), self);
    }
}

/// Whether the token with a factor does not exist.
#[device]
fn is_missing(factor: Val<f32>) -> Val<bool> {
    factor == MISSING
}

#[device]
fn store(
    [row, token]: [Val<u32>; 2],
    value: Val<f32>,
    up: Option<Val<f32>>,
    is_missing: Val<bool>,
    epilogue: &Epilogue<'_>,
) {
    let (product, block) = (&epilogue.s.product, epilogue.block);
    if (row < block.layouts[0].rows) & !is_missing {
        let of_all = row + block.first_row;
        let w = epilogue.operands.w;
        let biased = |value: Val<f32>, row: Val<u32>| {
            if product.bias { value + bias(row, w, product) } else { value }
        };
        let mut value = biased(value, of_all);
        if let (Some(up), Output::Glu(activation)) = (up, product.output) {
            value = activation.apply(value) * biased(up, of_all + block.layouts[0].rows);
        }
        value = scaled(value, product);
        let to = epilogue.operands.y.bytes(mul_wide(token, product.outputs() * 4)).at(of_all);
        if product.output == Output::Residual {
            value += to.load();
        }
        to.store(value);
    }
}
