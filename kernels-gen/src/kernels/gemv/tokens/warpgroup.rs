//! Products of many tokens by warpgroups, with `wgmma` on Hopper's tensor cores: of types whose products are added up as integers
//! ([`WeightType::exact_groups`]), and of f16.
//!
//! The arithmetic is that of `unit`; what differs is who computes what. A warpgroup has a *quad* of four tiles, one for each
//! warp, and all tokens of the CTA: it decodes the weights of a step into registers, operand A, and multiplies them with
//! operand B, the inputs in shared memory, which it does not load. A stage of the ring of weights has a quad in a slice of the
//! columns.
//!
//! The warpgroups take the stages in turn. So several slices of a quad are multiplied at a time, and their sums have to be added
//! in the order of columns: a warpgroup waits for its turn before it adds to the totals in shared memory, and then passes the
//! turn on. Mbarriers order the turns.
//!
//! Scale · code has up to 11 bits. A is bytes, so the scale is split: scale = 8·high + low, and high · code is multiplied first.
//! Scale · code of Q6_K has 16 bits: the upper byte is multiplied first ([`scaled_codes`](crate::kernels::gemv::scaled_codes)).
//!
//! Products of f16 need neither ([`half_step`](crate::kernels::gemv::half_step)). If the columns have two parts, the CTAs of a
//! cluster have the same tiles and tokens, and a part each; [`join_parts`](super::join_parts) adds their totals.

use bespoke_codegen::prelude::*;

use super::SliceRun;
use super::inputs::{GRANULE, GROUP, MIN_BYTES};
use crate::kernels::gemv::blocks::join_bytes;
use crate::kernels::gemv::decode::{
    LaneMap, SixBitIntegers, SuperFactors, nibbles_in_place, scale_of_chunk, six_bit_words, weight_fragments,
};
use crate::kernels::gemv::half_step::HalfStep;
use crate::kernels::gemv::ring::{RingProducer, policy};
use crate::kernels::gemv::scaled_codes::{RowScales, byte_factors};
use crate::kernels::gemv::shape::{Arithmetic, GemvShape, SQUARES_GROUP};
use crate::weights::{Layout, WeightType};

/// Tiles of a stage: one for each warp of a warpgroup.
pub(crate) const QUAD: u32 = 4;

/// Most consumer warpgroups of a CTA: more would have too few registers a thread.
pub(crate) const MAX_WARPGROUPS: u32 = 3;

/// Registers of a thread, if there are [`MAX_WARPGROUPS`] and the producers are a fourth one (`setmaxnreg`).
pub(in crate::kernels::gemv) struct Registers {
    /// Of every thread at the start.
    pub start: u32,
    /// Of a producer's thread, later.
    pub producer: u32,
    /// Of a consumer's thread, later. 3 · consumer + producer ≤ 4 · start.
    pub consumer: u32,
}

/// Integers use all 65,536 registers of a multiprocessor.
const OF_INTEGERS: Registers = Registers { start: 128, producer: 32, consumer: 160 };

/// 12,288 registers are left: three CTAs of `prepare` of the next product start while this one runs. Measured on an H200: 32
/// sequences 3 to 11% faster, 64 3 to 6%. Integers are 1 to 2% slower with 112 and 136.
const OF_HALVES: Registers = Registers { start: 104, producer: 32, consumer: 128 };

const _: () = {
    assert!(OF_INTEGERS.is_consistent() && OF_INTEGERS.left() == 0);
    // CTAs of `prepare` have four warps, and up to 32 registers a thread.
    assert!(OF_HALVES.is_consistent() && OF_HALVES.left() >= 3 * 4 * WARP * 32);
};

impl Registers {
    /// Threads of a CTA.
    const THREADS: u32 = (MAX_WARPGROUPS + 1) * QUAD * WARP;

    /// Whether the producers give as many registers as the consumers take.
    const fn is_consistent(&self) -> bool {
        MAX_WARPGROUPS * self.consumer + self.producer <= (MAX_WARPGROUPS + 1) * self.start
    }

