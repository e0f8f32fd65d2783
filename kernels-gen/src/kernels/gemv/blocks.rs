//! The product of a block of 16 rows with the input, computed by one warp.
//!
//! Lane 4g + t holds the fragments of `mma.m16n8k32`: words of rows g and g + 8 of A (the weights) and of column g of B
//! (the input). Columns 2j and 2j + 1 of B are the high and low bytes of input chunk j of a group of four chunks. When
//! chunk i is multiplied, the columns of the other chunks are zero. Four products with one accumulator thus leave in
//! lane 4g + t the sums of chunk t, high and low, for rows g and g + 8: one scale per sum. Q6_K, which has a scale
//! every 16 columns, is multiplied in the same way with half chunks.

use bespoke_codegen::prelude::*;

use super::inputs::Inputs;
use crate::weights::{BlockPart, WeightType};

/// Partial sums that lane 4g + t holds, for rows g and g + 8 of a tile.
pub(super) type Sums = [Val<f32>; 2];

/// Bytes of a fragment array: 16 rows × 32 columns of one byte each.
const FRAGMENTS: u32 = 512;

/// Position of lane 4g + t in the fragments of `mma.m16n8k32`; see the module's documentation.
pub(super) struct LaneMap {
    /// t = lane mod 4: the chunk whose sums the lane holds, and the lane's quarter of the words.
    quarter: Val<u32>,
    /// g = lane / 4: the lane holds rows g and g + 8 of A, and column g of B.
    group: Val<u32>,
    /// For chunks 0 to 3 of a group, whether the lane's column of B belongs to the chunk.
    in_chunk: [Val<bool>; 4],
    /// Correction of 4-bit sums: 1/16 for odd chunks, whose nibbles stay in the upper half of the byte.
    nibble_scale: Val<f32>,
    /// Byte offset of the lane's input word in a group of four half chunks.
    half_chunk: Val<u32>,
}

impl LaneMap {
    #[device]
    pub fn new() -> LaneMap {
        let column = lane() >> 3;
        let quarter = lane() & 3;
        let part = (lane() >> 2) & 1;
        LaneMap {
            quarter,
            group: lane() >> 2,
            in_chunk: std::array::from_fn(|chunk| column == chunk as u32),
            nibble_scale: select((quarter & 1) == 0, 1.0f32, 1.0f32 / 16.0),
            half_chunk: (column >> 1) * 64 + part * 32 + quarter * 8 + (column & 1) * 4,
        }
    }
}

/// The inputs of a group of four chunks, as this lane's operands.
pub(super) struct ChunkGroup {
    /// B fragment of each chunk.
    columns: [[Val<u32>; 2]; 4],
    /// Scale of the inputs of chunk t, whose sums the lane holds.
    scale: Val<f32>,
    /// Scaled sum of the inputs of chunk t, if the weights have an offset.
    sum: Option<Val<f32>>,
}

/// This lane's operands from the inputs that a block of weights is multiplied with.
pub(super) enum BlockInputs {
    /// Quantised inputs, in groups of four chunks.
    Chunks(Vec<ChunkGroup>),
    /// Inputs of Q6_K, per group of four half chunks: the lane's word of each half chunk, and the scale of the inputs.
    HalfChunks(Vec<([Val<u32>; 4], Val<f32>)>),
    /// Float types: address of the block's first f32 input.
    Floats(Ptr<Shared, f32>),
}

impl BlockInputs {
    /// Loads the inputs of block `index` of a tile.
    pub fn load(ty: WeightType, index: Val<u32>, inputs: &Inputs, map: &LaneMap) -> BlockInputs {
        let first = index * (ty.block_cols() / 32);
        match ty {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
                BlockInputs::Floats(inputs.floats.at(index * ty.block_cols()))
            }
            WeightType::Q6_K => {
                let group = |group: u32| {
                    let chunk = first + 2 * group;
                    let at = inputs.fragments.bytes(chunk * 64).bytes(map.half_chunk);
                    let word = at.cast::<u32>().load();
                    let scale = inputs.scales.bytes((chunk + (map.quarter >> 1)) * 8);
                    (map.in_chunk.map(|own| select(own, word, 0u32)), scale.cast::<f32>().load())
                };
                BlockInputs::HalfChunks((0..4).map(group).collect())
            }
            _ => {
                let group = |group: u32| {
                    let chunk = first + 4 * group;
                    let at = inputs.fragments.bytes(chunk * 64).bytes(lane() * 8);
                    let words = at.cast::<u32>().load_vector::<2>();
                    let scale = inputs.scales.bytes((chunk + map.quarter) * 8);
                    let columns = map.in_chunk.map(|own| words.map(|word| select(own, word, 0u32)));
                    let scale = scale.cast::<f32>();
                    if ty.has_offset() {
                        let [scale, sum] = scale.load_vector::<2>();
                        ChunkGroup { columns, scale, sum: Some(sum) }
                    } else {
                        ChunkGroup { columns, scale: scale.load(), sum: None }
                    }
                };
                BlockInputs::Chunks((0..ty.block_cols() / 128).map(group).collect())
            }
        }
    }
}

