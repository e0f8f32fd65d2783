//! The product of a step of weights with the inputs of several tokens, computed by one warp.
//!
//! The weights of the step are decoded once, and stay in registers while the warp goes over groups of four tokens. One
//! `mma.m16n8k32` multiplies a chunk with a group: lane 4g + t has the sums of token t for rows g and g + 8. The order of
//! sums is that of one token (see [`crate::kernels::gemv`]), so a lane has integers of a whole superblock, or four chains, for
//! each of its outputs.

use bespoke_codegen::prelude::*;

use super::inputs::{GRANULE, GROUP, MIN_BYTES, SCALES};
use crate::kernels::gemv::blocks::{Sums, join_bytes};
use crate::kernels::gemv::decode::{
    ChunkScales, FloatRun, HalfChunkBits, HalfChunkScales, LaneMap, SixBitIntegers, SuperFactors, float_runs,
    nibbles_in_place, scale_of_chunk, six_bit_words, weight_fragments, weights_are_signed,
};
use crate::kernels::gemv::half_step::{Factors, HalfStep};
use crate::kernels::gemv::half_weights::ChunkFragments;
use crate::kernels::gemv::layout::InputLayout;
use crate::kernels::gemv::product::Arithmetic;
use crate::kernels::gemv::scaled_codes::{RowScales, add_scaled, byte_factors};
use crate::weights::WeightType;

/// Rows g and g + 8 of a tile.
type Pair = [Val<f32>; 2];

/// The weights of a step in registers.
pub(super) enum StepWeights {
    /// A superblock whose scaled products are added up as integers.
    Exact(Exact),
    /// A superblock of Q6_K, whose scale · code has 16 bits.
    Wide(Wide),
    /// Groups of four chunks.
    Chunks(Vec<Chunks>),
    /// Groups of four half chunks.
    HalfChunks(Vec<Chunks>),
    /// Float types: runs of columns, counted from the step's first column.
    Floats(Vec<FloatRun>),
    /// Weights of any type as f16.
    Halves(Halves),
}

/// A decoded step of f16.
pub(super) struct Halves {
    /// A fragments of both halves of each chunk.
    chunks: Vec<ChunkFragments>,
    /// Operand A of the product with the sums of inputs, if the type has mins.
    mins: Option<[Val<u32>; 4]>,
    factors: Factors,
}

/// A decoded superblock with 6-bit scales and mins.
pub(super) struct Exact {
    /// A fragments of each chunk.
    fragments: Vec<[Val<u32>; 4]>,
    /// Scales of each chunk, for rows g and g + 8.
    scales: Vec<[Val<i32>; 2]>,
    /// Words of operand A with the mins of chunk t of each group of four chunks, for rows g and g + 8.
    mins: [[Val<u32>; 2]; 2],
    factors: SuperFactors,
}

/// A decoded superblock of Q6_K; see [`scaled_codes`](crate::kernels::gemv::scaled_codes).
pub(super) struct Wide {
    /// A fragments of each chunk: the codes.
    chunks: Vec<[Val<u32>; 4]>,
    /// Scales of each half chunk, for rows g and g + 8.
    scales: Vec<[Val<i32>; 2]>,
    factors: SuperFactors,
}

/// Decoded weights of a group of four chunks, or of four half chunks.
pub(super) struct Chunks {
    /// A fragments: of each chunk, or of the two chunks that the half chunks belong to.
    fragments: Vec<[Val<u32>; 4]>,
    /// Scale of each chunk or half chunk.
    scales: [Pair; 4],
    /// Factor of the sum of the inputs of each chunk or half chunk, if the type has an offset.
    offsets: Option<[Pair; 4]>,
}

/// f16 inputs of two groups of tokens.
pub(super) struct PairInputs {
    /// Records of the first group.
    pub record: Ptr<Shared, u8>,
    /// Distance of the records of the second group, in bytes; 0 if there is one group.
    pub second: u32,
    /// Scales of the first group's tokens.
    pub scales: Ptr<Shared, f32>,
}

