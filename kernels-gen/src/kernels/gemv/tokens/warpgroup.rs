//! Products of several tokens by warpgroups, with `wgmma` on Hopper's tensor cores.
//!
//! The arithmetic is that of `unit`; what differs is who computes what. A warpgroup has a *quad* of four tiles, one for each
//! warp, and all tokens of its part: it decodes the weights of a step into registers, operand A, and multiplies them with
//! operand B, the inputs in shared memory, which it does not load. A stage of the ring of weights has a quad in a slice of the
//! columns.
//!
//! The warpgroups take the stages in turn, those of the parts of a quad together as a *team*. So several slices of a quad are
//! multiplied at a time, and their sums have to be added in the order of columns: a team waits for its turn before it adds to the
//! totals in shared memory, and then passes the turn on. Named barriers order the turns.
//!
//! Products of Q4_K and Q5_K are exact integers of a superblock, where scale · code has up to 11 bits. A is bytes, so the
//! scale is split: scale = 8·high + low, and high · code is multiplied first.

use bespoke_codegen::prelude::*;

use super::SliceRun;
use super::inputs::{GRANULE, GROUP, MIN_BYTES};
use crate::kernels::gemv::blocks::join_bytes;
use crate::kernels::gemv::decode::{
    ChunkScales, HalfChunkBits, HalfChunkScales, LaneMap, SixBitIntegers, SuperFactors, nibbles_in_place,
    six_bit_scales, weight_fragments,
};
use crate::kernels::gemv::operands::CONSUMER_BARRIER;
use crate::kernels::gemv::ring::{RingProducer, policy};
use crate::kernels::gemv::shape::{GemvShape, SQUARES_GROUP};
use crate::weights::{Layout, WeightType};

/// Tiles of a stage: one for each warp of a warpgroup.
pub(crate) const QUAD: u32 = 4;

/// Columns of a step: those with one scale of the inputs.
const STEP: u32 = SQUARES_GROUP;

/// Granules of a step.
const GRANULES: u32 = STEP / GRANULE;

/// Registers for the sums of products that run at a time.
const SUMS_AT_ONCE: u32 = 32;

/// Rows g and g + 8 of a tile, for a token.
type Pair = [Val<f32>; 2];

impl GemvShape {
    /// Whether warpgroups can multiply the matrices: steps have 256 columns, and weights are integers without an offset, or those of
    /// exact sums.
    pub fn supports_warpgroups(&self) -> bool {
        let supported = |ty: WeightType| ty.exact_groups() > 0 || ty.is_quantised() && !ty.has_offset();
        self.cols.is_multiple_of(STEP)
            && self.segments.iter().all(|segment| {
                supported(segment.ty) && self.step(segment.ty) * segment.ty.block_cols() == STEP
            })
    }

