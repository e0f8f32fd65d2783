//! Dequantisation of single rows of a matrix in its device layout.

use bespoke_codegen::prelude::*;

use super::gemv::floats;
use crate::weights::{BlockPart, Layout, TILE_ROWS, WeightType};

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
        self.block.bytes(self.ty.part(part))
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
    let tile = w.bytes(mul_wide(row / TILE_ROWS, layout.tile_bytes()));
    let at = Chunk {
        block: tile.bytes(chunk / chunks * ty.block_bytes()),
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
        let words = at.block.bytes((part * 2 + at.half) * 512 + at.lane(t) * 16).cast::<u32>();
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
    let mut values = Vec::new();
    for upper in 0..2u32 {
        let codes = codes(at, t, upper);
        let four = match scale(at, upper) {
            Scale::Symmetric { d, zero } => codes.map(|code| (code - zero) * d),
            Scale::Affine { d, m } => codes.map(|code| fma(code, d, m)),
        };
        values.push(four);
    }
    EightWeights { columns: [t * 4, t * 4 + 16], values: [values[0], values[1]] }
}

/// The quantised integers of four columns in the first (`upper` = 0) or second half of the chunk.
#[device]
fn codes(at: &Chunk, t: Val<u32>, upper: u32) -> [Val<f32>; 4] {
    let word = at.half + 2 * upper;
    let fragment =
        |array: Val<u32>| at.block.bytes(array * 512 + at.lane(t) * 16 + word * 4).cast::<u32>().load();
    if at.ty == WeightType::Q8_0 {
        let bytes = fragment(at.index);
        return std::array::from_fn(|i| {
            ((bytes << (24 - 8 * i as u32)).bitcast::<i32>() >> 24).cast::<f32>()
        });
    }
    let nibbles = fragment(at.index >> 1) >> ((at.index & 1) * 4);
    let high_bits = match at.ty {
        WeightType::Q5_0 | WeightType::Q5_1 | WeightType::Q5_K => {
            let stride = at.ty.block_cols() / 16;
            let words = at.part(BlockPart::High1).bytes(at.lane(t) * stride + (at.index >> 1) * 4);
            let bits = words.cast::<u32>().load() >> (word + (at.index & 1) * 4);
            Some((bits & 0x0101_0101) << 4)
        }
        WeightType::Q6_K => {
            let words = at.part(BlockPart::High2);
            let words = words.bytes((at.index >> 2) * 512 + at.lane(t) * 16 + (at.index & 3) * 4);
            let bits = words.cast::<u32>().load() >> (word * 2);
            Some(((bits & 0x0303_0303) ^ 0x0202_0202) << 4)
        }
        _ => None,
    };
    let mut bytes = nibbles & 0x0F0F_0F0F;
    if let Some(high_bits) = high_bits {
        bytes |= high_bits;
    }
    std::array::from_fn(|i| ((bytes >> (8 * i as u32)) & 0xFF).cast::<f32>())
}

/// Map from the integers q of a half chunk to weights.
enum Scale {
    /// d·(q − zero).
    Symmetric { d: Val<f32>, zero: f32 },
    /// d·q + m.
    Affine { d: Val<f32>, m: Val<f32> },
}

#[device]
fn scale(at: &Chunk, upper: u32) -> Scale {
    let scales = at.part(BlockPart::Scale);
    let chunk_scale = |size: u32| scales.bytes((at.group * 4 + at.index) * size + at.half * 2);
    match at.ty {
        WeightType::Q8_0 => Scale::Symmetric { d: at.load_f16(chunk_scale(4)), zero: 0.0 },
        WeightType::Q4_0 => Scale::Symmetric { d: at.load_f16(chunk_scale(4)), zero: 8.0 },
        WeightType::Q5_0 => Scale::Symmetric { d: at.load_f16(chunk_scale(4)), zero: 16.0 },
        WeightType::Q4_1 | WeightType::Q5_1 => {
            let at_scale = chunk_scale(8);
            Scale::Affine { d: at.load_f16(at_scale), m: at.load_f16(at_scale.bytes(4)) }
        }
        WeightType::Q4_K | WeightType::Q5_K => {
            let lane = at.lane(at.index & 3);
            let byte = |array: u32| {
                let at = at.part(BlockPart::Scales6).bytes(array * 64).bytes(lane * 2 + at.half);
                at.cast::<u8>().load().cast::<u32>()
            };
            let [a, b, c] = [byte(0), byte(1), byte(2)];
            let first = at.index < 4;
            let scale = select(first, a & 63, (c & 15) | ((a >> 6) << 4)).cast::<f32>();
            let min = select(first, b & 63, (c >> 4) | ((b >> 6) << 4)).cast::<f32>();
            let d = scales.bytes(at.group * 8 + at.half * 4);
            Scale::Affine { d: at.load_f16(d) * scale, m: -(at.load_f16(d.bytes(2)) * min) }
        }
        WeightType::Q6_K => {
            let index = at.index * 2 + upper;
            let bytes =
                at.part(BlockPart::Scales8).bytes(at.lane(index & 3) * 8 + at.half * 4 + (index >> 2));
            let scale = bytes.cast::<i8>().load().cast::<f32>();
            let d = at.load_f16(scales.bytes(at.group * 4 + at.half * 2)) * scale;
            Scale::Symmetric { d, zero: 32.0 }
        }
        other => panic!("{other} is not a quantised type"),
    }
}