/// The values of the lanes of a quad, in their order.
#[device]
fn gather(value: Val<f32>) -> [Val<f32>; 4] {
    let quad = lane() & 28;
    std::array::from_fn(|of| shuffle_lane(value, quad + of as u32))
}

/// The pairs of the lanes of a quad, in their order.
fn gather_pairs(pair: Pair) -> [Pair; 4] {
    let [first, second] = pair.map(|value| gather(value));
    std::array::from_fn(|of| [first[of], second[of]])
}

impl Exact {
    #[device]
    fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> Exact {
        let mut fragments: Vec<_> = (0..2).flat_map(|group| weight_fragments(block, ty, group)).collect();
        if nibbles_in_place(ty) {
            for odd in fragments.iter_mut().skip(1).step_by(2) {
                *odd = odd.map(|word| word >> 4);
            }
        }
        let mins = SixBitIntegers::load(block, ty, map)
            .mins
            .map(|word| [(word & 0xFF) * MIN_BYTES, (word >> 8) * MIN_BYTES]);
        let words = six_bit_words(block, ty, map);
        let scales =
            (0..8).map(|chunk| scale_of_chunk(&words, chunk).map(|scale| scale.bitcast::<i32>())).collect();
        Exact { fragments, scales, mins, factors: SuperFactors::load(block, ty, map) }
    }

    /// The products with a group of four tokens; see [`StepWeights::dot`].
    #[device]
    fn dot(&self, ty: WeightType, record: Ptr<Shared, u8>, layout: &InputLayout, map: &LaneMap) -> Sums {
        let granules = [0, 1]
            .map(|index| Granule::load(record.byte_add(index * layout.granule_bytes()), ty, layout, map));
        let min_word = [0, 1].map(|index| {
            let at = record.byte_add(index * layout.granule_bytes() + layout.mins());
            at.byte_add(lane() * 4).cast::<u32>().load()
        });
        let mut totals: Option<Pair> = None;
        for groups in [0usize, 1].chunks(ty.exact_groups() as usize) {
            let mut products = [val(0i32); 2];
            for &group in groups {
                for chunk in 0..4 {
                    let (weights, columns) =
                        (self.fragments[4 * group + chunk], granules[group].columns[chunk]);
                    let sums = mma_m16n8k32_i8(weights, false, columns, true, [val(0i32); 4]);
                    let (sums, scales) = (join_bytes(sums), self.scales[4 * group + chunk]);
                    for row in 0..2 {
                        products[row] += sums[row] * scales[row];
                    }
                }
            }
            let offsets = join_bytes(match *groups {
                [first, second] => {
                    let [[a, b], [c, d]] = [self.mins[first], self.mins[second]];
                    mma_m16n8k32_i8([a, b, c, d], false, min_word, true, [val(0i32); 4])
                }
                _ => multiply_half(self.mins[groups[0]], false, min_word[groups[0]]),
            });
            let sums = add_products(products, offsets, &self.factors);
            totals = Some(totals.map_or(sums, |totals| [totals[0] + sums[0], totals[1] + sums[1]]));
        }
        let scale = granules[0].scale;
        totals.expect("a superblock has a group").map(|total| total * scale)
    }
}

/// The two sums of a superblock times their factors, added, for rows g and g + 8.
#[device]
fn add_products(first: [Val<i32>; 2], second: [Val<i32>; 2], factors: &SuperFactors) -> Sums {
    std::array::from_fn(|row| {
        first[row].cast::<f32>() * factors.first[row] + second[row].cast::<f32>() * factors.second[row]
    })
}

impl Wide {
    fn load(block: Ptr<Shared, u8>, ty: WeightType, map: &LaneMap) -> Wide {
        let words = RowScales::load(block, ty, map);
        let mut bits = HalfChunkBits::default();
        let groups = ty.block_cols() / 64;
        let chunks = (0..groups).flat_map(|group| bits.weights(block, ty, group)).collect();
        let scales = (0..groups).flat_map(|group| (0..4).map(move |half| (group, half)));
        let scales = scales.map(|(group, half)| words.of_half_chunk(group, half)).collect();
        Wide { chunks, scales, factors: byte_factors(block, ty, map) }
    }

