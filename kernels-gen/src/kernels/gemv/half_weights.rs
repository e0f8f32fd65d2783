//! Decoding of packed weights to f16 fragments, in registers.
//!
//! A weight is scale · code + offset. The byte c of a code becomes the f16 1024 + c by a byte permutation, from which
//! 1024 is subtracted exactly. Scale and offset are rounded to f16, and `fma` rounds the weight once. Both are multiplied by
//! [`WEIGHT_FACTOR`], so that small weights are not subnormal.

use bespoke_codegen::prelude::*;

use super::decode::{
    ChunkScales, FloatRun, HalfChunkBits, HalfChunkScales, LaneMap, float_runs, weight_fragments,
    weights_are_signed,
};
use crate::weights::WeightType;

/// Factor of quantised weights.
const WEIGHT_FACTOR: f32 = 256.0;

/// The factor that undoes that of the weights of a type.
pub(crate) fn down(ty: WeightType) -> f32 {
    if ty.is_quantised() { 1.0 / WEIGHT_FACTOR } else { 1.0 }
}

/// Whether a lane has eight consecutive columns of a row in its fragments, otherwise four.
pub(crate) fn has_long_runs(ty: WeightType) -> bool {
    matches!(ty, WeightType::F16 | WeightType::BF16)
}

/// A fragments of 16 × 16 weights for the first and the second half of a chunk.
pub(crate) type ChunkFragments = [[Val<u32>; 4]; 2];

/// Which columns of a run of four share a register of a fragment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// 0 and 1, and 2 and 3.
    Neighbours,
    /// 0 and 2, and 1 and 3.
    Alternate,
}

impl Pairs {
    /// The columns of both pairs.
    fn columns(self) -> [[u32; 2]; 2] {
        match self {
            Pairs::Neighbours => [[0, 1], [2, 3]],
            Pairs::Alternate => [[0, 2], [1, 3]],
        }
    }
}

/// Decodes the chunks of a block of a tile, in their order.
pub(crate) struct BlockDecoder<'a> {
    block: Ptr<Shared, u8>,
    ty: WeightType,
    pairs: Pairs,
    scales: Option<BlockScales>,
    /// Bits of half chunks that several groups share.
    bits: HalfChunkBits,
    /// The decoded group of chunks.
    group: Option<Group>,
    map: &'a LaneMap,
}

enum BlockScales {
    Chunks(ChunkScales),
    HalfChunks(HalfChunkScales),
}

/// A group of four chunks, or of four half chunks.
struct Group {
    index: u32,
    /// Bytes of the fragments of its chunks.
    bytes: Vec<[Val<u32>; 4]>,
    /// Scales of the four chunks or half chunks: those of rows g and g + 8.
    scales: [Val<u32>; 4],
    /// Offsets of the same chunks and rows.
    offsets: Option<[Val<u32>; 4]>,
}

