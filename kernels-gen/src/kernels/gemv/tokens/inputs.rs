//! Layout of the inputs of several tokens, in the order in which `unit` reads them.
//!
//! The columns are divided into granules of 128, which are four chunks of 32. The tokens are divided into groups of four.
//! A granule has a record for each group; rows of tokens that do not exist are zeros. A record has these parts, of which
//! those are present that a segment's type needs ([`InputForms`](super::InputForms)). d and q are those of `inputs`.
//!
//! | bytes | contents |
//! | --- | --- |
//! | 1024 | operands B of `mma.m16n8k32` for the four chunks. Columns 2r and 2r + 1 of B are the high and low bytes of token r of the group. Bytes 512·p + 16·l + 8·i are lane l's two registers for chunk 2p + i |
//! | 16 | f32 `[token]`: the scale d |
//! | 128 | Σq of each chunk, for types with exact sums: one register of operand B of another product, see `min_words` |
//! | 64 | i32 `[token][chunk]`: Σq, for other types with an offset per chunk |
//! | 128 | i32 `[token][half chunk]`: Σq, for types with an offset per half chunk |
//! | 2048 | f32 `[token][column]`: the inputs as they are, for float types |
//!
//! With [`Arithmetic::F16`] a record has these parts instead. A group's tokens are every
//! other column of operand B of `mma.m16n8k16`, whose rows are in the order of the weights' columns in operand A:
//!
//! | bytes | contents |
//! | --- | --- |
//! | 1024 | `[chunk][token][4 lanes][16 bytes]`: a lane's four registers of B for the two halves of a chunk, for types whose fragments have runs of four columns |
//! | 1024 | the same for types with runs of eight columns |
//! | 64 | `[token][chunk]`: the sums of the chunk's two halves as f16 (`half_step`), for types with mins, otherwise zeros: records of two groups begin in different banks |
//!
//! The scales, powers of two, f32 `[token]`, follow the records of a granule.
//!
//! For warpgroups the tokens are divided into blocks of T, and the granules of a block follow each other. N = 2T columns of
//! operand B are the high and low bytes of each token. A granule of a block has these parts:
//!
//! | bytes | contents |
//! | --- | --- |
//! | 128·N | operands B of `wgmma` for the four chunks, each `[half of the chunk][column][16 bytes]` |
//! | 16·N | Σq of each chunk, for types with exact sums: half of operand B of another product, `[column][chunk][4 bytes]` |
//! | 4·T | f32 `[token of the group][group]`: the scale d |
//!
//! With f16 operands, N = T columns: token t of group q is column 8·⌊q/2⌋ + 2t + q mod 2. A granule of a block has:
//!
//! | bytes | contents |
//! | --- | --- |
//! | 256·T | operands B of `wgmma` for the four chunks, each `[quarter of the chunk][column][16 bytes]`, for types with runs of four columns: warpgroups multiply no others |
//! | 16·T | `[column][chunk]`: the sums of the chunk's two halves as f16, for types with mins |
//! | 4·T | f32 `[token of the group][group]`: the scale, a power of two |

use bespoke_codegen::prelude::*;

use crate::kernels::gemv::half_weights::has_long_runs;
use crate::kernels::gemv::inputs::{F16Unit, QuantisedUnit, UNIT};
use crate::kernels::gemv::layout::InputLayout;
use crate::kernels::gemv::product::Arithmetic;
use crate::weights::{TILE_ROWS, WeightType};

/// Number of columns of a granule.
pub(crate) const GRANULE: u32 = 128;

/// Number of tokens of a group: the pairs of columns of operand B.
pub(crate) const GROUP: u32 = 4;

/// Offset of the scales in a record, in bytes.
pub(super) const SCALES: u32 = 1024;

/// Factor that expands a min m to four bytes of operand A: (4·m, 4·m, m, 0). Their dot product with the bytes of [`min_words`]
/// is m times the sum of a chunk.
pub(super) const MIN_BYTES: u32 = 0x0001_0404;

