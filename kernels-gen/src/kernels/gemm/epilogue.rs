//! The epilogue of a product of many tokens: outputs from sums.

use bespoke_codegen::prelude::*;

use super::convert::MISSING;
use super::shape::{BlockOfRows, GROUP, GemmShape};
use super::{Operands, Sums, first_tile, first_token};
use crate::kernels::gemv::{Output, bias, down, scaled};
use crate::weights::TILE_ROWS;

/// Groups of tokens whose residuals a lane loads at once.
const GROUPS_IN_FLIGHT: usize = 4;

/// Barrier of the consumer warps that exchange sums.
const EXCHANGE_BARRIER: u8 = 1;

/// Bytes of a fragment of sums of all lanes.
const FRAGMENT_BYTES: u32 = WARP * 16;

/// Writes the outputs of a warp.
pub(super) struct Epilogue<'a> {
    pub operands: &'a Operands,
    pub block: &'a BlockOfRows,
    pub s: &'a GemmShape,
}

/// The sums of a lane that become outputs.
struct Part<'a> {
    /// `[tile][group of tokens]`.
    sums: &'a [FragmentC<f32>],
    /// Index of the first tile, of all of the matrix.
    tile: Val<u32>,
    /// The first token.
    token: Val<u32>,
    /// Groups of tokens.
    groups: usize,
}

impl Epilogue<'_> {
    /// Writes the outputs that follow from the sums of this warp's tiles.
    pub fn finish(&self, sums: &Sums) {
        let s = self.s;
        let groups = (self.block.warp_tokens(s) / GROUP) as usize;
        let [row, part] = s.warp_position(warp_index());
        let first = first_tile(self.block, s);
        let token = first_token(self.block, s) + part * self.block.warp_tokens(s);
        if s.exchanges_sums() {
            let within = row % s.tiles_of_matrix();
            let pair = part * s.tiles_of_matrix() + within;
            let all = Part { sums, tile: first + within, token, groups };
            join_gate_and_up(self, row, pair, &all);
        } else {
            self.finish_part(&Part { sums, tile: first + s.first_tile_of_warp(row), token, groups });
        }
    }

    /// Writes the outputs that follow from the sums of `part`.
    fn finish_part(&self, part: &Part<'_>) {
        let Part { groups, token, .. } = *part;
        let factors = self.operands.x.byte_add(self.s.convert().factors()).cast::<f32>().at(token);
        // Loads are issued together: with a load before each store, a thread would wait for each.
        for first_group in (0..groups).step_by(GROUPS_IN_FLIGHT) {
            let range = first_group..groups.min(first_group + GROUPS_IN_FLIGHT);
            let columns = |group: usize| [0, 1].map(|i| FragmentC::<f32>::column(i) + group as u32 * GROUP);
            let of_group = |group| columns(group).map(|at| factors.at(at).load());
            let factors: Vec<[Val<f32>; 2]> = range.clone().map(of_group).collect();
            let outputs = range.zip(factors).flat_map(|(group, factors)| {
                let tokens = columns(group).map(|column| token + column);
                self.outputs_of_group(part, group, tokens, factors)
            });
            let outputs: Vec<FragmentOutput> = outputs.collect();
            let before: Vec<Option<Val<f32>>> = outputs.iter().map(|output| before(output, self)).collect();
            for (output, before) in outputs.iter().zip(before) {
                store(output, before, self);
            }
        }
    }

    /// The outputs of a lane for a group of tokens.
    fn outputs_of_group(
        &self,
        part: &Part<'_>,
        group: usize,
        tokens: [Val<u32>; 2],
        factors: [Val<f32>; 2],
    ) -> Vec<FragmentOutput> {
        let product = |tile: usize, i: usize| {
            part.sums[tile * part.groups + group].0[i] * (factors[i % 2] * self.down(tile as u32))
        };
        let output = |tile: usize, i: usize, value, up| FragmentOutput {
            row: (part.tile + tile as u32) * TILE_ROWS + FragmentC::<f32>::row(i as u32),
            token: tokens[i % 2],
            value,
            up,
            is_missing: is_missing(factors[i % 2]),
        };
        if self.s.product.is_gated() {
            return (0..4).map(|i| output(0, i, product(0, i), Some(product(1, i)))).collect();
        }
        let tiles = 0..self.s.tiling.warp_tiles as usize;
        tiles
            .flat_map(|tile| (0..4).map(move |i| (tile, i)))
            .map(|(tile, i)| output(tile, i, product(tile, i), None))
            .collect()
    }

    /// Factor that undoes that of a tile's weights.
    fn down(&self, tile: u32) -> f32 {
        down(self.block.type_of(tile))
    }
}