    /// Registers of a multiprocessor that a CTA leaves.
    const fn left(&self) -> u32 {
        65536 - Registers::THREADS * self.start
    }
}

/// Columns of a step: those with one scale of the inputs.
const STEP: u32 = SQUARES_GROUP;

/// Granules of a step.
const GRANULES: u32 = STEP / GRANULE;

/// Rows g and g + 8 of a tile, for a token.
type Pair = [Val<f32>; 2];

impl GemvShape {
    /// Whether warpgroups can multiply the matrices. Integers: sums are exact, and steps have 256 columns. f16: a unit of every
    /// matrix has 256 columns, which excludes F16 and BF16.
    pub fn supports_warpgroups(&self) -> bool {
        let is_exact = |ty: WeightType| ty.exact_groups() > 0 || ty.has_wide_integers();
        self.cols.is_multiple_of(STEP)
            && if self.has_halves() {
                self.layouts().iter().all(|layout| self.unit_cols(layout) == STEP)
            } else {
                self.segments.iter().all(|segment| is_exact(segment.ty))
            }
    }

    /// Registers for each thread, with [`MAX_WARPGROUPS`]; `None` with fewer, where producers keep their registers (no `setmaxnreg`).
    pub(in crate::kernels::gemv) fn registers(&self) -> Option<Registers> {
        let has_all = self.has_warpgroups() && self.schedule.several.warpgroups == MAX_WARPGROUPS;
        has_all.then_some(match self.arithmetic {
            Arithmetic::Integers => OF_INTEGERS,
            Arithmetic::F16 => OF_HALVES,
        })
    }

    /// Most registers of a thread at the start; 255 is no limit.
    pub(in crate::kernels::gemv) fn max_registers(&self) -> u32 {
        self.registers().map_or(255, |registers| registers.start)
    }

    /// Whether several warpgroups add to the totals in turn.
    pub(crate) fn has_turns(&self) -> bool {
        self.has_warpgroups() && self.schedule.groups > 1
    }
}

/// Producer warp: streams a slice of the columns of some tiles of a segment, a quad a stage.
#[device]
pub(super) fn stream_slice(
    weights: Ptr<Global, u8>,
    layout: &Layout,
    tiles: [Val<u32>; 2],
    slice: Val<u32>,
    producer: &mut RingProducer,
    s: &GemvShape,
) {
    let bytes = s.slice_units(layout) * s.depth() * layout.ty.block_bytes();
    // CTAs with other tokens read the same weights.
    let policy = if s.schedule.several.blocks > 1 { None } else { policy(&s.schedule) };
    let mut from = weights.bytes(mul_wide(tiles[0], layout.tile_bytes())).bytes(slice * bytes);
    let mut tile = tiles[0];
    while tile < tiles[1] {
        let count = (tiles[1] - tile).min(QUAD);
        producer.copy_rows(from, layout.tile_bytes(), bytes, count, policy, &s.schedule);
        from = from.bytes(QUAD * layout.tile_bytes());
        tile += QUAD;
    }
}

/// The turns of the warpgroups.
#[derive(Clone, Copy, Carry)]
pub(super) struct Turns {
    /// Index of this warpgroup.
    warpgroup: Val<u32>,
    /// Parity of the phase that the warpgroup's next turn waits for.
    parity: Val<u32>,
    /// Number of stages before the warpgroup's next one.
    until_own: Val<u32>,
}

/// Places the mbarriers of the turns, if there are turns: one for each warpgroup, whose phase completes when the warpgroup before
/// it passes the turn on.
#[device]
pub(super) fn turn_barriers(s: &GemvShape) -> Option<MbarrierArray> {
    s.has_turns().then(|| mbarrier_array(s.schedule.groups))
}

/// Initialises the mbarriers of the turns: every thread of a warpgroup passes the turn on. One thread calls it, and a CTA barrier
/// must follow.
#[device]
pub(super) fn init_turns(barriers: MbarrierArray, s: &GemvShape) {
    for warpgroup in 0..s.schedule.groups {
        barriers.at(warpgroup).init(QUAD * WARP);
    }
}

