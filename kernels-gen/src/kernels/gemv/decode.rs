//! Decoding of a block of 16 rows of weights in registers: operands A of `mma.m16n8k32`, scales and offsets.
//!
//! Lane 4g + t has words of rows g and g + 8 of A; [`crate::weights`] describes the layout of a block.

use bespoke_codegen::prelude::*;

use crate::weights::{BlockPart, Codes, Scales, WeightType};

/// Bytes of a fragment array: 16 rows × 32 columns of one byte each.
pub(super) const FRAGMENTS: u32 = 512;

/// Position of lane 4g + t in the fragments of `mma.m16n8k32`.
pub(crate) struct LaneMap {
    /// Lane whose words of scales this lane uses; `None` for its own.
    scales: Option<Val<u32>>,
    /// t = lane mod 4: the chunk whose sums the lane holds, and the lane's quarter of the words.
    pub(super) quarter: Val<u32>,
    /// g = lane / 4: the lane holds rows g and g + 8 of A, and column g of B.
    pub(super) group: Val<u32>,
    /// For chunks 0 to 3 of a group, whether the lane's column of B belongs to the chunk.
    pub(super) in_chunk: [Val<bool>; 4],
    /// Correction of 4-bit sums: 1/16 for odd chunks, whose nibbles stay in the upper half of the byte.
    nibble_scale: Val<f32>,
    /// The same as a number of bits: 4 for odd chunks.
    pub(super) nibble_shift: Val<u32>,
    /// Byte offset of the lane's input word in a group of four half chunks.
    pub(super) half_chunk: Val<u32>,
}

impl LaneMap {
    #[device]
    pub fn new() -> LaneMap {
        let column = lane() >> 3;
        let quarter = lane() & 3;
        let part = (lane() >> 2) & 1;
        LaneMap {
            scales: None,
            quarter,
            group: lane() >> 2,
            in_chunk: std::array::from_fn(|chunk| column == chunk as u32),
            nibble_scale: select((quarter & 1) == 0, 1.0f32, 1.0f32 / 16.0),
            nibble_shift: (quarter & 1) * 4,
            half_chunk: (column >> 1) * 64 + part * 32 + quarter * 8 + (column & 1) * 4,
        }
    }

    /// Lane whose words of scales this lane uses.
    pub(super) fn scales_lane(&self) -> Val<u32> {
        self.scales.unwrap_or_else(|| lane())
    }

    /// The map of this lane, but with the scales of chunk `chunk` of a group.
    #[device]
    pub fn with_scales_of(&self, chunk: Val<u32>) -> LaneMap {
        LaneMap {
            scales: Some((lane() & 28) + chunk),
            quarter: chunk,
            nibble_scale: select((chunk & 1) == 0, 1.0f32, 1.0f32 / 16.0),
            nibble_shift: (chunk & 1) * 4,
            ..*self
        }
    }
}

/// Whether the bytes of a quantised type's A fragments are signed.
pub(crate) fn weights_are_signed(ty: WeightType) -> bool {
    match ty.format().codes {
        Codes::Signed | Codes::Table(_) => true,
        Codes::Centred(_) => ty.has_half_chunks(),
        Codes::Unsigned | Codes::Float => false,
    }
}

/// Loads the lane's words of the fragment array at `offset`.
#[device]
pub(super) fn fragment(block: Ptr<Shared, u8>, offset: u32) -> [Val<u32>; 4] {
    block.byte_add(lane() * 16).byte_add(offset).cast::<u32>().load_vector::<4>()
}

/// Whether a type's nibbles stay where they are in a byte: the bytes of odd chunks are then 16 times too large.
pub(super) fn nibbles_in_place(ty: WeightType) -> bool {
    ty.has_part(BlockPart::Low) && !ty.has_part(BlockPart::High1)
}