/// Writes the outputs of gate and up whose sums are in different warps. A pair of warps has the same rows and tokens. They
/// exchange sums through shared memory, which the rings no longer use: the warp of gate then writes the first half of the
/// tokens, the warp of up the second.
#[device]
fn join_gate_and_up(epilogue: &Epilogue<'_>, row: Val<u32>, pair: Val<u32>, all: &Part<'_>) {
    let s = epilogue.s;
    let is_of_up = row >= s.tiles_of_matrix();
    let half = all.groups / 2;
    let (first, second) = all.sums.split_at(half);
    let sent = |of_up: u32| Exchange::new(pair * 2 + of_up, half);
    // All warps have read the stages that the exchange overwrites.
    named_barrier(EXCHANGE_BARRIER, s.warps() * WARP);
    if is_of_up {
        sent(1).store(first);
    } else {
        sent(0).store(second);
    }
    named_barrier(EXCHANGE_BARRIER, s.warps() * WARP);
    if is_of_up {
        let sums = [sent(0).load(), second.to_vec()].concat();
        let token = all.token + half as u32 * GROUP;
        epilogue.finish_part(&Part { sums: &sums, tile: all.tile, token, groups: half });
    } else {
        let sums = [first.to_vec(), sent(1).load()].concat();
        epilogue.finish_part(&Part { sums: &sums, tile: all.tile, token: all.token, groups: half });
    }
}

/// Buffer in shared memory for the sums that a warp sends to another: `[group of tokens][lane]`, each a fragment.
struct Exchange {
    at: Ptr<Shared, f32>,
    groups: usize,
}

impl Exchange {
    /// Buffer number `index` of the CTA.
    fn new(index: Val<u32>, groups: usize) -> Exchange {
        let of_warp = dynamic_shared::<u8>().byte_add(index * (groups as u32 * FRAGMENT_BYTES));
        Exchange { at: of_warp.byte_add(lane() * 16).cast::<f32>(), groups }
    }

    fn store(&self, sums: &[FragmentC<f32>]) {
        for (group, sums) in sums.iter().enumerate() {
            self.at.byte_add(group as u32 * FRAGMENT_BYTES).store_vector(sums.0);
        }
    }

    fn load(&self) -> Vec<FragmentC<f32>> {
        let fragment = |group| FragmentC(self.at.byte_add(group as u32 * FRAGMENT_BYTES).load_vector::<4>());
        (0..self.groups).map(fragment).collect()
    }
}

/// An output of a lane before bias, activation and residual.
struct FragmentOutput {
    row: Val<u32>,
    token: Val<u32>,
    value: Val<f32>,
    /// The output of up, of gate and up.
    up: Option<Val<f32>>,
    /// Whether the token does not exist.
    is_missing: Val<bool>,
}

/// The residual that an output is added to, if there is one.
#[device]
fn before(output: &FragmentOutput, epilogue: &Epilogue<'_>) -> Option<Val<f32>> {
    let (product, block) = (&epilogue.s.product, epilogue.block);
    if product.output != Output::Residual {
        return None;
    }
    let mut before = val(0.0f32);
    if (output.row < block.layouts[0].rows) & !output.is_missing {
        let y = epilogue.operands.y.byte_add(mul_wide(output.token, product.outputs() * 4));
        before = y.at(output.row + block.first_row).load();
    }
    Some(before)
}

/// Whether the token with a factor does not exist.
#[device]
fn is_missing(factor: Val<f32>) -> Val<bool> {
    factor == MISSING
}

#[device]
fn store(output: &FragmentOutput, before: Option<Val<f32>>, epilogue: &Epilogue<'_>) {
    let (product, block) = (&epilogue.s.product, epilogue.block);
    if (output.row < block.layouts[0].rows) & !output.is_missing {
        let of_all = output.row + block.first_row;
        let w = epilogue.operands.w;
        let biased = |value: Val<f32>, row: Val<u32>| {
            if product.bias { value + bias(row, w, product) } else { value }
        };
        let mut value = biased(output.value, of_all);
        if let (Some(up), Output::Glu(activation)) = (output.up, product.output) {
            value = activation.apply(value) * biased(up, of_all + block.layouts[0].rows);
        }
        value = scaled(value, product);
        if let Some(before) = before {
            value += before;
        }
        epilogue.operands.y.byte_add(mul_wide(output.token, product.outputs() * 4)).at(of_all).store(value);
    }
}
