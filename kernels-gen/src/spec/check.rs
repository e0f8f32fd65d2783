//! Limits of compile-time parameters that come from a file. Within them, the sizes that are computed from a specification
//! neither overflow nor divide by zero.

use super::KernelSpec;
use crate::kernels::attention::{AppendShape, AttentionShape, KvType, Rope};
use crate::kernels::gemm::{ConvertShape, GemmShape};
use crate::kernels::gemv::tokens::{InputLayout, MAX_WARPGROUPS, NextInputs};
use crate::kernels::gemv::{GemvShape, Output};
use crate::kernels::launching::CopyEngine;
use crate::kernels::sample::SampleShape;
use crate::plan::PlanParams;
use crate::weights::{Layout, TILE_ROWS, WeightType};

/// Largest width and number of rows, as for a model's dimensions.
const WIDTH: u32 = 1 << 24;
/// Maximum number of CTAs along an axis, of stages of a ring, of CTAs on a multiprocessor, and of segments of a
/// stack: above those of every plan.
const GRID: u32 = (1 << 16) - 1;
const STAGES: u32 = 64;
const RESIDENT: u32 = 32;
const SEGMENTS: usize = 8;
/// Maximum number of tokens of a step, and of a product of [`GemvShape`].
const TOKENS: u32 = PlanParams::MAX_PREFILL_ROWS;
const PRODUCT_TOKENS: u32 = PlanParams::MAX_ROWS;
/// Maximum number of threads per CTA.
const THREADS: u32 = 1024;
/// Maximum shared memory per CTA in bytes, above that of every target.
const SHARED: u32 = 1 << 20;

impl KernelSpec {
    /// Checks parameters that were read from a file. The error names the parameter.
    pub fn check(&self) -> Result<(), String> {
        match self {
            KernelSpec::Embed(s) => {
                within(&[
                    ("tokens", s.tokens, TOKENS),
                    ("vocab", s.vocab, WIDTH),
                    ("cols", s.cols, WIDTH),
                    ("threads", s.threads, THREADS),
                ])?;
                layout(s.ty, s.vocab, s.cols).map(|_| ())
            }
            KernelSpec::SelectRows(s) => within(&[
                ("tokens", s.tokens, PRODUCT_TOKENS),
                ("cols", s.cols, WIDTH),
                ("threads", s.threads, THREADS),
            ]),
            KernelSpec::Gemv(s) => gemv(s),
            KernelSpec::Prepare(s) => {
                within(&[("cols", s.cols, WIDTH)])?;
                inputs(&s.layout)
            }
            KernelSpec::Gemm(s) => gemm(s),
            KernelSpec::Convert(s) => convert(s),
            KernelSpec::NormAdd(s) => within(&[
                ("tokens", s.tokens, TOKENS),
                ("cols", s.cols, WIDTH),
                ("threads", s.threads, THREADS),
            ]),
            KernelSpec::Attention(s) => attention(s),
            KernelSpec::AttentionShares(s) => within(&[
                ("tokens", s.tokens, TOKENS),
                ("window", s.window.unwrap_or(1), u32::MAX),
                ("splits", s.splits, GRID),
                ("run_blocks", s.run_blocks, s.splits),
                ("at_once", s.at_once, u32::MAX),
                ("min_pages", s.min_pages, WIDTH),
            ]),
            KernelSpec::Append(s) => append(s),
            KernelSpec::AttentionChunk(s) => {
                within(&[("row_groups", s.row_groups, 8)])?;
                let a = &s.attention;
                let fits = a.kv == KvType::F16 && a.copy == CopyEngine::Bulk && a.stages > 1;
                if s.warpgroups && !fits {
                    return Err("warpgroups need a cache of f16, bulk copies and two stages".to_owned());
                }
                attention(&s.attention)
            }
            KernelSpec::ChooseGreedy(s) => within(&[
                ("tokens", s.tokens, TOKENS),
                ("candidates", s.candidates, WIDTH),
                ("threads", s.threads, THREADS),
            ]),
            KernelSpec::SampleKeys(s) | KernelSpec::ChooseSampled(s) => within(&[
                ("tokens", s.tokens, TOKENS),
                ("vocab", s.vocab, SampleShape::MAX_VOCAB),
                ("blocks", s.blocks, GRID),
                ("threads", s.threads, THREADS),
                ("choose_threads", s.choose_threads, THREADS),
            ]),
            KernelSpec::ReadProbe(s) => within(&[("grid", s.grid, GRID), ("threads", s.threads, THREADS)]),
            KernelSpec::MmaProbe(s) => within(&[("grid", s.grid, GRID), ("threads", s.threads, THREADS)]),
        }
    }
}

