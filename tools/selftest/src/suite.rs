//! Kernels that the selftest runs.

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::argmax::ChooseShape;
use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::kernels::embed::EmbedShape;
use bespoke_kernels::kernels::gemv::{GemvShape, Input, Output, Schedule, Segment};
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::probe::ProbeShape;
use bespoke_kernels::kernels::rope::RopeKind;
use bespoke_kernels::kernels::sample::SampleShape;
use bespoke_kernels::plan::{Plan, PlanError, PlanParams, Sampling};
use bespoke_kernels::shape::ModelShape;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;

/// Kernels of a model's greedy and sampled plans, without duplicates.
///
/// # Errors
/// If the shape has no plan for the target.
pub fn of_shape(shape: &ModelShape, target: Target) -> Result<Vec<KernelSpec>, PlanError> {
    let params = PlanParams::single(shape.dimensions.context);
    let mut kernels = Plan::new(shape, target, params.clone())?.kernels;
    for kernel in Plan::new(shape, target, params.with_sampling(Sampling::Sampled))?.kernels {
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
    }
    Ok(kernels.into_iter().map(|kernel| kernel.spec).collect())
}

/// Every kind of kernel at every weight type, small and with awkward dimensions.
pub fn small() -> Vec<KernelSpec> {
    let mut specs = Vec::new();
    for ty in WeightType::ALL {
        specs.extend(embeds(ty));
        specs.extend(gemvs(ty));
        specs.extend(in_turns(ty));
    }
    specs.extend(stacks());
    specs.extend(attentions().into_iter().map(KernelSpec::Attention));
    for (candidates, threads) in [(1, 32), (4, 256), (132, 160), (1000, 1024)] {
        specs.push(KernelSpec::ChooseGreedy(ChooseShape { candidates, threads }));
    }
    for (vocab, blocks, threads, choose_threads) in
        [(1, 1, 32, 64), (1000, 1, 256, 128), (5003, 4, 256, 256), (999, 3, 64, 1024)]
    {
        let shape = SampleShape { vocab, blocks, threads, choose_threads };
        specs.extend([KernelSpec::SampleKeys(shape.clone()), KernelSpec::ChooseSampled(shape)]);
    }
    specs.push(KernelSpec::ReadProbe(ProbeShape { grid: 3, threads: 64 }));
    specs
}

/// Embedding look-ups: one row, several CTAs, and for floats rows that are not a multiple of 16 bytes.
fn embeds(ty: WeightType) -> Vec<KernelSpec> {
    let block = ty.ggml().block_elements() as u32;
    let widths = if ty.is_quantised() { [block, 2304] } else { [7, 1100] };
    [(1, widths[0]), (9, widths[1])]
        .map(|(vocab, cols)| KernelSpec::Embed(EmbedShape { ty, vocab, cols, threads: 64 }))
        .into()
}

/// GEMVs of one type: one row and many; fewer blocks in a tile than warps, as many, and a ragged number; partial tiles;
/// rings that wrap, and rings deeper than their stream; every kind of input and output.
fn gemvs(ty: WeightType) -> Vec<KernelSpec> {
    let block = ty.ggml().block_elements() as u32;
    let width = |cols: u32| if ty.is_quantised() { cols.next_multiple_of(block) } else { cols - 3 };
    let one = |rows: u32| vec![Segment { ty, rows }];
    let normed = Input::Normed { eps: 1e-5 };
    let (plain, store) = (Input::Plain, Output::Store);
    vec![
        gemv(width(32), one(1), plain, store, [1, 1, 2]),
        gemv(width(256), one(100), normed, store, [3, 4, 3]),
        gemv(width(1000), one(101), plain, Output::Residual, [2, 8, 2]),
        gemv(width(2304), vec![Segment { ty, rows: 40 }; 2], normed, Output::Swiglu, [3, 4, 2]),
        gemv(width(512), one(700), normed, Output::Argmax, [2, 2, 4]),
        gemv(width(9 * 1024 + 512), one(3), plain, store, [1, 8, 5]),
    ]
}

/// A GEMV on `grid` CTAs of `warps` warps with `stages` stages.
fn gemv(
    cols: u32,
    segments: Vec<Segment>,
    input: Input,
    output: Output,
    [grid, warps, stages]: [u32; 3],
) -> KernelSpec {
    let schedule = Schedule { grid, warps, stages, ..Schedule::MINIMAL };
    KernelSpec::Gemv(GemvShape { cols, segments, bias: false, input, output, schedule })
}

