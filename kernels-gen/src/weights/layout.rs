//! Which planes a matrix has, and where.

use std::fmt;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

/// A weight type that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(non_camel_case_types)]
pub enum WeightType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// 4 bits, d a chunk.
    Q4_0,
    /// 4 bits, d and m a chunk.
    Q4_1,
    /// 5 bits, d a chunk.
    Q5_0,
    /// 5 bits, d and m a chunk.
    Q5_1,
    /// 8 bits, d a chunk.
    Q8_0,
    /// 4 bits, 6-bit scales and mins a chunk, d and dmin a superblock.
    Q4_K,
    /// 5 bits, 6-bit scales and mins a chunk, d and dmin a superblock.
    Q5_K,
    /// 6 bits, 8-bit scales every 16 weights, d a superblock.
    Q6_K,
}

/// A tensor type without a kernel.
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

    /// GGML's type of the same name.
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

    /// The weight type of a GGML type.
    pub fn from_ggml(ty: GgmlType) -> Result<WeightType, UnsupportedType> {
        WeightType::ALL.into_iter().find(|known| known.ggml() == ty).ok_or(UnsupportedType(ty))
    }

    /// The name in kernels' names: lower case letters and digits.
    pub fn slug(self) -> String {
        self.ggml().name().to_lowercase().replace('_', "")
    }

    /// Integers with scales, in chunks of 32; else floats.
    pub fn is_quantised(self) -> bool {
        !matches!(self, WeightType::F32 | WeightType::F16 | WeightType::BF16)
    }

    /// A weight is scale · integer + offset, so that a product needs the sum of the inputs, too.
    pub fn has_offset(self) -> bool {
        use WeightType::*;
        matches!(self, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q4_K | Q5_K)
    }

    /// The parts of a block, in order.
    fn parts(self) -> &'static [(PartKind, u32)] {
        use PartKind::*;
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

    /// Columns of a block.
    pub fn block_cols(self) -> u32 {
        match self {
            WeightType::F32 => 32,
            WeightType::F16 | WeightType::BF16 => 64,
            WeightType::Q4_K | WeightType::Q5_K | WeightType::Q6_K => 256,
            _ => 128,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Where a part begins in a block, in bytes.
    ///
    /// # Panics
    /// If the type has no such part.
    pub fn part(self, kind: PartKind) -> u32 {
        let parts = self.parts();
        let index = parts.iter().position(|(part, _)| *part == kind).expect("the weight type has this part");
        parts[..index].iter().map(|(_, bytes)| bytes).sum()
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ggml().name())
    }
}

/// What a part of a block holds; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// F32, F16 or BF16 weights.
    Floats,
    /// Low nibbles.
    Low,
    /// Fifth bits.
    High1,
    /// Fifth and sixth bits.
    High2,
    /// Signed bytes.
    Bytes,
    /// f16 scales (and mins).
    Scale,
    /// 6-bit scales and mins.
    Scales6,
    /// Signed 8-bit scales.
    Scales8,
}

/// Rows of a tile.
pub const TILE_ROWS: u32 = 16;

/// How a matrix of `rows` × `cols` weights lies: tiles of [`TILE_ROWS`] rows one after the other, each a run of
/// blocks from the first column to the last. Rows and columns that the matrix lacks are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The weights' type.
    pub ty: WeightType,
    /// Rows (outputs).
    pub rows: u32,
    /// Columns (inputs).
    pub cols: u32,
    /// Blocks a tile.
    pub blocks: u32,
    /// Tiles.
    pub tiles: u32,
    /// Size in bytes, a multiple of 16.
    pub bytes: u64,
}

impl Layout {
    /// The layout of a matrix; none if `cols` is no whole number of the type's blocks in the file.
    pub fn new(ty: WeightType, rows: u32, cols: u32) -> Option<Layout> {
        ty.ggml().row_bytes(cols as usize)?;
        let (blocks, tiles) = (cols.div_ceil(ty.block_cols()), rows.div_ceil(TILE_ROWS));
        let bytes = u64::from(blocks) * u64::from(tiles) * u64::from(ty.block_bytes());
        Some(Layout { ty, rows, cols, blocks, tiles, bytes })
    }

    /// Bytes of a tile.
    pub fn tile_bytes(&self) -> u32 {
        self.blocks * self.ty.block_bytes()
    }

    /// Bytes a row in the file.
    pub fn file_row_bytes(&self) -> usize {
        self.ty.ggml().row_bytes(self.cols as usize).expect("checked when the layout was made")
    }

    /// Bytes of the matrix in the file.
    pub fn file_bytes(&self) -> u64 {
        self.file_row_bytes() as u64 * u64::from(self.rows)
    }
}
