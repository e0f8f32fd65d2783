//! Tensors of a weight buffer.

use serde::{Deserialize, Serialize};

use crate::kernels::gemv::{GemvShape, Segment};
use crate::shape::tensors::TensorName;
use crate::shape::{Matrix, TensorSlice};
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

/// A tensor, or some rows of it, in a weight buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The tensor's name in the GGUF.
    pub tensor: String,
    /// Index in the tensor of the first row, or of a vector's first element.
    pub first_row: u32,
    /// Start in the buffer, in bytes.
    pub offset: u64,
    /// Form in the buffer.
    #[serde(flatten)]
    pub form: PartForm,
}

/// The segments of a stack. Adjacent matrices of one type share a segment if the first fills whole tiles, unless
/// `separate` is set.
pub(super) fn segments(members: &[Matrix], separate: bool) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for member in members {
        let rows = member.slice.rows;
        match segments.last_mut() {
            Some(last) if last.ty == member.ty && last.rows.is_multiple_of(TILE_ROWS) && !separate => {
                last.rows += rows;
            }
            _ => segments.push(Segment { ty: member.ty, rows }),
        }
    }
    segments
}

/// The parts of a stack of matrices (matrices, biases, the norm's weights), and the size of the stack in bytes. Parts may
/// leave gaps, which are zero.
pub(super) fn stack(shape: &GemvShape, members: &[Matrix], norm: Option<TensorName>) -> (Vec<Part>, u64) {
    let offsets = shape.offsets();
    let mut parts = Vec::new();
    let (mut segment, mut row, mut bias) = (0, 0, offsets.bias);
    for member in members {
        if row == shape.segments[segment].rows {
            (segment, row) = (segment + 1, 0);
        }
        let layout = &shape.layouts()[segment];
        let TensorSlice { tensor, first_row, rows } = member.slice;
        parts.push(Part {
            tensor: tensor.to_string(),
            first_row,
            offset: offsets.segments[segment] + u64::from(row / TILE_ROWS) * u64::from(layout.tile_bytes()),
            form: PartForm::Matrix { ty: member.ty, rows, cols: shape.cols },
        });
        // Rows without a bias keep the zeros of a new buffer.
        if let Some(tensor) = member.bias {
            let form = PartForm::Vector { elements: rows };
            parts.push(Part { tensor: tensor.to_string(), first_row, offset: bias, form });
        }
        bias += u64::from(rows) * 4;
        row += rows;
    }
    if let Some(tensor) = norm {
        parts.push(Part {
            tensor: tensor.to_string(),
            first_row: 0,
            offset: offsets.norm,
            form: PartForm::Vector { elements: shape.cols },
        });
    }
    (parts, offsets.bytes)
}
