//! Which tensors make up a weight buffer.

use serde::{Deserialize, Serialize};

use crate::kernels::gemv::GemvShape;
use crate::weights::WeightType;

/// How a tensor is brought into device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum PartKind {
    /// Repacked into the planes of [`crate::weights`].
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

/// The parts of a stack of matrices; `tensors` names them without `.weight` and `.bias`.
pub(super) fn stack(shape: &GemvShape, tensors: &[String]) -> (Vec<Part>, u64) {
    let (offsets, bytes) = shape.offsets();
    let mut parts = Vec::new();
    for ((tensor, segment), at) in tensors.iter().zip(&shape.segments).zip(&offsets) {
        parts.push(Part {
            tensor: format!("{tensor}.weight"),
            offset: at.weights,
            kind: PartKind::Matrix { ty: segment.ty, rows: segment.rows, cols: shape.cols },
        });
        if let Some(bias) = at.bias {
            parts.push(Part {
                tensor: format!("{tensor}.bias"),
                offset: bias,
                kind: PartKind::Vector { elements: segment.rows },
            });
        }
    }
    (parts, bytes)
}