    /// The products with a group of four tokens; see [`StepWeights::dot`].
    #[device]
    fn dot(&self, ty: WeightType, record: Ptr<Shared, u8>, layout: &InputLayout, map: &LaneMap) -> Sums {
        let granules = [0, 1]
            .map(|index| Granule::load(record.byte_add(index * layout.granule_bytes()), ty, layout, map));
        let columns: Vec<_> = granules.iter().flat_map(|granule| granule.columns).collect();
        let mut sums = [[val(0i32); 2]; 2];
        for (chunk, &[a, b, c, d]) in self.chunks.iter().enumerate() {
            for (half, weights) in [[a, b], [c, d]].into_iter().enumerate() {
                let products = multiply_half(weights, weights_are_signed(ty), columns[chunk][half]);
                add_scaled(&mut sums, products, self.scales[2 * chunk + half]);
            }
        }
        add_products(sums[0], sums[1], &self.factors).map(|sum| sum * granules[0].scale)
    }
}

impl StepWeights {
    /// Decodes the step of `blocks` blocks at `at`.
    pub fn load(
        at: Ptr<Shared, u8>,
        ty: WeightType,
        blocks: u32,
        arithmetic: Arithmetic,
        map: &LaneMap,
    ) -> StepWeights {
        if arithmetic == Arithmetic::F16 {
            let mut step = HalfStep::load(at, ty, blocks, map);
            let chunks = (0..step.pairs()).flat_map(|pair| step.chunks(pair)).collect();
            return StepWeights::Halves(Halves { chunks, mins: step.mins(), factors: step.factors() });
        }
        if ty.exact_groups() > 0 {
            return StepWeights::Exact(Exact::load(at, ty, map));
        }
        if ty.has_wide_integers() {
            return StepWeights::Wide(Wide::load(at, ty, map));
        }
        let blocks = (0..blocks).map(|block| (block, at.byte_add(block * ty.block_bytes())));
        if !ty.is_quantised() {
            let runs = blocks.flat_map(|(index, block)| {
                let first = index * ty.block_cols();
                let run = move |run: FloatRun| FloatRun { column: run.column + first, ..run };
                float_runs(block, ty, map).into_iter().map(run)
            });
            return StepWeights::Floats(runs.collect());
        }
        let mut groups = Vec::new();
        for (_, block) in blocks {
            if ty.has_half_chunks() {
                let scales = HalfChunkScales::load(block, ty, map);
                let mut bits = HalfChunkBits::default();
                for group in 0..ty.block_cols() / 64 {
                    let (first, second) = (scales.of_row(0, group), scales.of_row(1, group));
                    groups.push(Chunks {
                        fragments: bits.weights(block, ty, group).into(),
                        scales: gather_pairs([first.0, second.0]),
                        offsets: first.1.zip(second.1).map(|(first, second)| gather_pairs([first, second])),
                    });
                }
            } else {
                let scales = ChunkScales::load(block, ty, map);
                for group in 0..ty.block_cols() / 128 {
                    let (scale, offset) = scales.of_group(group);
                    groups.push(Chunks {
                        fragments: weight_fragments(block, ty, group),
                        scales: gather_pairs(scale),
                        offsets: offset.map(gather_pairs),
                    });
                }
            }
        }
        if ty.has_half_chunks() { StepWeights::HalfChunks(groups) } else { StepWeights::Chunks(groups) }
    }

