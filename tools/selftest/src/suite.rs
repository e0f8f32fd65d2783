//! Kernels that the selftest runs.

mod attention;

use attention::{appends, attentions, chunks, shares};
use bespoke_kernels::kernels::argmax::ChooseShape;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::embed::EmbedShape;
use bespoke_kernels::kernels::gemm::{GemmShape, Tiling};
use bespoke_kernels::kernels::gemv::tokens::NextInputs;
use bespoke_kernels::kernels::gemv::{
    Activation, Arithmetic, GemvShape, Input, Output, Schedule, Segment, TokenSchedule,
};
use bespoke_kernels::kernels::launching::{CopyEngine, Trigger};
use bespoke_kernels::kernels::norm_add::NormAddShape;
use bespoke_kernels::kernels::probe::{MmaProbeShape, ProbeShape};
use bespoke_kernels::kernels::sample::SampleShape;
use bespoke_kernels::kernels::select_rows::SelectRowsShape;
use bespoke_kernels::plan::{Gpu, Plan, PlanError, PlanParams, Sampling};
use bespoke_kernels::shape::ModelShape;
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;

/// Kernels of a model's greedy and sampled plans with a KV cache of type `kv`, without duplicates.
///
/// # Errors
/// If the shape has no plan for the GPU.
pub fn of_shape(shape: &ModelShape, gpu: impl Into<Gpu>, kv: KvType) -> Result<Vec<KernelSpec>, PlanError> {
    let gpu = gpu.into();
    let params = PlanParams::single(shape.dimensions.context).with_kv(kv);
    let mut kernels = Plan::new(shape, gpu, params.clone())?.kernels;
    for kernel in Plan::new(shape, gpu, params.with_sampling(Sampling::Sampled))?.kernels {
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
    specs.extend(epilogues());
    specs.extend(several_tokens());
    specs.extend(halves());
    specs.extend(halves_with_next());
    specs.extend(many_tokens());
    specs.extend(scaled_embeds());
    specs.extend(norm_adds());
    specs.extend(attentions().into_iter().map(KernelSpec::Attention));
    specs.extend(shares().into_iter().map(KernelSpec::AttentionShares));
    specs.extend(appends().into_iter().map(KernelSpec::Append));
    specs.extend(chunks().into_iter().map(KernelSpec::AttentionChunk));
    for (candidates, threads) in [(1, 32), (4, 256), (132, 160), (1000, 1024)] {
        specs.push(KernelSpec::ChooseGreedy(ChooseShape { tokens: 1, candidates, threads }));
    }
    for (vocab, blocks, threads, choose_threads) in
        [(1, 1, 32, 64), (1000, 1, 256, 128), (5003, 4, 256, 256), (999, 3, 64, 1024)]
    {
        let shape = SampleShape { tokens: 1, vocab, blocks, threads, choose_threads };
        specs.extend([KernelSpec::SampleKeys(shape.clone()), KernelSpec::ChooseSampled(shape)]);
    }
    specs.push(KernelSpec::SelectRows(SelectRowsShape { tokens: 1, cols: 576, threads: 256 }));
    specs.extend(several_rows());
    specs.push(KernelSpec::ReadProbe(ProbeShape { grid: 3, threads: 64 }));
    specs.push(KernelSpec::MmaProbe(MmaProbeShape { grid: 3, threads: 64 }));
    specs
}

/// Embedding look-ups: one row, several CTAs, and for floats rows that are not a multiple of 16 bytes.
fn embeds(ty: WeightType) -> Vec<KernelSpec> {
    let block = ty.ggml().block_elements() as u32;
    let widths = if ty.is_quantised() { [block, 2304] } else { [7, 1100] };
    [(1, widths[0]), (9, widths[1])]
        .map(|(vocab, cols)| {
            KernelSpec::Embed(EmbedShape { tokens: 1, ty, vocab, cols, scale: 1.0, threads: 64 })
        })
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
        gemv(width(1000), one(101), plain, Output::Residual, [2, 4, 2]),
        gemv(
            width(2304),
            vec![Segment { ty, rows: 40 }; 2],
            normed,
            Output::Glu(Activation::Silu),
            [3, 4, 2],
        ),
        gemv(width(512), one(700), normed, Output::Argmax, [2, 2, 3]),
        // Gate and up in batches of 16 tiles.
        gemv(
            width(256),
            vec![Segment { ty, rows: 300 }; 2],
            normed,
            Output::Glu(Activation::Silu),
            [1, 4, 2],
        ),
        gemv(width(9 * 1024 + 512), one(3), plain, store, [1, 8, 3]),
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
    KernelSpec::Gemv(product(cols, segments, input, output, schedule))
}

/// A product of integers of one token, without a bias.
fn product(cols: u32, segments: Vec<Segment>, input: Input, output: Output, schedule: Schedule) -> GemvShape {
    GemvShape { input, output, schedule, ..GemvShape::new(cols, segments) }
}

/// Products of many tokens of every type: ragged numbers of rows, tokens and columns, every kind of input and output, several
/// matrices of different types, and different divisions.
fn many_tokens() -> Vec<KernelSpec> {
    let normed = Input::Normed { eps: 1e-5 };
    let base = Tiling {
        warps: [2, 2],
        warp_tiles: 2,
        warp_tokens: 16,
        stages: [2, 2],
        stage_cols: 128,
        copy: CopyEngine::Bulk,
        warpgroups: false,
        halved: 0,
    };
    let of_warpgroups = Tiling { warps: [4, 1], warpgroups: true, ..base };
    let tilings = [
        base,
        Tiling {
            warps: [1, 2],
            warp_tokens: 8,
            stages: [1, 3],
            stage_cols: 64,
            copy: CopyEngine::Async,
            ..base
        },
        Tiling { warps: [2, 1], warp_tiles: 1, warp_tokens: 32, stages: [3, 2], stage_cols: 32, ..base },
        of_warpgroups,
        Tiling { warps: [4, 2], warp_tiles: 1, warp_tokens: 24, stage_cols: 64, ..of_warpgroups },
        Tiling {
            warps: [8, 1],
            warp_tiles: 1,
            warp_tokens: 256,
            stages: [2, 3],
            stage_cols: 64,
            ..of_warpgroups
        },
        Tiling { warp_tiles: 1, stage_cols: 64, ..base },
    ];
    let mut specs = Vec::new();
    let mut add = |tokens, cols, segments: &[(WeightType, u32)], input, output, tiling| {
        let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
        let product = GemvShape {
            tokens,
            bias: output != Output::Residual,
            scale: if output == Output::Residual { 0.5 } else { 1.0 },
            ..product(cols, segments, input, output, Schedule::MINIMAL)
        };
        let shape = GemmShape { product, tiling };
        specs.extend([KernelSpec::Convert(shape.convert()), KernelSpec::Gemm(shape)]);
    };
    for ty in WeightType::ALL {
        let block = ty.ggml().block_elements() as u32;
        let cols = if ty.is_quantised() { 800u32.next_multiple_of(block) } else { 797 };
        add(37, cols, &[(ty, 150)], Input::Plain, Output::Residual, tilings[0]);
        add(37, cols, &[(ty, 150)], Input::Plain, Output::Residual, tilings[3]);
        add(20, cols, &[(ty, 40), (ty, 40)], normed, Output::Glu(Activation::Silu), tilings[1]);
    }
    use WeightType::{F16, Q4_K, Q6_K, Q8_0};
    add(33, 512, &[(Q4_K, 70), (Q6_K, 30), (F16, 20)], normed, Output::Store, tilings[2]);
    add(64, 768, &[(Q4_K, 48), (Q6_K, 48)], normed, Output::Glu(Activation::Gelu), tilings[0]);
    add(2, 96, &[(Q8_0, 17)], Input::Plain, Output::Store, tilings[2]);
    // `convert` with 1,024 threads, and with more inputs than its threads hold in registers.
    add(2, 5_120, &[(Q8_0, 17)], normed, Output::Store, tilings[2]);
    add(3, 20_992, &[(Q8_0, 17)], normed, Output::Store, tilings[2]);
    add(70, 512, &[(Q4_K, 150), (Q4_K, 150)], normed, Output::Glu(Activation::Silu), tilings[5]);
    add(260, 256, &[(Q4_K, 70), (Q6_K, 30)], normed, Output::Residual, tilings[5]);
    add(50, 160, &[(Q8_0, 40), (Q8_0, 40)], Input::Plain, Output::Glu(Activation::Gelu), tilings[6]);
    add(50, 512, &[(Q4_K, 150), (Q6_K, 30), (F16, 70)], normed, Output::Store, tilings[4]);
    // Of the last block of tokens, only the first half exists.
    let halved = Tiling { halved: 2, ..tilings[5] };
    add(300, 512, &[(Q4_K, 200), (Q4_K, 200)], normed, Output::Glu(Activation::Silu), halved);
    let three = Tiling { warps: [12, 1], warp_tokens: 128, stage_cols: 128, ..tilings[5] };
    add(130, 512, &[(Q4_K, 250), (Q6_K, 70)], normed, Output::Store, three);
    let halved = Tiling { warp_tokens: 32, halved: 1, ..tilings[4] };
    add(60, 160, &[(Q8_0, 150)], Input::Plain, Output::Residual, halved);
    let halved = Tiling { halved: 2, ..halved };
    add(128, 160, &[(Q8_0, 150)], Input::Plain, Output::Residual, halved);
    specs
}

/// GEMVs with two blocks per warp at a time, with two groups of warps that alternate stages, and with rings that wrap.
/// The number of work units of a tile equals the number of warps, so that inputs are held in registers (if other CTAs
/// leave room), or is larger or smaller; one matrix and two.
fn in_turns(ty: WeightType) -> Vec<KernelSpec> {
    let async_copies = Schedule { grid: 2, warps: 4, groups: 2, stages: 4, ..Schedule::MINIMAL };
    let bulk = Schedule { copy: CopyEngine::Bulk, trigger: Trigger::AtStart, ..async_copies };
    let spec = |blocks: u32, segments: &[u32], output, schedule| {
        let segments = segments.iter().map(|&rows| Segment { ty, rows }).collect();
        let (cols, input) = (blocks * ty.block_cols(), Input::Normed { eps: 1e-5 });
        KernelSpec::Gemv(product(cols, segments, input, output, schedule))
    };
    vec![
        spec(8, &[150], Output::Store, async_copies),
        spec(8, &[150], Output::Residual, Schedule { resident: 4, in_flight: 3, ..async_copies }),
        spec(6, &[16 * 70], Output::Argmax, bulk),
        spec(10, &[70, 70], Output::Glu(Activation::Silu), Schedule { stages: 2, ..bulk }),
        spec(8, &[150], Output::Store, Schedule { trigger: Trigger::AfterLoads, ..bulk }),
    ]
}

/// GEMVs on stacks of matrices of one type and of several, with and without biases, with bulk copies.
fn stacks() -> Vec<KernelSpec> {
    use WeightType::{F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_K, Q5_0, Q6_K, Q8_0};
    let bulk = Schedule {
        grid: 3,
        warps: 4,
        stages: 3,
        copy: CopyEngine::Bulk,
        trigger: Trigger::AtStart,
        ..Schedule::MINIMAL
    };
    // The group changes with the matrix: each matrix has an odd number of stages.
    let in_turns = Schedule { grid: 1, groups: 2, stages: 2, ..bulk };
    let stack = |cols, bias, segments: &[(WeightType, u32)], schedule| {
        let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
        let (input, output) = (Input::Normed { eps: 1e-6 }, Output::Store);
        KernelSpec::Gemv(GemvShape { bias, ..product(cols, segments, input, output, schedule) })
    };
    vec![
        stack(512, false, &[(Q4_K, 48), (Q6_K, 8)], bulk),
        stack(96, true, &[(Q8_0, 33), (Q8_0, 3), (Q5_0, 5)], bulk),
        stack(256, true, &[(F16, 12), (Q8_0, 4), (F32, 8)], bulk),
        stack(512, true, &[(Q4_K, 16), (Q6_K, 48), (Q4_K, 16), (Q6_K, 80)], in_turns),
        // Sums of chunks and of half chunks, and inputs as floats, beside each other.
        stack(512, true, &[(Q2_K, 20), (Q4_K, 24), (Q3_K, 17), (F16, 9)], bulk),
        stack(512, false, &[(Q2_K, 33), (IQ4_XS, 8), (Q6_K, 16)], in_turns),
        // Widths that fill no block: 576 columns are four and a half.
        stack(576, true, &[(IQ4_NL, 40), (MXFP4, 17), (Q8_0, 5)], bulk),
        stack(896, false, &[(MXFP4, 32), (IQ4_NL, 3), (Q5_0, 16)], bulk),
    ]
}

/// Products of several tokens: every type with a few tokens, whose inputs each CTA quantises, and with more, whose inputs are
/// prepared; every output; stacks of types with several forms of inputs; slices that do not divide the columns, and units
/// that strips do not divide; tokens divided among warps; batches of tiles; sums of slices, and of all steps; both copy engines.
fn several_tokens() -> Vec<KernelSpec> {
    use WeightType::{F16, F32, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_0};
    let bulk = Schedule {
        grid: 2,
        warps: 4,
        stages: 4,
        in_flight: 4,
        copy: CopyEngine::Bulk,
        trigger: Trigger::AtStart,
        ..Schedule::MINIMAL
    };
    let (whole, held) = (TokenSchedule::ONE, |tiles| TokenSchedule { tiles, ..TokenSchedule::ONE });
    let sliced = |slice, buffers, parts, tiles| TokenSchedule {
        parts,
        ..TokenSchedule::sliced(slice, buffers, tiles)
    };
    let held_sums = |slice, buffers, tiles| TokenSchedule { holds: true, ..sliced(slice, buffers, 1, tiles) };
    let of_warpgroups = |tiles, blocks| TokenSchedule { warpgroups: 2, blocks, ..sliced(256, 2, 1, tiles) };
    let spec = |tokens, cols, segments: &[(WeightType, u32)], output, schedule, several| {
        let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
        KernelSpec::Gemv(GemvShape {
            tokens,
            bias: tokens > 4,
            input: if output == Output::Residual { Input::Plain } else { Input::Normed { eps: 1e-5 } },
            output,
            schedule: Schedule { several, ..schedule },
            ..GemvShape::new(cols, segments)
        })
    };
    let in_turns = |groups| Schedule { groups, ..bulk };
    let asynchronous = Schedule { copy: CopyEngine::Async, trigger: Trigger::Never, ..bulk };
    let wraps = Schedule { stages: 2, in_flight: 2, ..asynchronous };
    let two_warpgroups = Schedule { warps: 8, groups: 2, ..bulk };
    let three_warpgroups = Schedule { warps: 12, groups: 3, stages: 6, in_flight: 6, ..bulk };
    let of_three = TokenSchedule { warpgroups: 3, ..sliced(256, 3, 1, 4) };
    let mut specs = Vec::new();
    for ty in WeightType::ALL {
        let cols = 3 * ty.block_cols().max(128);
        specs.push(spec(4, cols, &[(ty, 40)], Output::Store, in_turns(2), whole));
        specs.push(spec(2, 4 * cols, &[(ty, 40)], Output::Residual, in_turns(2), whole));
        specs.push(spec(4, cols, &[(ty, 40)], Output::Store, in_turns(2), held(2)));
        specs.push(spec(16, 2 * cols, &[(ty, 20)], Output::Residual, bulk, sliced(1024, 2, 2, 1)));
    }
    let silu = Output::Glu(Activation::Silu);
    specs.extend([
        spec(3, 1024, &[(Q4_K, 150), (Q4_K, 150)], silu, asynchronous, whole),
        spec(2, 600 * 4, &[(F32, 20)], Output::Argmax, bulk, whole),
        spec(3, 1536, &[(Q6_K, 700)], Output::Argmax, in_turns(2), whole),
        spec(4, 1536, &[(Q4_K, 100), (Q6_K, 30)], Output::Argmax, in_turns(4), whole),
        spec(
            16,
            1024,
            &[(Q6_K, 40)],
            Output::Store,
            Schedule { trigger: Trigger::AfterLoads, ..bulk },
            sliced(512, 2, 1, 1),
        ),
        spec(4, 512, &[(Q2_K, 84), (Q4_K, 88), (Q3_K, 81), (F16, 73)], Output::Store, wraps, whole),
        spec(2, 1024, &[(Q4_K, 50), (Q4_K, 50)], silu, asynchronous, held(1)),
        spec(2, 600 * 4, &[(F32, 20)], Output::Argmax, bulk, held(4)),
        spec(4, 1536, &[(Q4_K, 100), (Q6_K, 30)], Output::Argmax, in_turns(4), held(3)),
        spec(8, 1056, &[(Q8_0, 70)], Output::Argmax, in_turns(2), sliced(512, 1, 2, 2)),
        spec(8, 512 * 5, &[(Q4_K, 20), (Q6_K, 33)], Output::Store, bulk, sliced(1024, 2, 1, 4)),
        spec(32, 1024, &[(Q4_K, 40), (Q4_K, 40)], silu, in_turns(2), sliced(512, 2, 2, 1)),
        spec(8, 3584, &[(Q4_K, 100)], Output::Residual, in_turns(2), held_sums(1280, 2, 4)),
        spec(7, 1280, &[(Q4_K, 40), (Q6_K, 33)], Output::Store, in_turns(2), held_sums(512, 2, 1)),
        spec(12, 1536, &[(Q6_K, 70), (Q6_K, 70)], silu, in_turns(4), held_sums(256, 3, 3)),
        spec(6, 1536, &[(Q6_K, 150)], Output::Argmax, in_turns(4), held_sums(512, 2, 2)),
        spec(8, 1024, &[(Q4_K, 16), (Q5_K, 80)], Output::Store, in_turns(2), held_sums(512, 2, 1)),
        spec(40, 768, &[(Q4_K, 72), (Q5_K, 150)], Output::Residual, two_warpgroups, of_warpgroups(4, 1)),
        spec(64, 512, &[(Q4_K, 50), (Q4_K, 50)], silu, two_warpgroups, of_warpgroups(2, 2)),
        spec(24, 768, &[(Q6_K, 150)], Output::Argmax, two_warpgroups, of_warpgroups(4, 1)),
        spec(50, 1024, &[(Q6_K, 70), (Q4_K, 150)], Output::Store, three_warpgroups, of_three),
        // Quads with tiles of gate and of up, in two batches; and types that differ, so no quad has tiles of both.
        spec(44, 768, &[(Q4_K, 300), (Q4_K, 300)], silu, two_warpgroups, of_warpgroups(6, 1)),
        spec(12, 512, &[(Q4_K, 150), (Q6_K, 150)], silu, two_warpgroups, of_warpgroups(5, 1)),
        // Rings that wrap.
        spec(6, 1536, &[(Q6_K, 150)], Output::Argmax, in_turns(2), sliced(512, 2, 1, 1)),
        spec(16, 3584, &[(Q4_K, 150)], Output::Residual, in_turns(2), sliced(1024, 2, 2, 2)),
        spec(64, 1536, &[(Q4_K, 50), (Q6_K, 40)], Output::Store, in_turns(4), sliced(512, 2, 1, 2)),
        spec(
            8,
            1024,
            &[(Q2_K, 52), (Q4_K, 56), (Q3_K, 49), (F16, 41)],
            Output::Store,
            asynchronous,
            sliced(512, 1, 1, 1),
        ),
    ]);
    // Inputs of every form, and of tokens that do not fill a group of four.
    for index in [specs.len() - 1, specs.len() - 2, specs.len() - 4, specs.len() - 5] {
        if let KernelSpec::Gemv(product) = &specs[index] {
            specs.extend(product.prepare().map(KernelSpec::Prepare));
        }
    }
    specs
}

/// Products of f16: those of [`several_tokens`] whose tokens are divided into slices, and every type by warpgroups.
fn halves() -> Vec<KernelSpec> {
    let half = |spec| match spec {
        KernelSpec::Gemv(product) if product.is_sliced() => {
            Some(GemvShape { arithmetic: Arithmetic::F16, ..product })
        }
        _ => None,
    };
    let mut products: Vec<GemvShape> = several_tokens().into_iter().filter_map(half).collect();
    let warpgroups = products.iter().find(|product| product.has_warpgroups()).cloned();
    for ty in WeightType::ALL {
        let segments = vec![Segment { ty, rows: 70 }];
        products.extend(warpgroups.clone().map(|product| GemvShape { cols: 768, segments, ..product }));
    }
    products.retain(|product| !product.has_warpgroups() || product.supports_warpgroups());
    // Clusters whose CTAs have several tiles, and tokens in two blocks.
    if let Some(product) = products.iter().find(|product| product.cluster() > 1).cloned() {
        let several = TokenSchedule { blocks: 2, tiles: 8, ..product.schedule.several };
        let schedule = Schedule { several, ..product.schedule };
        let segments = vec![Segment { ty: WeightType::Q4_K, rows: 250 }];
        products.push(GemvShape { cols: 1792, segments, schedule, ..product });
    }
    let prepared = products.iter().rev().step_by(5).filter_map(GemvShape::prepare).map(KernelSpec::Prepare);
    let prepared: Vec<_> = prepared.collect();
    products.into_iter().map(KernelSpec::Gemv).chain(prepared).collect()
}

/// Products of f16 that write the inputs of the next one: of each form, from each division, with and without a norm.
fn halves_with_next() -> Vec<KernelSpec> {
    use WeightType::{F16, Q4_K, Q5_K, Q6_K, Q8_0};
    let bulk = Schedule { grid: 3, stages: 4, in_flight: 4, copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
    let warps = |several| Schedule { warps: 4, groups: 2, trigger: Trigger::AtStart, several, ..bulk };
    let one_tile = warps(TokenSchedule::sliced(512, 2, 1));
    let held = warps(TokenSchedule { holds: true, ..TokenSchedule::sliced(512, 2, 8) });
    let copied = Schedule { copy: CopyEngine::Async, trigger: Trigger::Never, ..one_tile };
    let parts =
        Schedule { groups: 1, ..warps(TokenSchedule { parts: 2, ..TokenSchedule::sliced(512, 2, 3) }) };
    let of_warpgroups =
        |tiles, blocks| TokenSchedule { warpgroups: 2, blocks, ..TokenSchedule::sliced(256, 2, tiles) };
    let warpgroups = |tiles, blocks| Schedule { warps: 8, ..warps(of_warpgroups(tiles, blocks)) };
    let product = |tokens, cols, segments: &[(WeightType, u32)], schedule| {
        let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
        GemvShape { tokens, arithmetic: Arithmetic::F16, schedule, ..GemvShape::new(cols, segments) }
    };
    let normed = Input::Normed { eps: 1e-5 };
    let mut specs = Vec::new();
    let mut add = |product: GemvShape, next: &GemvShape| {
        let next = NextInputs::between(&product, next);
        assert!(next.is_some(), "the products are of f16, with as many outputs as inputs");
        specs.push(KernelSpec::Gemv(GemvShape { next, ..product }));
    };
    // A residual connection and the product after the next norm; gate and up, and down. The rings of the residual ones wrap, and their
    // last slices are shorter.
    for (tokens, ty, schedule, readers, of_next) in [
        (2, Q4_K, one_tile, &[(Q4_K, 40)][..], one_tile),
        (3, Q4_K, held, &[(Q6_K, 40)], one_tile),
        (4, Q6_K, parts, &[(Q4_K, 40), (F16, 20)], one_tile),
        (8, Q4_K, held, &[(Q5_K, 40), (Q8_0, 20)], parts),
        (13, Q8_0, parts, &[(F16, 40)], one_tile),
        (16, Q4_K, one_tile, &[(Q4_K, 40)], warpgroups(4, 1)),
        (40, Q4_K, one_tile, &[(Q4_K, 40)], warpgroups(4, 2)),
        (40, Q4_K, warpgroups(8, 2), &[(Q6_K, 40)], one_tile),
        (60, Q6_K, warpgroups(8, 2), &[(Q4_K, 40)], warpgroups(4, 1)),
        (24, Q4_K, warpgroups(8, 1), &[(Q4_K, 40)], warpgroups(4, 1)),
        // Fewer padded tokens than the next product has.
        (40, Q4_K, warpgroups(8, 1), &[(Q4_K, 40)], warpgroups(4, 2)),
        (17, Q4_K, one_tile, &[(Q4_K, 40)], warpgroups(4, 1)),
        // Without bulk copies, for GPUs before Hopper.
        (8, Q4_K, copied, &[(Q4_K, 40)], copied),
    ] {
        let residual =
            GemvShape { output: Output::Residual, ..product(tokens, 3328, &[(ty, 256)], schedule) };
        let output = Output::Glu(Activation::Silu);
        let gated = product(tokens, 512, &[(ty, 256), (ty, 256)], schedule);
        let gated = GemvShape { input: normed, output, bias: tokens == 8, stores_factors: true, ..gated };
        let reader = product(tokens, 256, readers, of_next);
        add(residual, &GemvShape { input: normed, ..reader.clone() });
        add(gated, &reader);
    }
    // 14 tiles, which do not fill two granules of 128 columns.
    let whole_slice = warps(TokenSchedule::sliced(256, 2, 1));
    for (tokens, readers) in [(2, &[(Q8_0, 40)][..]), (12, &[(F16, 20), (Q8_0, 20)])] {
        let residual = product(tokens, 768, &[(Q4_K, 224)], one_tile);
        let reader = GemvShape { input: normed, ..product(tokens, 224, readers, whole_slice) };
        add(GemvShape { output: Output::Residual, ..residual }, &reader);
    }
    specs
}

/// Numbers of rows of the steps of an engine, besides one.
const ROWS: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// The kernels besides products and attention, for each number of rows.
fn several_rows() -> Vec<KernelSpec> {
    let embed = |tokens, ty, cols, scale| {
        KernelSpec::Embed(EmbedShape { tokens, ty, vocab: 9, cols, scale, threads: 64 })
    };
    let kernels = |tokens| {
        let sample = SampleShape { tokens, vocab: 333, blocks: 2, threads: 64, choose_threads: 128 };
        [
            embed(tokens, WeightType::Q4_K, 768, 1.0),
            embed(tokens, WeightType::F16, 75, 48.0),
            KernelSpec::SelectRows(SelectRowsShape { tokens, cols: 101, threads: 64 }),
            KernelSpec::NormAdd(NormAddShape::new(tokens, 576, 1e-5, 1.0)),
            KernelSpec::NormAdd(NormAddShape {
                tokens,
                cols: 101,
                eps: 1e-6,
                scale: 0.5,
                threads: 64,
                only_existing: true,
            }),
            KernelSpec::ChooseGreedy(ChooseShape { tokens, candidates: 33, threads: 64 }),
            KernelSpec::SampleKeys(sample.clone()),
            KernelSpec::ChooseSampled(sample),
        ]
    };
    ROWS.into_iter().flat_map(kernels).collect()
}

/// GEMVs with the epilogues that few models have: the gated GELU, a factor, and a soft cap, alone and with a bias, a
/// residual or an argmax; tiles at once and in batches.
fn epilogues() -> Vec<KernelSpec> {
    use WeightType::{F32, Q4_K, Q8_0};
    let spec = |ty, rows: &[u32], bias, output, (scale, softcap)| {
        let segments: Vec<Segment> = rows.iter().map(|&rows| Segment { ty, rows }).collect();
        let schedule = Schedule { grid: 2, warps: 4, stages: 3, ..Schedule::MINIMAL };
        let (cols, input) = (512, Input::Normed { eps: 1e-6 });
        let product = GemvShape::new(cols, segments);
        KernelSpec::Gemv(GemvShape { bias, input, output, scale, softcap, schedule, ..product })
    };
    let gelu = Output::Glu(Activation::Gelu);
    vec![
        spec(F32, &[150, 150], false, gelu, (1.0, None)),
        spec(Q4_K, &[150, 150], false, gelu, (1.0, None)),
        spec(F32, &[40, 40], false, Output::Glu(Activation::Silu), (0.5, None)),
        spec(F32, &[150, 150], true, Output::Glu(Activation::Silu), (1.0, None)),
        spec(Q8_0, &[70, 70], true, gelu, (1.0, None)),
        spec(F32, &[150], true, Output::Store, (0.22, None)),
        spec(Q8_0, &[150], true, Output::Residual, (0.22, None)),
        spec(F32, &[150], true, Output::Residual, (3.0, Some(1.5))),
        // The cap is large, and small, compared with the products.
        spec(F32, &[150], false, Output::Store, (1.0, Some(30.0))),
        spec(F32, &[700], false, Output::Argmax, (1.0, Some(0.75))),
        spec(Q8_0, &[700], false, Output::Argmax, (1.0 / 16.0, None)),
        spec(Q8_0, &[700], false, Output::Argmax, (-0.5, Some(2.0))),
    ]
}

/// Embeddings with a factor, of a float and of a quantised type.
fn scaled_embeds() -> Vec<KernelSpec> {
    [(WeightType::F16, 7), (WeightType::Q6_K, 2304)]
        .map(|(ty, cols)| {
            KernelSpec::Embed(EmbedShape { tokens: 1, ty, vocab: 5, cols, scale: 48.0, threads: 64 })
        })
        .into()
}

/// Norms added to the residual stream: a column; a width without whole vectors; one warp and many; one vector a thread
/// and several, also with threads that have none.
fn norm_adds() -> Vec<KernelSpec> {
    let shape = |cols, threads, scale| NormAddShape {
        tokens: 1,
        cols,
        eps: 1e-6,
        scale,
        threads,
        only_existing: false,
    };
    vec![
        shape(1, 32, 1.0),
        shape(1101, 64, 0.5),
        shape(128, 64, 1.0),
        shape(2304, 160, 1.0),
        NormAddShape::new(1, 576, 1e-5, 1.0),
        NormAddShape::new(1, 5376, 1e-6, 1.0),
        NormAddShape::new(1, 8192, 1e-5, 0.25),
    ]
    .into_iter()
    .map(KernelSpec::NormAdd)
    .collect()
}