/// Checks that every parameter is between 1 and its limit.
fn within(parameters: &[(&str, u32, u32)]) -> Result<(), String> {
    match parameters.iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
        Some((name, value, most)) => Err(format!("`{name}` is {value}, not 1 to {most}")),
        None => Ok(()),
    }
}

fn layout(ty: WeightType, rows: u32, cols: u32) -> Result<Layout, String> {
    Layout::new(ty, rows, cols)
        .ok_or_else(|| format!("`cols` is {cols}, which is no multiple of the block size of {}", ty.ggml()))
}

fn gemv(s: &GemvShape) -> Result<(), String> {
    let schedule = &s.schedule;
    within(&[
        ("tokens", s.tokens, PRODUCT_TOKENS),
        ("cols", s.cols, WIDTH),
        ("schedule.grid", schedule.grid, GRID),
        ("schedule.warps", schedule.warps, THREADS / 32 - 1),
        ("schedule.groups", schedule.groups, schedule.warps),
        ("schedule.stages", schedule.stages, STAGES),
        ("schedule.in_flight", schedule.in_flight, STAGES),
        ("schedule.resident", schedule.resident, RESIDENT),
    ])?;
    if schedule.reserve > SHARED {
        return Err(format!("`schedule.reserve` is {}, not 0 to {SHARED}", schedule.reserve));
    }
    let layouts = segments(s)?;
    tokens(s)?;
    if s.threads() > THREADS {
        let (warps, threads) = (schedule.warps, s.threads());
        return Err(format!(
            "`schedule.warps` is {warps}: with the warps that load {threads} threads, above {THREADS}"
        ));
    }
    next_inputs(s)?;
    let rows = u64::from(s.rows());
    // The line on which tiles are laid out has their bytes as its length, but for a common divisor.
    let length: u64 = layouts.iter().map(|it| u64::from(it.tiles) * u64::from(it.tile_bytes())).sum();
    if layouts.len() > 1 && length > u32::MAX.into() {
        return Err(format!("`segments` has {rows} rows of {} columns: too many", s.cols));
    }
    Ok(())
}

/// Checks the inputs of the next product, if the epilogue writes them.
fn next_inputs(s: &GemvShape) -> Result<(), String> {
    if s.stores_factors && !(s.is_f16() && s.normed()) {
        return Err("`stores_factors` is for products of f16 with a norm".to_owned());
    }
    if s.received && !(s.is_f16() && s.is_prepared()) {
        return Err("`received` is for products of f16 with slices of the inputs".to_owned());
    }
    let Some(NextInputs { layout, normed }) = s.next else { return Ok(()) };
    inputs(&layout)?;
    let is_possible = match s.output {
        Output::Residual => normed && s.segments.len() == 1,
        Output::Glu(_) => !normed,
        Output::Store | Output::Argmax => false,
    };
    if !is_possible {
        return Err("`next` is for the inputs of a norm, from one matrix whose outputs are added to the residual stream, or for those \
                    without a norm, from an activation"
            .to_owned());
    }
    if normed && s.stores_factors {
        return Err("`next` has a norm, whose sums of squares `stores_factors` would clear".to_owned());
    }
    if !s.is_f16() || layout.arithmetic() != s.arithmetic {
        return Err("`next` is for products of f16, followed by such a product".to_owned());
    }
    let (outputs, granules) = (s.outputs(), s.outputs().div_ceil(128));
    if !outputs.is_multiple_of(TILE_ROWS) {
        return Err(format!("`next` needs whole tiles of {TILE_ROWS} outputs, but there are {outputs}"));
    }
    if layout.granules != granules {
        return Err(format!(
            "`next.layout.granules` is {}, but {outputs} outputs have {granules}",
            layout.granules
        ));
    }
    if layout.tokens != s.tokens {
        return Err(format!("`next.layout.tokens` is {}, but `tokens` is {}", layout.tokens, s.tokens));
    }
    Ok(())
}

