//! An epilogue that writes the inputs of the next product, in the order in which that product reads them, so that no launch has
//! to prepare them. For products of f16.
//!
//! [`prepare`](super::prepare()) scales 256 columns by a power of two that follows from the largest of them, and adds up their
//! squares. Here several CTAs have these columns, so it is done otherwise:
//!
//! - Inputs of an RMSNorm are multiplied by its weights and by a power of two: the largest one that is at most the factor
//!   1 / √(mean(x²) + ε) of the previous RMSNorm of the model. So they are around 1 if the residual stream changes little from one norm
//!   to the next. If it does not, they have fewer bits or are limited, as below. The product after the previous norm stores its factors ([`GemvShape::stores_factors`]), and clears the sums of
//!   squares of this one.
//! - Inputs without a norm, outputs of an activation, are multiplied by [`PLAIN_SCALE`].
//! - The squares of a tile's 16 columns are added up in f32, multiplied by the square of that power of two, rounded to a multiple of 2⁻²⁴,
//!   and added to the token's sum as an integer of 64 bits, by an atomic operation. So the sum does not depend on the order of the CTAs.
//!
//! f16 has 11 bits from 2⁻¹⁴ on. Finite values beyond ±65504, its largest number, become that number; infinity and NaN stay.
//!
//! A warp computes an *item* at a time: the outputs of a tile for a group of four tokens, or with warpgroups for a pair of groups.
//! Lane 4j + t has rows j and j + 8 of the tile, for token t of each group. So the 16 rows of a token are in the lanes 4, 8 and 16 apart,
//! and shuffles between these add them up, in the order of [`sum_of_eight`](crate::kernels::gemv::inputs::sum_of_eight).

use bespoke_codegen::prelude::*;

use super::inputs::{GRANULE, GROUP};
use super::outputs::{Element, Rows, lane_sums, own_items, residuals, result, sum};
use crate::kernels::gemv::epilogue::load_if;
use crate::kernels::gemv::half_step::half_sum;
use crate::kernels::gemv::layout::{InputLayout, NextInputs};
use crate::kernels::gemv::operands::{NextNorm, Operands};
use crate::kernels::gemv::product::Output;
use crate::kernels::gemv::shape::GemvShape;
use crate::weights::TILE_ROWS;

impl NextInputs {
    /// What the epilogue of `product` writes for `next`, which multiplies its outputs; `None` if it cannot. Whether it can depends
    /// on the matrices, norms and outputs alone, not on the number of tokens or the division of either product; the layout is that of `next`.
    pub fn between(product: &GemvShape, next: &GemvShape) -> Option<NextInputs> {
        let layout = next.input_layout();
        let is_possible = match product.output {
            Output::Residual => product.segments.len() == 1 && next.normed(),
            Output::Glu(_) => !next.normed(),
            Output::Store | Output::Argmax => false,
        };
        let fits = product.outputs() == next.cols && NextInputs::are_supported(next);
        (is_possible && fits && product.is_f16()).then_some(NextInputs { layout, normed: next.normed() })
    }

    /// Whether the previous product can write the inputs of `next`: they are f16, and fill whole tiles of 16 columns.
    pub fn are_supported(next: &GemvShape) -> bool {
        next.is_f16() && next.cols.is_multiple_of(TILE_ROWS)
    }

    /// Size of the parts of a token's sum of squares, in bytes.
    pub const SQUARES_BYTES: u64 = 8 * SQUARES_PARTS as u64;

    /// Size of the inputs of all tokens, in bytes, without the sums of squares.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes().into()
    }
}

/// Number of parts of each sum of squares: CTAs add to different ones, since atomic operations on one address are executed one after the
/// other. The next product adds up the parts.
const SQUARES_PARTS: u32 = 4;

/// Number of fraction bits of sums of squares, which are fixed-point numbers.
const SQUARES_BITS: u32 = 24;

/// Largest sum of the squares of a tile, as a fixed-point number: of 16 values of 65504. Sums of a few tiles have room for it. The sum of
/// a token would wrap if all of its values were 2¹⁴ times as large, with 4,096 columns, as at the previous norm: a single block would add so
/// much to the residual stream. This is not found.
const MOST_SQUARES: f32 = (1u64 << 60) as f32;

