//! Cost model of products of many tokens: divides them into tiles of rows and tokens, and the tiles among warps.

use super::gpu::Gpu;
use crate::kernels::gemm::{GemmShape, Tiling};
use crate::kernels::gemv::GemvShape;
use crate::kernels::launching::CopyEngine;

/// A division of a product among CTAs.
#[derive(Clone, Copy)]
struct Division {
    /// Consumer warps of a CTA along rows and tokens.
    warps: [u32; 2],
    /// Tiles of 16 rows of a warp.
    tiles: u32,
    /// Tokens of a warp.
    tokens: u32,
}

/// A division among warpgroups, with its measured time.
struct MeasuredDivision {
    division: Division,
    /// Nanoseconds in which a multiprocessor with one CTA multiplies 16 columns.
    one_cta: u64,
    /// Nanoseconds in which a multiprocessor with two CTAs multiplies 16 columns of each; none if only one may be resident.
    two_ctas: Option<u64>,
}

/// The divisions among warps, for prefill steps of at most [`FEW_TOKENS`] tokens and for others.
const FEW: Division = Division { warps: [2, 2], tiles: 2, tokens: 32 };
const MANY: Division = Division { warps: [4, 2], tiles: 2, tokens: 64 };

/// Largest number of tokens of [`FEW`].
const FEW_TOKENS: u32 = 64;

/// Divisions among warpgroups. A warpgroup decodes weights once for all of its tokens, so 64 rows and 256 tokens take half
/// the decoding of 128 rows and 128 tokens. While one warpgroup decodes, another multiplies: of the same CTA, or of a
/// second one. In steps of few tokens latency is the limit: a warpgroup decodes 16 columns, multiplies them, and decodes
/// the next ones. Three warpgroups with 192 rows and 128 tokens are fastest where CTAs of two leave multiprocessors idle.
///
/// Times are from the products of Llama-3.1-8B (Q4_K) on an H200, with 64 to 512 tokens; only their ratios matter.
const WARPGROUPS: [MeasuredDivision; 10] = [
    measured([8, 1], 1, 256, 150, None),
    measured([12, 1], 1, 128, 124, None),
    measured([8, 1], 1, 128, 88, None),
    measured([8, 1], 1, 64, 69, None),
    measured([4, 2], 1, 64, 63, None),
    measured([4, 1], 2, 128, 103, Some(182)),
    measured([4, 1], 2, 64, 78, Some(122)),
    measured([4, 1], 1, 128, 85, Some(108)),
    measured([4, 1], 1, 64, 44, Some(70)),
    measured([4, 1], 1, 32, 37, Some(55)),
];

/// Smallest gain for which blocks of tokens are halved, as a divisor. Of 10 and 8% of the time of gate and up of Llama-3.1-8B and
/// Qwen2.5-7B that are expected for 512 tokens, 7 and 4% were measured on an H200.
const MIN_GAIN_DIVISOR: u64 = 16;

const fn measured(
    warps: [u32; 2],
    tiles: u32,
    tokens: u32,
    one_cta: u64,
    two_ctas: Option<u64>,
) -> MeasuredDivision {
    MeasuredDivision { division: Division { warps, tiles, tokens }, one_cta, two_ctas }
}

/// Columns of a stage of inputs, and stages of weights and inputs: the first that fits.
const STAGES: [(u32, [u32; 2]); 5] =
    [(128, [3, 3]), (128, [2, 3]), (128, [2, 2]), (64, [2, 2]), (32, [2, 2])];

/// As [`STAGES`], for [`WARPGROUPS`]. There are no stages of 64 columns: with them, two CTAs of 128 × 128 fit for Q6_K and
/// would be chosen, but CTAs of 64 × 128 with 128 columns are faster. The down projection (Q6_K) of Llama-3.1-8B for 512
/// tokens takes 167 µs with the former; it took 111 µs with the latter.
const STAGES_OF_WARPGROUPS: [(u32, [u32; 2]); 3] = [(128, [4, 4]), (128, [3, 3]), (128, [2, 2])];

/// Divides a product of a prefill step.
pub(super) fn divide(gpu: &Gpu, product: GemvShape) -> GemmShape {
    if gpu.warpgroups
        && let Some(shape) = among_warpgroups(gpu, &product)
    {
        return shape;
    }
    let division = if product.tokens <= FEW_TOKENS { FEW } else { MANY };
    // If nothing fits, the smallest; the plan's check reports its size.
    let smallest = STAGES[STAGES.len() - 1];
    let among_warps = |stages| division.shape(gpu, &product, stages, false);
    fitting(gpu, 1, &STAGES, among_warps).unwrap_or_else(|| among_warps(smallest))
}

