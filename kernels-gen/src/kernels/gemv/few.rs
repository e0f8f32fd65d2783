//! Products of two to four tokens in the loop of one token. The weights of a unit are loaded and decoded once.
//!
//! Each token's input is in shared memory in the layout of `inputs`. Tokens are multiplied in pairs: of T tokens, rounded up to
//! a power of two, pair p has tokens p and p + T/2, and a missing token is replaced by the other. Pair n = 2u + v of columns of
//! operand B is the high and low bytes of chunk u, or of chunk u + 2, of a group of four chunks of the pair's token v. Two
//! products with one accumulator leave in lane 4g + n the sums of chunk u of token v for rows g and g + 8; two more
//! products, with another accumulator, those of chunk u + 2. Types with a scale every 16 columns are multiplied in the same way with
//! half chunks.
//!
//! A lane thus has two of the four chains of sums of its token, or the integers of half the chunks. The order of sums is that
//! of one token (the parent module describes it).

use bespoke_codegen::prelude::*;

use super::blocks::{Sums, add_chains, join_bytes};
use super::decode::{
    ChunkScales, FloatRun, HalfChunkBits, HalfChunkScales, LaneMap, SixBitIntegers, SuperFactors, float_runs,
    nibbles_in_place, weight_fragments, weights_are_signed,
};
use super::inputs::Inputs;
use super::scaled_codes::{LaneScales, add_scaled, byte_factors};
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
    /// Sums of the inputs of the accumulators' chunks, if the weights have an offset.
    sums: Option<[Val<i32>; 2]>,
}

/// The inputs of a pair of tokens for a block, as this lane's operands.
pub(super) struct PairBlock {
    /// Groups of four chunks or half chunks.
    groups: Vec<PairGroup>,
    /// Scale of the inputs of token v.
    scale: Val<f32>,
}

/// The sums of a step.
enum StepSums {
    /// Per pair of tokens that of row g + 8u and token v, in lane 4g + 2u + v.
    Pairs(Vec<Val<f32>>),
    /// Float types: per token that of row g + 8t, in lane 4g + t for t < 2.
    Tokens(Vec<Val<f32>>),
}