/// Checks the matrices of a stack.
fn segments(s: &GemvShape) -> Result<Vec<Layout>, String> {
    let segments = s.segments.len();
    let expected = if matches!(s.output, Output::Glu(_)) { 2..=2 } else { 1..=SEGMENTS };
    if !expected.contains(&segments) {
        return Err(format!("`segments` has {segments} matrices"));
    }
    let mut layouts = Vec::new();
    for segment in &s.segments {
        within(&[("segments.rows", segment.rows, WIDTH)])?;
        layouts.push(layout(segment.ty, segment.rows, s.cols)?);
    }
    let rows: u64 = s.segments.iter().map(|segment| u64::from(segment.rows)).sum();
    if rows > WIDTH.into() {
        return Err(format!("`segments` has {rows} rows of {} columns: too many", s.cols));
    }
    Ok(layouts)
}

fn gemm(s: &GemmShape) -> Result<(), String> {
    let (product, tiling) = (&s.product, &s.tiling);
    within(&[
        ("product.tokens", product.tokens, TOKENS),
        ("product.cols", product.cols, WIDTH),
        ("tiling.warps along rows", tiling.warps[0], THREADS / 32 - 1),
        ("tiling.warps along tokens", tiling.warps[1], (THREADS / 32 - 1) / tiling.warps[0].max(1)),
        ("tiling.warp_tokens", tiling.warp_tokens, 256),
        ("tiling.stages of weights", tiling.stages[0], STAGES),
        ("tiling.stages of inputs", tiling.stages[1], STAGES),
    ])?;
    segments(product)?;
    if !GemmShape::supports(product) {
        return Err("blocks of gate and up have different numbers of columns".to_owned());
    }
    if !tiling.warp_tokens.is_multiple_of(8) || ![32, 64, 128].contains(&tiling.stage_cols) {
        let (tokens, cols) = (tiling.warp_tokens, tiling.stage_cols);
        return Err(format!("a warp has {tokens} tokens and a stage {cols} columns: see `Tiling`"));
    }
    if tiling.warpgroups && tiling.stages[1] < 2 {
        return Err(
            "warpgroups need two stages of inputs: the products of one run while they wait for the next"
                .to_owned(),
        );
    }
    if !(1..=2).contains(&tiling.warp_tiles) {
        return Err(format!("a warp has {} tiles: see `Tiling`", tiling.warp_tiles));
    }
    if product.is_gated() && tiling.warp_tiles == 1 {
        let halves = tiling.warps[0].is_multiple_of(2) && tiling.warp_tokens.is_multiple_of(16);
        if !GemmShape::may_exchange_sums(product) || !halves {
            return Err("with one tile a warp, gate and up need the same type, an even number of warps along rows, and a \
                        multiple of 16 tokens a warp"
                .to_owned());
        }
    }
    if tiling.halved > 0 {
        let rows = s.row_blocks(product.segments[0].rows);
        if !tiling.warpgroups || !GemmShape::may_halve(product) || !tiling.warp_tokens.is_multiple_of(32) {
            return Err("blocks of tokens are halved for warpgroups with a multiple of 32 tokens, and for one matrix or gate \
                        and up"
                .to_owned());
        }
        within(&[("tiling.halved", tiling.halved, rows)])?;
    }
    if tiling.warpgroups && (!tiling.warps[0].is_multiple_of(4) || tiling.copy != CopyEngine::Bulk) {
        return Err("warpgroups need a multiple of four warps along rows, and bulk copies".to_owned());
    }
    block_of_inputs(&s.convert())
}

