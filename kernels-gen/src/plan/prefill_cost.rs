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
    /// CTAs that a multiprocessor must hold.
    resident: u32,
}

/// The divisions of warps, for prefill steps of few tokens and for others.
const SMALL_STEP: Division = Division { warps: [2, 2], tiles: 2, tokens: 32, resident: 1 };
const LARGE_STEP: Division = Division { warps: [4, 2], tiles: 2, tokens: 64, resident: 1 };

/// The division of a warpgroup for prefill steps of few tokens.
const SMALL_STEP_OF_WARPGROUPS: Division = Division { warps: [4, 1], tokens: 64, ..SMALL_STEP };

/// Divisions among warpgroups for other prefill steps, each with its speed. A warpgroup decodes weights once for all of its tokens, so 64 rows
/// and 256 tokens take half the decoding of 128 rows and 128 tokens. While one warpgroup decodes, another multiplies: of the same CTA, or of a
/// second one.
///
/// Speeds are in TFLOPS. Those of the first two were measured with gate and up (Q4_K) of Llama-3.1-8B, 2,048 tokens, on an H100. The other two are
/// estimates; only the ratios matter.
const WARPGROUPS: [(Division, u64); 4] = [
    (Division { warps: [8, 1], tiles: 1, tokens: 256, resident: 1 }, 700),
    (Division { warps: [4, 1], tiles: 2, tokens: 128, resident: 2 }, 550),
    (Division { warps: [4, 1], tiles: 1, tokens: 128, resident: 2 }, 550),
    (Division { warps: [4, 1], tiles: 1, tokens: 64, resident: 2 }, 400),
];

/// Largest number of tokens with [`SMALL_STEP`].
const SMALL_STEP_TOKENS: u32 = 64;

/// Columns of a stage of inputs, and stages of weights and inputs: the first that fits.
const STAGES: [(u32, [u32; 2]); 5] =
    [(128, [3, 3]), (128, [2, 3]), (128, [2, 2]), (64, [2, 2]), (32, [2, 2])];

/// As [`STAGES`], for [`WARPGROUPS`]. Four stages fit for F16 weights, whose stages are small. There are no stages of 64 columns: with them, two CTAs
/// of 128 × 128 fit for Q6_K and would be chosen, but CTAs of 64 × 128 with 128 columns are faster. The down projection (Q6_K) of Llama-3.1-8B
/// for 512 tokens takes 167 µs with the former; it took 111 µs with the latter.
const STAGES_OF_WARPGROUPS: [(u32, [u32; 2]); 2] = [(128, [4, 4]), (128, [2, 2])];

/// Divides a product of a prefill step.
pub(super) fn divide(gpu: &Gpu, product: GemvShape) -> GemmShape {
    let is_small = product.tokens <= SMALL_STEP_TOKENS;
    if gpu.warpgroups
        && !is_small
        && let Some(shape) = among_warpgroups(gpu, &product)
    {
        return shape;
    }
    let division = match (is_small, gpu.warpgroups) {
        (true, true) => SMALL_STEP_OF_WARPGROUPS,
        (true, false) => SMALL_STEP,
        (false, _) => LARGE_STEP,
    };
    // If nothing fits, the smallest; the plan's check reports its size.
    let smallest = STAGES[STAGES.len() - 1];
    fitting(gpu, &product, division, &STAGES).unwrap_or_else(|| division.shape(gpu, &product, smallest))
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
        .into_iter()
        .filter(|(division, _)| supports(division))
        .filter_map(|(division, speed)| {
            let shape = fitting(gpu, product, division, &STAGES_OF_WARPGROUPS)?;
            Some((division.time(speed, gpu, &shape), shape))
        })
        .min_by_key(|(time, _)| *time)
        .map(|(_, shape)| shape)
}

/// The product with a division and the first of `stages` that leaves room for the division's resident CTAs.
fn fitting(
    gpu: &Gpu,
    product: &GemvShape,
    division: Division,
    stages: &[(u32, [u32; 2])],
) -> Option<GemmShape> {
    let budget = gpu.shared_budget(division.resident);
    let mut shapes = stages.iter().map(|&stages| division.shape(gpu, product, stages));
    shapes.find(|shape| shape.shared_bytes() <= budget)
}

impl Division {
    fn shape(self, gpu: &Gpu, product: &GemvShape, (stage_cols, stages): (u32, [u32; 2])) -> GemmShape {
        let copy = if gpu.is_programmatic() { CopyEngine::Bulk } else { CopyEngine::Async };
        let tiling = Tiling {
            warps: self.warps,
            warp_tiles: self.tiles,
            warp_tokens: self.tokens,
            stages,
            stage_cols,
            copy,
            warpgroups: gpu.warpgroups,
        };
        GemmShape { product: product.clone(), tiling }
    }

    /// Expected time of a product, comparable among divisions. Two resident CTAs share a multiprocessor's speed, so they count as one after
    /// the other.
    fn time(self, speed: u64, gpu: &Gpu, shape: &GemmShape) -> u64 {
        let ctas = shape.grid().iter().product::<u32>().div_ceil(gpu.multiprocessors);
        let products = self.warps[0] * self.tiles * shape.block_tokens();
        // The factor keeps the quotient precise.
        u64::from(ctas) * u64::from(products) * 1_000_000 / speed
    }
}
