//! Tensors of a weight buffer.

use serde::{Deserialize, Serialize};

use crate::kernels::gemv::{GemvShape, Segment};
use crate::shape::tensors::TensorName;
use crate::weights::{TILE_ROWS, WeightType};

/// Form of a tensor in device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum PartForm {
    /// Repacked into the tiles of [`crate::weights`].
    Matrix {
        /// Type of the weights.
        ty: WeightType,
        /// Number of rows (outputs).
        rows: u32,
        /// Number of columns (inputs).
        cols: u32,
    },
    /// f32, as in the file.
    Vector {
        /// Number of elements.
        elements: u32,
    },
}

/// A tensor in a weight buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The tensor's name in the GGUF.
    pub tensor: String,
    /// Start in the buffer, in bytes.
    pub offset: u64,
    /// Form in the buffer.
    #[serde(flatten)]
    pub form: PartForm,
}

/// A matrix of a stack.
pub(super) struct Member {
    /// Name of the matrix, which determines the name of its bias.
    pub tensor: TensorName,
    /// Type of the weights.
    pub ty: WeightType,
    /// Number of rows.
    pub rows: u32,
}

/// The segments of a stack. Adjacent matrices of one type share a segment if the first fills whole tiles, unless
/// `separate` is set.
pub(super) fn segments(members: &[Member], separate: bool) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for member in members {
        match segments.last_mut() {
            Some(last) if last.ty == member.ty && last.rows.is_multiple_of(TILE_ROWS) && !separate => {
                last.rows += member.rows;
            }
            _ => segments.push(Segment { ty: member.ty, rows: member.rows }),
        }
    }
    segments
}

/// The parts of a stack of matrices (matrices, biases, the norm's weights), and the size of the stack in bytes.
pub(super) fn stack(shape: &GemvShape, members: &[Member], norm: Option<TensorName>) -> (Vec<Part>, u64) {
    let offsets = shape.offsets();
    let mut parts = Vec::new();
    let (mut segment, mut row, mut bias) = (0, 0, offsets.bias);
    for member in members {
        if row == shape.segments[segment].rows {
            (segment, row) = (segment + 1, 0);
        }
        let layout = &shape.layouts()[segment];
        parts.push(Part {
            tensor: member.tensor.to_string(),
            offset: offsets.segments[segment] + u64::from(row / TILE_ROWS) * u64::from(layout.tile_bytes()),
            form: PartForm::Matrix { ty: member.ty, rows: member.rows, cols: shape.cols },
        });
        if let Some(tensor) = member.tensor.tensor.bias().filter(|_| shape.bias) {
            parts.push(Part {
                tensor: TensorName { tensor, ..member.tensor }.to_string(),
                offset: bias,
                form: PartForm::Vector { elements: member.rows },
            });
            bias += u64::from(member.rows) * 4;
        }
        row += member.rows;
    }
    if let Some(tensor) = norm {
        parts.push(Part {
            tensor: tensor.to_string(),
            offset: offsets.norm,
            form: PartForm::Vector { elements: shape.cols },
        });
    }
    (parts, offsets.bytes)
}
