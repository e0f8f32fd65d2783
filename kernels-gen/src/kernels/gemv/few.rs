//! Products of two to four tokens in the loop of one token. The weights of a unit are loaded and decoded once.
//!
//! Each token's input is in shared memory in the layout of `inputs`. Tokens are multiplied in pairs: of T tokens, rounded up to
//! a power of two, pair p has tokens p and p + T/2, and a missing token is replaced by the other. Pair n = 2u + v of columns of
//! operand B is the high and low bytes of chunk u, or of chunk u + 2, of a group of four chunks of the pair's token v. Two
//! products with one accumulator leave in lane 4g + n the sums of chunk u of token v for rows g and g + 8; two more
//! products, with another accumulator, those of chunk u + 2. Types with a scale every 16 columns are multiplied in the same way with
//! half chunks.
//!
//! A lane thus has two of the four chains of sums of its token. The order of sums is that of one token (the parent module
//! describes it).

use bespoke_codegen::prelude::*;

use super::blocks::{
    ChunkScales, FloatRun, HalfChunkBits, HalfChunkScales, LaneMap, Sums, float_runs, join_bytes,
    weight_fragments, weights_are_signed,
};
use super::inputs::Inputs;
use super::shape::GemvShape;
use crate::weights::WeightType;

impl GemvShape {
    /// Number of pairs of tokens.
    pub(super) fn pairs(&self) -> u32 {
        self.token_slots() / 2
    }
}

/// The inputs of all tokens, and the position of lane 4g + n in the fragments; see the module's documentation.
pub(super) struct FewInputs<'a> {
    pairs: Vec<PairInputs>,
    /// Positions for the scales of chunks u and u + 2, where n = 2u + v.
    scales: [LaneMap; 2],
    /// u of the lane's sums.
    upper: Val<u32>,
    /// For u = 0 and 1, whether the lane's column of B belongs to chunk u.
    in_chunk: [Val<bool>; 2],
    /// Byte offset of the lane's two words of B in a group of chunks.
    chunk_offset: Val<u32>,
    /// Byte offset of the lane's word of B in a group of half chunks.
    half_chunk_offset: Val<u32>,
    s: &'a GemvShape,
}

/// The inputs of a pair of tokens.
struct PairInputs {
    /// The token of the lane's column of B.
    of_column: Inputs,
    /// The token of the lane's sums.
    of_sums: Inputs,
}

/// The inputs of a pair of tokens for a group of four chunks or half chunks, as this lane's operands.
pub(super) struct PairGroup {
    /// B fragments, the first half for the first accumulator.
    columns: Vec<[Val<u32>; 2]>,
    /// Scales of the inputs of the accumulators' chunks.
    scales: [Val<f32>; 2],
    /// Scaled sums of these inputs, if the weights have an offset.
    sums: Option<[Val<f32>; 2]>,
}

/// Sums of a unit in lane 4g + n, for rows g and g + 8.
pub(super) enum FewSums {
    /// Per pair of tokens the chains of chunks u and u + 2 of token v.
    Pairs(Vec<[Sums; 2]>),
    /// Float types: per token, as for one token.
    Tokens(Vec<Sums>),
}

