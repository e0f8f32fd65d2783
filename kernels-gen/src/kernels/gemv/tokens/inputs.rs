//! Layout of the inputs of several tokens, in the order in which `unit` reads them.
//!
//! The columns are divided into granules of 128, which are four chunks of 32. The tokens are divided into groups of four.
//! A granule has a record for each group; rows of tokens that do not exist are zeros. A record has these parts, of which
//! those are present that a segment's type needs ([`InputForms`]):
//!
//! | bytes | contents |
//! | --- | --- |
//! | 1024 | operands B of `mma.m16n8k32` for the four chunks. Columns 2r and 2r + 1 of B are the high and low bytes of token r of the group. Bytes 512·p + 16·l + 8·i are lane l's two registers for chunk 2p + i |
//! | 64 | f32 `[token][chunk]`: the scales d |
//! | 64 | f32 `[token][chunk]`: d·Σq, for types with an offset per chunk |
//! | 128 | f32 `[token][half chunk]`: d·Σq, for types with an offset per half chunk |
//! | 2048 | f32 `[token][column]`: the inputs as they are, for float types |

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use crate::kernels::gemv::inputs::{QuantisedUnit, UNIT};

/// Number of columns of a granule.
pub(crate) const GRANULE: u32 = 128;

/// Number of tokens of a group: the pairs of columns of operand B.
pub(crate) const GROUP: u32 = 4;

/// Forms of the inputs that the segments of a product need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InputForms {
    /// Quantised, with a scale per chunk.
    pub chunks: bool,
    /// Scaled sums of chunks.
    pub sums: bool,
    /// Scaled sums of half chunks.
    pub half_sums: bool,
    /// As f32.
    pub floats: bool,
}

/// Layout of the inputs of several tokens; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InputLayout {
    /// Number of tokens.
    pub tokens: u32,
    /// Number of granules of 128 columns.
    pub granules: u32,
    /// Forms of the inputs.
    pub forms: InputForms,
}

impl InputLayout {
    /// Number of groups of four tokens, rounded up.
    pub fn groups(&self) -> u32 {
        self.tokens.div_ceil(GROUP)
    }

    /// Offset of the sums of chunks in a record, in bytes.
    pub(super) fn sums(&self) -> u32 {
        if self.forms.chunks { 1024 + 64 } else { 0 }
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
        self.floats() + if self.forms.floats { GROUP * GRANULE * 4 } else { 0 }
    }

    /// Size of the records of a granule in bytes.
    pub fn granule_bytes(&self) -> u32 {
        self.record_bytes() * self.groups()
    }

    /// Size of all records in bytes.
    pub fn bytes(&self) -> u32 {
        self.granule_bytes() * self.granules
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

/// Writes unit `unit` of the eight inputs `values` of token `token` to the records at `to`. The lanes of a warp have
/// consecutive units of one token.
#[device]
pub(super) fn store_unit<S: Space>(
    values: &[Val<f32>],
    unit: Val<u32>,
    token: Val<u32>,
    to: Ptr<S, u8>,
    layout: &InputLayout,
) {
    let forms = layout.forms;
    let quantised = forms.chunks.then(|| QuantisedUnit::new(values, unit, forms.sums, forms.half_sums));
    let granule = unit / (GRANULE / UNIT);
    if granule < layout.granules {
        let record = granule * layout.granule_bytes() + token / GROUP * layout.record_bytes();
        let to = to.bytes(record);
        let row = token % GROUP;
        let (part, chunk) = (unit & 3, (unit >> 2) & 3);
        if let Some(unit) = &quantised {
            // The lanes of the first half of the chunk have high bytes, those of the second half low bytes.
            let column = row * 2 + (part >> 1);
            let lane = column * 4 + (part & 1) * 2;
            let at = to.bytes((chunk >> 1) * 512 + lane * 16 + (chunk & 1) * 8).cast::<u32>();
            at.store_vector([unit.words[0], unit.words[1]]);
            at.at(4).store_vector([unit.words[2], unit.words[3]]);
            let of_chunk = row * 16 + chunk * 4;
            if part == 0 {
                to.bytes(1024).bytes(of_chunk).cast::<f32>().store(unit.scale);
                if let Some(sum) = unit.sum {
                    to.bytes(layout.sums()).bytes(of_chunk).cast::<f32>().store(unit.scale * sum);
                }
            }
            if let Some(sum) = unit.half_sum {
                if (part & 1) == 0 {
                    let half = row * 32 + chunk * 8 + (part >> 1) * 4;
                    to.bytes(layout.half_sums()).bytes(half).cast::<f32>().store(unit.scale * sum);
                }
            }
        }
        if forms.floats {
            let column = (unit % (GRANULE / UNIT)) * UNIT;
            let at = to.bytes(layout.floats()).bytes((row * GRANULE + column) * 4).cast::<f32>();
            at.store_vector([values[0], values[1], values[2], values[3]]);
            at.at(4).store_vector([values[4], values[5], values[6], values[7]]);
        }
    }
}
