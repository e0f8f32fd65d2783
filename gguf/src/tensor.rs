//! Entries of the tensor directory.

use crate::cursor::Cursor;
use crate::{Error, GgmlType};

/// Maximum number of dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_RANK: u32 = 4;

/// Entry of the tensor directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the GGUF file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Elements along each dimension, innermost (contiguous) first: `[in, out]` for a weight matrix.
    pub dims: Vec<u64>,
    /// The element type.
    pub ty: GgmlType,
    /// Index of the file that has the data, among the parts of a split model; 0 for a model in one file.
    pub part: usize,
    /// Start of the tensor's data, in bytes from the start of its file.
    pub offset: u64,
    /// Length of the tensor's data, in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements per row: the innermost dimension.
    pub fn cols(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all outer dimensions; 1 for a vector.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Number of elements of the tensor.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Creates an entry with offset 0; checks dimensions and byte length.
    pub(crate) fn new(name: &str, dims: Vec<u64>, ty: GgmlType) -> Result<Self, Error> {
        if let Some(index) = dims.iter().position(|&dim| dim == 0) {
            return Err(Error::ZeroDimension { name: name.into(), index });
        }
        let cols = dims.first().copied().unwrap_or(1);
        if !cols.is_multiple_of(ty.block_elements() as u64) {
            return Err(Error::PartialBlock { name: name.into(), cols, ty });
        }
        let bytes = dims
            .iter()
            .try_fold(1u64, |product, &dim| product.checked_mul(dim))
            .and_then(|elements| (elements / ty.block_elements() as u64).checked_mul(ty.block_bytes() as u64))
            .filter(|&bytes| bytes <= isize::MAX as u64);
        match bytes {
            Some(bytes) => Ok(Self { name: name.into(), dims, ty, part: 0, offset: 0, bytes }),
            None => Err(Error::TooLarge { name: name.into(), dims, ty }),
        }
    }

    /// Reads a directory entry, whose offset is relative to the data section.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        let name = cursor.string("a tensor's name")?;
        let at = cursor.offset();
        let rank = cursor.u32("a tensor's rank")?;
        if rank > MAX_RANK {
            return Err(Error::Rank { name: name.into(), rank, at });
        }
        let dims = (0..rank).map(|_| cursor.u64("a tensor's dimensions")).collect::<Result<_, _>>()?;
        let at = cursor.offset();
        let number = cursor.u32("a tensor's type")?;
        let ty =
            GgmlType::from_u32(number).ok_or_else(|| Error::UnknownType { name: name.into(), number, at })?;
        let offset = cursor.u64("a tensor's offset")?;
        Ok(Self { offset, ..Self::new(name, dims, ty)? })
    }
}
