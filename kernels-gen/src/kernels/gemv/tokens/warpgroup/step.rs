//! The products of a step: 256 columns of a quad of tiles with all tokens of the CTA.

use bespoke_codegen::prelude::*;

use super::STEP;
use crate::kernels::gemv::blocks::join_bytes;
use crate::kernels::gemv::decode::{
    LaneMap, SixBitIntegers, SuperFactors, nibbles_in_place, scale_of_chunk, six_bit_words, weight_fragments,
};
use crate::kernels::gemv::half_step::HalfStep;
use crate::kernels::gemv::half_weights::ChunkFragments;
use crate::kernels::gemv::scaled_codes::{RowScales, byte_factors};
use crate::kernels::gemv::shape::GemvShape;
use crate::kernels::gemv::tokens::inputs::MIN_BYTES;
use crate::weights::WeightType;
/// Rows g and g + 8 of a tile, for a token.
type Pair = [Val<f32>; 2];

/// The sums of lane 4g + t for a pair of groups of tokens: row g for token t of both groups, then row g + 8.
pub(super) type Four = [Val<f32>; 4];

/// The sums of a step in a lane.
pub(super) struct StepSums {
    /// An entry for each pair of groups of tokens.
    pub sums: Vec<Four>,
    /// Scales of the inputs of both tokens of a pair, if they are not yet applied. They are powers of two, and products with them are
    /// exact unless they overflow (`F16Unit::new`), so that one `fma` gives the bits of a multiplication and an addition.
    factors: Option<Vec<[Val<f32>; 2]>>,
}

impl StepSums {
    /// The sums of integers of each group, with all factors.
    fn complete(sums: &[Pair]) -> StepSums {
        let of_pair = |pair: &[Pair]| [pair[0][0], pair[1][0], pair[0][1], pair[1][1]];
        StepSums { sums: sums.chunks_exact(2).map(of_pair).collect(), factors: None }
    }

    /// The sums of a pair of groups.
    pub fn alone(&self, pair: usize) -> Four {
        let sums = self.sums[pair];
        match &self.factors {
            Some(factors) => std::array::from_fn(|at| sums[at] * factors[pair][at % 2]),
            None => sums,
        }
    }

    /// `before` plus the sums of a pair of groups, to which the factors are applied.
    pub fn added_to(&self, pair: usize, before: Four) -> Four {
        let sums = self.sums[pair];
        match &self.factors {
            Some(factors) => std::array::from_fn(|at| fma(sums[at], factors[pair][at % 2], before[at])),
            None => std::array::from_fn(|at| before[at] + sums[at]),
        }
    }
}

/// A step of 256 columns of a warp's tile, and the inputs of the CTA's tokens.
pub(super) struct Step<'a> {
    /// The step's weights.
    pub block: Ptr<Shared, u8>,
    pub ty: WeightType,
    /// The block of tokens' inputs, from the step's first granule on.
    pub record: Ptr<Shared, u8>,
    pub map: &'a LaneMap,
    pub s: &'a GemvShape,
}