impl<'a> FewInputs<'a> {
    pub fn new(lane_map: &LaneMap, s: &'a GemvShape) -> FewInputs<'a> {
        let pairs = (0..s.pairs()).map(|pair| pair_inputs(pair, s)).collect();
        positions(pairs, lane_map, s)
    }

    /// The inputs of unit `unit` of a tile, for each pair of tokens and each group of four chunks or half chunks.
    pub fn load_unit(&self, ty: WeightType, unit: Val<u32>) -> Vec<Vec<PairGroup>> {
        let depth = self.s.depth();
        let groups = || (0..depth).flat_map(|i| (0..groups(ty)).map(move |group| (i, group)));
        let of_pair =
            |pair| groups().map(|(i, group)| self.group(ty, unit * depth + i, group, pair)).collect();
        self.pairs.iter().map(of_pair).collect()
    }

    /// The inputs of group `group` of block `index` of a tile.
    fn group(&self, ty: WeightType, index: Val<u32>, group: u32, pair: &PairInputs) -> PairGroup {
        let (first, size) = (index * (ty.block_cols() / 32), self.s.scale_bytes());
        let own = |words: [Val<u32>; 2]| self.in_chunk.map(|own| words.map(|word| select(own, word, 0u32)));
        let scale = |at: Ptr<Shared, u8>| at.cast::<f32>().load();
        if ty.has_half_chunks() {
            let chunk = first + 2 * group;
            let at = pair.of_column.fragments.bytes(chunk * 64).bytes(self.half_chunk_offset);
            let words = [at, at.bytes(64)].map(|at| at.cast::<u32>().load());
            let scales = pair.of_sums.scales.bytes(chunk * size);
            let sums = pair.of_sums.half_sums.at(chunk * 2 + self.upper);
            return PairGroup {
                columns: words.map(|word| self.in_chunk.map(|own| select(own, word, 0u32))).to_vec(),
                scales: [scale(scales), scale(scales.bytes(size))],
                sums: ty.has_offset().then(|| [sums.load(), sums.at(2).load()]),
            };
        }
        let chunk = first + 4 * group;
        let at = pair.of_column.fragments.bytes(chunk * 64).bytes(self.chunk_offset);
        let words = [at, at.bytes(128)].map(|at| at.cast::<u32>().load_vector::<2>());
        let at = pair.of_sums.scales.bytes((chunk + self.upper) * size);
        let columns = words.into_iter().flat_map(own).collect();
        if ty.has_offset() {
            let [low, high] = [at, at.bytes(16)].map(|at| at.cast::<f32>().load_vector::<2>());
            PairGroup { columns, scales: [low[0], high[0]], sums: Some([low[1], high[1]]) }
        } else {
            PairGroup { columns, scales: [scale(at), scale(at.bytes(2 * size))], sums: None }
        }
    }

    /// The products of unit `unit` of a tile, at `block`, with all tokens. Loads the inputs unless `held` has them in
    /// registers.
    pub fn dot_unit(
        &self,
        block: Ptr<Shared, u8>,
        ty: WeightType,
        unit: Val<u32>,
        held: Option<&[Vec<PairGroup>]>,
    ) -> FewSums {
        let depth = self.s.depth();
        let blocks = (0..depth).map(|i| (i, block.bytes(i * ty.block_bytes()), unit * depth + i));
        if !ty.is_quantised() {
            let mut sums = vec![[val(0.0f32); 2]; self.s.tokens as usize];
            for (_, block, index) in blocks {
                for run in float_runs(block, ty, &LaneMap::new()) {
                    for (token, sums) in (0u32..).zip(&mut sums) {
                        let inputs = Inputs::new(token, self.s).floats.at(index * ty.block_cols());
                        add_floats(&run, inputs, sums);
                    }
                }
            }
            return FewSums::Tokens(sums);
        }
        let mut sums = vec![[[val(0.0f32); 2]; 2]; self.pairs.len()];
        for (i, block, index) in blocks {
            let mut weights = BlockWeights::load(block, ty, &self.scales);
            for group in 0..groups(ty) {
                let weights = weights.group(group);
                for (pair, sums) in sums.iter_mut().enumerate() {
                    let loaded;
                    let inputs = match held {
                        Some(held) => &held[pair][(i * groups(ty) + group) as usize],
                        None => {
                            loaded = self.group(ty, index, group, &self.pairs[pair]);
                            &loaded
                        }
                    };
                    weights.add_products(inputs, weights_are_signed(ty), sums);
                }
            }
        }
        FewSums::Pairs(sums)
    }

    /// Reduces `sums` over the lanes of a quad, and stores the sums of a unit, f32 `[row][token]`, for the epilogue.
    #[device]
    pub fn store_partials(&self, sums: &FewSums, to: Ptr<Shared, f32>) {
        let (slots, group) = (self.s.token_slots(), lane() >> 2);
        match sums {
            FewSums::Pairs(pairs) => {
                let mut totals = Vec::new();
                for chains in pairs {
                    let total = [0, 1].map(|row| {
                        let [low, high] = chains.map(|chain| chain[row] + shuffle_xor(chain[row], 2));
                        low + high
                    });
                    totals.push(select(self.upper == 0, total[0], total[1]));
                }
                let at = to.at((group + self.upper * 8) * slots + (lane() & 1) * self.s.pairs());
                match *totals {
                    [first, second] => at.store_vector([first, second]),
                    _ => at.store(totals[0]),
                }
            }
            FewSums::Tokens(tokens) => {
                let quarter = lane() & 3;
                for (token, sums) in (0u32..).zip(tokens) {
                    let total = sums.map(|sum| {
                        let pair = sum + shuffle_xor(sum, 1);
                        pair + shuffle_xor(pair, 2)
                    });
                    if quarter < 2 {
                        let at = to.at((group + quarter * 8) * slots + token);
                        at.store(select(quarter == 0, total[0], total[1]));
                    }
                }
            }
        }
    }
}

/// Number of groups of four chunks or half chunks in a block; 0 for float types.
fn groups(ty: WeightType) -> u32 {
    match (ty.is_quantised(), ty.has_half_chunks()) {
        (false, _) => 0,
        (true, true) => ty.block_cols() / 64,
        (true, false) => ty.block_cols() / 128,
    }
}

/// The inputs of the tokens of pair `pair`.
#[device]
fn pair_inputs(pair: u32, s: &GemvShape) -> PairInputs {
    let (shared, map, stride) = (dynamic_shared::<u8>(), s.shared_map(), s.input_stride());
    // A missing token is replaced by the other.
    let step = if pair + s.pairs() < s.tokens { s.pairs() * stride } else { 0 };
    let of = |place: Val<u32>| {
        let base = shared.bytes(map.inputs + pair * stride).bytes(place * step);
        Inputs::at(base, shared.bytes(map.squares).cast(), s)
    };
    PairInputs { of_column: of((lane() >> 3) & 1), of_sums: of(lane() & 1) }
}

/// The lane's positions; see [`FewInputs`].
#[device]
fn positions<'a>(pairs: Vec<PairInputs>, lane_map: &LaneMap, s: &'a GemvShape) -> FewInputs<'a> {
    let (chunk, part, quarter) = (lane() >> 4, (lane() >> 2) & 1, lane() & 3);
    let upper = quarter >> 1;
    FewInputs {
        pairs,
        scales: [lane_map.with_scales_of(upper), lane_map.with_scales_of(upper + 2)],
        upper,
        in_chunk: [chunk == 0, chunk == 1],
        chunk_offset: chunk * 64 + part * 32 + quarter * 8,
        half_chunk_offset: part * 32 + quarter * 8 + chunk * 4,
        s,
    }
}

