//! The product of a block of 16 rows with the input of one token, computed by one warp.
//!
//! Lane 4g + t holds the fragments of `mma.m16n8k32`: words of rows g and g + 8 of A (the weights) and of column g of B
//! (the input). Columns 2j and 2j + 1 of B are the high and low bytes of input chunk j of a group of four chunks. When
//! chunk i is multiplied, the columns of the other chunks are zero. Four products with one accumulator thus leave in
//! lane 4g + t the sums of chunk t, high and low, for rows g and g + 8: one scale per sum. Types with a scale every 16
//! columns (Q2_K, Q3_K, Q6_K) are multiplied in the same way with half chunks.

use bespoke_codegen::prelude::*;

use super::decode::{
    ChunkScales, FloatRun, HalfChunkBits, HalfChunkScales, LaneMap, SixBitIntegers, SuperFactors, float_runs,
    nibbles_in_place, weight_fragments, weights_are_signed,
};
use super::inputs::Inputs;
use super::scaled_codes::{LaneScales, add_scaled, byte_factors};
use crate::weights::WeightType;

/// Parts of the sums of rows g and g + 8 of a tile, in lane 4g + t.
pub(super) type Sums = [Val<f32>; 2];

/// The inputs of a group of four chunks, as this lane's operands.
pub(super) struct ChunkGroup {
    /// B fragment of each chunk.
    columns: [[Val<u32>; 2]; 4],
    /// Sum of the inputs of chunk t, if the weights have an offset.
    sum: Option<Val<i32>>,
}

/// The inputs of a group of four half chunks, as this lane's operands.
pub(super) struct HalfChunkGroup {
    /// The lane's word of each half chunk.
    columns: [Val<u32>; 4],
    /// Sum of the inputs of half chunk t, if the weights have an offset.
    sum: Option<Val<i32>>,
}

/// This lane's operands from the inputs that a block of weights is multiplied with.
pub(super) enum BlockInputs {
    /// Quantised inputs, in groups of four chunks, and their scale.
    Chunks(Vec<ChunkGroup>, Val<f32>),
    /// Quantised inputs of types with a scale per half chunk, in groups of four half chunks, and their scale.
    HalfChunks(Vec<HalfChunkGroup>, Val<f32>),
    /// Float types: address of the block's first f32 input.
    Floats(Ptr<Shared, f32>),
}

impl BlockInputs {
    /// Loads the inputs of block `index` of a tile.
    pub fn load(ty: WeightType, index: Val<u32>, inputs: &Inputs, map: &LaneMap) -> BlockInputs {
        let first = index * (ty.block_cols() / 32);
        if !ty.is_quantised() {
            return BlockInputs::Floats(inputs.floats.at(index * ty.block_cols()));
        }
        let scale = inputs.scale_of_block(ty, index);
        if ty.has_half_chunks() {
            let group = |group: u32| {
                let chunk = first + 2 * group;
                let at = inputs.fragments.byte_add(chunk * 64).byte_add(map.half_chunk);
                let word = at.cast::<u32>().load();
                HalfChunkGroup {
                    columns: map.in_chunk.map(|own| select(own, word, 0u32)),
                    sum: ty.has_offset().then(|| inputs.half_sums.at(chunk * 2 + map.quarter).load()),
                }
            };
            return BlockInputs::HalfChunks((0..ty.block_cols() / 64).map(group).collect(), scale);
        }
        let group = |group: u32| {
            let chunk = first + 4 * group;
            let at = inputs.fragments.byte_add(chunk * 64).byte_add(lane() * 8);
            let words = at.cast::<u32>().load_vector::<2>();
            ChunkGroup {
                columns: map.in_chunk.map(|own| words.map(|word| select(own, word, 0u32))),
                sum: ty.has_offset().then(|| inputs.sums.at(chunk + map.quarter).load()),
            }
        };
        BlockInputs::Chunks((0..ty.block_cols() / 128).map(group).collect(), scale)
    }
}

