//! The filters of one sampling step, computed from the sampling parameters and the largest sort key.

use bespoke_codegen::prelude::*;

use super::all::Workspace;
use super::key;
use super::philox::philox;
use super::shape::{MIN_P_MARGIN, SEED, SampleShape, TEMPERATURE, TOP_K, TOP_P, float};
use super::weight::Scale;

/// Largest key of each group of 32 tokens, distributed over the threads.
pub(super) struct Tops {
    /// Keys of groups `thread`, `thread + threads`, …; 0 past the last group.
    pub values: Vec<Val<u32>>,
}

impl Tops {
    #[device]
    pub fn load(tops: Ptr<Global, u32>, s: &SampleShape) -> Tops {
        let mut values = Vec::new();
        for pass in 0..s.groups().div_ceil(s.choose_threads) {
            let group = thread_index() + pass * s.choose_threads;
            let inside = group < s.groups();
            values.push(select(inside, tops.at(select(inside, group, 0u32)).load(), 0u32));
        }
        Tops { values }
    }

    /// CTA-wide largest and smallest of the groups' largest keys, in every thread.
    #[device]
    pub fn extremes(&self, workspace: Workspace) -> [Val<u32>; 2] {
        let mut largest = val(0u32);
        // The largest complement of a key: the complement of the smallest key.
        let mut smallest = val(0u32);
        for &top in &self.values {
            largest = largest.max(top);
            smallest = smallest.max(select(top == 0, 0u32, !top));
        }
        let warps = workspace.threads / WARP;
        let by_warp = shared_array::<u32>(2 * warps);
        let (largest, smallest) = (warp_max(largest), warp_max(smallest));
        if lane() == 0 {
            by_warp.at(warp_index()).store(largest);
            by_warp.at(warp_index() + warps).store(smallest);
        }
        barrier();
        let from = lane() & (warps - 1);
        [warp_max(by_warp.at(from).load()), !warp_max(by_warp.at(from + warps).load())]
    }
}

/// Distance below the largest logit at which a weight at temperature 1 rounds down to 0: e^-28 is below 2^-40.
const ZERO_WEIGHT_MARGIN: f32 = 28.0;

/// The run-time sampling parameters; see [`super`].
#[derive(Clone, Copy, Carry)]
pub(super) struct Settings {
    temperature: Val<f32>,
    k: Val<u32>,
    p: Val<f32>,
    margin: Val<f32>,
    seed: [Val<u32>; 2],
}

/// The filters of one sampling step, as bounds on the orderings of tokens (see [`key`]).
#[derive(Clone, Copy, Carry)]
pub(super) struct Filters {
    /// k, if `limited`.
    pub k: Val<u32>,
    /// Whether top-k removes tokens.
    pub limited: Val<bool>,
    /// p·2⁶⁴, if `nucleus`.
    p: Val<u64>,
    /// Whether top-p may remove tokens.
    pub nucleus: Val<bool>,
    /// The lowest ordering that min-p keeps.
    pub margin: Val<u64>,
    /// Lower bound of the orderings of tokens whose weight at temperature 1 is not 0.
    pub zero_weight: Val<u64>,
    /// Scale of the weights that top-p adds up: temperature 1.
    pub plain: Scale,
    /// Scale of the weights of the draw: the set temperature.
    pub warm: Scale,
}

impl Settings {
    #[device]
    pub fn load(sampling: Ptr<Global, u32>) -> Settings {
        Settings {
            temperature: float(sampling, TEMPERATURE),
            k: sampling.at(TOP_K).load(),
            p: float(sampling, TOP_P),
            margin: float(sampling, MIN_P_MARGIN),
            seed: [sampling.at(SEED).load(), sampling.at(SEED + 1).load()],
        }
    }

    /// 64 random bits for the draw of the token at `position`.
    #[device]
    pub fn random(&self, position: Val<u32>) -> Val<u64> {
        let words = philox([position, val(0u32), val(0u32), val(0u32)], self.seed);
        words[0].cast::<u64>() | (words[1].cast::<u64>() << 32)
    }

    /// Computes the filters of a step; `top` is the largest sort key of all tokens.
    #[device]
    pub fn filters(&self, top: Val<u32>, s: &SampleShape) -> Filters {
        // Temperature 0 keeps only the most likely token.
        let greedy = self.temperature == 0.0;
        let k = select(greedy, 1u32, self.k);
        let largest = key::logit(top);
        Filters {
            k,
            limited: (k > 0) & (k < s.vocab),
            p: (self.p * 2.0f32.powi(64)).cast::<u64>(),
            nucleus: (self.p < 1.0) & !greedy,
            margin: key::lowest_with(key::key(largest - self.margin).min(top)),
            zero_weight: key::lowest_with(key::key(largest - ZERO_WEIGHT_MARGIN)),
            plain: Scale::new(top, val(1.0f32)),
            warm: Scale::new(top, select(greedy, 1.0f32, self.temperature)),
        }
    }
}

impl Filters {
    /// Sum of weights that top-p must reach, of a sum `total` of all weights: ⌈p·total⌉, at least 1.
    #[device]
    pub fn nucleus_of(&self, total: Val<u64>) -> Val<u64> {
        let rest = select(self.p * total > 0, 1u64, 0u64);
        (mul_high(self.p, total) + rest).max(1u64)
    }
}
