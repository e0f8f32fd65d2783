//! The weights of a step as operands A of type f16, for [`Arithmetic::F16`](super::Arithmetic::F16).
//!
//! For Q4_K, Q5_K and Q6_K, A is scale · code, an integer (in Q4_K and Q5_K times 2⁻¹⁴), so that weights are exact where the integer
//! has at most 11 bits: always in Q4_K and Q5_K, up to 2048 in Q6_K. The superblock's d is a factor of the sums. The mins of Q4_K and Q5_K are a product of
//! their own, with the sums of the inputs of each half chunk ([`half_sum`]).
//!
//! Codes of Q4_K and Q5_K: with a zero upper byte, code c is the subnormal f16 c · 2⁻²⁴. Its product with scale · 2¹⁰ is
//! scale · c · 2⁻¹⁴, exact and normal; d has the factor 2¹⁴. Beside `wgmma`, a multiplication costs less than an `fma`, which reads one
//! more register. Codes of Q6_K: a byte c becomes the f16 1024 + c below the upper byte 0x64, and one `fma` leaves scale · c. Other
//! types are decoded as for prompts ([`BlockDecoder`]).
//!
//! A pair has columns 0 and 2 of a run of four, or 1 and 3: nibbles of both are 16 bits apart in a word.

use bespoke_codegen::prelude::*;

use super::decode::{
    FRAGMENTS, HalfChunkBits, LaneMap, SixBitIntegers, SuperFactors, fragment, halves, nibbles_in_place,
    six_bit_words, weight_fragments,
};
use super::half_weights::{BlockDecoder, ChunkFragments, Pairs, down, each_twice};
use crate::weights::{BlockPart, WeightType};

/// Rows g and g + 8 of a tile.
type Pair = [Val<f32>; 2];

/// 1024 in both halves of a word: the bytes below become units.
const MAGIC: u32 = 0x6400_6400;

/// The inverse of operand A's factor 2⁻¹⁴, of Q4_K and Q5_K.
const CODE_FACTOR: f32 = 16384.0;

/// Factor of the sums of 16 inputs, so that f16 has room for them.
const SUM_FACTOR: f32 = 1.0 / 16.0;

/// The sum of the 16 inputs of a half chunk as operand B, before it is rounded to f16. Operand A has the min of the chunk for both
/// halves.
///
/// The inputs are those that are multiplied, rounded to f16. So the errors of rounding them are multiplied by whole weights, not by
/// codes and mins apart, which makes up for the error of rounding the sum.
#[device]
pub(super) fn half_sum(sum: Val<f32>) -> Val<f32> {
    sum * SUM_FACTOR
}

/// Whether operand A of a type has scale · code as integers.
fn is_scaled(ty: WeightType) -> bool {
    has_mins(ty) || ty.has_wide_integers()
}

/// Whether the mins of a type are a product of their own.
pub(super) fn has_mins(ty: WeightType) -> bool {
    ty.exact_groups() > 0
}

/// Decodes the chunks of a step, in their order.
pub(super) struct HalfStep<'a> {
    at: Ptr<Shared, u8>,
    ty: WeightType,
    /// Columns of the step.
    columns: u32,
    map: &'a LaneMap,
    decoder: Decoder<'a>,
}

enum Decoder<'a> {
    /// Q4_K and Q5_K: the words of [`six_bit_words`].
    SixBit([Val<u32>; 4]),
    /// Q6_K: see [`EightBit`].
    EightBit(EightBit),
    /// Other types: a decoder for each block.
    Blocks(Vec<BlockDecoder<'a>>),
}

/// The scales of Q6_K, plus 128 as unsigned bytes. Word `[t][i]` has those of half chunk 8i + t for rows g and g + 8, then those of
/// half chunk 8i + 4 + t.
struct EightBit {
    scales: Vec<[Val<u32>; 2]>,
    bits: HalfChunkBits,
}

/// Converts the codes of a row's chunk, or half chunk, to scale · code. Scale and offset are in both f16 of a register.
#[derive(Clone, Copy)]
struct Scaling {
    scale: Val<F16x2>,
    offset: Option<Val<F16x2>>,
}

impl Scaling {
    /// For rows g and g + 8, whose scales are bytes `first` and `first + 1` of a word: code · scale · `factor`, a power of two.
    fn unsigned(word: Val<u32>, first: u32, factor: f32) -> [Scaling; 2] {
        let scales = (two_bytes(word, [first, first + 1]) - both(1024.0)) * both(factor);
        each_twice(scales).map(|scale| Scaling { scale, offset: None })
    }

