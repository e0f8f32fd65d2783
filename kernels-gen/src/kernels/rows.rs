//! Dequantisation of single rows of a matrix in its device layout.

use bespoke_codegen::prelude::*;

use super::gemv::{e8m0_half, floats, look_up_pair};
use crate::weights::{BlockPart, Codes, Layout, Scales, TILE_ROWS, WeightType};

/// Eight weights of a chunk, in two runs of four columns.
pub(crate) struct EightWeights {
    /// First column of each run of four, within the chunk.
    pub columns: [Val<u32>; 2],
    /// The weights: `values[run][i]` is in column `columns[run] + i` of the chunk.
    pub values: [[Val<f32>; 4]; 2],
}

/// Location of a chunk of 32 columns of a row.
struct Chunk {
    block: Ptr<Global, u8>,
    ty: WeightType,
    /// Index of the chunk in its block.
    index: Val<u32>,
    /// Row within the half of the tile, 0 to 7.
    group: Val<u32>,
    /// Half of the tile: 0 for rows 0 to 7, 1 for rows 8 to 15.
    half: Val<u32>,
}

impl Chunk {
    #[device]
    fn part(&self, part: BlockPart) -> Ptr<Global, u8> {
        self.block.byte_add(self.ty.part(part))
    }

    /// Index of the lane that has quarter `t` of the row in a fragment array.
    #[device]
    fn lane(&self, t: Val<u32>) -> Val<u32> {
        self.group * 4 + t
    }

    /// Loads an f16 as f32.
    #[device]
    fn load_f16(&self, at: Ptr<Global, u8>) -> Val<f32> {
        at.cast::<f16>().load().cast::<f32>()
    }
}

/// Loads quarter `t` (eight weights) of chunk `chunk` of row `row` of the matrix at `w`.
#[device]
pub(crate) fn quarter_of_chunk(
    w: Ptr<Global, u8>,
    layout: &Layout,
    row: Val<u32>,
    chunk: Val<u32>,
    t: Val<u32>,
) -> EightWeights {
    let ty = layout.ty;
    let chunks = ty.block_cols() / 32;
    let in_tile = row % TILE_ROWS;
    let tile = w.byte_add(mul_wide(row / TILE_ROWS, layout.tile_bytes()));
    let at = Chunk {
        block: tile.byte_add(chunk / chunks * ty.block_bytes()),
        ty,
        index: chunk % chunks,
        group: in_tile & 7,
        half: in_tile >> 3,
    };
    if ty.is_quantised() { load_quantised(&at, t) } else { load_floats(&at, t) }
}

#[device]
fn load_floats(at: &Chunk, t: Val<u32>) -> EightWeights {
    let unit = |part: Val<u32>| {
        let words = at.block.byte_add((part * 2 + at.half) * 512 + at.lane(t) * 16).cast::<u32>();
        floats(words.load_vector::<4>(), at.ty)
    };
    let four = |values: &[Val<f32>]| [values[0], values[1], values[2], values[3]];
    if at.ty == WeightType::F32 {
        let values = [four(&unit(val(0u32))), four(&unit(val(1u32)))];
        EightWeights { columns: [t * 4, t * 4 + 16], values }
    } else {
        let values = unit(at.index);
        EightWeights { columns: [t * 8, t * 8 + 4], values: [four(&values[..4]), four(&values[4..])] }
    }
}

#[device]
fn load_quantised(at: &Chunk, t: Val<u32>) -> EightWeights {
    let centre = match at.ty.format().codes {
        Codes::Centred(centre) => f32::from(centre),
        _ => 0.0,
    };
    let mut values = Vec::new();
    for upper in 0..2u32 {
        let codes = codes(at, t, upper);
        let Scale { d, offset } = scale(at, upper);
        values.push(match offset {
            None => codes.map(|code| (code - centre) * d),
            Some(m) => codes.map(|code| fma(code, d, m)),
        });
    }
    EightWeights { columns: [t * 4, t * 4 + 16], values: [values[0], values[1]] }
}

/// The codes, or for a table its values, of four columns in the first (`upper` = 0) or second half of the chunk.
fn codes(at: &Chunk, t: Val<u32>, upper: u32) -> [Val<f32>; 4] {
    let word = at.half + 2 * upper;
    let fragment = |part: BlockPart, array: Val<u32>| {
        at.part(part).byte_add(array * 512 + at.lane(t) * 16 + word * 4).cast::<u32>().load()
    };
    let signed_bytes = |bytes: Val<u32>| {
        std::array::from_fn(|i| ((bytes << (24 - 8 * i as u32)).bitcast::<i32>() >> 24).cast::<f32>())
    };
    match at.ty.format().codes {
        Codes::Signed => return signed_bytes(fragment(BlockPart::Bytes, at.index)),
        Codes::Table(table) => {
            let indices = fragment(BlockPart::Index, at.index >> 1) >> ((at.index & 1) * 16);
            return signed_bytes(look_up_pair(indices, table)[0]);
        }
        Codes::Centred(_) | Codes::Unsigned | Codes::Float => {}
    }
    // The low bits, their mask, and the number of these bits.
    let (low, mask, width) = if at.ty.has_part(BlockPart::Low) {
        (fragment(BlockPart::Low, at.index >> 1) >> ((at.index & 1) * 4), 0x0F0F_0F0Fu32, 4u32)
    } else {
        (fragment(BlockPart::Low2, at.index >> 2) >> ((at.index & 3) * 2), 0x0303_0303, 2)
    };
    let high_bits = if at.ty.has_part(BlockPart::High1) {
        let stride = at.ty.block_cols() / 16;
        let words = at.part(BlockPart::High1).byte_add(at.lane(t) * stride + (at.index >> 1) * 4);
        let bits = words.cast::<u32>().load() >> (word + (at.index & 1) * 4);
        Some((bits & 0x0101_0101) << width)
    } else if at.ty.has_part(BlockPart::High2) {
        let words = at.part(BlockPart::High2);
        let words = words.byte_add((at.index >> 2) * 512 + at.lane(t) * 16 + (at.index & 3) * 4);
        let bits = words.cast::<u32>().load() >> (word * 2);
        Some(((bits & 0x0303_0303) ^ 0x0202_0202) << width)
    } else {
        None
    };
    let mut bytes = low & mask;
    if let Some(high_bits) = high_bits {
        bytes |= high_bits;
    }
    std::array::from_fn(|i| ((bytes >> (8 * i as u32)) & 0xFF).cast::<f32>())
}