/// The sum of a step, whose blocks begin at `blocks`: that of row g + 8t in lane 4g + t, for t < 2.
pub(super) fn dot_step(
    blocks: &[Ptr<Shared, u8>],
    ty: WeightType,
    inputs: &[BlockInputs],
    map: &LaneMap,
) -> Val<f32> {
    if ty.exact_groups() > 0 {
        let (BlockInputs::Chunks(groups, scale), [block]) = (&inputs[0], blocks) else {
            panic!("a step of {ty} is one block in chunks")
        };
        return dot_exact(*block, ty, groups, map) * *scale;
    }
    if ty.has_wide_integers() {
        let (BlockInputs::HalfChunks(groups, scale), [block]) = (&inputs[0], blocks) else {
            panic!("a step of {ty} is one block in half chunks")
        };
        return dot_wide(*block, ty, groups, map) * *scale;
    }
    let mut sums = [val(0.0f32); 2];
    let mut scale = None;
    for (&block, inputs) in blocks.iter().zip(inputs) {
        match inputs {
            BlockInputs::Floats(inputs) => dot_floats(block, ty, *inputs, map, &mut sums),
            BlockInputs::HalfChunks(groups, of_inputs) => {
                dot_half_chunks(block, ty, groups, map, &mut sums);
                scale = Some(*of_inputs);
            }
            BlockInputs::Chunks(groups, of_inputs) => {
                dot_chunks(block, ty, groups, map, &mut sums);
                scale = Some(*of_inputs);
            }
        }
    }
    let total = add_chains(sums, map);
    scale.map_or(total, |scale| total * scale)
}

/// Adds the four lanes' parts of a sum: that of row g + 8t, in lane 4g + t for t < 2.
#[device]
pub(super) fn add_chains(sums: Sums, map: &LaneMap) -> Val<f32> {
    let total = sums.map(|sum| {
        let pair = sum + shuffle_xor(sum, 1);
        pair + shuffle_xor(pair, 2)
    });
    select(map.quarter == 0, total[0], total[1])
}

/// The sum of a superblock in integers without rounding, of row g + 8·(t mod 2) in lane 4g + t; see
/// [`WeightType::exact_groups`].
fn dot_exact(block: Ptr<Shared, u8>, ty: WeightType, groups: &[ChunkGroup], map: &LaneMap) -> Val<f32> {
    let integers = SixBitIntegers::load(block, ty, map);
    let factor = lane_factor(&SuperFactors::load(block, ty, map), map);
    let mut total = None;
    for (span, groups) in (0u32..).zip(groups.chunks(ty.exact_groups() as usize)) {
        let (mut products, mut offsets) = ([val(0i32); 2], [val(0i32); 2]);
        for (index, group) in (span * ty.exact_groups()..).zip(groups) {
            let sums = multiply(block, ty, index, &group.columns);
            let [scales, mins] = integers.of_group(index);
            let sum = group.sum.expect("the type has an offset");
            for row in 0..2 {
                products[row] += in_place(sums[row], ty, map) * scales[row];
                offsets[row] += mins[row] * sum;
            }
        }
        let sum = add_quad(products, offsets, factor, map);
        total = Some(total.map_or(sum, |total| total + sum));
    }
    total.expect("a superblock has a group")
}

/// The sum of a superblock of Q6_K, of row g + 8·(t mod 2) in lane 4g + t; see [`scaled_codes`](super::scaled_codes).
fn dot_wide(block: Ptr<Shared, u8>, ty: WeightType, groups: &[HalfChunkGroup], map: &LaneMap) -> Val<f32> {
    let scales = LaneScales::load(block, ty, map);
    let factor = lane_factor(&byte_factors(block, ty, map), map);
    let mut bits = HalfChunkBits::default();
    let mut sums = [[val(0i32); 2]; 2];
    for (group, input) in (0u32..).zip(groups) {
        let products = multiply_halves(bits.weights(block, ty, group), ty, &input.columns);
        add_scaled(&mut sums, products, scales.of_group(group));
    }
    add_quad(sums[0], sums[1], factor, map)
}

/// A sum of chunk t as if its weights were in the low nibbles of their bytes.
#[device]
fn in_place(sum: Val<i32>, ty: WeightType, map: &LaneMap) -> Val<i32> {
    if nibbles_in_place(ty) { sum >> map.nibble_shift } else { sum }
}

/// The factor of the sum that the lane keeps in [`add_quad`].
#[device]
fn lane_factor(factors: &SuperFactors, map: &LaneMap) -> Val<f32> {
    let of_row = |factors: [Val<f32>; 2]| select((map.quarter & 1) == 0, factors[0], factors[1]);
    select(map.quarter < 2, of_row(factors.first), of_row(factors.second))
}