/// The division of [`WARPGROUPS`] with the smallest expected time, of those that fit.
fn among_warpgroups(gpu: &Gpu, product: &GemvShape) -> Option<GemmShape> {
    // With one tile a warp, gate and up are tiles of different warpgroups.
    let supports = |division: &Division| {
        let has_two_warpgroups = division.warps[0] == 8;
        !product.is_gated()
            || division.tiles == 2
            || (has_two_warpgroups && GemmShape::may_exchange_sums(product))
    };
    WARPGROUPS
        .iter()
        .filter(|measured| supports(&measured.division))
        .filter(|measured| measured.division.block_tokens() <= product.tokens)
        .filter_map(|measured| Some((measured, measured.fastest(gpu, product)?)))
        .min_by_key(|(_, (time, _))| *time)
        .map(|(measured, (time, shape))| measured.halved_if_faster(gpu, &shape, time).unwrap_or(shape))
}

/// The shape with the first of `stages` that leaves room for `resident` CTAs.
fn fitting(
    gpu: &Gpu,
    resident: u32,
    stages: &[(u32, [u32; 2])],
    shape: impl Fn((u32, [u32; 2])) -> GemmShape,
) -> Option<GemmShape> {
    let budget = gpu.shared_budget(resident);
    stages.iter().map(|&stages| shape(stages)).find(|shape| shape.shared_bytes() <= budget)
}

impl Division {
    /// Tokens of a CTA.
    fn block_tokens(self) -> u32 {
        self.warps[1] * self.tokens
    }

    fn shape(
        self,
        gpu: &Gpu,
        product: &GemvShape,
        (stage_cols, stages): (u32, [u32; 2]),
        warpgroups: bool,
    ) -> GemmShape {
        let copy = if gpu.is_programmatic() { CopyEngine::Bulk } else { CopyEngine::Async };
        let tiling = Tiling {
            warps: self.warps,
            warp_tiles: self.tiles,
            warp_tokens: self.tokens,
            stages,
            stage_cols,
            halved: 0,
            copy,
            warpgroups,
        };
        GemmShape { product: product.clone(), tiling }
    }
}

impl MeasuredDivision {
    /// The fastest shape with this division, of one and of two resident CTAs, and its expected time, comparable among divisions.
    fn fastest(&self, gpu: &Gpu, product: &GemvShape) -> Option<(u64, GemmShape)> {
        (1..=2)
            .filter_map(|resident| {
                let shape = |stages| self.division.shape(gpu, product, stages, true);
                let shape = fitting(gpu, resident, &STAGES_OF_WARPGROUPS, shape)?;
                Some((self.time(gpu, &shape, resident)?, shape))
            })
            .min_by_key(|(time, _)| *time)
    }

    /// The shape with halves of those blocks of rows that do not fill a wave of CTAs, if its expected time is less than
    /// `time` by the share [`MIN_GAIN_DIVISOR`], and a division with half of the tokens was measured.
    fn halved_if_faster(&self, gpu: &Gpu, shape: &GemmShape, time: u64) -> Option<GemmShape> {
        let Division { warps, tiles, tokens } = self.division;
        let is_half = |it: Division| (it.warps, it.tiles, 2 * it.tokens) == (warps, tiles, tokens);
        let half = WARPGROUPS.iter().find(|half| is_half(half.division))?;
        if !GemmShape::may_halve(&shape.product) {
            return None;
        }
        let [blocks, rows, _] = shape.grid();
        let waves = blocks * rows / gpu.multiprocessors;
        let halved = rows - waves * gpu.multiprocessors / blocks;
        let ctas = 2 * blocks * halved;
        let of_halves = u64::from(ctas.div_ceil(gpu.multiprocessors)) * half.one_cta;
        let with_halves = u64::from(waves) * self.one_cta + of_halves;
        let tiling = Tiling { halved, ..shape.tiling };
        let is_faster = MIN_GAIN_DIVISOR * with_halves < (MIN_GAIN_DIVISOR - 1) * time;
        (waves > 0 && halved > 0 && is_faster).then(|| GemmShape { tiling, ..shape.clone() })
    }

    /// Expected time of the multiprocessor with the most CTAs, in nanoseconds for 16 columns, if `resident` of them run at once.
    fn time(&self, gpu: &Gpu, shape: &GemmShape, resident: u32) -> Option<u64> {
        let ctas = shape.grid().iter().product::<u32>().div_ceil(gpu.multiprocessors);
        let pair = if resident == 2 { self.two_ctas? } else { 2 * self.one_cta };
        Some(u64::from(ctas / 2) * pair + u64::from(ctas % 2) * self.one_cta)
    }
}
