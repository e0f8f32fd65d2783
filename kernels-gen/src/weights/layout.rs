//! Which planes a matrix has, and where.

use std::fmt;

use bespoke_gguf::GgmlType;
use serde::{Deserialize, Serialize};

/// A weight type that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// The planes and how many bytes each has for one row of `cols` weights.
    fn planes(self, cols: u32) -> Vec<(PlaneKind, u32)> {
        use PlaneKind::*;
        let (chunks, superblocks) = (cols / 32, cols / 256);
        match self {
            WeightType::F32 => vec![(Floats, (cols * 4).next_multiple_of(16))],
            WeightType::F16 | WeightType::BF16 => vec![(Floats, (cols * 2).next_multiple_of(16))],
            WeightType::Q4_0 => vec![(Low, chunks * 16), (Scale, chunks * 2)],
            WeightType::Q4_1 => vec![(Low, chunks * 16), (Scale, chunks * 4)],
            WeightType::Q5_0 => vec![(Low, chunks * 16), (High1, chunks * 4), (Scale, chunks * 2)],
            WeightType::Q5_1 => vec![(Low, chunks * 16), (High1, chunks * 4), (Scale, chunks * 4)],
            WeightType::Q8_0 => vec![(Bytes, chunks * 32), (Scale, chunks * 2)],
            WeightType::Q4_K => vec![(Low, chunks * 16), (Super, superblocks * 16)],
            WeightType::Q5_K => vec![(Low, chunks * 16), (High1, chunks * 4), (Super, superblocks * 16)],
            WeightType::Q6_K => vec![
                (Low, chunks * 16),
                (High2, chunks * 8),
                (Scales16, superblocks * 16),
                (Scale, superblocks * 2),
            ],
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.ggml().name())
    }
}

/// What a plane holds; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaneKind {
    /// F32, F16 or BF16 rows.
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
    /// Superblock headers.
    Super,
    /// Signed 8-bit scales.
    Scales16,
}

/// A plane: `rows` rows of `row_bytes` bytes from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// What it holds.
    pub kind: PlaneKind,
    /// From the start of the matrix, in bytes; a multiple of 256.
    pub offset: u64,
    /// Bytes a row.
    pub row_bytes: u32,
}

/// Where the planes of a matrix of `rows` × `cols` weights lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The weights' type.
    pub ty: WeightType,
    /// Rows (outputs).
    pub rows: u32,
    /// Columns (inputs).
    pub cols: u32,
    /// The planes in order.
    pub planes: Vec<Plane>,
    /// Size in bytes, a multiple of 256.
    pub bytes: u64,
}

/// Alignment of planes, in bytes.
pub(super) const PLANE_ALIGN: u64 = 256;

impl Layout {
    /// The layout of a matrix; none if `cols` is no whole number of the type's blocks.
    pub fn new(ty: WeightType, rows: u32, cols: u32) -> Option<Layout> {
        ty.ggml().row_bytes(cols as usize)?;
        let mut offset = 0;
        let mut planes = Vec::new();
        for (kind, row_bytes) in ty.planes(cols) {
            planes.push(Plane { kind, offset, row_bytes });
            offset += (u64::from(row_bytes) * u64::from(rows)).next_multiple_of(PLANE_ALIGN);
        }
        Some(Layout { ty, rows, cols, planes, bytes: offset })
    }

    /// The plane of a kind.
    ///
    /// # Panics
    /// If the type has none.
    pub fn plane(&self, kind: PlaneKind) -> Plane {
        *self.planes.iter().find(|plane| plane.kind == kind).expect("the weight type has this plane")
    }

    /// Bytes a row in the file.
    pub fn file_row_bytes(&self) -> usize {
        self.ty.ggml().row_bytes(self.cols as usize).expect("checked when the layout was made")
    }
}