fn convert(s: &ConvertShape) -> Result<(), String> {
    within(&[
        ("tokens", s.tokens, TOKENS),
        ("block_tokens", s.block_tokens, 1024),
        ("cols", s.cols, WIDTH),
        ("padded_cols", s.padded_cols, WIDTH + 256),
    ])?;
    if !s.block_tokens.is_multiple_of(8) || !s.padded_cols.is_multiple_of(32) || s.padded_cols < s.cols {
        return Err(format!("{} columns in blocks of {} tokens", s.padded_cols, s.block_tokens));
    }
    block_of_inputs(s)
}

/// Checks that the inputs of a block of tokens of a prompt have fewer than 2³² bytes.
fn block_of_inputs(s: &ConvertShape) -> Result<(), String> {
    let bytes = u64::from(s.padded_cols) * u64::from(s.block_tokens) * 2;
    if bytes > u32::MAX.into() {
        return Err(format!(
            "{} columns of {} tokens have {bytes} bytes: too many",
            s.padded_cols, s.block_tokens
        ));
    }
    Ok(())
}

/// Checks the division of a product of several tokens.
fn tokens(s: &GemvShape) -> Result<(), String> {
    let (schedule, several) = (&s.schedule, &s.schedule.several);
    within(&[("schedule.several.blocks", several.blocks, s.tokens)])?;
    if !s.is_sliced() {
        return Ok(());
    }
    within(&[
        ("schedule.several.parts", several.parts, schedule.warps),
        ("schedule.several.tiles", several.tiles, GRID),
    ])?;
    warpgroups(s)?;
    let layout = s.input_layout();
    inputs(&layout)?;
    let per_group = several.parts.saturating_mul(schedule.groups);
    if !schedule.warps.is_multiple_of(per_group) || !schedule.stages.is_multiple_of(schedule.groups) {
        return Err(format!(
            "`schedule.warps` is {}, which {} groups and {} parts do not divide",
            schedule.warps, schedule.groups, several.parts
        ));
    }
    if several.prepared {
        within(&[
            ("schedule.several.slice", several.slice, WIDTH),
            ("schedule.several.buffers", several.buffers, STAGES),
        ])?;
        let least = s.least_slice();
        if !several.slice.is_multiple_of(least) {
            return Err(format!("`schedule.several.slice` is {}, not a multiple of {least}", several.slice));
        }
    }
    if several.holds && (!several.prepared || s.slices() < 2) {
        return Err("`schedule.several.holds` needs prepared inputs in several slices".to_owned());
    }
    // A unit has at least 32 columns; two matrices have sums at most.
    let all = u64::from(layout.granules * 128);
    let columns = if several.prepared { u64::from(several.slice) } else { all };
    let slice = columns / 128 * u64::from(layout.granule_bytes()) * u64::from(several.buffers.max(1));
    let held = if several.holds { all.max(columns) } else { columns };
    let sums = u64::from(several.tiles) * (held / 32 + 1) * u64::from(layout.groups()) * 512;
    let ring = u64::from(schedule.stages) * u64::from(s.stage_bytes());
    if slice + sums + ring > u64::from(u32::MAX / 4) {
        return Err(format!("`schedule.several` needs {} bytes of shared memory", slice + sums + ring));
    }
    Ok(())
}

