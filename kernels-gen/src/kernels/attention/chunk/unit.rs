//! Attention to the positions of a unit: scores, online softmax, and the sum of the values.

use bespoke_codegen::prelude::*;

use super::ranges::Ranges;
use super::{ChunkShape, UNIT_TILES};
use crate::kernels::attention::cache::TileReader;
use crate::kernels::attention::score;
use crate::kernels::attention::shape::{AttentionShape, TILE};

/// Score of a masked position.
const LOWEST_SCORE: f32 = -1e30;

/// Online softmax of rows g and g + 8 in lane 4g + t.
#[derive(Clone, Carry)]
pub(super) struct Running {
    /// Largest score of each row so far.
    largest: [Val<f32>; 2],
    /// This lane's parts of the denominators.
    denominators: [Val<f32>; 2],
    /// Numerators: a C fragment for every 8 elements of the head dimension.
    pub numerators: Vec<FragmentC<f32>>,
}

impl Running {
    /// The softmax of no positions.
    pub fn new(s: &AttentionShape) -> Running {
        Running {
            largest: [val(LOWEST_SCORE); 2],
            denominators: [val(0.0f32); 2],
            numerators: vec![FragmentC::zero(); (s.head_dim / 8) as usize],
        }
    }

    /// Multiplies the numerators so far by the factors of `weights`. Rows rarely meet a larger score than before, and a factor of one
    /// changes nothing.
    #[device]
    pub fn rescale(&mut self, weights: &SoftmaxWeights) {
        let rescale = weights.rescale;
        if vote_any((rescale[0] != 1.0) | (rescale[1] != 1.0)) {
            for sum in &mut self.numerators {
                *sum = FragmentC(std::array::from_fn(|i| sum.0[i] * rescale[i / 2]));
            }
        }
    }

    /// This lane's outputs of row g, or of row g + 8: two for every 8 elements.
    #[device]
    pub fn outputs(&self, row: usize) -> Vec<[Val<f32>; 2]> {
        let denominator = self.denominators[row];
        let denominator = denominator + shuffle_xor(denominator, 1);
        let factor = (denominator + shuffle_xor(denominator, 2)).rcp();
        let of_row = |sum: &FragmentC<f32>| [sum.0[2 * row], sum.0[2 * row + 1]].map(|value| value * factor);
        self.numerators.iter().map(of_row).collect()
    }
}

/// Softmax weights of the positions of a unit, not divided by the denominator.
#[derive(Clone, Carry)]
pub(super) struct SoftmaxWeights {
    /// An A fragment for each tile of 16 positions.
    pub tiles: Vec<FragmentA<f16, 4>>,
    /// Factor of the numerators so far, of each row.
    rescale: [Val<f32>; 2],
}

impl SoftmaxWeights {
    /// Zeros for `positions` positions.
    pub fn zero(positions: u32) -> SoftmaxWeights {
        let tile = FragmentA::from_registers([val(0u32); 4]);
        SoftmaxWeights { tiles: vec![tile; (positions / TILE) as usize], rescale: [val(1.0f32); 2] }
    }
}

/// Computes the softmax weights of a unit from `scores`, the products of its keys and the queries. `first` is the unit's first position. Updates
/// the running maximum and the denominators of `running`. With `ranges`, positions outside of them get the weight zero.
#[device]
pub(super) fn weigh(
    scores: &[FragmentC<f32>],
    first: Val<u32>,
    ranges: Option<&Ranges>,
    running: &mut Running,
    s: &AttentionShape,
) -> SoftmaxWeights {
    let mut scores = scores.to_vec();
    let own = first_of_lane(first);
    for (at, scores) in (0u32..).zip(&mut scores) {
        for (i, score) in scores.0.iter_mut().enumerate() {
            *score = score::of_product(*score, s);
            if let Some(ranges) = ranges {
                let attends = ranges.attends(i / 2, own + (at * 8 + i as u32 % 2));
                *score = select(attends, *score, LOWEST_SCORE);
            }
        }
    }
    let mut rescale = [val(1.0f32); 2];
    for row in 0..2 {
        let of_row = scores.iter().flat_map(|scores| [scores.0[2 * row], scores.0[2 * row + 1]]);
        let mut largest = of_row.reduce(|a, b| a.max(b)).expect("a unit has positions");
        largest = largest.max(shuffle_xor(largest, 1));
        largest = running.largest[row].max(largest.max(shuffle_xor(largest, 2)));
        rescale[row] = exp2(running.largest[row] - largest);
        running.largest[row] = largest;
        let mut sum = val(0.0f32);
        for scores in &mut scores {
            for score in &mut scores.0[2 * row..2 * row + 2] {
                let weight = exp2(*score - largest);
                // Before its first position a row has no other scores than those of masked positions.
                *score = match ranges {
                    Some(_) => select(*score > LOWEST_SCORE, weight, 0.0f32),
                    None => weight,
                };
                sum += *score;
            }
        }
        running.denominators[row] = fma(running.denominators[row], rescale[row], sum);
    }
    let tiles = scores.chunks(2).map(|tile| weights(&tile[0], &tile[1])).collect();
    SoftmaxWeights { tiles, rescale }
}

/// First position of this lane's columns in a fragment whose first column is position `first`.
fn first_of_lane(first: Val<u32>) -> Val<u32> {
    first + (lane() & 3) * 2
}