/// With [`GemvShape::stores_factors`], clears the sums of squares to which a later product adds. Earlier launches must have completed.
#[device]
pub(super) fn clear_squares(operands: &Operands, s: &GemvShape) {
    if s.stores_factors {
        let squares = operands.next_squares.expect("the sums of squares have a place");
        let mut index = thread_index();
        if (block_index() == 0) & (block_index_y() == 0) {
            while index < s.tokens * SQUARES_PARTS {
                squares.at(index).store(0u64);
                index += s.consumers();
            }
        }
    }
}

/// Prefetches the next norm's weights for the rows of `tiles` into the L2 cache.
#[device]
pub(super) fn prefetch_norm(tiles: [Val<u32>; 2], operands: &Operands) {
    if let Some(norm) = operands.next.and_then(|next| next.norm) {
        let tile = tiles[0] + thread_index();
        if tile < tiles[1] {
            prefetch_l2(norm.weights.at(tile * TILE_ROWS).cast());
        }
    }
}

/// The sum of the squares of token `token`, which the previous product computed. `x` has the inputs that it wrote.
#[device]
pub(super) fn sum_of_received_squares(
    token: Val<u32>,
    x: Ptr<Global, u8>,
    squares: Ptr<Global, u64>,
    s: &GemvShape,
) -> Val<f32> {
    let scale = x.byte_add(s.input_layout().place_of_tile(val(0), token).scale).cast::<f32>().load();
    let parts: Vec<_> = (0..SQUARES_PARTS).map(|part| squares.at(token + part * s.tokens).load()).collect();
    let sum = parts.into_iter().reduce(|sum, part| sum + part).expect("there are parts");
    sum.cast::<f32>() * (1.0 / (1 << SQUARES_BITS) as f32) * scale * scale
}

impl GemvShape {
    /// Layout of the inputs of the next product.
    fn next_layout(&self) -> InputLayout {
        self.next.expect("the product writes the inputs of the next one").layout
    }
}

/// Factor of inputs without a norm, which are outputs of an activation. Magnitudes from 10⁻³ to 10⁶ keep 11 bits.
const PLAIN_SCALE: f32 = 1.0 / 16.0;

/// The largest finite f16.
const LARGEST: f32 = 65504.0;

/// Rows of a lane's two outputs in a tile: `lane / 4` more than these.
const ROWS: [u32; 2] = [0, TILE_ROWS / 2];

/// Outputs of an item.
struct Item {
    /// Index of the tile in the range of tiles.
    tile: Val<u32>,
    /// Index of the group of tokens, or of the pair of groups.
    group: Val<u32>,
}

impl Item {
    #[device]
    fn new(index: Val<u32>, s: &GemvShape) -> Item {
        let of_tile = s.cta_groups() / groups_of_item(s);
        Item { tile: index / of_tile, group: index % of_tile }
    }

    /// The lane's outputs: rows j and j + 8 of the first group, or row j of both groups of a pair, then row j + 8.
    fn elements(&self, rows: &Rows, tiles: [Val<u32>; 2], s: &GemvShape) -> Vec<Element> {
        if s.has_warpgroups() {
            return Element::of_lane(self.tile, self.group, lane(), rows, tiles, s);
        }
        let element =
            |row: u32| Element::of_group(self.tile, self.group, lane() + row * GROUP, rows, tiles, s);
        ROWS.map(element).into()
    }
}

/// Number of groups of tokens of an item.
fn groups_of_item(s: &GemvShape) -> u32 {
    if s.has_warpgroups() { 2 } else { 1 }
}

/// Index of the warp's item of pass `pass`, among those of the CTA.
#[device]
fn item_of_pass(pass: u32, s: &GemvShape) -> Val<u32> {
    warp_index() + pass * s.schedule.warps
}

/// Values that a warp loads before the products.
pub(super) struct Early {
    /// For each item of the warp, the residuals of the lane's outputs.
    residuals: Vec<Vec<Val<f32>>>,
}