impl Step<'_> {
    /// The sums of rows g and g + 8 for token t of each group of tokens, in lane 4g + t.
    pub fn sums(&self) -> StepSums {
        if self.s.is_f16() {
            return self.halves();
        }
        let sums = if self.ty.has_wide_integers() { self.wide() } else { self.exact() };
        let scales = self.scales().into_iter().flatten();
        let sums: Vec<Pair> =
            sums.into_iter().zip(scales).map(|(pair, scale)| pair.map(|sum| sum * scale)).collect();
        StepSums::complete(&sums)
    }

    /// The scales of the inputs, for token t of each pair of groups.
    fn scales(&self) -> Vec<[Val<f32>; 2]> {
        let (layout, groups) = (self.s.input_layout(), self.s.cta_groups());
        let scales = self.record.byte_add(layout.block_scales()).cast::<f32>().at(self.map.quarter * groups);
        if groups.is_multiple_of(4) {
            let four = |at: u32| scales.at(4 * at).load_vector::<4>();
            return (0..groups / 4).map(four).flat_map(|[a, b, c, d]| [[a, b], [c, d]]).collect();
        }
        (0..groups / 2).map(|at| scales.at(2 * at).load_vector::<2>()).collect()
    }

    /// The sums of weights and inputs as f16.
    fn halves(&self) -> StepSums {
        let (layout, ty) = (self.s.input_layout(), self.ty);
        let tokens = layout.block_tokens;
        let matrix = |chunk: u32| {
            let granule = self.record.byte_add(chunk / 4 * layout.granule_bytes() + layout.halves(ty));
            MatrixDescriptor::new(granule.cast::<f16>(), tokens * 16, 128).byte_add(chunk % 4 * (tokens * 64))
        };
        let operand = |words| FragmentA::<f16, 4>::from_registers(words);
        let mut step = HalfStep::load(self.block, ty, STEP / ty.block_cols(), self.map);
        let mins = step.mins().map(|mins| {
            let at = self.record.byte_add(layout.block_mins()).cast::<f16>();
            let at = MatrixDescriptor::new(at, layout.granule_bytes(), 128);
            start_products(tokens, &[(operand(mins), at)])
        });
        let mut running: Option<RunningSums> = None;
        for pair in 0..step.pairs() {
            let products = |(odd, chunk): (u32, ChunkFragments)| {
                let at = matrix(2 * pair + odd);
                [0u32, 1].map(|half| (operand(chunk[half as usize]), at.byte_add(half * (tokens * 32))))
            };
            let products: Vec<_> = (0..).zip(step.chunks(pair)).flat_map(products).collect();
            running = Some(match running {
                None => start_products(tokens, &products),
                Some(running) => running.multiply(&products),
            });
            // The registers of the products before these are free.
            wait_for_products(1);
        }
        let factors = step.factors();
        let scales = self.scales();
        let sums = running.expect("a step has chunks").wait();
        let mins = mins.map(RunningSums::wait);
        let result = |pair: usize| -> Four {
            std::array::from_fn(|at| {
                let of = |sums: &WarpgroupSums| sums.fragments()[pair].0[at];
                factors.result(at / 2, of(&sums), mins.as_ref().map(of))
            })
        };
        StepSums { sums: (0..scales.len()).map(result).collect(), factors: Some(scales) }
    }

    /// Columns of operand B.
    fn columns(&self) -> u32 {
        self.s.input_layout().block_columns()
    }

    /// Operand B of chunk `chunk` of the step.
    fn chunk(&self, chunk: u32) -> MatrixDescriptor<i8> {
        let columns = self.columns();
        let at = chunk / 4 * self.s.input_layout().granule_bytes() + chunk % 4 * (columns * 32);
        self.matrix(columns * 16).byte_add(at)
    }

    /// The descriptor of a matrix at the start of the record.
    fn matrix(&self, along_k: u32) -> MatrixDescriptor<i8> {
        MatrixDescriptor::new(self.record.cast(), along_k, 128)
    }

    /// Operand B with the sums of the chunks of all granules, or of granule `granule` twice.
    fn mins(&self, granule: Option<u32>) -> MatrixDescriptor<i8> {
        let layout = self.s.input_layout();
        let along_k = if granule.is_some() { 0 } else { layout.granule_bytes() };
        self.matrix(along_k).byte_add(granule.unwrap_or(0) * layout.granule_bytes() + layout.block_mins())
    }

    /// The sums before the scale of the inputs.
    fn exact(&self) -> Vec<Pair> {
        let (block, ty, map) = (self.block, self.ty, self.map);
        let factors = SuperFactors::load(block, ty, map);
        let mins = SixBitIntegers::load(block, ty, map).mins;
        let mins = mins.map(|word| [(word & 0xFF) * MIN_BYTES, (word >> 8) * MIN_BYTES]);
        let scales = six_bit_words(block, ty, map);
        let scaled = |sums: &WarpgroupSums<i32>, factors: Pair| -> Vec<Pair> {
            let of_group = |fragment: &FragmentC<i32>| {
                let sums = join_bytes(fragment.0);
                [sums[0].cast::<f32>() * factors[0], sums[1].cast::<f32>() * factors[1]]
            };
            sums.fragments().iter().map(of_group).collect()
        };
        let mut totals: Option<Vec<Pair>> = None;
        for groups in [0u32, 1].chunks(ty.exact_groups() as usize) {
            let (words, b) = match *groups {
                [first, second] => {
                    let [[a, b], [c, d]] = [mins[first as usize], mins[second as usize]];
                    ([a, b, c, d], self.mins(None))
                }
                _ => {
                    let [a, b] = mins[groups[0] as usize];
                    ([a, b, val(0), val(0)], self.mins(Some(groups[0])))
                }
            };
            let a = FragmentA::<u8, 4>::from_registers(words);
            // The products of the mins overlap those of the codes if there are enough registers. Otherwise they follow.
            let start = || start_products(self.columns(), &[(a, b)]);
            let codes = || scaled(&self.scaled_codes(groups, scales), factors.first);
            let (products, running) = if self.has_many_columns() {
                let products = codes();
                (products, start())
            } else {
                let running = start();
                (codes(), running)
            };
            let offsets = scaled(&running.wait(), factors.second);
            let sums = products.iter().zip(&offsets).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]);
            totals = Some(match totals {
                None => sums.collect(),
                Some(totals) => totals.iter().zip(sums).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect(),
            });
        }
        totals.expect("a superblock has a group")
    }

    /// Σ scale · code · input over groups of four chunks, from the scales as [`six_bit_words`].
    fn scaled_codes(&self, groups: &[u32], scales: [Val<u32>; 4]) -> WarpgroupSums<i32> {
        let part =
            |before, scales: [Val<u32>; 4]| self.multiply(before, groups, |group| self.codes(group, &scales));
        let high = part(None, scales.map(|word| (word >> 3) & 0x0707_0707));
        part(Some(shifted(&high, 3)), scales.map(|word| word & 0x0707_0707))
    }

    /// The sums of Q6_K before the scale of the inputs.
    fn wide(&self) -> Vec<Pair> {
        let (block, ty, map) = (self.block, self.ty, self.map);
        let factors = byte_factors(block, ty, map);
        let scales = RowScales::load(block, ty, map);
        let chunks = |group: u32| (4 * group..).zip(scales.chunks(block, ty, group));
        let upper = self.multiply(None, &[0, 1], |group| {
            let operand = |words| FragmentA::<i8, 4>::from_registers(words);
            chunks(group).map(|(at, chunk)| (operand(chunk.upper), self.chunk(at))).collect()
        });
        let sums = self.multiply(Some(shifted(&upper, 8)), &[0, 1], |group| {
            let operand = |words| FragmentA::<u8, 4>::from_registers(words);
            chunks(group).map(|(at, chunk)| (operand(chunk.lower), self.chunk(at))).collect()
        });
        let of_group = |fragment: &FragmentC<i32>| {
            let [first, second] = [factors.first, factors.second];
            let of_row = |row: usize| {
                let [high, low] = [fragment.0[2 * row], fragment.0[2 * row + 1]].map(|sum| sum.cast::<f32>());
                high * first[row] + low * second[row]
            };
            [of_row(0), of_row(1)]
        };
        sums.fragments().iter().map(of_group).collect()
    }

    /// Adds the products of groups of four chunks to `sums`. `operands` are those of a group.
    fn multiply<A>(
        &self,
        sums: Option<WarpgroupSums<i32>>,
        groups: &[u32],
        operands: impl Fn(u32) -> Vec<Product<A>>,
    ) -> WarpgroupSums<i32>
    where
        A: WarpgroupWith<i8, i32> + MmaElement<Sum = i32>,
    {
        let start = |before: Option<Started>, products: &[Product<A>]| match before {
            Some(Started::Running(running)) => running.multiply(products),
            Some(Started::Complete(sums)) => sums.multiply(products),
            None => start_products(self.columns(), products),
        };
        let before = sums.map(Started::Complete);
        if !self.has_many_columns() {
            let products: Vec<_> = groups.iter().flat_map(|&group| operands(group)).collect();
            return start(before, &products).wait();
        }
        let mut started = before;
        for &group in groups {
            for product in operands(group) {
                started = Some(Started::Running(start(started, &[product])));
                // The registers of the products before these are free.
                wait_for_products(1);
            }
        }
        match started {
            Some(Started::Running(running)) => running.wait(),
            _ => unreachable!("a group has chunks"),
        }
    }

    /// Whether the sums leave few registers for operands.
    fn has_many_columns(&self) -> bool {
        self.columns() > 64
    }

    /// Operands of the products of a group of four chunks with the codes times a part of their scales.
    fn codes(&self, group: u32, scales: &[Val<u32>; 4]) -> Vec<Product<u8>> {
        let mut fragments = weight_fragments(self.block, self.ty, group);
        if nibbles_in_place(self.ty) {
            for odd in fragments.iter_mut().skip(1).step_by(2) {
                *odd = odd.map(|word| word >> 4);
            }
        }
        let operands = |(of_group, words): (u32, [Val<u32>; 4])| {
            let chunk = 4 * group + of_group;
            let factors = scale_of_chunk(scales, chunk);
            let words = std::array::from_fn(|r| words[r] * factors[r % 2]);
            (FragmentA::from_registers(words), self.chunk(chunk))
        };
        (0u32..).zip(fragments).map(operands).collect()
    }
}

/// Operands of a product.
type Product<A> = (FragmentA<A, 4>, MatrixDescriptor<i8>);

/// Sums times 2 to the power of `bits`.
fn shifted(sums: &WarpgroupSums<i32>, bits: u32) -> WarpgroupSums<i32> {
    let shifted = sums.fragments().iter().map(|fragment| FragmentC(fragment.0.map(|sum| sum << bits)));
    WarpgroupSums::from_fragments(shifted.collect())
}

/// Sums to which products are added.
enum Started {
    Complete(WarpgroupSums<i32>),
    Running(RunningSums<i32>),
}