    /// The products with a group of four tokens, whose records of consecutive granules begin at `record`. The step begins
    /// `column` columns after the first granule. Lane 4g + t gets the sums of token t for rows g and g + 8.
    pub fn dot(
        &self,
        ty: WeightType,
        record: Ptr<Shared, u8>,
        column: Val<u32>,
        layout: &InputLayout,
        map: &LaneMap,
    ) -> Sums {
        let signed = weights_are_signed(ty);
        let mut chains = [[val(0.0f32); 2]; 4];
        let granule =
            |index: u32| Granule::load(record.byte_add(index * layout.granule_bytes()), ty, layout, map);
        let mut scale = None;
        match self {
            StepWeights::Exact(exact) => return exact.dot(ty, record, layout, map),
            StepWeights::Wide(wide) => return wide.dot(ty, record, layout, map),
            StepWeights::Floats(runs) => return dot_floats(runs, record, column, layout),
            StepWeights::Halves(_) => unreachable!("f16 is multiplied with two groups: `dot_pair`"),
            StepWeights::Chunks(groups) => {
                for (index, group) in (0u32..).zip(groups) {
                    let granule = granule(index);
                    scale.get_or_insert(granule.scale);
                    for chunk in 0..4 {
                        let zero = [val(0i32); 4];
                        let sums = mma_m16n8k32_i8(
                            group.fragments[chunk],
                            signed,
                            granule.columns[chunk],
                            true,
                            zero,
                        );
                        let offset = group.offsets.map(|offsets| (granule.sums[chunk], offsets[chunk]));
                        add(&mut chains[chunk], sums, group.scales[chunk], offset);
                    }
                }
            }
            StepWeights::HalfChunks(groups) => {
                for (index, pair) in (0u32..).zip(groups.chunks(2)) {
                    let granule = granule(index);
                    scale.get_or_insert(granule.scale);
                    for (half, group) in pair.iter().enumerate() {
                        for part in 0..4 {
                            let chunk = 2 * half + part / 2;
                            let [a, b, c, d] = group.fragments[part / 2];
                            let weights = if part % 2 == 0 { [a, b] } else { [c, d] };
                            let sums = multiply_half(weights, signed, granule.columns[chunk][part % 2]);
                            let offset =
                                group.offsets.map(|offsets| (granule.sums[4 * half + part], offsets[part]));
                            add(&mut chains[part], sums, group.scales[part], offset);
                        }
                    }
                }
            }
        }
        let scale = scale.expect("a step has a group");
        std::array::from_fn(|row| {
            ((chains[0][row] + chains[1][row]) + (chains[2][row] + chains[3][row])) * scale
        })
    }
}

impl StepWeights {
    /// As [`StepWeights::dot`], for f16 and two groups of tokens at once: the columns of operand B are those of the first group and
    /// of the second in turn.
    pub fn dot_pair(
        &self,
        ty: WeightType,
        inputs: &PairInputs,
        column: Val<u32>,
        layout: &InputLayout,
        map: &LaneMap,
    ) -> [Sums; 2] {
        let StepWeights::Halves(halves) = self else {
            unreachable!("integers are multiplied by groups: `dot`")
        };
        let multiply = |a: [Val<u32>; 4], b: [Val<u32>; 2], sums| {
            mma(FragmentA::<f16, 4>::from_registers(a), FragmentB::<f16, 2>::from_registers(b), sums)
        };
        let &PairInputs { record, second, scales } = inputs;
        // Lane 4g + t has column g.
        let own = record.byte_add(((lane() >> 2) & 1) * second);
        let row = lane() >> 3;
        let inputs = own.byte_add(row * 64 + map.quarter * 16).byte_add(column * 8 + layout.halves(ty));
        let mut sums = FragmentC::<f32>::zero();
        for (chunk, fragments) in (0u32..).zip(&halves.chunks) {
            let at = inputs.byte_add(chunk / 4 * layout.granule_bytes() + chunk % 4 * 256);
            let [a, b, c, d] = at.cast::<u32>().load_vector::<4>();
            sums = multiply(fragments[0], [a, b], sums);
            sums = multiply(fragments[1], [c, d], sums);
        }
        let mins = halves.mins.map(|mins| {
            let at = own.byte_add(row * 16 + map.quarter * 4).byte_add(layout.half_mins()).cast::<u32>();
            let words = [0, 1].map(|granule| at.byte_add(granule * layout.granule_bytes()).load());
            multiply(mins, words, FragmentC::zero()).0
        });
        let scales = scales.at(map.quarter);
        let scale = [scales.load(), scales.at(if second > 0 { GROUP } else { 0 }).load()];
        std::array::from_fn(|group| {
            std::array::from_fn(|row| {
                let at = 2 * row + group;
                halves.factors.result(row, sums.0[at], mins.map(|mins| mins[at])) * scale[group]
            })
        })
    }
}