impl Early {
    /// Loads the residuals of all items of `tiles`. Earlier launches must have completed.
    pub fn load(rows: &Rows, tiles: [Val<u32>; 2], operands: &Operands, s: &GemvShape) -> Early {
        let items = (s.schedule.several.tiles * s.cta_groups()).div_ceil(s.schedule.warps);
        let of_item = |pass: u32| {
            let item = Item::new(item_of_pass(pass, s), s);
            residuals(&item.elements(rows, tiles, s), rows, operands, s)
        };
        Early { residuals: (0..items).map(of_item).collect() }
    }
}

/// Writes the outputs of a range of tiles, of one segment or of gate and up, as the inputs of the next product, and those of a
/// residual connection also as f32.
#[device]
pub(super) fn finish_inputs(
    batch: &[&Rows],
    tiles: [Val<u32>; 2],
    early: Option<&Early>,
    operands: &Operands,
    s: &GemvShape,
) {
    let of_tile = s.cta_groups() / groups_of_item(s);
    let all = (tiles[1] - tiles[0]) * of_tile;
    if let Some(early) = early {
        for (pass, residuals) in (0u32..).zip(&early.residuals) {
            let item = item_of_pass(pass, s);
            if item < all {
                finish_item(&Item::new(item, s), batch, tiles, Some(residuals), operands, s);
            }
        }
    } else {
        let [first, end] = own_items(all, s);
        let mut item = first + item_of_pass(0, s);
        while item < end {
            finish_item(&Item::new(item, s), batch, tiles, None, operands, s);
            item += s.schedule.warps;
        }
    }
}

/// Writes the outputs of an item.
#[device]
fn finish_item(
    item: &Item,
    batch: &[&Rows],
    tiles: [Val<u32>; 2],
    early: Option<&[Val<f32>]>,
    operands: &Operands,
    s: &GemvShape,
) {
    let rows = batch[0];
    let elements = item.elements(rows, tiles, s);
    // The loads come before the sums, which hide their latency.
    let residuals: Option<Vec<Val<f32>>> = (s.output == Output::Residual)
        .then(|| early.map_or_else(|| residuals(&elements, rows, operands, s), <[_]>::to_vec));
    let next = operands.next.expect("the inputs of the next product have a place");
    let layout = s.next_layout();
    let groups = groups_of_item(s) as usize;
    let norm = next.norm.map(|NextNorm { weights, factors, .. }| {
        // Of each row, and of each token.
        let weights = [0, groups].map(|at| weights.at(elements[at].row).load());
        let factor = |at: &Element| load_if(factors, at.token, at.token < s.tokens);
        (weights, elements[..groups].iter().map(factor).collect::<Vec<_>>())
    });
    let sums: Vec<Vec<Val<f32>>> = if s.has_warpgroups() {
        batch.iter().map(|rows| lane_sums(rows, &elements[0], s).to_vec()).collect()
    } else {
        batch.iter().map(|rows| elements.iter().map(|at| sum(rows, at, s)).collect()).collect()
    };
    let mut values = vec![val(0.0f32); elements.len()];
    for (place, at) in elements.iter().enumerate() {
        if at.inside {
            let sums: Vec<_> = sums.iter().map(|of_segment| of_segment[place]).collect();
            let mut value = result(at, batch, &sums, operands, s);
            if let Some(residuals) = &residuals {
                value += residuals[place];
                at.output(rows, operands, s).store(value);
            }
            values[place] = value;
        }
    }
    let index = tiles[0] + item.tile;
    let of_group = |group: usize| {
        let norm = norm.as_ref().map(|(weights, factors)| (*weights, factors[group]));
        let tile = InputTile { index, token: elements[group].token, norm };
        let word = tile.store([values[group], values[group + groups]], operands, s);
        (tile, word)
    };
    let words: Vec<(InputTile, Val<u32>)> = (0..groups).map(of_group).collect();
    match &words[..] {
        [(first, first_word), (_, second_word)] if layout.block_tokens > 0 => {
            first.store_pair([*first_word, *second_word], operands, s);
        }
        words => words.iter().for_each(|(tile, word)| tile.store_word(*word, operands, s)),
    }
    pad(item, &elements[..groups], index, operands, s);
}

