//! Outputs of a product of several tokens: their sums, results and addresses.

use bespoke_codegen::prelude::*;

use super::inputs::GROUP;
use crate::kernels::gemv::epilogue::{add_steps, bias, load_if, scaled};
use crate::kernels::gemv::operands::Operands;
use crate::kernels::gemv::product::Output;
use crate::kernels::gemv::shape::GemvShape;
use crate::weights::{Layout, TILE_ROWS};

/// Number of sums of a tile and a group of tokens, in the order `[row][token]`.
pub(super) const TILE_GROUP: u32 = TILE_ROWS * GROUP;

/// Number of totals of a tile and a pair of groups of tokens, in the order of warpgroups; see [`TokenMap`](super::shape::TokenMap).
pub(super) const TILE_PAIR: u32 = 2 * TILE_GROUP;

/// A segment of a batch.
pub(super) struct Rows {
    pub layout: Layout,
    /// Index of the segment's first row among the rows of all segments.
    pub first: u32,
    /// Index of the segment in the batch.
    pub place: u32,
}

/// An output: a row and a token.
pub(super) struct Element {
    /// Index of the tile in the range of tiles.
    tile: Val<u32>,
    /// Index among the sums of the tile.
    index: Val<u32>,
    /// Row of the segment.
    pub row: Val<u32>,
    pub token: Val<u32>,
    /// Whether the row and the token exist.
    pub inside: Val<bool>,
}

impl Element {
    /// Output `index` of a group of tokens, in the order `[row][token]`.
    #[device]
    pub fn of_group(
        tile: Val<u32>,
        group: Val<u32>,
        index: Val<u32>,
        rows: &Rows,
        tiles: [Val<u32>; 2],
        s: &GemvShape,
    ) -> Element {
        let place = [index / GROUP, group * GROUP + index % GROUP];
        Element::new(tile, group * TILE_GROUP + index, place, rows, tiles, s)
    }

    /// The four outputs of a lane for a pair of groups of tokens, in the order of the totals of warpgroups.
    #[device]
    pub fn of_lane(
        tile: Val<u32>,
        pair: Val<u32>,
        lane: Val<u32>,
        rows: &Rows,
        tiles: [Val<u32>; 2],
        s: &GemvShape,
    ) -> Vec<Element> {
        let (index, row, token) =
            (pair * TILE_PAIR + lane * OUTPUTS_AT_ONCE, lane / GROUP, pair * (2 * GROUP) + lane % GROUP);
        let element = |at: u32| {
            let place = [row + at / 2 * (TILE_ROWS / 2), token + at % 2 * GROUP];
            Element::new(tile, index + at, place, rows, tiles, s)
        };
        (0..OUTPUTS_AT_ONCE).map(element).collect()
    }

    /// Sum `index` of a tile, of a row of the tile and a token of the CTA.
    #[device]
    fn new(
        tile: Val<u32>,
        index: Val<u32>,
        [row, token]: [Val<u32>; 2],
        rows: &Rows,
        tiles: [Val<u32>; 2],
        s: &GemvShape,
    ) -> Element {
        let row = (tiles[0] + tile) * TILE_ROWS + row;
        let token = s.first_token() + token;
        let inside = (tiles[0] + tile < tiles[1]) & (row < rows.layout.rows) & (token < s.tokens);
        Element { tile, index, row, token, inside }
    }

    /// Address of the output in y.
    pub fn output(&self, rows: &Rows, operands: &Operands, s: &GemvShape) -> Ptr<Global, f32> {
        operands.outputs().at(self.token * s.outputs() + (self.row + rows.first))
    }
}

/// The totals of a tile from element `index` on.
#[device]
pub(super) fn totals(rows: &Rows, tile: Val<u32>, index: Val<u32>, s: &GemvShape) -> Ptr<Shared, f32> {
    let tile = tile + rows.place * s.schedule.several.tiles;
    dynamic_shared::<u8>().byte_add(s.token_map().totals).cast::<f32>().at(tile * s.tile_sums() + index)
}

/// Adds up the sums of an output's steps, in the order of columns.
#[device]
pub(super) fn sum(rows: &Rows, at: &Element, s: &GemvShape) -> Val<f32> {
    if s.has_totals() {
        let own = totals(rows, at.tile, at.index, s);
        let parts = (0..s.column_parts()).map(|part| own.at(part * s.totals()).load());
        return parts.reduce(|sum, part| sum + part).expect("one part or two");
    }
    let (most, of_tile) = (s.stored_steps(), s.tile_sums());
    let tile = (at.tile + rows.place * s.schedule.several.tiles) * (most * of_tile);
    let from = dynamic_shared::<u8>().byte_add(s.token_map().partial).cast::<f32>().at(tile + at.index);
    let borders = [0, s.first_part(&rows.layout), s.steps(&rows.layout)];
    let parts = borders.windows(2).take(s.column_parts() as usize);
    let parts = parts.map(|part| add_steps(from.at(part[0] * of_tile), of_tile, part[1] - part[0]));
    parts.reduce(|sum, part| sum + part).expect("one part or two")
}

/// The sums of the four outputs of a lane, see [`Element::of_lane`].
#[device]
pub(super) fn lane_sums(rows: &Rows, first: &Element, s: &GemvShape) -> [Val<f32>; OUTPUTS_AT_ONCE as usize] {
    totals(rows, first.tile, first.index, s).load_vector()
}

/// Half-open range of the items, of [`TILE_PAIR`] totals each, that this CTA finishes out of `all`: all of them, or half in each CTA of a
/// cluster.
#[device]
pub(super) fn own_items(all: Val<u32>, s: &GemvShape) -> [Val<u32>; 2] {
    if s.cluster() == 1 {
        return [val(0u32), all];
    }
    let half = (all + 1) / 2;
    [cluster_rank() * half, select(cluster_rank() == 0, half, all)]
}

/// The result of an output before the residual is added, from its sum in each segment: one, or gate and up.
#[device]
pub(super) fn result(
    at: &Element,
    batch: &[&Rows],
    sums: &[Val<f32>],
    operands: &Operands,
    s: &GemvShape,
) -> Val<f32> {
    let factors = dynamic_shared::<u8>().byte_add(s.token_map().factors).cast::<f32>();
    let product = |segment: usize| {
        let mut sum = sums[segment];
        if s.normed() {
            sum *= factors.at(at.token).load();
        }
        if s.bias { sum + bias(at.row + batch[segment].first, operands.w, s) } else { sum }
    };
    let mut value = product(0);
    if let Output::Glu(activation) = s.output {
        value = activation.apply(value) * product(1);
    }
    scaled(value, s)
}

/// Number of outputs that a thread has at once, to overlap the latencies of residuals: with warpgroups, those of
/// [`Element::of_lane`].
pub(super) const OUTPUTS_AT_ONCE: u32 = 4;

/// The residuals of some outputs.
pub(super) fn residuals(some: &[Element], rows: &Rows, operands: &Operands, s: &GemvShape) -> Vec<Val<f32>> {
    some.iter().map(|at| load_if(at.output(rows, operands, s), val(0u32), at.inside)).collect()
}
