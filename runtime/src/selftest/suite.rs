//! Which kernels are tested.

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::argmax::ArgmaxShape;
use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::kernels::embed::EmbedShape;
use bespoke_kernels::kernels::gemv::{GemvShape, Segment};
use bespoke_kernels::kernels::kv_append::KvAppendShape;
use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::kernels::residual_add::ResidualAddShape;
use bespoke_kernels::kernels::rms_norm::RmsNormShape;
use bespoke_kernels::kernels::rope::{RopeKind, RopeShape};
use bespoke_kernels::kernels::swiglu::SwigluShape;
use bespoke_kernels::plan::{Plan, PlanParams};
use bespoke_kernels::shape::{ModelShape, ShapeError};
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;

/// The kernels of a model's plan, each once.
///
/// # Errors
/// If no plan can be made for the shape and the target.
pub fn of_shape(shape: &ModelShape, target: Target) -> Result<Vec<KernelSpec>, ShapeError> {
    let plan = Plan::new(shape, target, PlanParams::single(shape.dimensions.context))?;
    Ok(plan.kernels.into_iter().map(|kernel| kernel.spec).collect())
}

/// Every kind of kernel at every weight type, small and with awkward dimensions.
pub fn small() -> Vec<KernelSpec> {
    let mut specs = Vec::new();
    for ty in WeightType::ALL {
        specs.extend(embeds(ty));
        specs.extend(gemvs(ty));
    }
    specs.extend(stacks());
    for (rows, cols, threads) in [(1, 8, 32), (1, 2100, 288), (5, 64, 32), (3, 100, 64), (1, 4096, 512)] {
        specs.push(KernelSpec::RmsNorm(RmsNormShape { rows, cols, eps: 1e-5, threads }));
    }
    for kind in [RopeKind::Norm, RopeKind::Neox] {
        for (heads, head_dim, rotated) in [(3, 64, 64), (2, 128, 96), (1, 8, 2)] {
            specs.push(KernelSpec::Rope(RopeShape { heads, head_dim, rotated, kind, threads: 64 }));
        }
    }
    for width in [8, 130, 1024] {
        specs.push(KernelSpec::KvAppend(KvAppendShape { width, threads: 64 }));
    }
    for width in [5, 128, 1003] {
        specs.push(KernelSpec::Swiglu(SwigluShape { width, threads: 128 }));
        specs.push(KernelSpec::ResidualAdd(ResidualAddShape { width, threads: 128 }));
    }
    for shape in attentions() {
        specs.push(KernelSpec::Attention(shape.clone()));
        specs.push(KernelSpec::AttentionCombine(shape));
    }
    for (vocab, blocks, threads) in [(1, 1, 32), (1000, 1, 256), (5003, 4, 256), (999, 40, 64)] {
        let shape = ArgmaxShape { vocab, blocks, threads };
        specs.extend([KernelSpec::Argmax(shape.clone()), KernelSpec::ChooseGreedy(shape)]);
    }
    specs.push(KernelSpec::ReadProbe(ProbeShape { grid: 3, threads: 64 }));
    specs
}

/// One row, several CTAs, and for floats rows that are no whole number of 16 bytes.
fn embeds(ty: WeightType) -> Vec<KernelSpec> {
    let block = ty.ggml().block_elements() as u32;
    let widths = if ty.is_quantised() { [block, 2304] } else { [7, 1100] };
    [(1, widths[0]), (9, widths[1])]
        .map(|(vocab, cols)| KernelSpec::Embed(EmbedShape { ty, vocab, cols, threads: 64 }))
        .into()
}

/// Widths that fall short of a lane each, leave a remainder, and need one pass or several; rows by a whole warp or
/// by a few lanes, one or more at a time; fewer rows than CTAs have warps, and more than the grid covers at once.
fn gemvs(ty: WeightType) -> Vec<KernelSpec> {
    let block = ty.ggml().block_elements() as u32;
    let width = |cols: u32| if ty.is_quantised() { cols.next_multiple_of(block) } else { cols - 3 };
    let shape = |cols, rows, [threads, lanes_per_row, rows_per_group, grid]: [u32; 4]| {
        let segments = vec![Segment { ty, rows, bias: false }];
        KernelSpec::Gemv(GemvShape {
            cols: width(cols),
            segments,
            threads,
            lanes_per_row,
            rows_per_group,
            grid,
        })
    };
    vec![
        shape(32, 1, [32, 32, 1, 1]),
        shape(160, 5, [128, 32, 1, 2]),
        shape(256, 48, [64, 8, 1, 2]),
        shape(256, 32, [64, 4, 2, 1]),
        shape(1024, 6, [64, 32, 2, 1]),
        shape(2304, 7, [128, 32, 1, 1]),
        shape(9 * 1024 + 512, 3, [256, 32, 1, 1]),
    ]
}

/// Stacks of several matrices: of one type and of several, with biases and without.
fn stacks() -> Vec<KernelSpec> {
    use WeightType::{F16, F32, Q4_K, Q5_0, Q6_K, Q8_0};
    let stack = |cols, lanes_per_row, segments: &[(WeightType, u32, bool)]| {
        let segments = segments.iter().map(|&(ty, rows, bias)| Segment { ty, rows, bias }).collect();
        KernelSpec::Gemv(GemvShape {
            cols,
            segments,
            threads: 128,
            lanes_per_row,
            rows_per_group: 1,
            grid: 3,
        })
    };
    vec![
        stack(512, 16, &[(Q4_K, 40, false), (Q4_K, 8, false), (Q6_K, 8, false)]),
        stack(96, 32, &[(Q8_0, 33, true), (Q8_0, 3, true), (Q5_0, 5, true)]),
        stack(256, 8, &[(F16, 12, true), (Q8_0, 4, false), (F32, 8, true)]),
    ]
}

/// Head dimensions of full and of partly used groups of lanes; one to several heads of a group at a time; splits that
/// are used up and that are not.
fn attentions() -> Vec<AttentionShape> {
    let shape =
        |[heads, kv_heads, head_dim, heads_per_block]: [u32; 4], splits, min_run, threads| AttentionShape {
            heads,
            kv_heads,
            head_dim,
            heads_per_block,
            splits,
            min_run,
            threads,
            combine_threads: head_dim.next_multiple_of(32),
        };
    vec![
        shape([4, 2, 64, 2], 3, 32, 128),
        shape([6, 1, 80, 3], 2, 32, 64),
        shape([2, 2, 128, 1], 4, 8, 32),
        shape([4, 1, 8, 2], 5, 4, 64),
        shape([1, 1, 256, 1], 1, 32, 128),
    ]
}