/// The weights of a block.
enum BlockWeights {
    /// Chunks, with the scales of chunks u and u + 2 of each group.
    Chunks(Ptr<Shared, u8>, WeightType, [ChunkScales; 2]),
    /// Half chunks, with the scales of half chunks u and u + 2 of each group.
    HalfChunks(Ptr<Shared, u8>, WeightType, HalfChunkBits, [HalfChunkScales; 2]),
}

/// For rows g and g + 8, the factors of the products, and those of the sum of the inputs if the type has an offset.
type Factors = ([Val<f32>; 2], Option<[Val<f32>; 2]>);

/// Decoded weights of a group of four chunks, or of four half chunks.
struct GroupWeights {
    /// A fragments of each chunk, or of the two chunks that the half chunks belong to.
    fragments: Vec<[Val<u32>; 4]>,
    /// The factors of each accumulator.
    factors: [Factors; 2],
}

impl BlockWeights {
    fn load(block: Ptr<Shared, u8>, ty: WeightType, maps: &[LaneMap; 2]) -> BlockWeights {
        let [low, high] = maps;
        if ty.has_half_chunks() {
            let load = |map| HalfChunkScales::load(block, ty, map);
            BlockWeights::HalfChunks(block, ty, HalfChunkBits::default(), [load(low), load(high)])
        } else {
            let load = |map| ChunkScales::load(block, ty, map);
            BlockWeights::Chunks(block, ty, [load(low), load(high)])
        }
    }

    fn group(&mut self, group: u32) -> GroupWeights {
        match self {
            BlockWeights::Chunks(block, ty, scales) => GroupWeights {
                fragments: weight_fragments(*block, *ty, group),
                factors: [scales[0].of_group(group), scales[1].of_group(group)],
            },
            BlockWeights::HalfChunks(block, ty, bits, scales) => {
                let fragments = bits.weights(*block, *ty, group).into();
                let factors = |scales: &HalfChunkScales| {
                    let ((low, low_offset), (high, high_offset)) =
                        (scales.of_row(0, group), scales.of_row(1, group));
                    ([low, high], low_offset.zip(high_offset).map(|(low, high)| [low, high]))
                };
                GroupWeights { fragments, factors: [factors(&scales[0]), factors(&scales[1])] }
            }
        }
    }
}

impl GroupWeights {
    /// Adds the products with the inputs of a pair of tokens to the lane's two chains.
    #[device]
    fn add_products(&self, inputs: &PairGroup, signed: bool, chains: &mut [Sums; 2]) {
        let half = self.fragments.len() / 2;
        let fragments = self.fragments.chunks(half).zip(inputs.columns.chunks(half));
        for (which, (fragments, columns)) in fragments.enumerate() {
            let mut sums = [val(0i32); 4];
            for (weights, column) in fragments.iter().zip(columns) {
                sums = mma_m16n8k32_i8(*weights, signed, *column, true, sums);
            }
            let products = join_bytes(sums);
            let (scale, offset) = &self.factors[which];
            for row in 0..2 {
                let sum = &mut chains[which][row];
                *sum = fma(products[row], inputs.scales[which] * scale[row], *sum);
                if let (Some(sums), Some(offset)) = (inputs.sums, offset) {
                    *sum = fma(sums[which], offset[row], *sum);
                }
            }
        }
    }
}

/// Adds the products of a run of float weights to the sums of a token. `inputs` are those of the block.
fn add_floats(run: &FloatRun, inputs: Ptr<Shared, f32>, sums: &mut Sums) {
    let at = inputs.at(run.column);
    let mut values = at.load_vector::<4>().to_vec();
    if run.weights[0].len() > 4 {
        values.extend(at.at(4).load_vector::<4>());
    }
    for (sum, weights) in sums.iter_mut().zip(&run.weights) {
        for (&weight, &value) in weights.iter().zip(&values) {
            *sum = fma(weight, value, *sum);
        }
    }
}
