//! ggml's tensor types: numbers in files, names and block sizes.

use std::fmt;
use std::str::FromStr;

/// Declares [`GgmlType`] from a table: name, number in files, elements and bytes of a block.
macro_rules! ggml_types {
    ($($name:ident = $number:literal, $elements:literal, $bytes:literal;)*) => {
        /// Element type of a tensor, with the number and name of ggml's `enum ggml_type` (`ggml.h`).
        ///
        /// A quantised type stores a row as consecutive blocks of [`block_elements`](Self::block_elements)
        /// elements in [`block_bytes`](Self::block_bytes) bytes (`ggml-common.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types, missing_docs)] // ggml's own names
        pub enum GgmlType { $($name = $number,)* }

        impl GgmlType {
            /// Every type, in the order of numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The type with this number in a file; `None` for numbers that ggml retired or has not assigned.
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// ggml's name, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Elements and bytes of a block.
            const fn block(self) -> (usize, usize) {
                match self { $(Self::$name => ($elements, $bytes),)* }
            }
        }
    };
}

ggml_types! {
    F32     =  0,   1,   4;
    F16     =  1,   1,   2;
    Q4_0    =  2,  32,  18;
    Q4_1    =  3,  32,  20;
    Q5_0    =  6,  32,  22;
    Q5_1    =  7,  32,  24;
    Q8_0    =  8,  32,  34;
    Q8_1    =  9,  32,  36;
    Q2_K    = 10, 256,  84;
    Q3_K    = 11, 256, 110;
    Q4_K    = 12, 256, 144;
    Q5_K    = 13, 256, 176;
    Q6_K    = 14, 256, 210;
    Q8_K    = 15, 256, 292;
    IQ2_XXS = 16, 256,  66;
    IQ2_XS  = 17, 256,  74;
    IQ3_XXS = 18, 256,  98;
    IQ1_S   = 19, 256,  50;
    IQ4_NL  = 20,  32,  18;
    IQ3_S   = 21, 256, 110;
    IQ2_S   = 22, 256,  82;
    IQ4_XS  = 23, 256, 136;
    I8      = 24,   1,   1;
    I16     = 25,   1,   2;
    I32     = 26,   1,   4;
    I64     = 27,   1,   8;
    F64     = 28,   1,   8;
    IQ1_M   = 29, 256,  56;
    BF16    = 30,   1,   2;
    TQ1_0   = 34, 256,  54;
    TQ2_0   = 35, 256,  66;
    MXFP4   = 39,  32,  17;
    NVFP4   = 40,  64,  36;
    Q1_0    = 41, 128,  18;
}

impl GgmlType {
    /// Number of the type in a file.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Number of elements per block; 1 for types without blocks.
    pub const fn block_elements(self) -> usize {
        self.block().0
    }

    /// Number of bytes per block.
    pub const fn block_bytes(self) -> usize {
        self.block().1
    }

    /// Bytes of a row of `cols` elements; `None` if `cols` is not a whole number of blocks, or on overflow.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        let (elements, bytes) = self.block();
        if cols.is_multiple_of(elements) { (cols / elements).checked_mul(bytes) } else { None }
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error of parsing a [`GgmlType`]: ggml has no type of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a ggml type (such as Q4_K, Q8_0 or F16)")]
pub struct UnknownType(pub String);

impl FromStr for GgmlType {
    type Err = UnknownType;

    /// Parses ggml's name in any case: `q4_k`, `Q4_K`.
    fn from_str(name: &str) -> Result<Self, UnknownType> {
        Self::ALL
            .iter()
            .copied()
            .find(|ty| ty.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownType(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_u32(ty.number()), Some(ty));
            assert_eq!(ty.name().to_lowercase().parse(), Ok(ty));
        }
        for retired in [4, 5, 31, 33, 36, 38, 42, u32::MAX] {
            assert_eq!(GgmlType::from_u32(retired), None, "{retired}");
        }
        assert_eq!("Q4_K_M".parse::<GgmlType>(), Err(UnknownType("Q4_K_M".into())));
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(GgmlType::Q4_K.row_bytes(4096), Some(16 * 144));
        assert_eq!(GgmlType::Q4_K.row_bytes(896), None);
        assert_eq!(GgmlType::Q8_0.row_bytes(896), Some(28 * 34));
        assert_eq!(GgmlType::F16.row_bytes(3), Some(6));
        assert_eq!(GgmlType::F64.row_bytes(usize::MAX), None);
    }
}