/// Scale d of a half chunk's integers, and the offset that is added to the products, if there is one.
struct Scale {
    d: Val<f32>,
    offset: Option<Val<f32>>,
}

#[device]
fn scale(at: &Chunk, upper: u32) -> Scale {
    let symmetric = |d: Val<f32>| Scale { d, offset: None };
    let format = at.ty.format();
    match format.scales {
        Scales::None => panic!("{} is not a quantised type", at.ty),
        Scales::F16 => {
            let has_offset = matches!(format.codes, Codes::Unsigned);
            let size = if has_offset { 8 } else { 4 };
            let scale = at.part(BlockPart::Scale).byte_add((at.group * 4 + at.index) * size + at.half * 2);
            Scale { d: at.load_f16(scale), offset: has_offset.then(|| at.load_f16(scale.byte_add(4))) }
        }
        Scales::E8M0 => {
            let exponent = at.part(BlockPart::Scale).byte_add((at.group * 4 + at.index) * 2 + at.half);
            symmetric(e8m0_half(exponent.cast::<u8>().load().cast::<u32>()))
        }
        Scales::SixBitMin => {
            let [a, b, c] = scale_bytes(at, at.index & 3);
            let first = at.index < 4;
            let scale = select(first, a & 63, (c & 15) | ((a >> 6) << 4)).cast::<f32>();
            let min = select(first, b & 63, (c >> 4) | ((b >> 6) << 4)).cast::<f32>();
            with_min(at, scale, min)
        }
        Scales::SixBit => {
            let head = at.part(BlockPart::Head).byte_add(at.group * 16 + at.half * 8);
            let high = head.byte_add(2).cast::<u16>().load().cast::<u32>() >> (at.index * 2);
            let low = head.byte_add(4).cast::<u32>().load() >> (at.index * 4);
            let scale = ((low & 15) | ((high & 3) << 4)).cast::<f32>() - 32.0;
            symmetric(at.load_f16(head) * scale)
        }
        Scales::HalfEightBit => {
            let bytes = half_chunk_byte(at, upper);
            let scale = bytes.cast::<i8>().load().cast::<f32>();
            symmetric(superblock_d(at) * scale)
        }
        Scales::HalfSixBit => {
            let index = at.index * 2 + upper;
            let [a, b, c] = scale_bytes(at, index & 3);
            let low = select((index & 4) == 0, a, b) >> ((index >> 3) * 4);
            let high = c >> ((index >> 2) * 2);
            let scale = ((low & 15) | ((high & 3) << 4)).cast::<f32>() - 32.0;
            symmetric(superblock_d(at) * scale)
        }
        Scales::HalfFourBitMin => {
            let byte = half_chunk_byte(at, upper).cast::<u8>().load().cast::<u32>();
            with_min(at, (byte & 15).cast::<f32>(), (byte >> 4).cast::<f32>())
        }
    }
}

/// Bytes t, 4 + t and 8 + t of the row's 12 bytes of scales.
#[device]
fn scale_bytes(at: &Chunk, t: Val<u32>) -> [Val<u32>; 3] {
    let lane = at.lane(t);
    let byte = |array: u32| {
        let at = at.part(BlockPart::Scales6).byte_add(array * 64).byte_add(lane * 2 + at.half);
        at.cast::<u8>().load().cast::<u32>()
    };
    [byte(0), byte(1), byte(2)]
}

/// Address of the scale of the first (`upper` = 0) or second half of the chunk among the row's 16 bytes of scales.
#[device]
fn half_chunk_byte(at: &Chunk, upper: u32) -> Ptr<Global, u8> {
    let index = at.index * 2 + upper;
    at.part(BlockPart::Scales8).byte_add(at.lane(index & 3) * 8 + at.half * 4 + (index >> 2))
}

/// The superblock's d, of types whose `Head` has only d.
#[device]
fn superblock_d(at: &Chunk) -> Val<f32> {
    at.load_f16(at.part(BlockPart::Head).byte_add(at.group * 4 + at.half * 2))
}

/// d·scale, and the offset -dmin·min, of the superblock's d and dmin.
#[device]
fn with_min(at: &Chunk, scale: Val<f32>, min: Val<f32>) -> Scale {
    let d = at.part(BlockPart::Head).byte_add(at.group * 8 + at.half * 4);
    Scale { d: at.load_f16(d) * scale, offset: Some(-(at.load_f16(d.byte_add(2)) * min)) }
}