    /// Whether several teams of warpgroups add to the totals in turn.
    fn has_turns(&self) -> bool {
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

/// The turns of the teams of warpgroups.
#[derive(Clone, Copy, Carry)]
pub(super) struct Turns {
    /// Index of this warpgroup's team.
    team: Val<u32>,
    /// Number of stages before the team's next one.
    until_own: Val<u32>,
}

/// Number of the named barrier of the first team's turn.
const TURN_BARRIER: u8 = CONSUMER_BARRIER + 1;

impl Turns {
    /// The turns at the start: the first team's turn is the first. All consumer warps call it.
    #[device]
    pub fn new(s: &GemvShape) -> Turns {
        let team = warp_index() / s.warps_per_stage();
        let turns = Turns { team, until_own: team };
        turns.pass_from(team == s.schedule.groups - 1, val(0u32), s);
        turns
    }

    /// Waits for the turn of the warpgroup's team.
    #[device]
    fn wait(&self, s: &GemvShape) {
        if s.has_turns() {
            for team in 0..s.schedule.groups {
                if self.team == team {
                    named_barrier(TURN_BARRIER + team as u8, 2 * s.warps_per_stage() * WARP);
                }
            }
        }
    }

    /// Passes the turn to the next team.
    #[device]
    fn pass(&self, s: &GemvShape) {
        let next = select(self.team == s.schedule.groups - 1, 0u32, self.team + 1);
        self.pass_from(val(true), next, s);
    }

    /// Passes the turn to team `to` if `passes`.
    #[device]
    fn pass_from(&self, passes: Val<bool>, to: Val<u32>, s: &GemvShape) {
        if s.has_turns() {
            for team in 0..s.schedule.groups {
                if passes & (to == team) {
                    arrive_at_barrier(TURN_BARRIER + team as u8, 2 * s.warps_per_stage() * WARP);
                }
            }
        }
    }

    /// Ends the turns, after all stages: the team whose turn is next takes it.
    #[device]
    pub fn end(&self, s: &GemvShape) {
        if self.until_own == 0 {
            self.wait(s);
        }
    }
}

/// Multiplies this warpgroup's quads of a slice, and adds the sums of steps to the totals, f32
/// `[tile][group of tokens][16][4]`. `stage` is that of the warpgroup's team.
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
    let (warp, part) = (warp_index() % QUAD, warp_index() / QUAD % s.schedule.several.parts);
    let granule_bytes = s.input_layout().granule_bytes();
    let of_part = s.cta_groups() / s.schedule.several.parts;
    let tiles = run.tiles[1] - run.tiles[0];
    let quads = (tiles + (QUAD - 1)) / QUAD;
    let mut quad = turns.until_own;
    while quad < quads {
        stage.wait();
        // A warp without a tile multiplies that of the first warp, and stores nothing.
        let tile = quad * QUAD + warp;
        let slot = select(tile < tiles, warp, 0u32);
        let to = totals.at(tile * s.tile_sums() + part * (of_part * 64)).at(lane());
        let mut unit = val(0u32);
        while unit < units {
            let block = stage.data().bytes((slot * units + unit) * unit_bytes);
            let record = run.inputs.bytes(unit * (GRANULES * granule_bytes));
            let step = Step { block, ty: layout.ty, record, part, map: lane_map, s };
            let sums = step.sums();
            if unit == 0 {
                turns.wait(s);
            }
            if tile < tiles {
                add_to_totals(&sums, to, (run.slice == 0) & (unit == 0));
            }
            unit += 1;
        }
        turns.pass(s);
        stage.release_by_warp();
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

/// A step of 256 columns of a warp's tile, and the inputs of its part of the tokens.
struct Step<'a> {
    /// The step's weights.
    block: Ptr<Shared, u8>,
    ty: WeightType,
    /// The block of tokens' inputs, from the step's first granule on.
    record: Ptr<Shared, u8>,
    part: Val<u32>,
    map: &'a LaneMap,
    s: &'a GemvShape,
}

impl Step<'_> {
    /// The sums of rows g and g + 8 for token t of each group of tokens, in lane 4g + t.
    fn sums(&self) -> Vec<Pair> {
        let sums = if self.ty.exact_groups() > 0 { self.exact() } else { self.chains() };
        let scales = self.record.bytes(self.s.input_layout().block_scales()).cast::<f32>();
        let scales = scales.at(self.part * (self.groups() * GROUP)).at(self.map.quarter);
        let scale = |group: usize| scales.at(group as u32 * GROUP).load();
        sums.into_iter().enumerate().map(|(group, pair)| pair.map(|sum| sum * scale(group))).collect()
    }

    /// Number of groups of tokens of the part.
    fn groups(&self) -> u32 {
        self.s.cta_groups() / self.s.schedule.several.parts
    }

    /// Number of products with sums of their own that run at a time.
    fn products_at_once(&self) -> usize {
        (SUMS_AT_ONCE / (self.columns() / 2)).clamp(1, 2) as usize
    }

    /// Columns of operand B of the part.
    fn columns(&self) -> u32 {
        2 * GROUP * self.groups()
    }

    /// Operand B of chunk `chunk` of the step.
    fn chunk(&self, chunk: u32) -> MatrixDescriptor<i8> {
        let layout = self.s.input_layout();
        let columns = layout.block_columns();
        let at = chunk / 4 * layout.granule_bytes() + chunk % 4 * (columns * 32);
        self.matrix(columns * 16).bytes(at)
    }

    /// The descriptor of the part's columns at the start of the record.
    fn matrix(&self, along_k: u32) -> MatrixDescriptor<i8> {
        let from = self.record.bytes(self.part * (self.columns() * 16));
        MatrixDescriptor::new(from.cast(), along_k, 128)
    }

    /// Operand B with the sums of the chunks of all granules, or of granule `granule` twice.
    fn mins(&self, granule: Option<u32>) -> MatrixDescriptor<i8> {
        let layout = self.s.input_layout();
        let along_k = if granule.is_some() { 0 } else { layout.granule_bytes() };
        self.matrix(along_k).bytes(granule.unwrap_or(0) * layout.granule_bytes() + layout.block_mins())
    }

    /// The sums of types whose scaled products are added up as integers.
    fn exact(&self) -> Vec<Pair> {
        let (block, ty, map) = (self.block, self.ty, self.map);
        let factors = SuperFactors::load(block, ty, map);
        let mins = SixBitIntegers::load(block, ty, map).mins;
        let mins = mins.map(|word| [(word & 0xFF) * MIN_BYTES, (word >> 8) * MIN_BYTES]);
        let scales = six_bit_scales(block, ty, map);
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
            // The products of the mins run beside those of the codes.
            let offsets = start_products(self.columns(), &[(a, b)]);
            let products = scaled(&self.scaled_codes(groups, &scales), factors.d);
            let offsets = scaled(&offsets.wait(), factors.dmin);
            let sums = products.iter().zip(&offsets).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]);
            totals = Some(match totals {
                None => sums.collect(),
                Some(totals) => totals.iter().zip(sums).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect(),
            });
        }
        totals.expect("a superblock has a group")
    }

    /// Σ scale · code · input over groups of four chunks.
    fn scaled_codes(&self, groups: &[u32], scales: &[[Val<i32>; 2]]) -> WarpgroupSums<i32> {
        let part = |of_scale: &dyn Fn(Val<u32>) -> Val<u32>| -> Vec<_> {
            groups.iter().flat_map(|&group| self.codes(group, scales, of_scale)).collect()
        };
        let high = start_products(self.columns(), &part(&|scale| scale >> 3)).wait();
        let shifted = high.fragments().iter().map(|fragment| FragmentC(fragment.0.map(|sum| sum << 3)));
        WarpgroupSums::from_fragments(shifted.collect()).multiply(&part(&|scale| scale & 7)).wait()
    }

    /// Operands of the products of a group of four chunks with the codes times a part of their scales.
    fn codes(
        &self,
        group: u32,
        scales: &[[Val<i32>; 2]],
        of_scale: &dyn Fn(Val<u32>) -> Val<u32>,
    ) -> Vec<(FragmentA<u8, 4>, MatrixDescriptor<i8>)> {
        let mut fragments = weight_fragments(self.block, self.ty, group);
        if nibbles_in_place(self.ty) {
            for odd in fragments.iter_mut().skip(1).step_by(2) {
                *odd = odd.map(|word| word >> 4);
            }
        }
        let operands = |(of_group, words): (u32, [Val<u32>; 4])| {
            let chunk = 4 * group + of_group;
            let factors = scales[chunk as usize].map(|scale| of_scale(scale.bitcast::<u32>()));
            let words = std::array::from_fn(|r| words[r] * factors[r % 2]);
            (FragmentA::from_registers(words), self.chunk(chunk))
        };
        (0u32..).zip(fragments).map(operands).collect()
    }

    /// The sums of other types, which have four chains: chain t has chunk t, or half chunk t, of each group of four.
    fn chains(&self) -> Vec<Pair> {
        let scales = self.scales();
        let chain = |part: u32| {
            let mut chain = vec![[val(0.0f32); 2]; self.groups() as usize];
            let mut bits = Bits::default();
            let indices: Vec<u32> = (0..scales.len() as u32).collect();
            for groups in indices.chunks(self.products_at_once()) {
                let running: Vec<RunningSums<i32>> = groups
                    .iter()
                    .map(|&group| start_products(self.columns(), &[self.product(group, part, &mut bits)]))
                    .collect();
                for (&group, running) in groups.iter().zip(running) {
                    let quad = (lane() & 28) + part;
                    let scale = scales[group as usize].map(|scale| shuffle_lane(scale, quad));
                    for (chain, fragment) in chain.iter_mut().zip(running.wait().fragments()) {
                        let products = join_bytes(fragment.0);
                        for row in 0..2 {
                            chain[row] = fma(products[row].cast::<f32>(), scale[row], chain[row]);
                        }
                    }
                }
            }
            chain
        };
        let sum_of = |first: Vec<Pair>, second: Vec<Pair>| -> Vec<Pair> {
            first.iter().zip(&second).map(|(a, b)| [a[0] + b[0], a[1] + b[1]]).collect()
        };
        let pair = |first: u32| {
            let one = chain(first);
            sum_of(one, chain(first + 1))
        };
        let first = pair(0);
        sum_of(first, pair(2))
    }

    /// The blocks of the step.
    fn blocks(&self) -> impl Iterator<Item = Ptr<Shared, u8>> {
        let (block, ty) = (self.block, self.ty);
        (0..STEP / ty.block_cols()).map(move |index| block.bytes(index * ty.block_bytes()))
    }

    /// Scales of chunk t, or of half chunk t, of each group of four in lane 4g + t, for rows g and g + 8.
    fn scales(&self) -> Vec<Pair> {
        let of_block = |block| -> Vec<Pair> {
            if self.ty.has_half_chunks() {
                let scales = HalfChunkScales::load(block, self.ty, self.map);
                let pair = |group| [scales.of_row(0, group).0, scales.of_row(1, group).0];
                (0..self.ty.block_cols() / 64).map(pair).collect()
            } else {
                let scales = ChunkScales::load(block, self.ty, self.map);
                (0..self.ty.block_cols() / 128).map(|group| scales.of_group(group).0).collect()
            }
        };
        self.blocks().flat_map(of_block).collect()
    }

    /// Operands of the products of chunk `part`, or half chunk `part`, of group `group`.
    fn product(&self, group: u32, part: u32, bits: &mut Bits) -> (FragmentA<i8, 4>, MatrixDescriptor<i8>) {
        let (words, chunk) = if self.ty.has_half_chunks() {
            let per_block = self.ty.block_cols() / 64;
            let block = self.blocks().nth((group / per_block) as usize).expect("a block of the step");
            if group.is_multiple_of(per_block) {
                bits.half_chunks = HalfChunkBits::default();
            }
            let fragments = bits.half_chunks.weights(block, self.ty, group % per_block);
            let [a, b, c, d] = fragments[part as usize / 2];
            let zero = val(0u32);
            let words = if part.is_multiple_of(2) { [a, b, zero, zero] } else { [zero, zero, c, d] };
            (words, 2 * group + part / 2)
        } else {
            let per_block = self.ty.block_cols() / 128;
            let block = self.blocks().nth((group / per_block) as usize).expect("a block of the step");
            (weight_fragments(block, self.ty, group % per_block)[part as usize], 4 * group + part)
        };
        (FragmentA::from_registers(words), self.chunk(chunk))
    }
}

/// Bits of half chunks that several groups share.
#[derive(Default)]
struct Bits {
    half_chunks: HalfChunkBits,
}