impl<'a> BlockDecoder<'a> {
    pub fn new(block: Ptr<Shared, u8>, ty: WeightType, pairs: Pairs, map: &'a LaneMap) -> BlockDecoder<'a> {
        let scales = ty.is_quantised().then(|| {
            if ty.has_half_chunks() {
                BlockScales::HalfChunks(HalfChunkScales::load(block, ty, map))
            } else {
                BlockScales::Chunks(ChunkScales::load(block, ty, map))
            }
        });
        BlockDecoder { block, ty, pairs, scales, bits: HalfChunkBits::default(), group: None, map }
    }

    /// The fragments of chunk `index` of the block.
    pub fn chunk(&mut self, index: u32) -> ChunkFragments {
        let per_group = match self.scales {
            None => return floats(self.block, self.ty, index, self.pairs, self.map),
            Some(BlockScales::Chunks(_)) => 4,
            Some(BlockScales::HalfChunks(_)) => 2,
        };
        if self.group.as_ref().is_none_or(|group| group.index != index / per_group) {
            self.group = Some(self.load_group(index / per_group));
        }
        let group = self.group.as_ref().expect("loaded above");
        let within = (index % per_group) as usize;
        let words = group.bytes[within];
        let signed = weights_are_signed(self.ty);
        std::array::from_fn(|half| {
            let of = if per_group == 4 { within } else { 2 * within + half };
            let rows = [words[2 * half], words[2 * half + 1]];
            half_chunk(rows, signed, self.pairs, group.scales[of], group.offsets.map(|offsets| offsets[of]))
        })
    }

    fn load_group(&mut self, index: u32) -> Group {
        let (block, ty) = (self.block, self.ty);
        let (bytes, scale, offset) = match self.scales.as_ref().expect("a quantised type") {
            BlockScales::Chunks(scales) => {
                let (scale, offset) = scales.of_group(index);
                (weight_fragments(block, ty, index), scale, offset)
            }
            BlockScales::HalfChunks(scales) => {
                let (first, second) = (scales.of_row(0, index), scales.of_row(1, index));
                let offset = first.1.zip(second.1).map(|(first, second)| [first, second]);
                (self.bits.weights(block, ty, index).into(), [first.0, second.0], offset)
            }
        };
        Group { index, bytes, scales: gather(scale), offsets: offset.map(|offset| gather(offset)) }
    }
}

/// The pairs of the lanes of a quad times [`WEIGHT_FACTOR`] as f16, in the order of lanes.
#[device]
fn gather(pair: [Val<f32>; 2]) -> [Val<u32>; 4] {
    let own = pack_rounded::<F16x2>(pair[0] * WEIGHT_FACTOR, pair[1] * WEIGHT_FACTOR).bitcast::<u32>();
    let quad = lane() & 28;
    std::array::from_fn(|of| shuffle_lane(own, quad + of as u32))
}

/// The low half of a pair twice, and the high half twice. These moves cost nothing: `HMUL2` and `HFMA2` can read one half of a
/// register for both (`.H0_H0`, `.H1_H1`).
pub(super) fn each_twice(pair: Val<F16x2>) -> [Val<F16x2>; 2] {
    pair.unpack().map(|half| Val::<F16x2>::pack(half, half))
}

/// The A fragment of 16 columns from the bytes of rows g and g + 8.
#[device]
fn half_chunk(
    rows: [Val<u32>; 2],
    signed: bool,
    pairs: Pairs,
    scales: Val<u32>,
    offsets: Option<Val<u32>>,
) -> [Val<u32>; 4] {
    let scales = each_twice(scales.bitcast());
    let offsets = offsets.map(|offsets| each_twice(offsets.bitcast()));
    let zero = f16::from_f32(if signed { 1024.0 + 128.0 } else { 1024.0 });
    let mut out = [val(0u32); 4];
    for (row, word) in rows.into_iter().enumerate() {
        let word = if signed { word ^ 0x8080_8080 } else { word };
        for (pair, [first, second]) in pairs.columns().into_iter().enumerate() {
            // Each byte below the upper byte of 1024.
            let selector = 0x4040 | first | (second << 8);
            let code = permute_bytes(word, 0x6464_6464u32, selector).bitcast::<F16x2>() - F16x2(zero, zero);
            let weights = match offsets {
                Some(offsets) => fma(code, scales[row], offsets[row]),
                None => code * scales[row],
            };
            out[2 * pair + row] = weights.bitcast::<u32>();
        }
    }
    out
}

/// The fragments of a chunk of a block of a float type.
fn floats(block: Ptr<Shared, u8>, ty: WeightType, index: u32, pairs: Pairs, map: &LaneMap) -> ChunkFragments {
    let runs = float_runs(block, ty, map);
    // Runs of eight columns are in their order.
    let pairs = if has_long_runs(ty) { Pairs::Neighbours } else { pairs };
    let [first_pair, second_pair] = pairs.columns();
    let pair = |run: &FloatRun, row: usize, at: usize, columns: [u32; 2]| {
        let [first, second] = columns.map(|column| run.weights[row][at + column as usize]);
        pack_rounded::<F16x2>(first, second).bitcast::<u32>()
    };
    // A run has a whole chunk, or half of one.
    std::array::from_fn(|half| {
        let (run, first) = match runs[0].weights[0].len() {
            8 => (&runs[index as usize], 4 * half),
            _ => (&runs[half], 0),
        };
        let of = |row: usize, columns| pair(run, row, first, columns);
        [of(0, first_pair), of(1, first_pair), of(0, second_pair), of(1, second_pair)]
    })
}