/// A chunk's sum of inputs as four bytes of the columns of high and of low bytes of operand B, for factors 4, 4, 1 and 0 of
/// operand A.
///
/// The sum S = 256·h + l has up to 19 bits: |S| ≤ 32 · 8128. With h = 4·a + r the columns are (a₁, a₂, r, 0) and (0, 0, l, 0),
/// where a = a₁ + a₂, |a| ≤ 254.
#[device]
pub(super) fn min_words(sum: Val<i32>) -> [Val<u32>; 2] {
    let high = (sum + 128) >> 8;
    let low = sum - (high << 8);
    let quarter = (high + 2) >> 2;
    let rest = high - (quarter << 2);
    let first = quarter >> 1;
    let second = quarter - first;
    let byte = |value: Val<i32>, place: u32| (value.bitcast::<u32>() & 0xFF) << (8 * place);
    [byte(first, 0) | byte(second, 1) | byte(rest, 2), byte(low, 2)]
}

/// Bytes of the f16 inputs of a record in one form.
const RECORD_HALVES: u32 = GROUP * GRANULE * 2;

impl InputLayout {
    /// The arithmetic of the products that read the inputs.
    pub fn arithmetic(&self) -> Arithmetic {
        if self.forms.halves() > 0 { Arithmetic::F16 } else { Arithmetic::Integers }
    }

    /// Number of groups of four tokens, rounded up to whole blocks.
    pub fn groups(&self) -> u32 {
        self.tokens.next_multiple_of(self.block_tokens.max(GROUP)) / GROUP
    }

    /// Number of tokens of all groups: [`InputLayout::tokens`] and those that do not exist.
    pub fn padded_tokens(&self) -> u32 {
        self.groups() * GROUP
    }

    /// Number of columns of all granules.
    pub fn columns(&self) -> u32 {
        self.granules * GRANULE
    }

    /// Number of columns of operand B of a block: the high and the low bytes of each token, or a column of f16.
    pub(super) fn block_columns(&self) -> u32 {
        if self.forms.halves() > 0 { self.block_tokens } else { 2 * self.block_tokens }
    }

    /// Offset of the sums of chunks, operand B of another product, in a record of a block, in bytes.
    pub(super) fn block_mins(&self) -> u32 {
        2 * self.block_tokens * GRANULE
    }

    /// Offset of the f16 inputs for weights of type `ty`, in a record, in bytes. Blocks have one form.
    pub(super) fn halves(&self, ty: WeightType) -> u32 {
        let is_second = has_long_runs(ty) && self.forms.short_halves;
        if is_second { RECORD_HALVES } else { 0 }
    }

    /// Whether there are bytes for the sums of f16 inputs, which are zeros without [`InputForms::mins`](super::InputForms::mins).
    pub(super) fn has_sums(&self) -> bool {
        self.forms.mins || self.block_tokens == 0
    }

    /// Offset of the sums of chunks in the record of a group with f16 inputs, in bytes.
    pub(super) fn half_mins(&self) -> u32 {
        self.forms.halves() * RECORD_HALVES
    }

    /// Offset of the scales of all groups in a granule with f16 inputs, in bytes.
    pub(super) fn half_scales(&self) -> u32 {
        self.record_bytes() * self.groups()
    }

    /// Offset of the scales in a record of a block, in bytes.
    pub(super) fn block_scales(&self) -> u32 {
        self.block_mins() + if self.forms.mins { self.block_columns() * 16 } else { 0 }
    }

    /// Index of the scale of token `within` of a block among the block's scales.
    fn block_scale(&self, within: Val<u32>) -> Val<u32> {
        within % GROUP * (self.block_tokens / GROUP) + within / GROUP
    }

    /// Size of the inputs of a block of tokens, in bytes.
    pub(super) fn block_bytes(&self) -> u32 {
        self.granule_bytes() * self.granules
    }

    /// Offset of the operand with the sums of chunks in a record, in bytes.
    pub(super) fn mins(&self) -> u32 {
        if self.forms.chunks { SCALES + 16 } else { 0 }
    }