impl Turns {
    /// The turns at the start. The first one is the first warpgroup's, which waits for the phase before the first.
    #[device]
    pub fn new() -> Turns {
        let warpgroup = warp_index() / QUAD;
        let parity = select(warpgroup == 0, 1u32, 0u32);
        Turns { warpgroup, parity, until_own: warpgroup }
    }

    /// Waits for the turn of this warpgroup at its mbarrier.
    #[device]
    fn wait(&mut self, barriers: MbarrierArray) {
        barriers.at(self.warpgroup).wait(self.parity, Wait::Try);
        self.parity ^= 1;
    }

    /// Passes the turn to the next warpgroup.
    #[device]
    fn pass(&self, barriers: MbarrierArray, s: &GemvShape) {
        let next = select(self.warpgroup == s.schedule.groups - 1, 0u32, self.warpgroup + 1);
        barriers.at(next).arrive();
    }
}

/// Multiplies this warpgroup's quads of a slice, and adds the sums of steps to the totals, f32
/// `[tile][group of tokens][16][4]`. `stage` is that of the warpgroup.
#[device]
pub(super) fn dot_slice(
    run: &SliceRun<'_>,
    totals: Ptr<Shared, f32>,
    lane_map: &LaneMap,
    stage: &mut Consumer,
    turns: &mut Turns,
    s: &GemvShape,
) {
    let (layout, groups) = (run.layout, s.schedule.groups);
    let (units, unit_bytes) = (s.slice_units(layout), s.depth() * layout.ty.block_bytes());
    let warp = warp_index() % QUAD;
    let granule_bytes = s.input_layout().granule_bytes();
    let tiles = run.tiles[1] - run.tiles[0];
    let quads = (tiles + (QUAD - 1)) / QUAD;
    let mut quad = turns.until_own;
    while quad < quads {
        stage.wait();
        // A warp without a tile multiplies that of the first warp, and stores nothing.
        let tile = quad * QUAD + warp;
        let slot = select(tile < tiles, warp, 0u32);
        let to = totals.at(tile * s.tile_sums()).at(lane());
        let mut unit = val(0u32);
        while unit < units {
            let block = stage.data().bytes((slot * units + unit) * unit_bytes);
            let record = run.inputs.bytes(unit * (GRANULES * granule_bytes));
            let step = Step { block, ty: layout.ty, record, map: lane_map, s };
            let sums = step.sums();
            if let Some(barriers) = run.turns {
                if unit == 0 {
                    turns.wait(barriers);
                }
            }
            if tile < tiles {
                add_to_totals(&sums, to, (run.slice == run.first_slice) & (unit == 0));
            }
            unit += 1;
        }
        if let Some(barriers) = run.turns {
            turns.pass(barriers, s);
        }
        stage.release();
        stage.advance_by(groups);
        quad += groups;
    }
    turns.until_own = quad - quads;
}

/// Adds the sums of a step to the totals at `to`, `[group of tokens][16][4]`, or stores those of the first step.
#[device]
fn add_to_totals(sums: &[Pair], to: Ptr<Shared, f32>, is_first: Val<bool>) {
    let places = (0..).zip(sums).flat_map(|(group, pair): (u32, &Pair)| {
        let to = to.at(group * 64);
        [(to, pair[0]), (to.at(32), pair[1])]
    });
    let places: Vec<_> = places.collect();
    if is_first {
        for (place, sum) in &places {
            place.store(*sum);
        }
    } else {
        let before: Vec<_> = places.iter().map(|(place, _)| place.load()).collect();
        for ((place, sum), before) in places.iter().zip(before) {
            place.store(before + *sum);
        }
    }
}

/// A step of 256 columns of a warp's tile, and the inputs of the CTA's tokens.
struct Step<'a> {
    /// The step's weights.
    block: Ptr<Shared, u8>,
    ty: WeightType,
    /// The block of tokens' inputs, from the step's first granule on.
    record: Ptr<Shared, u8>,
    map: &'a LaneMap,
    s: &'a GemvShape,
}

