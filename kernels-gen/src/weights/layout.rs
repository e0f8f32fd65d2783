//! Properties of the weight types, and the layout of a matrix.

use std::fmt;
use std::ops::Range;

use bespoke_gguf::GgmlType;

use super::format::{BlockPart, Codes, Part, Scales, WeightType};

/// A tensor type that no kernel supports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "type {0} is not supported ({supported} are); get the model in one of these types, or convert its F16, BF16 or \
     F32 file with `bespoke quantize`",
    supported = list(&WeightType::ALL.map(WeightType::name))
)]
pub struct UnsupportedType(pub GgmlType);

/// Joins names as `A, B and C`.
fn list(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

impl WeightType {
    /// The weight type of the same name as a GGML type.
    ///
    /// # Errors
    /// If no kernel supports the type.
    pub fn from_ggml(ty: GgmlType) -> Result<WeightType, UnsupportedType> {
        WeightType::ALL.into_iter().find(|known| known.ggml() == ty).ok_or(UnsupportedType(ty))
    }

    /// ggml's name of the type.
    pub fn name(self) -> &'static str {
        self.ggml().name()
    }

    /// The type's spelling in kernel names: lower-case letters and digits.
    pub fn slug(self) -> String {
        self.ggml().name().to_lowercase().replace('_', "")
    }

    /// Whether weights are integers with scales, in chunks of 32; otherwise they are floats.
    pub fn is_quantised(self) -> bool {
        self.format().scales != Scales::None
    }

    /// Whether products need the sum of the inputs as well: a weight is scale · unsigned integer + offset.
    pub fn has_offset(self) -> bool {
        match self.format().codes {
            Codes::Unsigned => true,
            // Half chunks of centred codes are multiplied as signed bytes.
            Codes::Centred(_) => !self.has_half_chunks(),
            Codes::Float | Codes::Signed | Codes::Table(_) => false,
        }
    }

    /// Whether there is a scale per half chunk, of 16 columns; otherwise per chunk of 32.
    pub(crate) fn has_half_chunks(self) -> bool {
        self.format().scales.of_half_chunks()
    }

    /// Number of groups of four chunks whose scaled products are added up as integers, without rounding; 0 if a type's
    /// scales are not integers per chunk of 32, or its products need more than 32 bits.
    ///
    /// With inputs of at most 8128 the sum of scale · code · input over the columns of such groups is below 2³¹:
    /// 63 · 15 · 256 · 8128 for Q4_K and 63 · 31 · 128 · 8128 for Q5_K.
    pub(crate) fn exact_groups(self) -> u32 {
        match (self.format().scales, self.has_part(BlockPart::High1)) {
            (Scales::SixBitMin, false) => 2,
            (Scales::SixBitMin, true) => 1,
            _ => 0,
        }
    }

    /// Whether scale · code is a 16-bit integer, and its products with the bytes of the inputs are added up over a superblock without
    /// rounding: Q6_K.
    pub(crate) fn has_wide_integers(self) -> bool {
        self.format().scales == Scales::HalfEightBit
    }

    /// The parts of a block in memory order, with their offsets and sizes in bytes.
    pub(super) fn parts(self) -> impl Iterator<Item = (&'static Part, Range<usize>)> {
        let per_block = self.block_cols() as usize / self.ggml().block_elements();
        let mut end = 0;
        self.format().parts.iter().map(move |part| {
            // A block of floats has 128 bytes of each row.
            let row = if self.is_quantised() { part.file.len() * per_block } else { 128 };
            let start = end;
            end += row * TILE_ROWS as usize;
            (part, start..end)
        })
    }

    /// Columns per block.
    pub fn block_cols(self) -> u32 {
        self.format().cols
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> u32 {
        self.parts().last().map_or(0, |(_, range)| range.end as u32)
    }

    /// Whether a block has a part.
    pub(crate) fn has_part(self, part: BlockPart) -> bool {
        self.format().parts.iter().any(|it| it.kind == part)
    }

    /// Offset of a part in a block, in bytes.
    ///
    /// # Panics
    /// If the type has no such part.
    pub fn part(self, part: BlockPart) -> u32 {
        let found = self.parts().find(|(it, _)| it.kind == part);
        found.expect("the weight type has this part").1.start as u32
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ggml().name())
    }
}

/// Rows per tile.
pub const TILE_ROWS: u32 = 16;

/// Layout of a matrix of `rows` × `cols` weights: consecutive tiles of [`TILE_ROWS`] rows, each a run of blocks from
/// the first column to the last. Missing rows and columns of the last tile and block are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Type of the weights.
    pub ty: WeightType,
    /// Number of rows (outputs).
    pub rows: u32,
    /// Number of columns (inputs).
    pub cols: u32,
    /// Blocks per tile.
    pub blocks: u32,
    /// Number of tiles.
    pub tiles: u32,
    /// Size of the matrix in bytes, a multiple of 16.
    pub bytes: u64,
}

impl Layout {
    /// The layout of a matrix; `None` if `cols` is not a multiple of the type's block size in the file.
    pub fn new(ty: WeightType, rows: u32, cols: u32) -> Option<Layout> {
        ty.ggml().row_bytes(cols as usize)?;
        let (blocks, tiles) = (cols.div_ceil(ty.block_cols()), rows.div_ceil(TILE_ROWS));
        let bytes = u64::from(blocks) * u64::from(tiles) * u64::from(ty.block_bytes());
        Some(Layout { ty, rows, cols, blocks, tiles, bytes })
    }

    /// Bytes per tile.
    pub fn tile_bytes(&self) -> u32 {
        self.blocks * self.ty.block_bytes()
    }

    /// Bytes per row in the file.
    pub fn file_row_bytes(&self) -> usize {
        self.ty.ggml().row_bytes(self.cols as usize).expect("checked when the layout was made")
    }

    /// Bytes of the matrix in the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_row_bytes() as u64 * u64::from(self.rows)
    }
}