    /// Offset of the sums of chunks in a record, in bytes.
    pub(super) fn sums(&self) -> u32 {
        self.mins() + if self.forms.mins { 128 } else { 0 }
    }

    /// Offset of the sums of half chunks in a record, in bytes.
    pub(super) fn half_sums(&self) -> u32 {
        self.sums() + if self.forms.sums { 64 } else { 0 }
    }

    /// Offset of the inputs as f32 in a record, in bytes.
    pub(super) fn floats(&self) -> u32 {
        self.half_sums() + if self.forms.half_sums { 128 } else { 0 }
    }

    /// Size of a record in bytes.
    pub(super) fn record_bytes(&self) -> u32 {
        if self.forms.halves() > 0 {
            return self.half_mins() + GROUP * 16;
        }
        self.floats() + if self.forms.floats { GROUP * GRANULE * 4 } else { 0 }
    }

    /// Size of the records of a granule in bytes: of all tokens, or of a block.
    pub fn granule_bytes(&self) -> u32 {
        if self.block_tokens > 0 {
            return self.block_scales() + self.block_tokens * 4;
        }
        let scales = if self.forms.halves() > 0 { GROUP * 4 } else { 0 };
        (self.record_bytes() + scales) * self.groups()
    }

    /// Size of all records in bytes.
    pub fn bytes(&self) -> u32 {
        self.block_bytes() * self.padded_tokens().checked_div(self.block_tokens).unwrap_or(1)
    }

    /// Number of units of eight inputs per token.
    pub(super) fn units(&self) -> u32 {
        self.granules * (GRANULE / UNIT)
    }

    /// Number of sums of squares per token, one for the units of a warp.
    pub(crate) fn squares(&self) -> u32 {
        self.units().div_ceil(WARP)
    }
}

/// Where the f16 inputs of a tile of 16 columns and a token are, as offsets in bytes.
pub(super) struct TilePlace<'a> {
    /// Offset of the inputs of the token's chunk.
    inputs: Val<u32>,
    /// Half of the chunk.
    half: Val<u32>,
    /// Offset of the sum of the inputs.
    pub sum: Val<u32>,
    /// Offset of the token's scale in the granule.
    pub scale: Val<u32>,
    layout: &'a InputLayout,
}

impl InputLayout {
    /// The place of tile `tile` of token `token`, for f16 inputs.
    pub(super) fn place_of_tile(&self, tile: Val<u32>, token: Val<u32>) -> TilePlace<'_> {
        let (granule, chunk, half) = (tile / (GRANULE / TILE_ROWS), (tile >> 1) & 3, tile & 1);
        let granule = granule * self.granule_bytes();
        let tokens = self.block_tokens.max(GROUP);
        let (block, within) = (token / tokens, token % tokens);
        let part_of_sum = chunk * 4 + half * 2;
        if self.block_tokens == 0 {
            let record = granule + block * self.record_bytes();
            return TilePlace {
                inputs: record + (chunk * 256 + within * 64),
                half,
                sum: record + within * 16 + part_of_sum + self.half_mins(),
                scale: granule + token * 4 + self.half_scales(),
                layout: self,
            };
        }
        let record = granule + block * self.block_bytes();
        let column = self.half_column(within);
        TilePlace {
            inputs: record + (chunk * (tokens * 64) + column * 16),
            half,
            sum: record + column * 16 + part_of_sum + self.block_mins(),
            scale: record + self.block_scale(within) * 4 + self.block_scales(),
            layout: self,
        }
    }

    /// Column of operand B that has the f16 inputs of token `within` of a block of warpgroups.
    fn half_column(&self, within: Val<u32>) -> Val<u32> {
        let group = within / GROUP;
        (group >> 1) * 8 + within % GROUP * 2 + (group & 1)
    }
}