/// Writes zeros as padding: for the columns that complete the next product's last granule, and for the tokens that complete its last
/// block. The warp with the last item before the padding writes it.
#[device]
fn pad(item: &Item, elements: &[Element], index: Val<u32>, operands: &Operands, s: &GemvShape) {
    let zero = |index: Val<u32>, token: Val<u32>| {
        let tile = InputTile { index, token, norm: None };
        let word = tile.store([val(0.0f32); 2], operands, s);
        tile.store_word(word, operands, s);
    };
    let layout = s.next_layout();
    let (existing, padded) = (s.outputs() / TILE_ROWS, layout.columns() / TILE_ROWS);
    if existing < padded {
        if index == existing - 1 {
            for tile in existing..padded {
                elements.iter().for_each(|at| zero(val(tile), at.token));
            }
        }
    }
    let (own, all) = (s.input_layout().padded_tokens(), layout.padded_tokens());
    if own < all {
        if s.first_token() / GROUP + (item.group + 1) * groups_of_item(s) == own / GROUP {
            for token in (own..all).step_by(GROUP as usize) {
                zero(index, lane() % GROUP + token);
            }
        }
    }
}

/// The inputs that a tile gives the next product for a token: 16 columns, of which a lane has two.
struct InputTile {
    /// Index of the tile among the columns of the next product.
    index: Val<u32>,
    token: Val<u32>,
    /// The next norm's weights for the lane's two columns, and the token's factor in the previous norm.
    norm: Option<([Val<f32>; 2], Val<f32>)>,
}

impl InputTile {
    /// Stores the lane's two inputs, computed from `values`, and what the tile's lanes compute together: sums of inputs and of
    /// squares, and the scale. Does not store the inputs in the order of types with runs of four columns ([`InputTile::store_word`]), but
    /// returns the lane's word of them.
    #[device]
    fn store(&self, values: [Val<f32>; 2], operands: &Operands, s: &GemvShape) -> Val<u32> {
        let (to, layout) = (operands.next_inputs(), s.next_layout());
        let (factors, up, scale) = self.factors();
        let place = layout.place_of_tile(self.index, self.token);
        let scaled = [0, 1].map(|half| within_f16(values[half] * factors[half]));
        let rounded = pack_rounded::<F16x2>(scaled[0], scaled[1]);
        let row = lane() / GROUP;
        let exists = self.exists(s);
        if layout.forms.long_halves {
            let word = joined(rounded.bitcast::<u32>(), GROUP);
            if exists {
                to.byte_add(place.long(row & 6, row & 1)).cast::<u32>().store(word);
            }
        }
        let is_first = (row == 0) & exists;
        if layout.has_sums() {
            let mut sum = val(0.0f32);
            if layout.forms.mins {
                sum = half_sum(sum_of_rows(rounded.unpack().map(|value| value.cast::<f32>())));
            }
            if is_first {
                to.byte_add(place.sum).cast::<f16>().store(sum.cast::<f16>());
            }
        }
        if self.norm.is_some() {
            let squares = operands.next_squares.expect("the sums of squares have a place");
            let sum = sum_of_rows(values.map(|value| value * value)) * up * (up * (1 << SQUARES_BITS) as f32);
            if is_first & (self.token < s.tokens) {
                let rounded = (sum.min(MOST_SQUARES) + 0.5).cast::<u64>();
                let part = block_index() % SQUARES_PARTS * s.tokens;
                squares.at(part + self.token).atomic_add(rounded, Scope::Gpu);
            }
        }
        // Each granule has the scales of all tokens.
        if is_first & (self.index % (GRANULE / TILE_ROWS) == 0) {
            to.byte_add(place.scale).cast::<f32>().store(scale);
        }
        joined(rounded.bitcast::<u32>(), 2 * GROUP)
    }

    /// Whether the next product's layout has the token: it may have fewer padded tokens.
    #[device]
    fn exists(&self, s: &GemvShape) -> Val<bool> {
        self.token < s.next_layout().padded_tokens()
    }

    /// Stores the lane's word for types with runs of four columns.
    #[device]
    fn store_word(&self, word: Val<u32>, operands: &Operands, s: &GemvShape) {
        let layout = s.next_layout();
        if layout.forms.short_halves {
            if self.exists(s) {
                let row = lane() / GROUP;
                let at = layout.place_of_tile(self.index, self.token).short(row & 5, (row >> 1) & 1);
                operands.next_inputs().byte_add(at).cast::<u32>().store(word);
            }
        }
    }