/// A fragments (the weights) of four chunks, as bytes. If [`nibbles_in_place`], [`LaneMap::nibble_scale`] corrects the sums.
pub(crate) fn weight_fragments(block: Ptr<Shared, u8>, ty: WeightType, group: u32) -> Vec<[Val<u32>; 4]> {
    let mut out = Vec::new();
    if ty.has_part(BlockPart::Bytes) {
        for chunk in 0..4u32 {
            out.push(fragment(block, (4 * group + chunk) * FRAGMENTS));
        }
        return out;
    }
    if let Codes::Table(table) = ty.format().codes {
        for pair in 0..2u32 {
            let words = fragment(block, (2 * group + pair) * FRAGMENTS);
            let pairs = words.map(|word| look_up_pair(word, table));
            out.extend([pairs.map(|[even, _]| even), pairs.map(|[_, odd]| odd)]);
        }
        return out;
    }
    let fifth_bits = ty.has_part(BlockPart::High1).then(|| {
        let words = ty.block_cols() / 64;
        let at = block.byte_add(lane() * (words * 4)).byte_add(ty.part(BlockPart::High1) + group * 8);
        at.cast::<u32>().load_vector::<2>()
    });
    for pair in 0..2u32 {
        let words = fragment(block, (2 * group + pair) * FRAGMENTS);
        match &fifth_bits {
            None => {
                out.push(words.map(|word| word & 0x0F0F_0F0F));
                out.push(words.map(|word| word & 0xF0F0_F0F0));
            }
            Some(fifth_bits) => {
                let bits = fifth_bits[pair as usize];
                let r = |i: usize| i as u32;
                out.push(std::array::from_fn(|i| {
                    (words[i] & 0x0F0F_0F0F) | ((bits << (4 - r(i))) & 0x1010_1010)
                }));
                out.push(std::array::from_fn(|i| {
                    ((words[i] >> 4) & 0x0F0F_0F0F) | ((bits >> r(i)) & 0x1010_1010)
                }));
            }
        }
    }
    out
}

/// Bytes of a table at the eight indices of a word: those of the even chunk, and those of the odd chunk. `prmt` selects
/// from eight bytes by three bits of an index, once for each half of the table, then between the halves by the fourth.
pub(crate) fn look_up_pair(indices: Val<u32>, table: &[i8; 16]) -> [Val<u32>; 2] {
    let words = table.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(four.map(|value| value as u8)));
    let words: Vec<u32> = words.collect();
    let low_bits = indices & 0x7777_7777;
    let halves = ((indices >> 1) & 0x4444_4444) | 0x3210_3210;
    [0u32, 16].map(|shift| {
        let (low_bits, halves) = (low_bits >> shift, halves >> shift);
        let first = permute_bytes(words[0], words[1], low_bits);
        let second = permute_bytes(words[2], words[3], low_bits);
        permute_bytes(first, second, halves)
    })
}

/// Scales and offsets of a block's chunks, for rows g and g + 8 in lane 4g + t.
pub(crate) enum ChunkScales {
    /// Types with one group of chunks per block: d, and the offset: m, or a constant multiple of d.
    Chunks { d: [Val<f32>; 2], offset: Option<[Val<f32>; 2]> },
    /// Superblocks: 6-bit scales and mins of two groups, and the superblock's d and -dmin.
    Super { integers: SixBitIntegers, d: [Val<f32>; 2], dmin: [Val<f32>; 2] },
    /// Superblocks without mins: per row the low four bits of the chunks' scales and the upper two bits, those of chunk t
    /// at the bottom, and d.
    SixBit { low: [Val<u32>; 2], high: [Val<u32>; 2], d: [Val<f32>; 2] },
}