impl Step<'_> {
    /// The sums of rows g and g + 8 for token t of each group of tokens, in lane 4g + t.
    fn sums(&self) -> Vec<Pair> {
        if self.s.has_halves() {
            return self.halves();
        }
        let scales = self.record.bytes(self.s.input_layout().block_scales()).cast::<f32>();
        let scales = scales.at(self.map.quarter);
        let scale = |group: usize| scales.at(group as u32 * GROUP).load();
        let sums = if self.ty.has_wide_integers() { self.wide() } else { self.exact() };
        let sums = sums.into_iter().enumerate();
        sums.map(|(group, pair)| pair.map(|sum| sum * scale(group))).collect()
    }

    /// The sums of weights and inputs as f16.
    fn halves(&self) -> Vec<Pair> {
        let (layout, ty) = (self.s.input_layout(), self.ty);
        let tokens = layout.block_tokens;
        let matrix = |chunk: u32| {
            let granule = self.record.bytes(chunk / 4 * layout.granule_bytes() + layout.halves(ty));
            MatrixDescriptor::new(granule.cast::<f16>(), tokens * 16, 128).bytes(chunk % 4 * (tokens * 64))
        };
        let operand = |words| FragmentA::<f16, 4>::from_registers(words);
        let mut step = HalfStep::load(self.block, ty, STEP / ty.block_cols(), self.map);
        let mins = step.mins().map(|mins| {
            let at = self.record.bytes(layout.block_mins()).cast::<f16>();
            let at = MatrixDescriptor::new(at, layout.granule_bytes(), 128);
            start_products(tokens, &[(operand(mins), at)])
        });
        let mut running: Option<RunningSums> = None;
        for pair in 0..step.pairs() {
            for (odd, chunk) in (0u32..).zip(step.chunks(pair)) {
                let at = matrix(2 * pair + odd);
                let products =
                    [0u32, 1].map(|half| (operand(chunk[half as usize]), at.bytes(half * (tokens * 32))));
                running = Some(match running {
                    None => start_products(tokens, &products),
                    Some(running) => running.multiply(&products),
                });
                // The registers of the products before these are free.
                wait_for_products(1);
            }
        }
        let factors = step.factors();
        let scales = self.record.bytes(layout.block_scales()).cast::<f32>().at(self.map.quarter);
        let scale = |group: usize| scales.at(group as u32 * GROUP).load();
        let sums = running.expect("a step has chunks").wait();
        let mins = mins.map(RunningSums::wait);
        let result = |group: usize, scale: Val<f32>| -> Pair {
            std::array::from_fn(|row| {
                let of = |sums: &WarpgroupSums| sums.fragments()[group / 2].0[2 * row + group % 2];
                factors.result(row, of(&sums), mins.as_ref().map(of), scale)
            })
        };
        (0..2 * sums.fragments().len()).map(|group| result(group, scale(group))).collect()
    }

    /// Columns of operand B.
    fn columns(&self) -> u32 {
        self.s.input_layout().block_columns()
    }

    /// Operand B of chunk `chunk` of the step.
    fn chunk(&self, chunk: u32) -> MatrixDescriptor<i8> {
        let columns = self.columns();
        let at = chunk / 4 * self.s.input_layout().granule_bytes() + chunk % 4 * (columns * 32);
        self.matrix(columns * 16).bytes(at)
    }

    /// The descriptor of a matrix at the start of the record.
    fn matrix(&self, along_k: u32) -> MatrixDescriptor<i8> {
        MatrixDescriptor::new(self.record.cast(), along_k, 128)
    }

    /// Operand B with the sums of the chunks of all granules, or of granule `granule` twice.
    fn mins(&self, granule: Option<u32>) -> MatrixDescriptor<i8> {
        let layout = self.s.input_layout();
        let along_k = if granule.is_some() { 0 } else { layout.granule_bytes() };
        self.matrix(along_k).bytes(granule.unwrap_or(0) * layout.granule_bytes() + layout.block_mins())
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