impl TilePlace<'_> {
    /// Offset of a word of types whose fragments have runs of four columns: columns `column` and `column` + 2 of the first or the
    /// second `eight` of the tile. Columns 0 and 2 of each four are in one word, 1 and 3 in another.
    pub fn short(&self, column: Val<u32>, eight: Val<u32>) -> Val<u32> {
        let (word, four) = (column & 1, column >> 2);
        if self.layout.block_tokens > 0 {
            let quarter = self.layout.block_tokens * 16;
            return self.inputs + self.half * (2 * quarter) + word * quarter + four * 4 + eight * 8;
        }
        self.inputs + self.half * 8 + four * 16 + word * 4 + eight * 32
    }

    /// Offset of a word of types whose fragments have runs of eight columns: columns `column` and `column` + 1, likewise.
    pub fn long(&self, column: Val<u32>, eight: Val<u32>) -> Val<u32> {
        let second = if self.layout.forms.short_halves { RECORD_HALVES } else { 0 };
        self.inputs + self.half * 32 + column * 2 + eight * 16 + second
    }
}

/// Writes unit `unit` of the eight inputs `values` of token `token` to the records at `to`. The lanes of a warp have
/// consecutive units of one token.
#[device]
pub(crate) fn store_unit<S: Space>(
    values: &[Val<f32>],
    unit: Val<u32>,
    token: Val<u32>,
    to: Ptr<S, u8>,
    layout: &InputLayout,
) {
    let forms = layout.forms;
    if forms.halves() > 0 {
        store_halves(values, unit, token, to, layout);
        return;
    }
    let sums = forms.mins || forms.sums;
    let quantised = forms.chunks.then(|| QuantisedUnit::new(values, unit, forms.mins, sums, forms.half_sums));
    let granule = unit / (GRANULE / UNIT);
    if layout.block_tokens > 0 {
        let quantised = quantised.as_ref().expect("warpgroups multiply quantised inputs");
        if granule < layout.granules {
            store_in_block(quantised, unit, token, to, layout);
        }
        return;
    }
    if granule < layout.granules {
        let record = granule * layout.granule_bytes() + token / GROUP * layout.record_bytes();
        let to = to.byte_add(record);
        let row = token % GROUP;
        let (part, chunk) = (unit & 3, (unit >> 2) & 3);
        if let Some(quantised) = &quantised {
            // The lanes of the first half of the chunk have high bytes, those of the second half low bytes.
            let column = row * 2 + (part >> 1);
            let lane = column * 4 + (part & 1) * 2;
            let at = to.byte_add((chunk >> 1) * 512 + lane * 16 + (chunk & 1) * 8).cast::<u32>();
            at.store_vector([quantised.words[0], quantised.words[1]]);
            at.at(4).store_vector([quantised.words[2], quantised.words[3]]);
            if (unit & 15) == 0 {
                to.byte_add(SCALES).byte_add(row * 4).cast::<f32>().store(quantised.scale);
            }
            if let Some(sum) = quantised.sum {
                if part == 0 {
                    if forms.sums {
                        to.byte_add(layout.sums()).byte_add(row * 16 + chunk * 4).cast::<i32>().store(sum);
                    }
                    if forms.mins {
                        // The lanes of the two columns that have the four bytes of this chunk.
                        let at = to.byte_add(layout.mins()).byte_add(row * 32 + chunk * 4).cast::<u32>();
                        let [high, low] = min_words(sum);
                        at.store(high);
                        at.at(4).store(low);
                    }
                }
            }
            if let Some(sum) = quantised.half_sum {
                if (part & 1) == 0 {
                    let half = row * 32 + chunk * 8 + (part >> 1) * 4;
                    to.byte_add(layout.half_sums()).byte_add(half).cast::<i32>().store(sum);
                }
            }
        }
        if forms.floats {
            let column = (unit % (GRANULE / UNIT)) * UNIT;
            let at = to.byte_add(layout.floats()).byte_add((row * GRANULE + column) * 4).cast::<f32>();
            at.store_vector([values[0], values[1], values[2], values[3]]);
            at.at(4).store_vector([values[4], values[5], values[6], values[7]]);
        }
    }
}