/// Adds the integers of a quad and scales the two sums: Σ first · d + Σ second · (-dmin) for types with mins, for row
/// g + 8·(t mod 2) in lane 4g + t. `factor` is that of [`lane_factor`].
#[device]
fn add_quad(first: [Val<i32>; 2], second: [Val<i32>; 2], factor: Val<f32>, map: &LaneMap) -> Val<f32> {
    let (odd, upper) = ((map.quarter & 1) == 1, map.quarter >= 2);
    // Lanes 0 and 2 of the quad keep row g, lanes 1 and 3 row g + 8. Then lanes 0 and 1 keep the first sum, lanes 2 and 3 the second.
    let of_row =
        |[even, other]: [Val<i32>; 2]| select(odd, other, even) + shuffle_xor(select(odd, even, other), 1);
    let (first, second) = (of_row(first), of_row(second));
    let own = select(upper, second, first) + shuffle_xor(select(upper, first, second), 2);
    let scaled = own.cast::<f32>() * factor;
    scaled + shuffle_xor(scaled, 2)
}

/// Types with a scale per chunk of 32 columns: adds to the chains of chunk t.
fn dot_chunks(block: Ptr<Shared, u8>, ty: WeightType, groups: &[ChunkGroup], map: &LaneMap, sums: &mut Sums) {
    let scales = ChunkScales::load(block, ty, map);
    for (group, input) in (0u32..).zip(groups) {
        let products = multiply(block, ty, group, &input.columns);
        let (scale, offset) = scales.of_group(group);
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = fma(products[row].cast::<f32>(), scale[row], *sum);
            if let (Some(input_sum), Some(offset)) = (input.sum, &offset) {
                *sum = fma(input_sum.cast::<f32>(), offset[row], *sum);
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
) -> [Val<i32>; 2] {
    let signed = weights_are_signed(ty);
    let mut sums = [val(0i32); 4];
    for (weights, column) in weight_fragments(block, ty, group).into_iter().zip(columns) {
        sums = mma_m16n8k32_i8(weights, signed, *column, true, sums);
    }
    join_bytes(sums)
}

/// Combines the sums of high and low bytes as 256·high + low, for rows g and g + 8.
#[device]
pub(super) fn join_bytes(sums: [Val<i32>; 4]) -> [Val<i32>; 2] {
    [sums[0] * 256 + sums[1], sums[2] * 256 + sums[3]]
}

/// Types with a scale per half chunk: four groups of 64 columns, each of four half chunks with one scale each.
fn dot_half_chunks(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    groups: &[HalfChunkGroup],
    map: &LaneMap,
    sums: &mut Sums,
) {
    let scales = HalfChunkScales::load(block, ty, map);
    // Words that several groups share: bits of a weight of each.
    let mut shared = HalfChunkBits::default();
    for (group, input) in (0u32..).zip(groups) {
        let products = join_bytes(multiply_halves(shared.weights(block, ty, group), ty, &input.columns));
        for (row, sum) in sums.iter_mut().enumerate() {
            let (scale, offset) = scales.of_row(row, group);
            *sum = fma(products[row].cast::<f32>(), scale, *sum);
            if let (Some(input_sum), Some(offset)) = (input.sum, offset) {
                *sum = fma(input_sum.cast::<f32>(), offset, *sum);
            }
        }
    }
}

/// Multiplies a group of four half chunks, and returns the sums of half chunk t in lane 4g + t: those of the high and of the low
/// bytes, of row g, then of row g + 8.
fn multiply_halves(
    [even, odd]: [[Val<u32>; 4]; 2],
    ty: WeightType,
    columns: &[Val<u32>; 4],
) -> [Val<i32>; 4] {
    let signed = weights_are_signed(ty);
    let [a, b, c, d] = *columns;
    let products = mma_m16n8k32_i8(even, signed, [a, b], true, [val(0i32); 4]);
    mma_m16n8k32_i8(odd, signed, [c, d], true, products)
}

/// Float types: each lane multiplies 16 bytes of weights at a time, of rows g and g + 8.
fn dot_floats(
    block: Ptr<Shared, u8>,
    ty: WeightType,
    inputs: Ptr<Shared, f32>,
    map: &LaneMap,
    sums: &mut Sums,
) {
    for FloatRun { column, weights } in float_runs(block, ty, map) {
        let at = inputs.at(column);
        let mut values = at.load_vector::<4>().to_vec();
        if weights[0].len() > 4 {
            values.extend(at.at(4).load_vector::<4>());
        }
        for (sum, weights) in sums.iter_mut().zip(weights) {
            for (weight, &value) in weights.into_iter().zip(&values) {
                *sum = fma(weight, value, *sum);
            }
        }
    }
}