    /// Stores the words of two groups of tokens in the layout for warpgroups; `self` is the tile of the first group. Lanes exchange words
    /// first, so that each stores two consecutive words of one group.
    #[device]
    fn store_pair(&self, words: [Val<u32>; 2], operands: &Operands, s: &GemvShape) {
        const DISTANCE: u32 = 4 * GROUP;
        let (layout, row) = (s.next_layout(), lane() / GROUP);
        let is_second = (lane() & DISTANCE) != 0;
        let received = shuffle_xor(select(is_second, words[0], words[1]), DISTANCE);
        let own = select(is_second, words[1], words[0]);
        let ordered = [select(is_second, received, own), select(is_second, own, received)];
        let token = self.token + select(is_second, GROUP, 0u32);
        let at = layout.place_of_tile(self.index, token).short(row & 1, (row >> 1) & 1);
        if token < layout.padded_tokens() {
            operands.next_inputs().byte_add(at).cast::<u32>().store_vector(ordered);
        }
    }

    /// The factors of the lane's columns, the power of two among them, and its inverse.
    fn factors(&self) -> ([Val<f32>; 2], Val<f32>, Val<f32>) {
        match self.norm {
            None => ([val(PLAIN_SCALE); 2], val(PLAIN_SCALE), val(1.0 / PLAIN_SCALE)),
            Some((weights, factor)) => {
                // Of 2^e to 2^(e + 1), 2^e and its inverse. The factor of a norm is positive and not subnormal, unless the sum of its
                // squares was infinite or NaN: then inputs become zeros or NaN, as with any factor of 0 or NaN.
                let power = factor.bitcast::<u32>() & 0x7F80_0000;
                let up = power.bitcast::<f32>();
                let scale = (val(254u32 << 23) - power).bitcast::<f32>();
                (weights.map(|weight| weight * up), up, scale)
            }
        }
    }
}

/// Replaces a finite value beyond ±65504 by that number. Infinity and NaN stay, so that they reach the logits.
#[device]
fn within_f16(value: Val<f32>) -> Val<f32> {
    let (magnitude, largest) = (value.abs(), select(value < 0.0, -LARGEST, LARGEST));
    select((magnitude > LARGEST) & (magnitude < f32::INFINITY), largest, value)
}

/// Joins the inputs of two lanes `distance` apart. Each has f16 of rows j and j + 8 in a word; the lane with the smaller j gets
/// the two smaller rows, the other one the two larger rows, in ascending order.
#[device]
fn joined(own: Val<u32>, distance: u32) -> Val<u32> {
    let other = shuffle_xor(own, distance);
    let order = select((lane() & distance) == 0, 0x5410u32, 0x3276u32);
    permute_bytes(own, other, order)
}

/// Sum over the 16 rows of a tile, for the lane's token. `values` are those of the lane's two rows.
#[device]
fn sum_of_rows(values: [Val<f32>; 2]) -> Val<f32> {
    let halves = values.map(|value| {
        [GROUP, 2 * GROUP, 4 * GROUP].into_iter().fold(value, |sum, step| sum + shuffle_xor(sum, step))
    });
    halves[0] + halves[1]
}

#[cfg(test)]
mod tests {
    use bespoke_testing::Launch;

    use super::*;

    #[kernel(threads = 8)]
    fn limited(x: Ptr<Global, f32>) {
        let own = x.at(thread_index());
        own.store(within_f16(own.load()));
    }

    #[test]
    fn finite_values_are_limited_and_others_stay() {
        let values = [1.0, -3.5e-6, 65504.0, 65520.0, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let done = Launch::of(&limited().unwrap()).buffer(&values).run().unwrap();
        let found = done.buffer::<f32>(0);
        assert_eq!(found[..7], [1.0, -3.5e-6, LARGEST, LARGEST, -LARGEST, f32::INFINITY, f32::NEG_INFINITY]);
        assert!(found[7].is_nan());
    }
}
