//! Which tensors make up a weight buffer.

use serde::{Deserialize, Serialize};

use crate::kernels::gemv::{GemvShape, Segment};
use crate::weights::{TILE_ROWS, WeightType};

/// How a tensor is brought into device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum PartKind {
    /// Repacked into the tiles of [`crate::weights`].
    Matrix {
        /// Its type.
        ty: WeightType,
        /// Rows.
        rows: u32,
        /// Columns.
        cols: u32,
    },
    /// f32 as they are.
    Vector {
        /// Elements.
        elements: u32,
    },
}

/// A tensor in a weight buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The tensor's name in the GGUF.
    pub tensor: String,
    /// From the buffer's start, in bytes.
    pub offset: u64,
    /// How it lies there.
    #[serde(flatten)]
    pub kind: PartKind,
}

/// A tensor of a stack of matrices.
pub(super) struct Member {
    /// The tensor's name without `.weight` and `.bias`.
    pub tensor: String,
    /// The weights' type.
    pub ty: WeightType,
    /// Rows.
    pub rows: u32,
}

/// The segments of a stack: neighbours of one type are one segment, unless the first fills no whole tiles.
pub(super) fn segments(members: &[Member], keep_apart: bool) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for member in members {
        match segments.last_mut() {
            Some(last) if last.ty == member.ty && last.rows.is_multiple_of(TILE_ROWS) && !keep_apart => {
                last.rows += member.rows;
            }
            _ => segments.push(Segment { ty: member.ty, rows: member.rows }),
        }
    }
    segments
}

/// The parts of a stack of matrices, with the norm's weights that lie behind them.
pub(super) fn stack(shape: &GemvShape, members: &[Member], norm: Option<String>) -> (Vec<Part>, u64) {
    let offsets = shape.offsets();
    let mut parts = Vec::new();
    let (mut segment, mut row, mut bias) = (0, 0, offsets.bias);
    for member in members {
        if row == shape.segments[segment].rows {
            (segment, row) = (segment + 1, 0);
        }
        let layout = &shape.layouts()[segment];
        parts.push(Part {
            tensor: format!("{}.weight", member.tensor),
            offset: offsets.segments[segment] + u64::from(row / TILE_ROWS) * u64::from(layout.tile_bytes()),
            kind: PartKind::Matrix { ty: member.ty, rows: member.rows, cols: shape.cols },
        });
        if shape.bias {
            parts.push(Part {
                tensor: format!("{}.bias", member.tensor),
                offset: bias,
                kind: PartKind::Vector { elements: member.rows },
            });
            bias += u64::from(member.rows) * 4;
        }
        row += member.rows;
    }
    if let Some(tensor) = norm {
        parts.push(Part { tensor, offset: offsets.norm, kind: PartKind::Vector { elements: shape.cols } });
    }
    (parts, offsets.bytes)
}
