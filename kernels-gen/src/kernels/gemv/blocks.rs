//! The product of a block of 16 rows with the input, by a warp.
//!
//! Lane 4g + t holds what `mma.m16n8k32` wants: words of rows g and g + 8 of the weights, and of column g of the
//! right operand. Columns 2j and 2j + 1 are the high and low bytes of input chunk j of a group of four; when chunk i
//! is multiplied all columns but its own are zero, so that four products with one accumulator leave in lane 4g + t
//! the sums of chunk t, high and low, of rows g and g + 8: exactly one scale for each sum. Q6_K, which has a scale
//! every 16 columns, does the same with half chunks.

use bespoke_codegen::prelude::*;

use super::inputs::Inputs;
use crate::weights::{PartKind, WeightType};

/// The partial sums of rows g and g + 8.
pub(super) type Sums = [Val<f32>; 2];

/// Bytes of a fragment array.
const FRAGMENTS: u32 = 512;

/// The lane's place in the fragments; see the module.
pub(super) struct Place {
    /// t: which chunk's sums this lane has, and which quarter of the words.
    quarter: Val<u32>,
    /// g.
    group: Val<u32>,
    /// Whether the lane's column of the right operand is of chunk 0, 1, 2, 3.
    mine: [Val<bool>; 4],
    /// What odd chunks' sums are scaled with where their nibbles stay in the upper half of the byte.
    nibble: Val<f32>,
    /// Where the lane finds its word of a group of four half chunks.
    half_chunk: Val<u32>,
}

impl Place {
    #[device]
    pub fn new() -> Place {
        let column = lane() >> 3;
        let quarter = lane() & 3;
        let part = (lane() >> 2) & 1;
        Place {
            quarter,
            group: lane() >> 2,
            mine: std::array::from_fn(|chunk| column == chunk as u32),
            nibble: select((quarter & 1) == 0, 1.0f32, 1.0f32 / 16.0),
            half_chunk: (column >> 1) * 64 + part * 32 + quarter * 8 + (column & 1) * 4,
        }
    }
}

/// The inputs of four chunks.
pub(super) struct Group {
    /// The right operand of each chunk.
    columns: [[Val<u32>; 2]; 4],
    /// The scale of the lane's own chunk.
    scale: Val<f32>,
    /// The chunk's scaled sum, if the weights have an offset.
    sum: Option<Val<f32>>,
}

/// The inputs that a block of weights is multiplied with, as the lane holds them.
pub(super) enum Right {
    /// The groups of four chunks.
    Chunks(Vec<Group>),
    /// For each group of four half chunks the words of each half, and the scale of the lane's own.
    HalfChunks(Vec<([Val<u32>; 4], Val<f32>)>),
    /// The first input.
    Floats(Ptr<Shared, f32>),
}

impl Right {
    /// What block `index` of a tile is multiplied with.
    pub fn load(ty: WeightType, index: Val<u32>, inputs: &Inputs, place: &Place) -> Right {
        let first = index * (ty.block_cols() / 32);
        match ty {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => {
                Right::Floats(inputs.floats.at(index * ty.block_cols()))
            }
            WeightType::Q6_K => {
                let group = |group: u32| {
                    let chunk = first + 2 * group;
                    let at = inputs.fragments.bytes(chunk * 64).bytes(place.half_chunk);
                    let word = at.cast::<u32>().load();
                    let scale = inputs.scales.bytes((chunk + (place.quarter >> 1)) * 8);
                    (place.mine.map(|mine| select(mine, word, 0u32)), scale.cast::<f32>().load())
                };
                Right::HalfChunks((0..4).map(group).collect())
            }
            _ => {
                let group = |group: u32| {
                    let chunk = first + 4 * group;
                    let at = inputs.fragments.bytes(chunk * 64).bytes(lane() * 8);
                    let words = at.cast::<u32>().load_vector::<2>();
                    let scale = inputs.scales.bytes((chunk + place.quarter) * 8);
                    let columns = place.mine.map(|mine| words.map(|word| select(mine, word, 0u32)));
                    let scale = scale.cast::<f32>();
                    if ty.has_offset() {
                        let [scale, sum] = scale.load_vector::<2>();
                        Group { columns, scale, sum: Some(sum) }
                    } else {
                        Group { columns, scale: scale.load(), sum: None }
                    }
                };
                Right::Chunks((0..ty.block_cols() / 128).map(group).collect())
            }
        }
    }
}