/// Checks the division of a product among warpgroups, if they multiply, and of the tokens among CTAs.
fn warpgroups(s: &GemvShape) -> Result<(), String> {
    let (schedule, several) = (&s.schedule, &s.schedule.several);
    if several.warpgroups == 0 {
        return match several.blocks {
            1 => Ok(()),
            blocks => Err(format!("`schedule.several.blocks` is {blocks} without warpgroups, not 1")),
        };
    }
    within(&[("schedule.several.warpgroups", several.warpgroups, MAX_WARPGROUPS)])?;
    let is_divided = [schedule.warps, 4 * schedule.groups] == [4 * several.warpgroups; 2];
    if !is_divided || several.parts != 1 || !several.prepared || schedule.copy != CopyEngine::Bulk {
        return Err(format!(
            "{} warpgroups have four warps and a group each, one part, prepared inputs and bulk copies",
            several.warpgroups
        ));
    }
    if several.blocks > 1 && s.output == Output::Argmax {
        return Err("a CTA of the head has all tokens: `schedule.several.blocks` is 1".to_owned());
    }
    if several.holds {
        return Err("warpgroups add to totals: `schedule.several.holds` is for products of warps".to_owned());
    }
    if !s.supports_warpgroups() || several.slice == 0 || !s.cols.is_multiple_of(several.slice) {
        return Err(format!(
            "warpgroups cannot multiply these matrices with slices of {} columns: they need whole slices, and types with exact \
             sums, or for f16 units of 256 columns",
            several.slice
        ));
    }
    if s.cluster() > 1 && (s.slices() != s.cols / 256 || several.tiles < s.most_tiles()) {
        return Err(format!(
            "a CTA of a cluster has slices of 256 columns, not {}, and all of its {} tiles at once, not {}",
            several.slice,
            s.most_tiles(),
            several.tiles
        ));
    }
    // Blocks have a multiple of 8 tokens, and the inputs have no more blocks than they need.
    let layout = s.input_layout();
    let blocks = layout.padded_tokens() / layout.block_tokens;
    if several.blocks > blocks {
        return Err(format!(
            "`schedule.several.blocks` is {}, but {} tokens have {blocks} blocks of {}",
            several.blocks, s.tokens, layout.block_tokens
        ));
    }
    // The largest product of a warpgroup has 256 columns, two for each token, or one of f16.
    let most = 128 * several.blocks;
    if s.tokens > most {
        return Err(format!("`tokens` is {}, more than {most} for {} blocks", s.tokens, several.blocks));
    }
    Ok(())
}

/// Checks the size of the inputs of several tokens.
fn inputs(layout: &InputLayout) -> Result<(), String> {
    within(&[
        ("layout.tokens", layout.tokens, PRODUCT_TOKENS),
        ("layout.granules", layout.granules, WIDTH / 128 + 2),
    ])?;
    let forms = layout.forms;
    let halves = forms.short_halves || forms.long_halves;
    if halves && (forms.chunks || forms.sums || forms.half_sums || forms.floats) {
        return Err("`forms` has inputs of type f16 and others".to_owned());
    }
    if layout.block_tokens > 0 && forms.long_halves {
        return Err("warpgroups do not multiply weights with `long_halves`".to_owned());
    }
    if !layout.block_tokens.is_multiple_of(8) || layout.block_tokens > 256 {
        return Err(format!("`block_tokens` is {}, not a multiple of 8 up to 256", layout.block_tokens));
    }
    let blocks = layout.padded_tokens().checked_div(layout.block_tokens).unwrap_or(1);
    let bytes = u64::from(layout.granule_bytes()) * u64::from(layout.granules) * u64::from(blocks);
    if bytes > u64::from(u32::MAX / 2) {
        return Err(format!("the inputs of {} tokens have {bytes} bytes: too many", layout.tokens));
    }
    Ok(())
}