/// Adds to `sums` the products of the weights at `block` with `inputs`.
pub(super) fn dot_block(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    inputs: &BlockInputs,
    map: &LaneMap,
    sums: &mut Sums,
) {
    match inputs {
        BlockInputs::Floats(inputs) => dot_floats(block, ty, *inputs, map, sums),
        BlockInputs::HalfChunks(groups) => dot_half_chunks(block, groups, map, sums),
        BlockInputs::Chunks(groups) => {
            let scales = Scales::load(block, ty, map);
            for (group, input) in (0u32..).zip(groups) {
                let products = multiply(block, ty, group, &input.columns);
                let (scale, offset) = scales.of_group(group);
                for (half, sum) in sums.iter_mut().enumerate() {
                    *sum = fma(products[half], input.scale * scale[half], *sum);
                    if let (Some(input_sum), Some(offset)) = (input.sum, &offset) {
                        *sum = fma(input_sum, offset[half], *sum);
                    }
                }
            }
        }
    }
}

/// Multiplies a group of four chunks, and returns the integer sums of chunk t in lane 4g + t, for rows g and g + 8.
fn multiply(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    group: u32,
    columns: &[[Val<u32>; 2]; 4],
) -> [Val<f32>; 2] {
    let mut sums = [val(0i32); 4];
    for (weights, column) in weight_fragments(block, ty, group).into_iter().zip(columns) {
        sums = mma_m16n8k32_i8(weights, ty == WeightType::Q8_0, *column, true, sums);
    }
    join_bytes(sums)
}

/// Combines the sums of high and low bytes as 256·high + low, for rows g and g + 8.
#[device]
fn join_bytes(sums: [Val<i32>; 4]) -> [Val<f32>; 2] {
    [(sums[0] * 256 + sums[1]).cast::<f32>(), (sums[2] * 256 + sums[3]).cast::<f32>()]
}

/// Loads the lane's words of the fragment array at `offset`.
#[device]
fn fragment(block: Ptr<Shared, u8>, offset: u32) -> [Val<u32>; 4] {
    block.bytes(lane() * 16).bytes(offset).cast::<u32>().load_vector::<4>()
}