/// Adds to `sums` the products of the block at `block` with its inputs.
pub(super) fn dot_block(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    right: &Right,
    place: &Place,
    sums: &mut Sums,
) {
    match right {
        Right::Floats(inputs) => dot_floats(block, ty, *inputs, place, sums),
        Right::HalfChunks(groups) => dot_half_chunks(block, groups, place, sums),
        Right::Chunks(groups) => {
            let scales = Scales::load(block, ty, place);
            for (group, input) in (0u32..).zip(groups) {
                let products = multiply(block, ty, group, &input.columns);
                let (scale, offset) = scales.of_group(group);
                for (half, sum) in sums.iter_mut().enumerate() {
                    *sum = fma(products[half], input.scale * scale[half], *sum);
                    if let (Some(inputs), Some(offset)) = (input.sum, &offset) {
                        *sum = fma(inputs, offset[half], *sum);
                    }
                }
            }
        }
    }
}

/// The sums of four chunks' integer products, each lane's own; high and low parts joined.
fn multiply(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    group: u32,
    columns: &[[Val<u32>; 2]; 4],
) -> [Val<f32>; 2] {
    let mut sums = [val(0i32); 4];
    for (left, column) in fragments_of(block, ty, group).into_iter().zip(columns) {
        sums = mma_m16n8k32_i8(left, ty == WeightType::Q8_0, *column, true, sums);
    }
    join(sums)
}

/// 256·high + low of rows g and g + 8.
#[device]
fn join(sums: [Val<i32>; 4]) -> [Val<f32>; 2] {
    [(sums[0] * 256 + sums[1]).cast::<f32>(), (sums[2] * 256 + sums[3]).cast::<f32>()]
}

/// Loads the lane's words of a fragment array.
#[device]
fn fragment(block: Ptr<Shared, u8>, offset: u32) -> [Val<u32>; 4] {
    block.bytes(lane() * 16).bytes(offset).cast::<u32>().load_vector::<4>()
}