/// 2^x, approximate: about 2 ulp. Subnormal results are zero; without `.ftz` the instruction takes four machine instructions.
#[track_caller]
fn exp2(x: Val<f32>) -> Val<f32> {
    inline_ptx("ex2.approx.ftz.f32 {power}, {x};").input("x", x).pure().output("power")
}

/// The weights of a tile of 16 positions as an A fragment, from those of its first and last 8 positions.
fn weights(first: &FragmentC<f32>, last: &FragmentC<f32>) -> FragmentA<f16, 4> {
    let pair =
        |of: &FragmentC<f32>, at: usize| pack_rounded::<F16x2>(of.0[at], of.0[at + 1]).bitcast::<u32>();
    FragmentA::from_registers([pair(first, 0), pair(first, 2), pair(last, 0), pair(last, 2)])
}

/// Products of the queries and the keys at `at`, for eight positions each.
pub(super) fn scores(
    at: Ptr<Shared, u8>,
    query: &[FragmentA<f16, 4>],
    s: &AttentionShape,
) -> Vec<FragmentC<f32>> {
    let mut scores = vec![FragmentC::<f32>::zero(); 2 * UNIT_TILES as usize];
    for tile in 0..UNIT_TILES {
        let reader = TileReader::of_keys(at.byte_add(tile * s.tile_bytes()), s);
        for (step, &query) in (0u32..).zip(query) {
            for (half, keys) in reader.fragments(step).into_iter().enumerate() {
                let score = &mut scores[2 * tile as usize + half];
                *score = mma(query, keys, *score);
            }
        }
    }
    scores
}

/// Adds the values of the unit from `first` on, whose keys are at `at`.
pub(super) fn add_values(
    at: Ptr<Shared, u8>,
    first: Val<u32>,
    weights: &[FragmentA<f16, 4>],
    ranges: Option<&Ranges>,
    running: &mut Running,
    s: &AttentionShape,
) {
    let own = first_of_lane(first);
    for (tile, &weights) in (0u32..).zip(weights) {
        let keys = at.byte_add(tile * s.tile_bytes());
        let reader = TileReader::of_keys(keys, s).of_values(keys, s);
        let masks = ranges.map(|ranges| [0u32, 8].map(|half| ranges.mask(own + (tile * TILE + half))));
        for step in 0..s.steps() {
            for (half, values) in reader.fragments(step).into_iter().enumerate() {
                let values = match masks {
                    Some(masks) => {
                        let words = values.registers();
                        FragmentB::from_registers([words[0] & masks[0], words[1] & masks[1]])
                    }
                    None => values,
                };
                let sum = &mut running.numerators[2 * step as usize + half];
                *sum = mma(weights, values, *sum);
            }
        }
    }
}

/// Starts the products of the queries and a page's keys, which are at `at`, with `wgmma`. See [`scores`].
pub(super) fn start_scores(
    at: Ptr<Shared, u8>,
    query: &[FragmentA<f16, 4>],
    s: &AttentionShape,
) -> RunningSums {
    let keys = MatrixDescriptor::new(at.cast::<f16>(), 128, s.half_tile_bytes());
    let product = |(step, &query): (u32, &FragmentA<f16, 4>)| (query, keys.byte_add(step * 256));
    let products: Vec<_> = (0u32..).zip(query).map(product).collect();
    start_products(super::PAGE, &products)
}

/// Starts adding weights times values of a page, whose keys are at `at`, with `wgmma`. Takes the numerators of `running`; the caller puts them back
/// after [`RunningSums::wait`]. Stale values must be zeros. See [`add_values`].
pub(super) fn start_adding_values(
    at: Ptr<Shared, u8>,
    weights: &[FragmentA<f16, 4>],
    running: &mut Running,
    s: &AttentionShape,
) -> RunningSums {
    let values = MatrixDescriptor::new(at.byte_add(s.part_bytes()).cast::<f16>(), s.half_tile_bytes(), 128);
    let product =
        |(tile, &weights): (u32, &FragmentA<f16, 4>)| (weights, values.byte_add(tile * s.tile_bytes()));
    let products: Vec<_> = (0u32..).zip(weights).map(product).collect();
    let sums = WarpgroupSums::from_fragments(std::mem::take(&mut running.numerators));
    sums.multiply(&products)
}

/// Clears the values of the page at `at` that may be stale, for [`start_adding_values`]: a weight of zero times a stale value is
/// not always zero. Called by all threads of the CTA; a barrier must follow.
#[device]
pub(super) fn clear_stale_values(at: Ptr<Shared, u8>, first: Val<u32>, ranges: &Ranges, chunk: &ChunkShape) {
    let s = &chunk.attention;
    let values = at.byte_add(s.part_bytes());
    // A row of a core matrix has an element of eight positions.
    let rows = super::PAGE / 8 * s.head_dim;
    let mut row = thread_index();
    while row < rows {
        let positions = first + row / s.head_dim * 8;
        let words = values.byte_add(row * 16).cast::<u32>();
        let masks: [Val<u32>; 4] = std::array::from_fn(|i| ranges.mask(positions + 2 * i as u32));
        let cleared = words.load_vector::<4>();
        words.store_vector::<4>(std::array::from_fn(|i| cleared[i] & masks[i]));
        row += chunk.threads();
    }
    fence_async_shared();
}