/// Adds the scaled products of a chunk, and the product of its inputs' sum and its offset, to a chain.
#[device]
fn add(chain: &mut Pair, sums: [Val<i32>; 4], scale: Pair, offset: Option<(Val<f32>, Pair)>) {
    let products = join_bytes(sums);
    for row in 0..2 {
        chain[row] = fma(products[row].cast::<f32>(), scale[row], chain[row]);
        if let Some((sum, offset)) = offset {
            chain[row] = fma(sum, offset[row], chain[row]);
        }
    }
}

/// Multiplies the weights of 16 columns with a register of the inputs.
#[device]
fn multiply_half(weights: [Val<u32>; 2], signed: bool, inputs: Val<u32>) -> [Val<i32>; 4] {
    let b = FragmentB::<i8, 1>::from_registers([inputs]);
    let zero = FragmentC([val(0i32); 4]);
    if signed {
        mma(FragmentA::<i8, 2>::from_registers(weights), b, zero).0
    } else {
        mma(FragmentA::<u8, 2>::from_registers(weights), b, zero).0
    }
}

/// This lane's inputs of a granule and a group of four tokens.
struct Granule {
    /// B fragment of each chunk.
    columns: [[Val<u32>; 2]; 4],
    /// Scale of token t.
    scale: Val<f32>,
    /// Sums of token t, per chunk or half chunk; empty for types that need none.
    sums: Vec<Val<f32>>,
}

impl Granule {
    #[device]
    fn load(record: Ptr<Shared, u8>, ty: WeightType, layout: &InputLayout, map: &LaneMap) -> Granule {
        let lanes = record.byte_add(lane() * 16);
        let [a, b, c, d] = lanes.cast::<u32>().load_vector::<4>();
        let [e, f, g, h] = lanes.byte_add(512).cast::<u32>().load_vector::<4>();
        let scale = record.byte_add(SCALES).byte_add(map.quarter * 4).cast::<f32>().load();
        let sums = if !ty.has_offset() || ty.exact_groups() > 0 {
            Vec::new()
        } else if ty.has_half_chunks() {
            let at = record.byte_add(layout.half_sums()).byte_add(map.quarter * 32).cast::<i32>();
            at.load_vector::<4>().into_iter().chain(at.at(4).load_vector::<4>()).collect()
        } else {
            record
                .byte_add(layout.sums())
                .byte_add(map.quarter * 16)
                .cast::<i32>()
                .load_vector::<4>()
                .to_vec()
        };
        let sums = sums.into_iter().map(|sum| sum.cast::<f32>()).collect();
        Granule { columns: [[a, b], [c, d], [e, f], [g, h]], scale, sums }
    }
}

/// Float types: the products of each token, reduced over the lanes of a quad.
#[device]
fn dot_floats(runs: &[FloatRun], record: Ptr<Shared, u8>, column: Val<u32>, layout: &InputLayout) -> Sums {
    let mut found = [val(0.0f32); 2];
    for token in 0..GROUP {
        let inputs = record.byte_add(layout.floats()).cast::<f32>().at(column + token * GRANULE);
        let mut sums = [val(0.0f32); 2];
        for run in runs {
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
        for (found, sum) in found.iter_mut().zip(sums) {
            let pair = sum + shuffle_xor(sum, 1);
            let total = pair + shuffle_xor(pair, 2);
            *found = select((lane() & 3) == token, total, *found);
        }
    }
    found
}