impl ChunkScales {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> ChunkScales {
        let part = |part: BlockPart| block.byte_add(ty.part(part));
        let times = |d: [Val<f32>; 2], factor: f32| d.map(|d| d * factor);
        let in_place = nibbles_in_place(ty);
        let nibble_scaled = |d: [Val<f32>; 2]| if in_place { d.map(|d| d * map.nibble_scale) } else { d };
        let format = ty.format();
        match format.scales {
            Scales::F16 => match format.codes {
                Codes::Unsigned => {
                    let at = part(BlockPart::Scale).byte_add(map.scales_lane() * 8);
                    let [d, m] = at.cast::<u32>().load_vector::<2>().map(unpack);
                    ChunkScales::Chunks { d: nibble_scaled(d), offset: Some(m) }
                }
                Codes::Centred(centre) => {
                    let d = halves(part(BlockPart::Scale).byte_add(map.scales_lane() * 4));
                    ChunkScales::Chunks { d: nibble_scaled(d), offset: Some(times(d, -f32::from(centre))) }
                }
                _ => ChunkScales::Chunks {
                    d: halves(part(BlockPart::Scale).byte_add(map.scales_lane() * 4)),
                    offset: None,
                },
            },
            Scales::E8M0 => {
                let exponents =
                    part(BlockPart::Scale).byte_add(map.scales_lane() * 2).cast::<u16>().load().cast::<u32>();
                let d = [exponents & 0xFF, exponents >> 8].map(|e| e8m0_half(e));
                ChunkScales::Chunks { d, offset: None }
            }
            Scales::SixBitMin => {
                let integers = SixBitIntegers::load(block, ty, map);
                let SuperFactors { first: d, second: dmin } = SuperFactors::load(block, ty, map);
                ChunkScales::Super { integers, d: nibble_scaled(d), dmin }
            }
            Scales::SixBit => {
                // Two words a row: d and bits 4 and 5 of each scale, then bits 0 to 3 of each scale.
                let rows = part(BlockPart::Head).byte_add(map.group * 16).cast::<u32>().load_vector::<4>();
                ChunkScales::SixBit {
                    low: [rows[1], rows[3]].map(|word| word >> (map.quarter * 4)),
                    high: [rows[0], rows[2]].map(|word| word >> (map.quarter * 2 + 16)),
                    d: [rows[0], rows[2]].map(|word| unpack(word)[0]),
                }
            }
            other => panic!("{other:?}: {ty} has no scales per chunk"),
        }
    }

    /// The factor of the products of a group of chunks, and the factor of the sum of its inputs, for rows g and g + 8.
    #[device]
    pub fn of_group(&self, group: u32) -> ([Val<f32>; 2], Option<[Val<f32>; 2]>) {
        match self {
            ChunkScales::Chunks { d, offset } => (*d, *offset),
            ChunkScales::Super { integers, d, dmin } => {
                let group = group as usize;
                let times = |bytes: Val<u32>, factor: &[Val<f32>; 2]| {
                    std::array::from_fn(|half| byte_times(bytes, half as u32, factor[half]))
                };
                (times(integers.scales[group], d), Some(times(integers.mins[group], dmin)))
            }
            ChunkScales::SixBit { low, high, d } => {
                let of_row = |row: usize| {
                    let scale =
                        ((low[row] >> (16 * group)) & 15) | (((high[row] >> (8 * group)) << 4) & 0x30);
                    byte_minus(scale, 0, 32) * d[row]
                };
                ([of_row(0), of_row(1)], None)
            }
        }
    }
}

/// The 6-bit integers of a superblock with mins (Q4_K, Q5_K) for chunk t of both groups of four chunks: byte 0 of a word
/// belongs to row g, byte 1 to row g + 8.
pub(crate) struct SixBitIntegers {
    /// Scale of each group's chunk t.
    pub scales: [Val<u32>; 2],
    /// Min of each group's chunk t.
    pub mins: [Val<u32>; 2],
}

impl SixBitIntegers {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> SixBitIntegers {
        let arrays = block.byte_add(ty.part(BlockPart::Scales6)).byte_add(map.scales_lane() * 2);
        let array = |index: u32| arrays.byte_add(index * 64).cast::<u16>().load().cast::<u32>();
        let [a, b, c] = [array(0), array(1), array(2)];
        // The 6-bit packing of GGML's `get_scale_min_k4`, for two rows at a time.
        SixBitIntegers {
            scales: [a & 0x3F3F, (c & 0x0F0F) | ((a >> 2) & 0x3030)],
            mins: [b & 0x3F3F, ((c >> 4) & 0x0F0F) | ((b >> 2) & 0x3030)],
        }
    }