impl<'a> FewInputs<'a> {
    pub fn new(lane_map: &LaneMap, s: &'a GemvShape) -> FewInputs<'a> {
        let pairs = (0..s.pairs()).map(|pair| pair_inputs(pair, s)).collect();
        positions(pairs, lane_map, s)
    }

    /// The inputs of unit `unit` of a tile, for each pair of tokens and each block.
    pub fn load_unit(&self, ty: WeightType, unit: Val<u32>) -> Vec<Vec<PairBlock>> {
        let depth = if ty.is_quantised() { self.s.depth() } else { 0 };
        let of_pair = |pair| (0..depth).map(|block| self.block(ty, unit * depth + block, pair)).collect();
        self.pairs.iter().map(of_pair).collect()
    }

    /// The inputs of block `index` of a tile.
    fn block(&self, ty: WeightType, index: Val<u32>, pair: &PairInputs) -> PairBlock {
        PairBlock {
            groups: (0..groups(ty)).map(|group| self.group(ty, index, group, pair)).collect(),
            scale: pair.of_sums.scale_of_block(ty, index),
        }
    }

    /// The inputs of group `group` of block `index` of a tile.
    fn group(&self, ty: WeightType, index: Val<u32>, group: u32, pair: &PairInputs) -> PairGroup {
        let first = index * (ty.block_cols() / 32);
        let own = |words: [Val<u32>; 2]| self.in_chunk.map(|own| words.map(|word| select(own, word, 0u32)));
        let pair_of = |at: Ptr<Shared, i32>| [at.load(), at.at(2).load()];
        if ty.has_half_chunks() {
            let chunk = first + 2 * group;
            let at = pair.of_column.fragments.byte_add(chunk * 64).byte_add(self.half_chunk_offset);
            let words = [at, at.byte_add(64)].map(|at| at.cast::<u32>().load());
            let sums = pair.of_sums.half_sums.at(chunk * 2 + self.upper);
            return PairGroup {
                columns: words.map(|word| self.in_chunk.map(|own| select(own, word, 0u32))).to_vec(),
                sums: ty.has_offset().then(|| pair_of(sums)),
            };
        }
        let chunk = first + 4 * group;
        let at = pair.of_column.fragments.byte_add(chunk * 64).byte_add(self.chunk_offset);
        let words = [at, at.byte_add(128)].map(|at| at.cast::<u32>().load_vector::<2>());
        let sums = pair.of_sums.sums.at(chunk + self.upper);
        PairGroup {
            columns: words.into_iter().flat_map(own).collect(),
            sums: ty.has_offset().then(|| pair_of(sums)),
        }
    }

    /// Stores the sums of the steps of unit `unit` of a tile, at `block`, for all tokens: f32 `[step][row][token]`. Loads the
    /// inputs unless `held` has them in registers.
    pub fn dot_unit(
        &self,
        block: Ptr<Shared, u8>,
        ty: WeightType,
        unit: Val<u32>,
        held: Option<&[Vec<PairBlock>]>,
        to: Ptr<Shared, f32>,
    ) {
        let loaded;
        let inputs = match held {
            Some(held) => held,
            None => {
                loaded = self.load_unit(ty, unit);
                &loaded
            }
        };
        let (depth, step) = (self.s.depth(), self.s.step(ty));
        for first in (0..depth).step_by(step as usize) {
            let blocks: Vec<_> =
                (first..first + step).map(|i| (i, block.byte_add(i * ty.block_bytes()))).collect();
            let sums = if ty.is_quantised() {
                let of_step = first as usize..(first + step) as usize;
                let inputs: Vec<_> = inputs.iter().map(|pair| &pair[of_step.clone()]).collect();
                StepSums::Pairs(self.dot_pairs(&blocks, ty, &inputs))
            } else {
                StepSums::Tokens(self.dot_floats(&blocks, ty, unit * depth))
            };
            self.store_partials(&sums, to.at(first / step * self.s.step_sums()));
        }
    }

    /// The sums of a step of a quantised type, per pair of tokens.
    fn dot_pairs(
        &self,
        blocks: &[(u32, Ptr<Shared, u8>)],
        ty: WeightType,
        inputs: &[&[PairBlock]],
    ) -> Vec<Val<f32>> {
        if ty.exact_groups() > 0 {
            return self.dot_exact(blocks[0].1, ty, inputs);
        }
        if ty.has_wide_integers() {
            return self.dot_wide(blocks[0].1, ty, inputs);
        }
        let mut chains = vec![[[val(0.0f32); 2]; 2]; self.pairs.len()];
        for (place, &(_, block)) in blocks.iter().enumerate() {
            let mut weights = BlockWeights::load(block, ty, &self.scales);
            for group in 0..groups(ty) {
                let weights = weights.group(group);
                for (inputs, chains) in inputs.iter().zip(&mut chains) {
                    weights.add_products(
                        &inputs[place].groups[group as usize],
                        weights_are_signed(ty),
                        chains,
                    );
                }
            }
        }
        let total = |(chains, inputs): (&[Sums; 2], &&[PairBlock])| {
            let of_row = [0, 1].map(|row| {
                let [low, high] = chains.map(|chain| chain[row] + shuffle_xor(chain[row], 2));
                low + high
            });
            self.own_row(of_row) * inputs[0].scale
        };
        chains.iter().zip(inputs).map(total).collect()
    }

    /// The value of the lane's row g + 8u.
    #[device]
    fn own_row<T: Word>(&self, [first, second]: [Val<T>; 2]) -> Val<T> {
        select(self.upper == 0, first, second)
    }

    /// The sums of a superblock in integers without rounding, per pair of tokens; see [`WeightType::exact_groups`].
    fn dot_exact(&self, block: Ptr<Shared, u8>, ty: WeightType, inputs: &[&[PairBlock]]) -> Vec<Val<f32>> {
        let integers = self.scales.each_ref().map(|map| SixBitIntegers::load(block, ty, map));
        let factors = SuperFactors::load(block, ty, &self.scales[0]);
        let factors = [self.own_row(factors.first), self.own_row(factors.second)];
        let mut totals: Vec<Option<Val<f32>>> = vec![None; inputs.len()];
        for first in (0..groups(ty)).step_by(ty.exact_groups() as usize) {
            let mut sums = vec![[[val(0i32); 2]; 2]; inputs.len()];
            for group in first..first + ty.exact_groups() {
                let fragments = weight_fragments(block, ty, group);
                let integers = [0, 1].map(|which| integers[which].of_group(group));
                for (inputs, sums) in inputs.iter().zip(&mut sums) {
                    let inputs = &inputs[0].groups[group as usize];
                    add_exact(&fragments, ty, &integers, inputs, &self.scales[0], sums);
                }
            }
            for (sums, total) in sums.iter().zip(&mut totals) {
                let sum = self.add_halves(sums, factors);
                *total = Some(total.map_or(sum, |total| total + sum));
            }
        }
        let scaled = |(total, inputs): (Option<Val<f32>>, &&[PairBlock])| {
            total.expect("a superblock has a group") * inputs[0].scale
        };
        totals.into_iter().zip(inputs).map(scaled).collect()
    }

    /// Adds the two lanes' parts of both integer sums of the lane's row, and returns first · factor + second · factor.
    #[device]
    fn add_halves(&self, sums: &[[Val<i32>; 2]; 2], factors: [Val<f32>; 2]) -> Val<f32> {
        let [first, second] =
            sums.map(|sums| self.own_row(sums) + shuffle_xor(self.own_row([sums[1], sums[0]]), 2));
        first.cast::<f32>() * factors[0] + second.cast::<f32>() * factors[1]
    }

    /// The sums of a superblock of Q6_K, per pair of tokens; see [`scaled_codes`](super::scaled_codes).
    fn dot_wide(&self, block: Ptr<Shared, u8>, ty: WeightType, inputs: &[&[PairBlock]]) -> Vec<Val<f32>> {
        let scales = self.scales.each_ref().map(|map| LaneScales::load(block, ty, map));
        let factors = byte_factors(block, ty, &self.scales[0]);
        let factors = [self.own_row(factors.first), self.own_row(factors.second)];
        let mut bits = HalfChunkBits::default();
        let mut sums = vec![[[val(0i32); 2]; 2]; inputs.len()];
        for group in 0..groups(ty) {
            let chunks = bits.weights(block, ty, group);
            let scales = [0, 1].map(|which| scales[which].of_group(group));
            for (inputs, sums) in inputs.iter().zip(&mut sums) {
                let columns = &inputs[0].groups[group as usize].columns;
                for (which, weights) in chunks.into_iter().enumerate() {
                    let signed = weights_are_signed(ty);
                    let products = mma_m16n8k32_i8(weights, signed, columns[which], true, [val(0i32); 4]);
                    add_scaled(sums, products, scales[which]);
                }
            }
        }
        let total = |(sums, inputs): (_, &&[PairBlock])| self.add_halves(sums, factors) * inputs[0].scale;
        sums.iter().zip(inputs).map(total).collect()
    }

    /// The sums of a step of a float type, whose first block is block `index` of a tile, per token.
    fn dot_floats(
        &self,
        blocks: &[(u32, Ptr<Shared, u8>)],
        ty: WeightType,
        index: Val<u32>,
    ) -> Vec<Val<f32>> {
        let map = LaneMap::new();
        let mut sums = vec![[val(0.0f32); 2]; self.s.tokens as usize];
        for &(block, at) in blocks {
            for run in float_runs(at, ty, &map) {
                for (token, sums) in (0u32..).zip(&mut sums) {
                    let inputs = Inputs::new(token, self.s).floats.at((index + block) * ty.block_cols());
                    add_floats(&run, inputs, sums);
                }
            }
        }
        sums.into_iter().map(|sums| add_chains(sums, &map)).collect()
    }

    /// Stores the sums of a step, f32 `[row][token]`, for the epilogue.
    #[device]
    fn store_partials(&self, sums: &StepSums, to: Ptr<Shared, f32>) {
        let (slots, group) = (self.s.token_slots(), lane() >> 2);
        match sums {
            StepSums::Pairs(pairs) => {
                let at = to.at((group + self.upper * 8) * slots + (lane() & 1) * self.s.pairs());
                match **pairs {
                    [first, second] => at.store_vector([first, second]),
                    _ => at.store(pairs[0]),
                }
            }
            StepSums::Tokens(tokens) => {
                let quarter = lane() & 3;
                if quarter < 2 {
                    for (token, &sum) in (0u32..).zip(tokens) {
                        to.at((group + quarter * 8) * slots + token).store(sum);
                    }
                }
            }
        }
    }
}

/// Adds the products of a group of four chunks with the inputs of a pair of tokens to the lane's integers: scale · code · input
/// and min · input, of rows g and g + 8. `factors` are the scales and mins of chunks u and u + 2.
#[device]
fn add_exact(
    fragments: &[[Val<u32>; 4]],
    ty: WeightType,
    factors: &[[[Val<i32>; 2]; 2]; 2],
    inputs: &PairGroup,
    map: &LaneMap,
    sums: &mut [[Val<i32>; 2]; 2],
) {
    let of_inputs = inputs.sums.expect("the type has an offset");
    let halves = fragments.chunks(2).zip(inputs.columns.chunks(2));
    for (which, (fragments, columns)) in halves.enumerate() {
        let mut products = [val(0i32); 4];
        for (weights, column) in fragments.iter().zip(columns) {
            products = mma_m16n8k32_i8(*weights, weights_are_signed(ty), *column, true, products);
        }
        let products = join_bytes(products);
        let [scales, mins] = factors[which];
        for row in 0..2 {
            let mut product = products[row];
            if nibbles_in_place(ty) {
                product >>= map.nibble_shift;
            }
            sums[0][row] += product * scales[row];
            sums[1][row] += mins[row] * of_inputs[which];
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
        let base = shared.byte_add(map.inputs + pair * stride).byte_add(place * step);
        Inputs::at(base, shared.byte_add(map.squares).cast(), s)
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
                *sum = fma(products[row].cast::<f32>(), scale[row], *sum);
                if let (Some(sums), Some(offset)) = (inputs.sums, offset) {
                    *sum = fma(sums[which].cast::<f32>(), offset[row], *sum);
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
