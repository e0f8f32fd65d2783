//! Weight types, the parts of their blocks, and the layout of a matrix.

use std::fmt;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

/// A weight type that kernels support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(non_camel_case_types)]
pub enum WeightType {
    /// IEEE binary32, without scales.
    F32,
    /// IEEE binary16, without scales.
    F16,
    /// bfloat16, without scales.
    BF16,
    /// 4-bit weights; f16 scale d per chunk of 32.
    Q4_0,
    /// 4-bit weights; f16 scale d and offset m per chunk of 32.
    Q4_1,
    /// 5-bit weights; f16 scale d per chunk of 32.
    Q5_0,
    /// 5-bit weights; f16 scale d and offset m per chunk of 32.
    Q5_1,
    /// 8-bit weights; f16 scale d per chunk of 32.
    Q8_0,
    /// 4-bit weights; 6-bit scale and min per chunk of 32, f16 d and dmin per superblock of 256.
    Q4_K,
    /// 5-bit weights; 6-bit scale and min per chunk of 32, f16 d and dmin per superblock of 256.
    Q5_K,
    /// 6-bit weights; 8-bit scale per 16 weights, f16 d per superblock of 256.
    Q6_K,
}

/// A tensor type that no kernel supports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "type {0} has no kernel: supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K; \
     requantise the model with one of these"
)]
pub struct UnsupportedType(pub GgmlType);

impl WeightType {
    /// Every weight type.
    pub const ALL: [WeightType; 11] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Q8_0,
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
    ];

    /// The GGML type of the same name.
    pub fn ggml(self) -> GgmlType {
        match self {
            WeightType::F32 => GgmlType::F32,
            WeightType::F16 => GgmlType::F16,
            WeightType::BF16 => GgmlType::BF16,
            WeightType::Q4_0 => GgmlType::Q4_0,
            WeightType::Q4_1 => GgmlType::Q4_1,
            WeightType::Q5_0 => GgmlType::Q5_0,
            WeightType::Q5_1 => GgmlType::Q5_1,
            WeightType::Q8_0 => GgmlType::Q8_0,
            WeightType::Q4_K => GgmlType::Q4_K,
            WeightType::Q5_K => GgmlType::Q5_K,
            WeightType::Q6_K => GgmlType::Q6_K,
        }
    }

    /// The weight type of the same name as a GGML type.
    ///
    /// # Errors
    /// If no kernel supports the type.
    pub fn from_ggml(ty: GgmlType) -> Result<WeightType, UnsupportedType> {
        WeightType::ALL.into_iter().find(|known| known.ggml() == ty).ok_or(UnsupportedType(ty))
    }

    /// The type's spelling in kernel names: lower-case letters and digits.
    pub fn slug(self) -> String {
        self.ggml().name().to_lowercase().replace('_', "")
    }

    /// Whether weights are integers with scales, in chunks of 32; otherwise they are floats.
    pub fn is_quantised(self) -> bool {
        !matches!(self, WeightType::F32 | WeightType::F16 | WeightType::BF16)
    }

    /// Whether a weight is scale · integer + offset; products then need the sum of the inputs as well.
    pub fn has_offset(self) -> bool {
        use WeightType::*;
        matches!(self, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q4_K | Q5_K)
    }

    /// The parts of a block in memory order, with their sizes in bytes.
    fn parts(self) -> &'static [(BlockPart, u32)] {
        use BlockPart::*;
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => &[(Floats, 2048)],
            WeightType::Q4_0 => &[(Low, 1024), (Scale, 128)],
            WeightType::Q4_1 => &[(Low, 1024), (Scale, 256)],
            WeightType::Q5_0 => &[(Low, 1024), (High1, 256), (Scale, 128)],
            WeightType::Q5_1 => &[(Low, 1024), (High1, 256), (Scale, 256)],
            WeightType::Q8_0 => &[(Bytes, 2048), (Scale, 128)],
            WeightType::Q4_K => &[(Low, 2048), (Scales6, 192), (Scale, 64)],
            WeightType::Q5_K => &[(Low, 2048), (High1, 512), (Scales6, 192), (Scale, 64)],
            WeightType::Q6_K => &[(Low, 2048), (High2, 1024), (Scales8, 256), (Scale, 32)],
        }
    }

    /// Columns per block.
    pub fn block_cols(self) -> u32 {
        match self {
            WeightType::F32 => 32,
            WeightType::F16 | WeightType::BF16 => 64,
            WeightType::Q4_K | WeightType::Q5_K | WeightType::Q6_K => 256,
            _ => 128,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> u32 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Offset of a part in a block, in bytes.
    ///
    /// # Panics
    /// If the type has no such part.
    pub fn part(self, part: BlockPart) -> u32 {
        let parts = self.parts();
        let index = parts.iter().position(|(kind, _)| *kind == part).expect("the weight type has this part");
        parts[..index].iter().map(|(_, bytes)| bytes).sum()
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ggml().name())
    }
}

/// A part of a block of weights; [`crate::weights`] has a table of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockPart {
    /// Weights as F32, F16 or BF16, without scales.
    Floats,
    /// Low four bits of the weights.
    Low,
    /// Fifth bits of the weights.
    High1,
    /// Fifth and sixth bits of the weights.
    High2,
    /// Signed 8-bit weights.
    Bytes,
    /// f16 scales d, followed by m or dmin if the type has one.
    Scale,
    /// 6-bit scales and mins.
    Scales6,
    /// Signed 8-bit scales.
    Scales8,
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