    /// The scales and mins of chunk t of group `group`, for rows g and g + 8.
    pub fn of_group(&self, group: u32) -> [[Val<i32>; 2]; 2] {
        [self.scales, self.mins].map(|words| low_bytes(words[group as usize]))
    }
}

/// The two low bytes of a word whose other bytes are zero.
#[device]
pub(super) fn low_bytes(word: Val<u32>) -> [Val<i32>; 2] {
    [word & 0xFF, word >> 8].map(|byte| byte.bitcast::<i32>())
}

/// The scales of all eight chunks of a superblock with mins, for rows g and g + 8: see [`scale_of_chunk`].
#[device]
pub(super) fn six_bit_words(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> [Val<u32>; 4] {
    let arrays = block.byte_add(ty.part(BlockPart::Scales6)).byte_add(map.group * 8).cast::<u32>();
    let (a, c) = (arrays.load_vector::<2>(), arrays.at(32).load_vector::<2>());
    let high = [0, 1].map(|word| (c[word] & 0x0F0F_0F0F) | ((a[word] >> 2) & 0x3030_3030));
    [a[0] & 0x3F3F_3F3F, a[1] & 0x3F3F_3F3F, high[0], high[1]]
}

/// The bytes of chunk `chunk`, of rows g and g + 8, of words with two chunks each.
#[device]
pub(super) fn scale_of_chunk(words: &[Val<u32>; 4], chunk: u32) -> [Val<u32>; 2] {
    let word = words[chunk as usize / 2];
    [0, 1].map(|row: u32| permute_bytes(word, 0u32, 0x4440 | (2 * (chunk % 2) + row)))
}

/// The factors of the two integer sums of a superblock, for rows g and g + 8.
pub(crate) struct SuperFactors {
    /// Factor of the products with the scaled codes: d.
    pub first: [Val<f32>; 2],
    /// Factor of the products with the mins: -dmin.
    pub second: [Val<f32>; 2],
}

impl SuperFactors {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> SuperFactors {
        let head = block.byte_add(ty.part(BlockPart::Head));
        let words = head.byte_add(map.group * 8).cast::<u32>().load_vector::<2>();
        let [first, second] = words.map(unpack);
        SuperFactors { first: [first[0], second[0]], second: [-first[1], -second[1]] }
    }
}

/// 2^(e − 128) for a byte e. 2^-128 and 2^-127 are subnormal.
#[device]
pub(crate) fn e8m0_half(e: Val<u32>) -> Val<f32> {
    select(e < 2, val(0x0020_0000u32) << e, (e - 1) << 23).bitcast::<f32>()
}

/// Unsigned byte `index` of a word minus `centre`, as f32: the byte becomes the mantissa of 2²³ + byte.
#[device]
fn byte_minus(word: Val<u32>, index: u32, centre: u8) -> Val<f32> {
    let magic = 8_388_608.0f32;
    permute_bytes(word, magic.to_bits(), 0x7540 | index).bitcast::<f32>() - (magic + f32::from(centre))
}

/// Unsigned byte `index` of a word times `factor`, rounded once. The byte becomes the mantissa of 2²³ + byte, and one
/// FMA subtracts 2²³·`factor` from the product, which is exact before rounding.
#[device]
fn byte_times(word: Val<u32>, index: u32, factor: Val<f32>) -> Val<f32> {
    let magic = 8_388_608.0f32;
    let number = permute_bytes(word, magic.to_bits(), 0x7540 | index).bitcast::<f32>();
    fma(number, factor, factor * -magic)
}

/// Loads two f16 as f32.
#[device]
pub(super) fn halves(at: Ptr<Shared, u8>) -> [Val<f32>; 2] {
    unpack(at.cast::<u32>().load())
}

/// Two f16 as f32.
#[device]
fn unpack(word: Val<u32>) -> [Val<f32>; 2] {
    word.bitcast::<F16x2>().unpack().map(|half| half.cast::<f32>())
}

/// Bits of the weights that several groups of a block share.
#[derive(Default)]
pub(crate) struct HalfChunkBits {
    low: Option<[Val<u32>; 4]>,
    high: Option<[Val<u32>; 4]>,
}

impl HalfChunkBits {
    /// A fragments of the even and the odd chunk of group `group`, as bytes: for centred codes, signed multiples of code
    /// − centre; else multiples of the code. [`HalfChunkScales`] has the factors.
    pub fn weights(&mut self, block: Ptr<Shared, u8>, ty: WeightType, group: u32) -> [[Val<u32>; 4]; 2] {
        let load = |part: BlockPart, index: u32| fragment(block, ty.part(part) + index * FRAGMENTS);
        if ty.has_part(BlockPart::High2) {
            // Q6_K: 4·(code − 32). The words of `High2` belong to two groups.
            if group.is_multiple_of(2) {
                self.high = Some(load(BlockPart::High2, group / 2));
            }
            let words = load(BlockPart::Low, group);
            let upper = self.high.expect("loaded with the even group");
            let pair = 2 * (group as usize % 2);
            let [even, odd] = [upper[pair], upper[pair + 1]];
            return [
                std::array::from_fn(|r| six_bits(words[r] << 2, even << (6 - 2 * r as u32))),
                std::array::from_fn(|r| six_bits(words[r] >> 2, odd << (6 - 2 * r as u32))),
            ];
        }
        // A fragment array of `Low2` belongs to four chunks, which are two groups.
        if group.is_multiple_of(2) {
            self.low = Some(load(BlockPart::Low2, group / 2));
        }
        let low = self.low.expect("loaded with the even group");
        let first_bit = 4 * (group % 2);
        if !ty.has_part(BlockPart::High1) {
            // Q2_K: the code at its place in the byte, which is 1, 4, 16 or 64 times the code.
            return [first_bit, first_bit + 2].map(|bit| low.map(|word| word & (0x0303_0303 << bit)));
        }
        // Q3_K: 32·(code − 4). The third bit, inverted, is the sign.
        let high = *self.high.get_or_insert_with(|| load(BlockPart::High1, 0));
        let high = high[group as usize];
        [0u32, 1].map(|odd| {
            let bit = first_bit + 2 * odd;
            std::array::from_fn(|r| {
                let low = if bit <= 5 { low[r] << (5 - bit) } else { low[r] >> (bit - 5) };
                let sign = high << (7 - r as u32 - 4 * odd);
                (low & 0x6060_6060) | ((sign & 0x8080_8080) ^ 0x8080_8080)
            })
        })
    }
}

/// Scales and offsets of a block's half chunks, for rows g and g + 8 in lane 4g + t.
pub(crate) enum HalfChunkScales {
    /// A signed byte of each group per row, and d / 4.
    EightBit { scales: [Val<u32>; 2], quarter_d: [Val<f32>; 2] },
    /// Per group a byte of each row, and d / 32.
    SixBit { scales: [Val<u32>; 4], d: [Val<f32>; 2] },
    /// Scales and mins: a byte of each group per row; d for the even and the odd groups, and -dmin.
    FourBitMin { scales: [Val<u32>; 2], mins: [Val<u32>; 2], d: [[Val<f32>; 2]; 2], dmin: [Val<f32>; 2] },
}

impl HalfChunkScales {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> HalfChunkScales {
        let part = |part: BlockPart| block.byte_add(ty.part(part));
        let bytes =
            || part(BlockPart::Scales8).byte_add(map.scales_lane() * 8).cast::<u32>().load_vector::<2>();
        match ty.format().scales {
            Scales::HalfEightBit => {
                let quarter_d = halves(part(BlockPart::Head).byte_add(map.group * 4)).map(|d| d * 0.25);
                HalfChunkScales::EightBit { scales: bytes(), quarter_d }
            }
            Scales::HalfSixBit => {
                let arrays = part(BlockPart::Scales6).byte_add(map.scales_lane() * 2);
                let array = |index: u32| arrays.byte_add(index * 64).cast::<u16>().load().cast::<u32>();
                let [a, b, c] = [array(0), array(1), array(2)];
                HalfChunkScales::SixBit {
                    // The 6-bit packing that `bespoke_gguf::dequant::q3_scale` describes, for two rows at a time.
                    scales: [
                        (a & 0x0F0F) | ((c << 4) & 0x3030),
                        (b & 0x0F0F) | ((c << 2) & 0x3030),
                        ((a >> 4) & 0x0F0F) | (c & 0x3030),
                        ((b >> 4) & 0x0F0F) | ((c >> 2) & 0x3030),
                    ],
                    d: halves(part(BlockPart::Head).byte_add(map.group * 4)).map(|d| d * (1.0 / 32.0)),
                }
            }
            Scales::HalfFourBitMin => {
                let bytes = bytes();
                let words = part(BlockPart::Head).byte_add(map.group * 8).cast::<u32>().load_vector::<2>();
                let [first, second] = words.map(unpack);
                // The bytes of chunk c of four are 4^c times too large.
                let of_chunk = select(map.quarter < 2, 1.0f32, 0.25f32);
                let even = [first[0] * of_chunk, second[0] * of_chunk];
                HalfChunkScales::FourBitMin {
                    scales: bytes.map(|word| word & 0x0F0F_0F0F),
                    mins: bytes.map(|word| (word >> 4) & 0x0F0F_0F0F),
                    d: [even, even.map(|d| d * (1.0 / 16.0))],
                    dmin: [-first[1], -second[1]],
                }
            }
            other => panic!("{other:?}: {ty} has no scales per half chunk"),
        }
    }

    /// The factor of a group's products, and the factor of the sum of its inputs, for row g (0) or g + 8 (1).
    #[device]
    pub fn of_row(&self, row: usize, group: u32) -> (Val<f32>, Option<Val<f32>>) {
        match self {
            HalfChunkScales::EightBit { scales, quarter_d } => {
                (signed_byte(scales[row], group) * quarter_d[row], None)
            }
            HalfChunkScales::SixBit { scales, d } => {
                (byte_minus(scales[group as usize], row as u32, 32) * d[row], None)
            }
            HalfChunkScales::FourBitMin { scales, mins, d, dmin } => {
                let scale = byte_times(scales[row], group, d[group as usize % 2][row]);
                (scale, Some(byte_times(mins[row], group, dmin[row])))
            }
        }
    }
}

/// Combines bits 2 to 5 of each byte of `low` with bits 6 and 7 of `high`.
#[device]
fn six_bits(low: Val<u32>, high: Val<u32>) -> Val<u32> {
    (low & 0x3C3C_3C3C) | (high & 0xC0C0_C0C0)
}

/// Signed byte `index` of a word as f32.
#[device]
fn signed_byte(word: Val<u32>, index: u32) -> Val<f32> {
    let up = if index == 3 { word } else { word << (24 - 8 * index) };
    (up.bitcast::<i32>() >> 24).cast::<f32>()
}

/// Weights of consecutive columns, as f32.
pub(crate) struct FloatRun {
    /// First column, within the block.
    pub column: Val<u32>,
    /// Weights of rows g and g + 8.
    pub weights: [Vec<Val<f32>>; 2],
}

/// The lane's weights of a block of a float type.
#[device]
pub(crate) fn float_runs(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> Vec<FloatRun> {
    let width = if ty == WeightType::F32 { 4 } else { 8 };
    let run = |part: u32| {
        let weights = [0, 1].map(|half| floats(fragment(block, (part * 2 + half) * FRAGMENTS), ty));
        FloatRun { column: map.quarter * width + part * (4 * width), weights }
    };
    (0..2u32).map(run).collect()
}

/// Converts 16 bytes of float weights to f32.
#[device]
pub(crate) fn floats(words: [Val<u32>; 4], ty: WeightType) -> Vec<Val<f32>> {
    let mut out = Vec::new();
    for word in words {
        match ty {
            WeightType::F32 => out.push(word.bitcast::<f32>()),
            WeightType::F16 => out.extend(unpack(word)),
            // A bfloat16 is the upper half of a binary32.
            WeightType::BF16 => {
                out.push((word << 16).bitcast::<f32>());
                out.push((word & 0xFFFF_0000).bitcast::<f32>());
            }
            quantised => panic!("{quantised} is not a float type"),
        }
    }
    out
}
