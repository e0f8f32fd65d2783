//! Tensor maps: what a kernel expects of the tensor map that a launch passes, and reductions by bulk tensor copies.

use super::named::named_enum;
use super::types::Type;

/// Largest number of dimensions of a tensor map.
pub const MAX_RANK: usize = 5;
/// Largest number of elements of a tile along a dimension.
const MAX_SIZE: u32 = 256;
/// Unit of the rows of a tile, in bytes.
const ROW_UNIT: u32 = 16;

named_enum! {
    /// Swizzle of a tile in shared memory: the bytes within which chunks of 16 bytes change places, so that the chunks of
    /// a column are in different banks (PTX ISA, "Swizzling Modes").
    pub enum Swizzle {
        /// The rows of the tile follow each other.
        None = "0",
        /// Within 32 bytes.
        Bytes32 = "32",
        /// Within 64 bytes.
        Bytes64 = "64",
        /// Within 128 bytes.
        Bytes128 = "128",
    }
}

impl Swizzle {
    /// Chunks of 16 bytes in a row of the pattern: 1 without swizzle.
    pub const fn chunks(self) -> u32 {
        match self {
            Swizzle::None => 1,
            Swizzle::Bytes32 => 2,
            Swizzle::Bytes64 => 4,
            Swizzle::Bytes128 => 8,
        }
    }

    /// Bytes of the swizzle: 0 without swizzle, 32, 64 or 128.
    pub fn bytes(self) -> u32 {
        if self == Swizzle::None { 0 } else { self.chunks() * ROW_UNIT }
    }

    /// Alignment of a tile in shared memory, in bytes: the size of the pattern, at least the 128 bytes that a copy requires.
    pub const fn alignment(self) -> u32 {
        self.chunks() * 128
    }
}

named_enum! {
    /// Reduction of a tile in shared memory into a tensor in global memory (`cp.reduce.async.bulk.tensor`).
    pub enum TensorReduction {
        /// Sum; wraps for integers.
        Add = "add",
        /// Minimum.
        Min = "min",
        /// Maximum.
        Max = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
    }
}

impl TensorReduction {
    /// Whether there is a reduction of elements of type `element`: sums of 32- and 64-bit integers and floats up to 32
    /// bits, minima and maxima of 32- and 64-bit integers and 16-bit floats, bitwise operations on 32- and 64-bit integers
    /// (PTX ISA, "cp.reduce.async.bulk").
    pub fn accepts(self, element: Type) -> bool {
        let half = matches!(element, Type::F16 | Type::Bf16);
        let word = element.is_int() && element.bits() >= 32;
        match self {
            TensorReduction::Add => word && element != Type::I64 || half || element == Type::F32,
            TensorReduction::Min | TensorReduction::Max => word || half,
            TensorReduction::And | TensorReduction::Or | TensorReduction::Xor => word,
        }
    }
}

/// What a kernel expects of a tensor map: element type, tile and swizzle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Element type of the tensor.
    pub element: Type,
    /// Elements of a tile along each of 1 to 5 dimensions; dimension 0 is contiguous.
    pub tile: Vec<u32>,
    /// Swizzle of a tile in shared memory.
    pub swizzle: Swizzle,
}

impl TensorLayout {
    /// Size of a tile in bytes.
    pub fn tile_bytes(&self) -> u32 {
        self.tile.iter().fold(self.element.bytes(), |bytes, &size| bytes.saturating_mul(size))
    }

    /// Size of a row of a tile in bytes.
    pub fn row_bytes(&self) -> u32 {
        self.tile.first().map_or(0, |&size| size.saturating_mul(self.element.bytes()))
    }

    /// Checks the requirements of `cuTensorMapEncodeTiled` on tile, element type and swizzle. The driver also allows rows shorter than
    /// the swizzle. A device leaves gaps between such rows, and tiles of the language have no gaps.
    pub fn check(&self) -> Result<(), String> {
        let TensorLayout { element, tile, swizzle } = self;
        if !has_tensors(*element) {
            return Err(format!("a tensor map cannot have elements of type {element}"));
        }
        if !(1..=MAX_RANK).contains(&tile.len()) {
            return Err(format!("a tensor map of {} dimensions: write 1 to {MAX_RANK}", tile.len()));
        }
        if let Some(size) = tile.iter().find(|size| !(1..=MAX_SIZE).contains(*size)) {
            return Err(format!("a tile of {size} elements along a dimension: write 1 to {MAX_SIZE}"));
        }
        let row = self.row_bytes();
        if !row.is_multiple_of(ROW_UNIT) {
            return Err(format!("rows of a tile of {row} bytes: write a multiple of {ROW_UNIT} bytes"));
        }
        let span = swizzle.chunks() * ROW_UNIT;
        if *swizzle != Swizzle::None && row != span {
            return Err(format!(
                "rows of a tile of {row} bytes with a swizzle of {span} bytes: write {} elements along dimension 0",
                span / element.bytes()
            ));
        }
        Ok(())
    }
}

/// Whether `cuTensorMapEncodeTiled` has a data type for elements of this type; signed elements of 8 and 16 bits are copied as
/// unsigned ones.
fn has_tensors(element: Type) -> bool {
    matches!(
        element,
        Type::U8
            | Type::I8
            | Type::U16
            | Type::I16
            | Type::U32
            | Type::I32
            | Type::U64
            | Type::I64
            | Type::F16
            | Type::Bf16
            | Type::F32
            | Type::F64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_that_the_driver_refuses_is_an_error() {
        let layout = |element, tile: &[u32], swizzle| TensorLayout { element, tile: tile.to_vec(), swizzle };
        assert_eq!(layout(Type::F16, &[64, 128], Swizzle::Bytes128).check(), Ok(()));
        assert_eq!(layout(Type::F16, &[64, 128], Swizzle::Bytes128).tile_bytes(), 16 << 10);
        for (wrong, message) in [
            (layout(Type::F16x2, &[64], Swizzle::None), "a tensor map cannot have elements of type f16x2"),
            (layout(Type::F16, &[], Swizzle::None), "a tensor map of 0 dimensions: write 1 to 5"),
            (
                layout(Type::F16, &[8, 300], Swizzle::None),
                "a tile of 300 elements along a dimension: write 1 to 256",
            ),
            (
                layout(Type::F16, &[12], Swizzle::None),
                "rows of a tile of 24 bytes: write a multiple of 16 bytes",
            ),
            (
                layout(Type::F16, &[64], Swizzle::Bytes64),
                "rows of a tile of 128 bytes with a swizzle of 64 bytes: write 32 elements along dimension 0",
            ),
            (
                layout(Type::F16, &[8, 4], Swizzle::Bytes32),
                "rows of a tile of 16 bytes with a swizzle of 32 bytes: write 16 elements along dimension 0",
            ),
        ] {
            assert_eq!(wrong.check(), Err(message.to_owned()));
        }
    }
}