/// A fragments (the weights) of four chunks, as bytes. Bytes of odd chunks of 4-bit types are 16 times too large;
/// [`LaneMap::nibble_scale`] corrects the sums.
fn weight_fragments(block: Ptr<Shared, u8>, ty: WeightType, group: u32) -> Vec<[Val<u32>; 4]> {
    let mut out = Vec::new();
    if ty == WeightType::Q8_0 {
        for chunk in 0..4u32 {
            out.push(fragment(block, (4 * group + chunk) * FRAGMENTS));
        }
        return out;
    }
    let fifth_bits = has_fifth_bit(ty).then(|| {
        let words = ty.block_cols() / 64;
        let at = block.bytes(lane() * (words * 4)).bytes(ty.part(BlockPart::High1) + group * 8);
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

fn has_fifth_bit(ty: WeightType) -> bool {
    matches!(ty, WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K)
}

/// Scales and offsets of a block's weights, for rows g and g + 8 in lane 4g + t.
enum Scales {
    /// Types with one group of chunks per block: d, and the offset: m, or a constant multiple of d.
    Chunks { d: [Val<f32>; 2], offset: Option<[Val<f32>; 2]> },
    /// Superblocks: 6-bit scales and mins of two groups, a byte per row, and the superblock's d and -dmin.
    Super { scales: [Val<u32>; 2], mins: [Val<u32>; 2], d: [Val<f32>; 2], dmin: [Val<f32>; 2] },
}

impl Scales {
    #[device]
    fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> Scales {
        let at = block.bytes(ty.part(BlockPart::Scale));
        let chunk_scales = || halves(at.bytes(lane() * 4));
        let times = |d: [Val<f32>; 2], factor: f32| d.map(|d| d * factor);
        let nibble_scaled = |d: [Val<f32>; 2]| d.map(|d| d * map.nibble_scale);
        match ty {
            WeightType::Q8_0 => Scales::Chunks { d: chunk_scales(), offset: None },
            WeightType::Q4_0 => {
                let d = chunk_scales();
                Scales::Chunks { d: nibble_scaled(d), offset: Some(times(d, -8.0)) }
            }
            WeightType::Q5_0 => {
                let d = chunk_scales();
                Scales::Chunks { d, offset: Some(times(d, -16.0)) }
            }
            WeightType::Q4_1 | WeightType::Q5_1 => {
                let words = at.bytes(lane() * 8).cast::<u32>().load_vector::<2>();
                let [d, m] = words.map(unpack);
                let d = if ty == WeightType::Q4_1 { nibble_scaled(d) } else { d };
                Scales::Chunks { d, offset: Some(m) }
            }
            WeightType::Q4_K | WeightType::Q5_K => {
                let arrays = block.bytes(ty.part(BlockPart::Scales6)).bytes(lane() * 2);
                let array = |index: u32| arrays.bytes(index * 64).cast::<u16>().load().cast::<u32>();
                let [a, b, c] = [array(0), array(1), array(2)];
                let words = at.bytes(map.group * 8).cast::<u32>().load_vector::<2>();
                let [first, second] = words.map(unpack);
                let d = [first[0], second[0]];
                Scales::Super {
                    // The 6-bit packing of GGML's `get_scale_min_k4`, for two rows at a time.
                    scales: [a & 0x3F3F, (c & 0x0F0F) | ((a >> 2) & 0x3030)],
                    mins: [b & 0x3F3F, ((c >> 4) & 0x0F0F) | ((b >> 2) & 0x3030)],
                    d: if ty == WeightType::Q4_K { nibble_scaled(d) } else { d },
                    dmin: [-first[1], -second[1]],
                }
            }
            other => panic!("{other} has no scales per chunk"),
        }
    }

    /// The factor of the products of a group of chunks, and the factor of the sum of its inputs, for rows g and g + 8.
    #[device]
    fn of_group(&self, group: u32) -> ([Val<f32>; 2], Option<[Val<f32>; 2]>) {
        match self {
            Scales::Chunks { d, offset } => (*d, *offset),
            Scales::Super { scales, mins, d, dmin } => {
                let group = group as usize;
                let times = |bytes: Val<u32>, factor: &[Val<f32>; 2]| {
                    std::array::from_fn(|half| byte_times(bytes, half as u32, factor[half]))
                };
                (times(scales[group], d), Some(times(mins[group], dmin)))
            }
        }
    }
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
fn halves(at: Ptr<Shared, u8>) -> [Val<f32>; 2] {
    unpack(at.cast::<u32>().load())
}

/// Two f16 as f32.
#[device]
fn unpack(word: Val<u32>) -> [Val<f32>; 2] {
    word.bitcast::<F16x2>().unpack().map(|half| half.cast::<f32>())
}

/// Q6_K: four groups of 64 columns, each of four half chunks with one scale each. A weight w is multiplied as the
/// signed byte 4·(w - 32).
fn dot_half_chunks(
    block: Ptr<Shared, u8>,
    groups: &[([Val<u32>; 4], Val<f32>)],
    map: &LaneMap,
    sums: &mut Sums,
) {
    let ty = WeightType::Q6_K;
    let quarter_d = halves(block.bytes(ty.part(BlockPart::Scale)).bytes(map.group * 4)).map(|d| d * 0.25);
    let scales = block.bytes(ty.part(BlockPart::Scales8)).bytes(lane() * 8).cast::<u32>().load_vector::<2>();
    for half in 0..2u32 {
        let upper = fragment(block, ty.part(BlockPart::High2) + half * FRAGMENTS);
        for pair in 0..2u32 {
            let group = 2 * half + pair;
            let (column, input) = groups[group as usize];
            let words = fragment(block, group * FRAGMENTS);
            let [even, odd] = [upper[2 * pair as usize], upper[2 * pair as usize + 1]];
            let even = std::array::from_fn(|r| six_bits(words[r] << 2, even << (6 - 2 * r as u32)));
            let odd = std::array::from_fn(|r| six_bits(words[r] >> 2, odd << (6 - 2 * r as u32)));
            let mut products = [val(0i32); 4];
            products = mma_m16n8k32_i8(even, true, [column[0], column[1]], true, products);
            products = mma_m16n8k32_i8(odd, true, [column[2], column[3]], true, products);
            let products = join_bytes(products);
            for (row, sum) in sums.iter_mut().enumerate() {
                let scale = signed_byte(scales[row], group);
                *sum = fma(products[row], input * (scale * quarter_d[row]), *sum);
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

/// Float types: each lane multiplies 16 bytes of weights at a time, of rows g and g + 8.
fn dot_floats(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    inputs: Ptr<Shared, f32>,
    map: &LaneMap,
    sums: &mut Sums,
) {
    let width = if ty == WeightType::F32 { 4 } else { 8 };
    for part in 0..2u32 {
        let at = inputs.at(map.quarter * width + part * (4 * width));
        let mut values = at.load_vector::<4>().to_vec();
        if width == 8 {
            values.extend(at.at(4).load_vector::<4>());
        }
        for (half, sum) in sums.iter_mut().enumerate() {
            let words = fragment(block, (part * 2 + half as u32) * FRAGMENTS);
            for (weight, &value) in floats(words, ty).into_iter().zip(&values) {
                *sum = fma(weight, value, *sum);
            }
        }
    }
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