/// GEMVs with two blocks per warp at a time, with two groups of warps that alternate stages, and with rings that wrap.
/// The number of work units of a tile equals the number of warps, so that inputs are held in registers (if other CTAs
/// leave room), or is larger or smaller; one matrix and two.
fn in_turns(ty: WeightType) -> Vec<KernelSpec> {
    let async_copies = Schedule { grid: 2, warps: 4, depth: 2, groups: 2, stages: 4, ..Schedule::MINIMAL };
    let bulk = Schedule { copy: CopyEngine::Bulk, trigger: Trigger::AtStart, ..async_copies };
    let spec = |blocks: u32, segments: &[u32], output, schedule| {
        let segments = segments.iter().map(|&rows| Segment { ty, rows }).collect();
        let (cols, input) = (blocks * ty.block_cols(), Input::Normed { eps: 1e-5 });
        KernelSpec::Gemv(GemvShape { cols, segments, bias: false, input, output, schedule })
    };
    vec![
        spec(8, &[150], Output::Store, async_copies),
        spec(8, &[150], Output::Residual, Schedule { resident: 4, ..async_copies }),
        spec(6, &[16 * 70], Output::Argmax, bulk),
        spec(10, &[70, 70], Output::Swiglu, Schedule { stages: 2, ..bulk }),
    ]
}

/// GEMVs on stacks of matrices of one type and of several, with and without biases, with bulk copies.
fn stacks() -> Vec<KernelSpec> {
    use WeightType::{F16, F32, Q4_K, Q5_0, Q6_K, Q8_0};
    let bulk = Schedule {
        grid: 3,
        warps: 4,
        stages: 3,
        copy: CopyEngine::Bulk,
        trigger: Trigger::AtStart,
        ..Schedule::MINIMAL
    };
    // The group changes with the matrix: each matrix has an odd number of stages.
    let in_turns = Schedule { grid: 1, depth: 2, groups: 2, stages: 2, ..bulk };
    let stack = |cols, bias, segments: &[(WeightType, u32)], schedule| {
        let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
        let (input, output) = (Input::Normed { eps: 1e-6 }, Output::Store);
        KernelSpec::Gemv(GemvShape { cols, segments, bias, input, output, schedule })
    };
    vec![
        stack(512, false, &[(Q4_K, 48), (Q6_K, 8)], bulk),
        stack(96, true, &[(Q8_0, 33), (Q8_0, 3), (Q5_0, 5)], bulk),
        stack(256, true, &[(F16, 12), (Q8_0, 4), (F32, 8)], bulk),
        stack(512, true, &[(Q4_K, 16), (Q6_K, 48), (Q4_K, 16), (Q6_K, 80)], in_turns),
    ]
}

/// Shapes of attention: one to eight query heads per key/value head, and a group of heads in two CTAs; full and partial
/// rotation, of pairs and of halves; with and without normalisation; splits of one page and of several; rings of one
/// stage and of more, with both copy engines.
fn attentions() -> Vec<AttentionShape> {
    use RopeKind::{Neox, Norm};
    let shape =
        |[heads, kv_heads, head_dim, rotated]: [u32; 4], rope, qk_norm, [splits, min_pages]: [u32; 2]| {
            AttentionShape {
                heads,
                kv_heads,
                head_dim,
                rotated,
                rope,
                qk_norm,
                heads_per_block: (heads / kv_heads).min(8),
                splits,
                min_pages,
                stages: 2,
                copy: CopyEngine::Bulk,
                trigger: Trigger::AtStart,
            }
        };
    let async_copies =
        |shape| AttentionShape { stages: 1, copy: CopyEngine::Async, trigger: Trigger::Never, ..shape };
    let two_blocks = |shape| AttentionShape { heads_per_block: 2, ..shape };
    vec![
        shape([4, 2, 64, 64], Norm, None, [3, 1]),
        shape([7, 1, 80, 80], Neox, None, [2, 1]),
        async_copies(shape([8, 1, 128, 96], Neox, None, [2, 2])),
        shape([2, 2, 128, 128], Neox, Some(1e-6), [4, 1]),
        two_blocks(shape([4, 1, 16, 16], Norm, None, [5, 1])),
        async_copies(shape([1, 1, 256, 2], Norm, None, [1, 1])),
    ]
}
