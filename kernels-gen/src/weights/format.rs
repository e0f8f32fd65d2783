//! Formats of the weight types: one row per type, from which everything else derives.

use std::ops::Range;

use bespoke_gguf::GgmlType;
use bespoke_gguf::dequant::{FP4_VALUES, IQ4_VALUES};
use serde::{Deserialize, Serialize};

use BlockPart::{Bytes, Floats, Head, High1, High2, Index, Low, Low2, Scale, Scales6, Scales8};
use Codes::{Centred, Signed, Table, Unsigned};
use Order::{Consecutive, Halves, Interleaved, InterleavedQ6};

/// Declares [`WeightType`] from a table of names and formats. The names are ggml's.
macro_rules! weight_types {
    ($($(#[doc = $doc:literal])* $name:ident = $format:expr;)*) => {
        /// A weight type that kernels support.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        #[allow(non_camel_case_types)]
        pub enum WeightType {
            $($(#[doc = $doc])* $name,)*
        }

        impl WeightType {
            /// Every weight type.
            pub const ALL: [WeightType; [$(stringify!($name)),*].len()] = [$(WeightType::$name),*];

            /// The GGML type of the same name.
            pub fn ggml(self) -> GgmlType {
                match self { $(WeightType::$name => GgmlType::$name,)* }
            }

            pub(crate) fn format(self) -> &'static Format {
                match self {
                    $(WeightType::$name => {
                        static FORMAT: Format = $format;
                        &FORMAT
                    })*
                }
            }
        }
    };
}

weight_types! {
    /// IEEE binary32, without scales.
    F32 = floats(32);
    /// IEEE binary16, without scales.
    F16 = floats(64);
    /// bfloat16, without scales.
    BF16 = floats(64);
    /// 4-bit weights; f16 scale d per chunk of 32.
    Q4_0 = quantised(128, Centred(8), Scales::F16, &[codes(Low, 2..18, Halves), scales(Scale, 0..2)]);
    /// 4-bit weights; f16 scale d and offset m per chunk of 32.
    Q4_1 = quantised(128, Unsigned, Scales::F16, &[codes(Low, 4..20, Halves), scales(Scale, 0..4)]);
    /// 5-bit weights; f16 scale d per chunk of 32.
    Q5_0 = quantised(128, Centred(16), Scales::F16, &[
        codes(Low, 6..22, Halves), codes(High1, 2..6, Consecutive), scales(Scale, 0..2),
    ]);
    /// 5-bit weights; f16 scale d and offset m per chunk of 32.
    Q5_1 = quantised(128, Unsigned, Scales::F16, &[
        codes(Low, 8..24, Halves), codes(High1, 4..8, Consecutive), scales(Scale, 0..4),
    ]);
    /// 8-bit weights; f16 scale d per chunk of 32.
    Q8_0 = quantised(128, Signed, Scales::F16, &[codes(Bytes, 2..34, Consecutive), scales(Scale, 0..2)]);
    /// 4-bit weights; 6-bit scale and min per chunk of 32, f16 d and dmin per superblock of 256.
    Q4_K = quantised(256, Unsigned, Scales::SixBitMin, &[
        codes(Low, 16..144, Interleaved), scales(Scales6, 4..16), scales(Head, 0..4),
    ]);
    /// 5-bit weights; 6-bit scale and min per chunk of 32, f16 d and dmin per superblock of 256.
    Q5_K = quantised(256, Unsigned, Scales::SixBitMin, &[
        codes(Low, 48..176, Interleaved), codes(High1, 16..48, Interleaved), scales(Scales6, 4..16),
        scales(Head, 0..4),
    ]);
    /// 6-bit weights; 8-bit scale per 16 weights, f16 d per superblock of 256.
    Q6_K = quantised(256, Centred(32), Scales::HalfEightBit, &[
        codes(Low, 0..128, InterleavedQ6), codes(High2, 128..192, Interleaved), scales(Scales8, 192..208),
        scales(Head, 208..210),
    ]);
    /// 2-bit weights; 4-bit scale and min per 16 weights, f16 d and dmin per superblock of 256.
    Q2_K = quantised(256, Unsigned, Scales::HalfFourBitMin, &[
        codes(Low2, 16..80, Interleaved), scales(Scales8, 0..16), scales(Head, 80..84),
    ]);
    /// 3-bit weights; 6-bit scale per 16 weights, f16 d per superblock of 256.
    Q3_K = quantised(256, Centred(4), Scales::HalfSixBit, &[
        codes(Low2, 32..96, Interleaved), codes(High1, 0..32, Interleaved), scales(Scales6, 96..108),
        scales(Head, 108..110),
    ]);
    /// 4-bit indices of a table of 16 values; f16 scale d per chunk of 32.
    IQ4_NL = quantised(128, Table(&IQ4_VALUES), Scales::F16, &[
        codes(Index, 2..18, Halves), scales(Scale, 0..2),
    ]);
    /// 4-bit indices of a table of 16 values; 6-bit scale per chunk of 32, f16 d per superblock of 256.
    IQ4_XS = quantised(256, Table(&IQ4_VALUES), Scales::SixBit, &[
        codes(Index, 8..136, Halves), scales(Head, 0..8),
    ]);
    /// 4-bit floats (E2M1); 8-bit exponent (E8M0) per chunk of 32.
    MXFP4 = quantised(128, Table(&FP4_VALUES), Scales::E8M0, &[codes(Index, 1..17, Halves), scales(Scale, 0..1)]);
}

/// Format of a weight type: its blocks on the device and in the file, and how weights follow from their bits.
pub(crate) struct Format {
    /// Columns of a block on the device: one block of the file or several.
    pub cols: u32,
    /// Values of the codes.
    pub codes: Codes,
    /// Scales of the codes.
    pub scales: Scales,
    /// Parts of a block on the device, in memory order.
    pub parts: &'static [Part],
}

/// Values of the codes, the integers that a block stores for its weights.
#[derive(Clone, Copy)]
pub(crate) enum Codes {
    /// The weights are floats.
    Float,
    /// weight = scale · code, a signed byte.
    Signed,
    /// weight = scale · (code − centre).
    Centred(u8),
    /// weight = scale · code + offset.
    Unsigned,
    /// weight = scale · table\[code\].
    Table(&'static [i8; 16]),
}

/// Scales of the codes. A chunk is 32 columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// None: the weights are floats.
    None,
    /// Per chunk: f16 d, and with [`Codes::Unsigned`] an f16 m. scale = d, offset = m.
    F16,
    /// Per chunk: exponent e, a byte. scale = 2^(e − 128).
    E8M0,
    /// Per chunk: 6-bit s and n; f16 d and dmin. scale = d·s, offset = −dmin·n.
    SixBitMin,
    /// Per chunk: 6-bit s; f16 d. scale = d·(s − 32).
    SixBit,
    /// Per half chunk: signed byte s; f16 d. scale = d·s.
    HalfEightBit,
    /// Per half chunk: 6-bit s; f16 d. scale = d·(s − 32).
    HalfSixBit,
    /// Per half chunk: 4-bit s and n; f16 d and dmin. scale = d·s, offset = −dmin·n.
    HalfFourBitMin,
}

impl Scales {
    /// Whether there is a scale per half chunk, of 16 columns.
    pub fn of_half_chunks(self) -> bool {
        matches!(self, Scales::HalfEightBit | Scales::HalfSixBit | Scales::HalfFourBitMin)
    }
}

/// A part of a block of weights; [`crate::weights`] has a table of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockPart {
    /// Weights as F32, F16 or BF16, without scales.
    Floats,
    /// Low four bits of the weights.
    Low,
    /// Low two bits of the weights.
    Low2,
    /// 4-bit indices of a table.
    Index,
    /// The next bit above `Low` or `Low2`.
    High1,
    /// The next two bits above `Low`.
    High2,
    /// Signed 8-bit weights.
    Bytes,
    /// Per chunk: f16 d and m, or one exponent.
    Scale,
    /// 12 bytes of 6-bit scales, or of scales and mins.
    Scales6,
    /// 16 bytes of scales, or of scales and mins.
    Scales8,
    /// Per superblock: f16 d, and what else the superblock has once.
    Head,
}

impl BlockPart {
    /// Bits per weight of a part with codes.
    pub fn width(self) -> usize {
        match self {
            High1 => 1,
            High2 | Low2 => 2,
            Low | Index => 4,
            _ => 8,
        }
    }
}

/// A part of a block, on the device and in the file.
pub(crate) struct Part {
    pub kind: BlockPart,
    /// Bytes of a block of the file.
    pub file: Range<usize>,
    /// Order of codes in the file; `None` for scales.
    pub order: Option<Order>,
}

impl Part {
    /// Whether 32 bytes of the file are a row of a fragment array: chunks share bytes in the same way.
    pub fn is_fragments(&self) -> bool {
        match self.order {
            Some(Order::Consecutive) => self.kind == Bytes,
            Some(Order::Interleaved) => matches!(self.kind, Low | Low2),
            Some(Order::InterleavedQ6) => true,
            _ => false,
        }
    }

    /// Whether, besides, the inner nibbles of pairs of such rows change places.
    pub fn exchanges_nibbles(&self) -> bool {
        matches!(self.order, Some(Order::InterleavedQ6))
    }
}

/// Order of the codes of `w` bits in a part of a block of the file; `k` is the column in a chunk.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Consecutive codes from the lowest bit on.
    Consecutive,
    /// Per chunk 16 bytes: columns 0 to 15 in the low nibbles, 16 to 31 in the high nibbles.
    Halves,
    /// Byte k of 32 bytes has column k of 8 / w consecutive chunks, from the lowest bits on.
    Interleaved,
    /// The nibbles of Q6_K: as `Interleaved`, but a byte is shared by chunks c and c + 2 of four.
    InterleavedQ6,
}

impl Order {
    /// The codes of chunk `chunk`: a byte each, four in a word.
    #[inline]
    pub fn read(self, bytes: &[u8], chunk: usize, width: usize) -> [u32; 8] {
        let word = |at: usize, run: usize| {
            let four = bytes[at + run * 4..].first_chunk::<4>();
            u32::from_le_bytes(*four.expect("the part has the chunk"))
        };
        match self.run(chunk, width) {
            Run::Column { at, shift } => {
                let mask = mask_of_word(width);
                std::array::from_fn(|run| word(at, run) >> shift & mask)
            }
            Run::Halves { at } => {
                std::array::from_fn(|run| word(at, run % 4) >> (run / 4 * 4) & mask_of_word(4))
            }
            Run::Bits { at } => {
                // Each bit of a nibble moves to a byte of its own.
                std::array::from_fn(|run| {
                    let nibble = u32::from(bytes[at + run / 2] >> (run % 2 * 4) & 15);
                    nibble.wrapping_mul(0x0020_4081) & 0x0101_0101
                })
            }
        }
    }

    /// Adds the codes of chunk `chunk` to `bytes`, in which they must be zero: the inverse of [`Order::read`].
    pub fn write(self, codes: [u32; 8], bytes: &mut [u8], chunk: usize, width: usize) {
        let codes = codes.into_iter().flat_map(u32::to_le_bytes).enumerate();
        match self.run(chunk, width) {
            Run::Column { at, shift } => codes.for_each(|(k, code)| bytes[at + k] |= code << shift),
            Run::Halves { at } => codes.for_each(|(k, code)| bytes[at + k % 16] |= code << (k / 16 * 4)),
            Run::Bits { at } => codes.for_each(|(k, code)| bytes[at + k / 8] |= code << (k % 8)),
        }
    }

    #[inline]
    fn run(self, chunk: usize, width: usize) -> Run {
        match self {
            Order::Consecutive if width == 1 => Run::Bits { at: chunk * 4 },
            Order::Consecutive => {
                assert_eq!(width, 8, "codes in order are bits or bytes");
                Run::Column { at: chunk * 32, shift: 0 }
            }
            Order::Halves => Run::Halves { at: chunk * 16 },
            Order::Interleaved => {
                let chunks = 8 / width;
                Run::Column { at: chunk / chunks * 32, shift: chunk % chunks * width }
            }
            Order::InterleavedQ6 => unreachable!("its rows are those of fragments"),
        }
    }
}

/// Bytes of a chunk's codes.
enum Run {
    /// Byte k from `at` on has the code of column k, at bit `shift`.
    Column { at: usize, shift: usize },
    /// Byte k from `at` on has columns k and k + 16.
    Halves { at: usize },
    /// Bit k from `at` on is column k.
    Bits { at: usize },
}

/// Mask of the low `width` bits of each byte of a word.
#[inline]
pub(super) fn mask_of_word(width: usize) -> u32 {
    0x0101_0101 * (0xFF >> (8 - width))
}

const fn floats(cols: u32) -> Format {
    const PARTS: &[Part] = &[scales(Floats, 0..0)];
    Format { cols, codes: Codes::Float, scales: Scales::None, parts: PARTS }
}

const fn quantised(cols: u32, codes: Codes, scales: Scales, parts: &'static [Part]) -> Format {
    Format { cols, codes, scales, parts }
}

const fn codes(kind: BlockPart, file: Range<usize>, order: Order) -> Part {
    Part { kind, file, order: Some(order) }
}

const fn scales(kind: BlockPart, file: Range<usize>) -> Part {
    Part { kind, file, order: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_type_cover_the_files_block() {
        for ty in WeightType::ALL.into_iter().filter(|ty| ty.is_quantised()) {
            let mut parts: Vec<_> = ty.format().parts.iter().map(|part| part.file.clone()).collect();
            parts.sort_by_key(|part| part.start);
            let end = parts.iter().fold(0, |end, part| {
                assert_eq!(part.start, end, "{ty}");
                part.end
            });
            assert_eq!(end, ty.ggml().block_bytes(), "{ty}");
        }
    }
}