/// The left operands of four chunks, as bytes. Of 4-bit types odd chunks are 16 times too large.
fn fragments_of(block: Ptr<Shared, u8>, ty: WeightType, group: u32) -> Vec<[Val<u32>; 4]> {
    let mut out = Vec::new();
    if ty == WeightType::Q8_0 {
        for chunk in 0..4u32 {
            out.push(fragment(block, (4 * group + chunk) * FRAGMENTS));
        }
        return out;
    }
    let fifth = has_fifth(ty).then(|| {
        let words = ty.block_cols() / 64;
        let at = block.bytes(lane() * (words * 4)).bytes(ty.part(PartKind::High1) + group * 8);
        at.cast::<u32>().load_vector::<2>()
    });
    for pair in 0..2u32 {
        let words = fragment(block, (2 * group + pair) * FRAGMENTS);
        match &fifth {
            None => {
                out.push(words.map(|word| word & 0x0F0F_0F0F));
                out.push(words.map(|word| word & 0xF0F0_F0F0));
            }
            Some(fifth) => {
                let bits = fifth[pair as usize];
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

fn has_fifth(ty: WeightType) -> bool {
    matches!(ty, WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K)
}

/// What makes values of a block's integers.
enum Scales {
    /// f16 d, and m or a constant multiple of d, of one group.
    Chunks { d: [Val<f32>; 2], offset: Option<[Val<f32>; 2]> },
    /// 6-bit scales and mins as the lane's bytes of rows g and g + 8, for two groups.
    Super { scales: [Val<u32>; 2], mins: [Val<u32>; 2], d: [Val<f32>; 2], dmin: [Val<f32>; 2] },
}

impl Scales {
    #[device]
    fn load(block: Ptr<Shared, u8>, ty: WeightType, place: &Place) -> Scales {
        let at = block.bytes(ty.part(PartKind::Scale));
        let chunk_scales = || halves(at.bytes(lane() * 4));
        let times = |d: [Val<f32>; 2], factor: f32| d.map(|d| d * factor);
        let narrow = |d: [Val<f32>; 2]| d.map(|d| d * place.nibble);
        match ty {
            WeightType::Q8_0 => Scales::Chunks { d: chunk_scales(), offset: None },
            WeightType::Q4_0 => {
                let d = chunk_scales();
                Scales::Chunks { d: narrow(d), offset: Some(times(d, -8.0)) }
            }
            WeightType::Q5_0 => {
                let d = chunk_scales();
                Scales::Chunks { d, offset: Some(times(d, -16.0)) }
            }
            WeightType::Q4_1 | WeightType::Q5_1 => {
                let words = at.bytes(lane() * 8).cast::<u32>().load_vector::<2>();
                let [d, m] = words.map(unpack);
                let d = if ty == WeightType::Q4_1 { narrow(d) } else { d };
                Scales::Chunks { d, offset: Some(m) }
            }
            WeightType::Q4_K | WeightType::Q5_K => {
                let arrays = block.bytes(ty.part(PartKind::Scales6)).bytes(lane() * 2);
                let array = |index: u32| arrays.bytes(index * 64).cast::<u16>().load().cast::<u32>();
                let [a, b, c] = [array(0), array(1), array(2)];
                let words = at.bytes(place.group * 8).cast::<u32>().load_vector::<2>();
                let [first, second] = words.map(unpack);
                let d = [first[0], second[0]];
                Scales::Super {
                    // get_scale_min_k4 of GGML, for two rows at a time.
                    scales: [a & 0x3F3F, (c & 0x0F0F) | ((a >> 2) & 0x3030)],
                    mins: [b & 0x3F3F, ((c >> 4) & 0x0F0F) | ((b >> 2) & 0x3030)],
                    d: if ty == WeightType::Q4_K { narrow(d) } else { d },
                    dmin: [-first[1], -second[1]],
                }
            }
            other => panic!("{other} has other scales"),
        }
    }

    /// The factor of the products and of the inputs' sum, for rows g and g + 8.
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

/// Byte `index` of a word, as a number, times `factor`: 2²³ + byte is a bit pattern away, and the product with
/// `factor`·2²³ taken off is exact before its one rounding.
#[device]
fn byte_times(word: Val<u32>, index: u32, factor: Val<f32>) -> Val<f32> {
    let magic = 8_388_608.0f32;
    let number = permute_bytes(word, magic.to_bits(), 0x7540 | index).bitcast::<f32>();
    fma(number, factor, factor * -magic)
}

#[device]
fn halves(at: Ptr<Shared, u8>) -> [Val<f32>; 2] {
    unpack(at.cast::<u32>().load())
}

/// Two f16 as f32.
#[device]
fn unpack(word: Val<u32>) -> [Val<f32>; 2] {
    word.bitcast::<F16x2>().unpack().map(|half| half.cast::<f32>())
}

/// Q6_K: four groups of 64 columns, each four half chunks with a scale of their own. The weights are taken as
/// 4·(w - 32) in a signed byte.
fn dot_half_chunks(
    block: Ptr<Shared, u8>,
    groups: &[([Val<u32>; 4], Val<f32>)],
    place: &Place,
    sums: &mut Sums,
) {
    let ty = WeightType::Q6_K;
    let quarter_d = halves(block.bytes(ty.part(PartKind::Scale)).bytes(place.group * 4)).map(|d| d * 0.25);
    let scales = block.bytes(ty.part(PartKind::Scales8)).bytes(lane() * 8).cast::<u32>().load_vector::<2>();
    for half in 0..2u32 {
        let upper = fragment(block, ty.part(PartKind::High2) + half * FRAGMENTS);
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
            let products = join(products);
            for (row, sum) in sums.iter_mut().enumerate() {
                let scale = signed_byte(scales[row], group);
                *sum = fma(products[row], input * (scale * quarter_d[row]), *sum);
            }
        }
    }
}

/// Bits 2 to 5 of each byte of `low` and bits 6 and 7 of `high`.
#[device]
fn six_bits(low: Val<u32>, high: Val<u32>) -> Val<u32> {
    (low & 0x3C3C_3C3C) | (high & 0xC0C0_C0C0)
}

/// Byte `index` of a word, signed, as a number.
#[device]
fn signed_byte(word: Val<u32>, index: u32) -> Val<f32> {
    let up = if index == 3 { word } else { word << (24 - 8 * index) };
    (up.bitcast::<i32>() >> 24).cast::<f32>()
}

/// Float types: each lane multiplies 16 bytes at a time of rows g and g + 8.
fn dot_floats(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    inputs: Ptr<Shared, f32>,
    place: &Place,
    sums: &mut Sums,
) {
    let width = if ty == WeightType::F32 { 4 } else { 8 };
    for part in 0..2u32 {
        let at = inputs.at(place.quarter * width + part * (4 * width));
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

/// 16 bytes of float weights as f32.
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
            quantised => panic!("{quantised} is no float type"),
        }
    }
    out
}