fn append(s: &AppendShape) -> Result<(), String> {
    within(&[
        ("tokens", s.tokens, GRID),
        ("heads", s.heads, GRID),
        ("kv_heads", s.kv_heads, s.heads),
        ("head_dim", s.head_dim, 256),
        ("heads_per_block", s.heads_per_block, 8),
    ])?;
    if !s.heads.is_multiple_of(s.kv_heads) || !(s.heads / s.kv_heads).is_multiple_of(s.heads_per_block) {
        return Err(format!("`heads_per_block` is {}, not a divisor of heads / kv_heads", s.heads_per_block));
    }
    heads(s.head_dim, s.rope)
}

/// Checks the size of a head.
fn heads(head_dim: u32, rope: Option<Rope>) -> Result<(), String> {
    if !head_dim.is_multiple_of(16) || rope.is_some_and(|rope| rope.rotated > head_dim) {
        return Err(format!("`head_dim` is {head_dim}, not a multiple of 16 with room for the rotation"));
    }
    Ok(())
}

fn attention(s: &AttentionShape) -> Result<(), String> {
    within(&[
        ("tokens", s.tokens, GRID),
        ("heads", s.heads, GRID),
        ("kv_heads", s.kv_heads, s.heads),
        ("head_dim", s.head_dim, 256),
        ("heads_per_block", s.heads_per_block, 8),
        ("splits", s.splits, GRID),
        ("run_blocks", s.run_blocks, s.splits),
        ("at_once", s.at_once.unwrap_or(1), u32::MAX),
        ("min_pages", s.min_pages, WIDTH),
        ("stages", s.stages, STAGES),
        ("stage_tiles", s.stage_tiles, AttentionShape::PAGE_TILES),
        ("window", s.window.unwrap_or(1), u32::MAX),
    ])?;
    let divides = |what: &str, of: u32, divisor: u32| match of.is_multiple_of(divisor) {
        true => Ok(()),
        false => Err(format!("{of} is not a multiple of `{what}`, which is {divisor}")),
    };
    divides("kv_heads", s.heads, s.kv_heads)?;
    divides("heads_per_block", s.heads / s.kv_heads, s.heads_per_block)?;
    divides("stage_tiles", AttentionShape::PAGE_TILES, s.stage_tiles)?;
    if let Some(layout) = &s.output_layout {
        inputs(layout)?;
        if !s.can_quantise(layout) {
            return Err("`output_layout` does not fit the rows, or the heads of a CTA".to_owned());
        }
    }
    heads(s.head_dim, s.rope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gemm::Tiling;
    use crate::kernels::gemv::tokens::InputForms;
    use crate::kernels::gemv::{Arithmetic, Input, Schedule, Segment, TokenSchedule};

    #[test]
    fn impossible_divisions_of_tokens_are_named() {
        let several = TokenSchedule {
            prepared: true,
            slice: 512,
            buffers: 2,
            parts: 2,
            tiles: 4,
            ..TokenSchedule::ONE
        };
        let segments = vec![Segment { ty: WeightType::Q4_K, rows: 4096 }];
        let base = GemvShape {
            tokens: 64,
            schedule: Schedule { warps: 8, groups: 4, stages: 8, several, ..Schedule::MINIMAL },
            ..GemvShape::new(4096, segments)
        };
        let check = |several| {
            KernelSpec::Gemv(GemvShape { schedule: Schedule { several, ..base.schedule }, ..base.clone() })
                .check()
        };
        let many_tiles = TokenSchedule { tiles: 2000, ..several };
        assert_eq!([check(several), check(many_tiles)], [Ok(()), Ok(())]);
        for (several, expected) in [
            (
                TokenSchedule { slice: 384, ..several },
                "`schedule.several.slice` is 384, not a multiple of 256",
            ),
            (TokenSchedule { slice: 0, ..several }, "`schedule.several.slice` is 0"),
            (TokenSchedule { buffers: 0, ..several }, "`schedule.several.buffers` is 0"),
            (
                TokenSchedule { parts: 8, ..several },
                "`schedule.warps` is 8, which 4 groups and 8 parts do not divide",
            ),
            (TokenSchedule { tiles: GRID, slice: 1 << 23, ..several }, "bytes of shared memory"),
            (TokenSchedule { tiles: 0, ..several }, "`schedule.several.tiles` is 0"),
            (TokenSchedule { blocks: 0, ..several }, "`schedule.several.blocks` is 0"),
            (TokenSchedule { blocks: 2, ..several }, "`schedule.several.blocks` is 2 without warpgroups"),
            (TokenSchedule { holds: true, ..many_tiles }, "`schedule.several` needs"),
            (
                TokenSchedule { slice: 4096, holds: true, ..several },
                "needs prepared inputs in several slices",
            ),
            (TokenSchedule { warpgroups: 5, ..several }, "`schedule.several.warpgroups` is 5"),
            (TokenSchedule { warpgroups: 2, ..several }, "2 warpgroups have four warps and a group each"),
        ] {
            let error = check(several).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        let of_f16 = |several| {
            let schedule = Schedule { several, warps: 8, groups: 2, copy: CopyEngine::Bulk, ..base.schedule };
            let (output, arithmetic) = (Output::Residual, Arithmetic::F16);
            KernelSpec::Gemv(GemvShape { schedule, output, arithmetic, ..base.clone() }).check()
        };
        let cluster = TokenSchedule { slice: 256, parts: 1, tiles: 256, warpgroups: 2, ..several };
        assert_eq!(of_f16(cluster), Ok(()));
        for (several, expected) in [
            (TokenSchedule { tiles: 128, ..cluster }, "all of its 256 tiles at once, not 128"),
            (
                TokenSchedule { slice: 512, ..cluster },
                "a CTA of a cluster has slices of 256 columns, not 512",
            ),
            (TokenSchedule { blocks: 9, ..cluster }, "but 64 tokens have 8 blocks of 8"),
            (TokenSchedule { holds: true, ..cluster }, "warpgroups add to totals"),
            (TokenSchedule::ONE, "`schedule.several.tiles` is 0"),
        ] {
            let error = of_f16(several).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        let tiling = |stages, halved| {
            let warps = [4, 1];
            let (copy, warpgroups) = (CopyEngine::Bulk, true);
            let (warp_tiles, warp_tokens, stage_cols) = (1, 64, 128);
            Tiling { warps, warp_tiles, warp_tokens, halved, stages, stage_cols, copy, warpgroups }
        };
        let head = GemvShape {
            output: Output::Argmax,
            schedule: Schedule {
                several: TokenSchedule { blocks: 2, ..cluster },
                warps: 8,
                groups: 2,
                copy: CopyEngine::Bulk,
                ..base.schedule
            },
            arithmetic: Arithmetic::F16,
            ..base.clone()
        };
        assert!(
            KernelSpec::Gemv(head)
                .check()
                .is_err_and(|error| error.contains("a CTA of the head has all tokens"))
        );
        let many_warps = Schedule {
            warps: 31,
            groups: 1,
            stages: 8,
            several: TokenSchedule { parts: 1, ..several },
            ..base.schedule
        };
        let many_warps = KernelSpec::Gemv(GemvShape { schedule: many_warps, ..base.clone() }).check();
        assert!(
            many_warps
                .is_err_and(|error| error.contains("with the warps that load 1056 threads, above 1024"))
        );
        let wide = ConvertShape {
            cols: WIDTH,
            padded_cols: WIDTH,
            block_tokens: 1024,
            ..GemmShape { product: base.clone(), tiling: tiling([2, 2], 0) }.convert()
        };
        assert!(KernelSpec::Convert(wide).check().is_err_and(|error| error.ends_with("bytes: too many")));
        let of_prompts = |stages, halved| {
            KernelSpec::Gemm(GemmShape { product: base.clone(), tiling: tiling(stages, halved) }).check()
        };
        assert_eq!(of_prompts([2, 2], 0), Ok(()));
        assert!(of_prompts([2, 1], 0).is_err_and(|error| error.contains("two stages of inputs")));
        assert_eq!(of_prompts([2, 2], 1), Ok(()));
        assert!(of_prompts([2, 2], 99).is_err_and(|error| error.starts_with("`tiling.halved` is 99")));
        let many = GemvShape { tokens: 65, ..base };
        assert!(KernelSpec::Gemv(many).check().is_err_and(|error| error.starts_with("`tokens` is 65")));
    }

    #[test]
    fn impossible_inputs_of_the_next_product_are_named() {
        let several = TokenSchedule::sliced(256, 2, 1);
        let base = GemvShape {
            tokens: 8,
            output: Output::Residual,
            arithmetic: Arithmetic::F16,
            schedule: Schedule { warps: 4, several, ..Schedule::MINIMAL },
            ..GemvShape::new(512, vec![Segment { ty: WeightType::Q4_K, rows: 256 }])
        };
        let normed = Input::Normed { eps: 1e-5 };
        let reader = GemvShape { cols: 256, input: normed, output: Output::Store, ..base.clone() };
        let next = NextInputs::between(&base, &reader).expect("256 outputs, and 256 inputs of a norm");
        let error = |shape: GemvShape| KernelSpec::Gemv(shape).check().err().unwrap_or_default();
        assert_eq!(error(GemvShape { next: Some(next), ..base.clone() }), "");
        let more_tokens = NextInputs { layout: InputLayout { tokens: 9, ..next.layout }, ..next };
        let fewer_columns = NextInputs { layout: InputLayout { granules: 1, ..next.layout }, ..next };
        let plain = NextInputs { normed: false, ..next };
        for (next, expected) in [
            (more_tokens, "`next.layout.tokens` is 9, but `tokens` is 8"),
            (fewer_columns, "`next.layout.granules` is 1, but 256 outputs have 2"),
            (
                plain,
                "`next` is for the inputs of a norm, from one matrix whose outputs are added to the residual stream, or for \
                     those without a norm, from an activation",
            ),
        ] {
            assert_eq!(error(GemvShape { next: Some(next), ..base.clone() }), expected);
        }
        let integers = GemvShape { arithmetic: Arithmetic::Integers, ..base.clone() };
        assert!(
            error(GemvShape { next: Some(next), ..integers.clone() })
                .starts_with("`next` is for products of f16")
        );
        let uneven =
            GemvShape { segments: vec![Segment { ty: WeightType::Q4_K, rows: 250 }], ..base.clone() };
        assert_eq!(
            error(GemvShape { next: Some(next), ..uneven }),
            "`next` needs whole tiles of 16 outputs, but there are 250"
        );
        let clears = GemvShape { input: normed, stores_factors: true, next: Some(next), ..base.clone() };
        assert!(error(clears).starts_with("`next` has a norm, whose sums"));
        assert!(
            error(GemvShape { received: true, ..integers }).starts_with("`received` is for products of f16")
        );
        assert!(error(GemvShape { stores_factors: true, ..base }).starts_with("`stores_factors` is for"));
    }

    #[test]
    fn impossible_layouts_of_inputs_are_named() {
        let forms = InputForms { short_halves: true, mins: true, ..InputForms::NONE };
        let layout = InputLayout { tokens: 64, granules: 32, forms, block_tokens: 0 };
        assert_eq!(inputs(&layout), Ok(()));
        for (layout, expected) in [
            (InputLayout { block_tokens: 4, ..layout }, "`block_tokens` is 4, not a multiple of 8 up to 256"),
            (
                InputLayout { forms: InputForms { chunks: true, ..forms }, ..layout },
                "inputs of type f16 and others",
            ),
            (
                InputLayout { forms: InputForms { long_halves: true, ..forms }, block_tokens: 8, ..layout },
                "`long_halves`",
            ),
            (InputLayout { granules: WIDTH / 128, block_tokens: 8, ..layout }, "bytes: too many"),
        ] {
            let error = inputs(&layout).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
