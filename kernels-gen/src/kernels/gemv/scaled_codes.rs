//! Scaled codes of Q6_K: scale · code as 16-bit integers, whose products are added up without rounding.
//!
//! The scaled code is 4 · s · (c − 32), with the scale s of the half chunk and the code c. An input is 256·high + low. Over a superblock
//! there are two integer sums: H = Σ scaled code · high and L = Σ scaled code · low. Both are below 2²⁹ = 128 · 4 · 32 · 128 · 256. The
//! result is H · 64·d + L · d / 4.
//!
//! Warps multiply the codes by `mma` and then the sums of a half chunk by its scale. Warpgroups multiply the scaled codes by `wgmma`, as
//! two operands A of bytes: first the signed upper bytes, whose sums are shifted by 8 bits, then the unsigned lower bytes. Both
//! ways give the same H and L.

use bespoke_codegen::prelude::*;

use super::decode::{HalfChunkBits, LaneMap, SuperFactors, halves};
use crate::weights::{BlockPart, WeightType};

/// The factors of H and L, 64·d and d / 4, for rows g and g + 8.
#[device]
pub(super) fn byte_factors(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> SuperFactors {
    let d = halves(block.byte_add(ty.part(BlockPart::Head)).byte_add(map.group * 4));
    SuperFactors { first: d.map(|d| d * 64.0), second: d.map(|d| d * 0.25) }
}

/// The scales of half chunk t of each group of four, for rows g and g + 8 in lane 4g + t.
pub(super) struct LaneScales([Val<u32>; 2]);

impl LaneScales {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> LaneScales {
        let at = block.byte_add(ty.part(BlockPart::Scales8)).byte_add(map.scales_lane() * 8);
        LaneScales(at.cast::<u32>().load_vector::<2>())
    }

    /// The scales of group `group`.
    #[device]
    pub fn of_group(&self, group: u32) -> [Val<i32>; 2] {
        self.0.map(|word| sign_extend(word, group).bitcast::<i32>())
    }
}

/// Adds the products of a half chunk to H and L of rows g and g + 8. `products` are those of the high and low bytes, of row g, then
/// of row g + 8.
pub(super) fn add_scaled(sums: &mut [[Val<i32>; 2]; 2], products: [Val<i32>; 4], scales: [Val<i32>; 2]) {
    for row in 0..2 {
        for byte in 0..2 {
            sums[byte][row] += products[2 * row + byte] * scales[row];
        }
    }
}

/// The scales of all half chunks, for rows g and g + 8: byte i of word 2t + r has that of half chunk 4i + t in row g + 8r.
pub(super) struct RowScales(Vec<Val<u32>>);

/// Operands A of a chunk: upper and lower bytes of the scaled codes.
pub(super) struct WideChunk {
    pub upper: [Val<u32>; 4],
    pub lower: [Val<u32>; 4],
}

impl RowScales {
    #[device]
    pub fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> RowScales {
        let at = block.byte_add(ty.part(BlockPart::Scales8)).byte_add(map.group * 32).cast::<u32>();
        RowScales([at, at.at(4)].into_iter().flat_map(|at| at.load_vector::<4>()).collect())
    }

    /// The scales of half chunk `half` of group `group`, for rows g and g + 8.
    pub fn of_half_chunk(&self, group: u32, half: u32) -> [Val<i32>; 2] {
        [0, 1].map(|row| sign_extend(self.0[(2 * half + row) as usize], group).bitcast::<i32>())
    }

    /// Decodes the first (0) or the last (1) four chunks of a superblock.
    pub fn chunks(&self, block: Ptr<Shared, u8>, ty: WeightType, which: u32) -> Vec<WideChunk> {
        let mut bits = HalfChunkBits::default();
        let of_group = |group: u32| {
            let chunks = (0u32..).zip(bits.weights(block, ty, group));
            chunks.map(|(chunk, words)| self.chunk(words, group, chunk)).collect::<Vec<_>>()
        };
        (2 * which..2 * which + 2).flat_map(of_group).collect()
    }

    /// The scaled codes of the even (0) or the odd (1) chunk of a group of two.
    fn chunk(&self, codes: [Val<u32>; 4], group: u32, chunk: u32) -> WideChunk {
        let words = (0u32..).zip(codes).map(|(register, codes)| {
            let (half, row) = (2 * chunk + register / 2, register % 2);
            scale_codes(codes, sign_extend(self.0[(2 * half + row) as usize], group))
        });
        let words: Vec<[Val<u32>; 2]> = words.collect();
        let bytes = |which: usize| std::array::from_fn(|register| words[register][which]);
        WideChunk { upper: bytes(0), lower: bytes(1) }
    }
}

/// Multiplies four codes, the bytes 4 · (c − 32) of a word, by a scale. Returns the upper and the lower bytes of the 16-bit products.
///
/// A 32-bit multiplication computes two products, in 16-bit fields. An offset of 2¹⁵ makes both positive, so that the lower field does
/// not borrow from the upper one; it also inverts the sign bits.
#[device]
fn scale_codes(codes: Val<u32>, scale: Val<u32>) -> [Val<u32>; 2] {
    const FIELDS: u32 = 0x0001_0001;
    // 4·c as unsigned bytes.
    let codes = codes ^ 0x8080_8080;
    let offset = scale * FIELDS.wrapping_mul(128).wrapping_neg() + (FIELDS << 15);
    let fields = [codes & 0x00FF_00FF, (codes >> 8) & 0x00FF_00FF].map(|codes| codes * scale + offset);
    let bytes = |selector: u32| permute_bytes(fields[0], fields[1], selector);
    [bytes(0x7351) ^ 0x8080_8080, bytes(0x6240)]
}

/// Byte `index` of a word, sign-extended.
#[device]
fn sign_extend(word: Val<u32>, index: u32) -> Val<u32> {
    permute_bytes(word, 0u32, 0x8880 + 0x1111 * index)
}