    /// For rows g and g + 8: scale · c from 1024 + 128 + 4 · c. Bytes `first` and `first + 1` of a word have the scales plus 128.
    /// The offset, −288 · scale, is exact in f16.
    fn signed(word: Val<u32>, first: u32) -> [Scaling; 2] {
        let scales = fma(two_bytes(word, [first, first + 1]), both(0.25), both(-1152.0 * 0.25));
        let [scales, offsets] = [scales, scales * both(-1152.0)].map(each_twice);
        [0, 1].map(|row| Scaling { scale: scales[row], offset: Some(offsets[row]) })
    }

    fn apply(self, numbers: Val<u32>) -> Val<u32> {
        let numbers = numbers.bitcast::<F16x2>();
        self.offset.map_or(numbers * self.scale, |offset| fma(numbers, self.scale, offset)).bitcast::<u32>()
    }
}

/// 1024 plus each of two bytes of a word.
fn two_bytes(word: Val<u32>, [low, high]: [u32; 2]) -> Val<F16x2> {
    permute_bytes(word, MAGIC, 0x5050 | low | (high << 8)).bitcast::<F16x2>()
}

fn both(value: f32) -> F16x2 {
    let half = f16::from_f32(value);
    F16x2(half, half)
}

impl<'a> HalfStep<'a> {
    /// Loads the scales of the step of `blocks` blocks at `at`.
    pub fn load(at: Ptr<Shared, u8>, ty: WeightType, blocks: u32, map: &'a LaneMap) -> HalfStep<'a> {
        let decoder = if has_mins(ty) {
            Decoder::SixBit(six_bit_words(at, ty, map))
        } else if is_scaled(ty) {
            Decoder::EightBit(EightBit::load(at, ty, map))
        } else {
            let block =
                |index| BlockDecoder::new(at.byte_add(index * ty.block_bytes()), ty, Pairs::Alternate, map);
            Decoder::Blocks((0..blocks).map(block).collect())
        };
        HalfStep { at, ty, columns: blocks * ty.block_cols(), map, decoder }
    }

    /// Number of pairs of chunks. The last one of a type with blocks of 32 columns may have one chunk.
    pub fn pairs(&self) -> u32 {
        self.columns.div_ceil(64)
    }

    /// A fragments of both halves of chunks 2 · `pair` and 2 · `pair` + 1.
    pub fn chunks(&mut self, pair: u32) -> Vec<ChunkFragments> {
        match &mut self.decoder {
            Decoder::SixBit(scales) => six_bit_chunks(self.at, self.ty, pair, scales).into(),
            Decoder::EightBit(step) => step.chunks(self.at, self.ty, pair).into(),
            Decoder::Blocks(blocks) => {
                let of_block = self.ty.block_cols() / 32;
                let chunks = 2 * pair..(2 * pair + 2).min(self.columns / 32);
                chunks.map(|chunk| blocks[(chunk / of_block) as usize].chunk(chunk % of_block)).collect()
            }
        }
    }

    /// The mins as operand A, if the type has mins. Operand B has the sums of each chunk's inputs.
    pub fn mins(&self) -> Option<[Val<u32>; 4]> {
        has_mins(self.ty).then(|| {
            let [first, second] = SixBitIntegers::load(self.at, self.ty, self.map).mins;
            let of = |word: Val<u32>, row: u32| (two_bytes(word, [row; 2]) - both(1024.0)).bitcast::<u32>();
            [of(first, 0), of(first, 1), of(second, 0), of(second, 1)]
        })
    }

    /// The factors of the sums.
    pub fn factors(&self) -> Factors {
        let (at, ty, map) = (self.at, self.ty, self.map);
        if has_mins(ty) {
            let SuperFactors { first, second } = SuperFactors::load(at, ty, map);
            let first = first.map(|d| d * CODE_FACTOR);
            Factors { of_sums: Some(first), of_mins: Some(second.map(|dmin| dmin * (1.0 / SUM_FACTOR))), ty }
        } else if is_scaled(ty) {
            let d = halves(at.byte_add(ty.part(BlockPart::Head)).byte_add(map.group * 4));
            Factors { of_sums: Some(d), of_mins: None, ty }
        } else {
            Factors { of_sums: None, of_mins: None, ty }
        }
    }
}

/// Factors of the sums of a step, for rows g and g + 8.
pub(super) struct Factors {
    of_sums: Option<Pair>,
    of_mins: Option<Pair>,
    ty: WeightType,
}

impl Factors {
    /// The result of a row and a token before the scale of the inputs: from the sum of the products and that of the mins' products.
    pub fn result(&self, row: usize, sum: Val<f32>, mins: Option<Val<f32>>) -> Val<f32> {
        let Some(d) = &self.of_sums else { return sum * down(self.ty) };
        match (mins, &self.of_mins) {
            (Some(mins), Some(factor)) => fma(sum, d[row], mins * factor[row]),
            _ => sum * d[row],
        }
    }
}

/// Fragments of the even and the odd chunk of a pair of chunks of Q4_K or Q5_K.
fn six_bit_chunks(
    at: Ptr<Shared, u8>,
    ty: WeightType,
    pair: u32,
    scales: &[Val<u32>; 4],
) -> [ChunkFragments; 2] {
    // The words of a pair have the scales of both chunks.
    let scaling = |odd: u32, factor: f32| Scaling::unsigned(scales[pair as usize], 2 * odd, factor);
    if nibbles_in_place(ty) {
        let words = fragment(at, pair * FRAGMENTS);
        return [(0u32, 0x000F_000Fu32, 1024.0), (1, 0x00F0_00F0, 64.0)].map(|(odd, mask, factor)| {
            scaled(words, scaling(odd, factor), |word| [word, word >> 8].map(|word| word & mask))
        });
    }
    let group = weight_fragments(at, ty, pair / 2);
    [0u32, 1].map(|odd| {
        let words = group[(2 * (pair % 2) + odd) as usize];
        scaled(words, scaling(odd, 1024.0), |word| alternate_bytes(word, 0))
    })
}

/// The bytes of a word below the upper bytes of the f16 in `above`, in two registers: bytes 0 and 2, then 1 and 3.
fn alternate_bytes(word: Val<u32>, above: u32) -> [Val<u32>; 2] {
    [0x5250u32, 0x5351].map(|selector| permute_bytes(word, above, selector))
}

/// The fragments of a chunk from its words, in the order of [`fragment`], whose pairs `numbers` yields.
fn scaled(
    words: [Val<u32>; 4],
    rows: [Scaling; 2],
    numbers: impl Fn(Val<u32>) -> [Val<u32>; 2],
) -> ChunkFragments {
    [0usize, 2].map(|half| {
        let [first, second] = [0, 1].map(|row| numbers(words[half + row]).map(|it| rows[row].apply(it)));
        [first[0], second[0], first[1], second[1]]
    })
}

impl EightBit {
    #[device]
    fn load(at: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> EightBit {
        let from = at.byte_add(ty.part(BlockPart::Scales8)).byte_add(map.group * 32).cast::<u32>();
        // Byte i of word 2t + r has the scale of half chunk 4i + t in row g + 8r.
        let words = [from, from.at(4)].into_iter().flat_map(|from| from.load_vector::<4>());
        let words: Vec<_> = words.map(|word| word ^ 0x8080_8080).collect();
        let rows =
            |rows: &[Val<u32>]| [0x5140u32, 0x7362].map(|order| permute_bytes(rows[0], rows[1], order));
        EightBit { scales: words.chunks_exact(2).map(rows).collect(), bits: HalfChunkBits::default() }
    }

    /// Fragments of the chunks of group `group` of four half chunks.
    fn chunks(&mut self, at: Ptr<Shared, u8>, ty: WeightType, group: u32) -> [ChunkFragments; 2] {
        let codes = self.bits.weights(at, ty, group);
        [0u32, 1].map(|odd| {
            let words = codes[odd as usize].map(|word| word ^ 0x8080_8080);
            [0u32, 1].map(|half| {
                let word = self.scales[(2 * odd + half) as usize][(group / 2) as usize];
                let scaling = Scaling::signed(word, group % 2 * 2);
                let row = |row: u32| {
                    let scaling = scaling[row as usize];
                    alternate_bytes(words[(2 * half + row) as usize], MAGIC).map(|pair| scaling.apply(pair))
                };
                let [first, second] = [row(0), row(1)];
                [first[0], second[0], first[1], second[1]]
            })
        })
    }
}