/// Stores a unit as f16, in the order of warps or of warpgroups.
#[device]
fn store_halves<S: Space>(
    values: &[Val<f32>],
    unit: Val<u32>,
    token: Val<u32>,
    to: Ptr<S, u8>,
    layout: &InputLayout,
) {
    let forms = layout.forms;
    let F16Unit { alternate, neighbours, sums: words, scale } = F16Unit::new(values, forms.mins);
    let granule = unit / (GRANULE / UNIT);
    if granule < layout.granules {
        let (part, chunk) = (unit & 3, (unit >> 2) & 3);
        let tokens = layout.block_tokens.max(GROUP);
        let (block, within) = (token / tokens, token % tokens);
        let second = if forms.short_halves { RECORD_HALVES } else { 0 };
        // The sums of the token's chunks, and the token's scale.
        let (mut sums, mut scales) = (to, to);
        if layout.block_tokens == 0 {
            let granule = to.byte_add(granule * layout.granule_bytes());
            let to = granule.byte_add(block * layout.record_bytes());
            let at = to.byte_add(chunk * 256 + within * 64);
            if forms.short_halves {
                let at = at.byte_add((part & 1) * 32 + (part >> 1) * 8).cast::<u32>();
                at.store_vector([alternate[0], alternate[1]]);
                at.at(4).store_vector([alternate[2], alternate[3]]);
            }
            if forms.long_halves {
                let words = [neighbours[0], neighbours[1], neighbours[2], neighbours[3]];
                at.byte_add(part * 16).byte_add(second).cast::<u32>().store_vector(words);
            }
            sums = to.byte_add(layout.half_mins()).byte_add(within * 16);
            scales = granule.byte_add(layout.half_scales()).byte_add(token * 4);
        } else {
            let to = to.byte_add(block * layout.block_bytes() + granule * layout.granule_bytes());
            let column = layout.half_column(within);
            // The 16 bytes of a column in one quarter of the chunk, and in the next.
            let quarter = tokens * 16;
            let at = to.byte_add(chunk * (tokens * 64) + column * 16);
            let at = at.byte_add((part >> 1) * (2 * quarter) + (part & 1) * 8).cast::<u32>();
            at.store_vector([alternate[0], alternate[2]]);
            at.byte_add(quarter).store_vector([alternate[1], alternate[3]]);
            sums = to.byte_add(layout.block_mins()).byte_add(column * 16);
            scales = to.byte_add(layout.block_scales()).byte_add(layout.block_scale(within) * 4);
        }
        if layout.has_sums() {
            if part == 0 {
                sums.byte_add(chunk * 4).cast::<u32>().store(words.unwrap_or(val(0)));
            }
        }
        if (unit & 15) == 0 {
            scales.cast::<f32>().store(scale);
        }
    }
}

/// Stores a unit in the order of warpgroups.
#[device]
fn store_in_block<S: Space>(
    quantised: &QuantisedUnit,
    unit: Val<u32>,
    token: Val<u32>,
    to: Ptr<S, u8>,
    layout: &InputLayout,
) {
    let granule = unit / (GRANULE / UNIT);
    let (block, within) = (token / layout.block_tokens, token % layout.block_tokens);
    let to = to.byte_add(block * layout.block_bytes() + granule * layout.granule_bytes());
    let (part, chunk) = (unit & 3, (unit >> 2) & 3);
    let columns = layout.block_columns();
    // The lanes of the first half of the chunk have high bytes, those of the second half low bytes.
    let column = within * 2 + (part >> 1);
    let at = to.byte_add(chunk * (columns * 32) + column * 16 + (part & 1) * 8).cast::<u32>();
    at.store_vector([quantised.words[0], quantised.words[2]]);
    at.byte_add(columns * 16).store_vector([quantised.words[1], quantised.words[3]]);
    if (unit & 15) == 0 {
        let scales = to.byte_add(layout.block_scales()).cast::<f32>();
        scales.at(layout.block_scale(within)).store(quantised.scale);
    }
    if layout.forms.mins {
        let sum = quantised.sum.expect("the sum of a chunk");
        if part == 0 {
            let at = to.byte_add(layout.block_mins()).byte_add(within * 32 + chunk * 4).cast::<u32>();
            let [high, low] = min_words(sum);
            at.store(high);
            at.byte_add(16).store(low);
        }
    }
}
