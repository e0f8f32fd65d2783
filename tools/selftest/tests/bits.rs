//! The bits of a matrix product's outputs do not depend on how the work is divided.

use bespoke::device::{self, Selector};
use bespoke_kernels::kernels::gemm::Tiling;
use bespoke_kernels::kernels::gemv::tokens::NextInputs;
use bespoke_kernels::kernels::gemv::{
    Activation, Arithmetic, GemvShape, Input, Output, Schedule, Segment, TokenSchedule,
};
use bespoke_kernels::kernels::launching::CopyEngine;
use bespoke_kernels::weights::WeightType;
use bespoke_selftest::{differing_next, differing_schedule, differing_tiling, differing_token};

fn shape(cols: u32, segments: &[(WeightType, u32)], input: Input, output: Output) -> GemvShape {
    let segments = segments.iter().map(|&(ty, rows)| Segment { ty, rows }).collect();
    GemvShape { input, output, ..GemvShape::new(cols, segments) }
}

/// Warps, groups, CTAs, stages and copy engines; fewer and more warps than a tile has units; batches of tiles.
#[test]
fn outputs_do_not_depend_on_the_schedule() {
    use WeightType::{F16, F32, Q4_K, Q6_K, Q8_0};
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let normed = Input::Normed { eps: 1e-5 };
    let schedules: Vec<Schedule> = [[1, 1, 1, 2], [2, 3, 1, 3], [5, 4, 2, 4], [1, 8, 4, 4], [3, 6, 3, 3]]
        .into_iter()
        .zip([CopyEngine::Async, CopyEngine::Bulk].into_iter().cycle())
        .map(|([grid, warps, groups, stages], copy)| Schedule {
            grid,
            warps,
            groups,
            stages,
            in_flight: stages,
            copy,
            ..Schedule::MINIMAL
        })
        .collect();
    for shape in [
        shape(5 * 512, &[(Q4_K, 40), (Q6_K, 24)], normed, Output::Store),
        shape(3 * 256, &[(Q6_K, 300)], normed, Output::Residual),
        shape(1056, &[(Q8_0, 50), (Q8_0, 50)], Input::Plain, Output::Glu(Activation::Silu)),
        // Sums of more units than a loop's body has.
        shape(2400, &[(F32, 20)], normed, Output::Store),
        shape(1100, &[(F16, 33)], Input::Plain, Output::Store),
    ] {
        let differing = differing_schedule(&*device, &shape, &schedules).expect("the device has a target");
        assert_eq!(differing, None);
    }
}

/// Every type with two, three and four tokens in the loop of one token: units whose inputs are held in registers and not,
/// each output, stacks with several forms of inputs, batches of tiles.
#[test]
fn outputs_of_a_few_tokens_equal_those_of_one() {
    use WeightType::{F16, Q2_K, Q4_K, Q6_K, Q8_0};
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let schedule = Schedule { grid: 2, stages: 4, in_flight: 4, copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
    let normed = Input::Normed { eps: 1e-5 };
    let silu = Output::Glu(Activation::Silu);
    let mut cases = Vec::new();
    for ty in WeightType::ALL {
        let cols = if ty.ggml().block_elements() == 256 { 1280 } else { 1056 };
        cases.push((2, 4, shape(cols, &[(ty, 20)], normed, Output::Store)));
        cases.push((3, 4, shape(cols, &[(ty, 20)], Input::Plain, Output::Residual)));
        // A unit has two blocks; a tile has two units.
        cases.push((4, 2, shape(4 * ty.block_cols(), &[(ty, 40)], normed, Output::Store)));
        cases.push((2, 2, shape(4 * ty.block_cols(), &[(ty, 40)], normed, Output::Store)));
    }
    let stack = [(Q4_K, 24), (Q6_K, 40), (F16, 20), (Q2_K, 17)];
    for tokens in [2, 3, 4] {
        cases.push((tokens, 4, shape(2560, &stack, normed, Output::Store)));
        cases.push((tokens, 2, shape(1056, &[(Q8_0, 50), (Q8_0, 50)], normed, silu)));
        cases.push((tokens, 4, shape(512, &[(Q6_K, 700)], normed, Output::Residual)));
        cases.push((tokens, 4, shape(512, &[(Q4_K, 700)], Input::Plain, Output::Residual)));
    }
    for (tokens, warps, one) in cases {
        let groups = if warps == 4 { 2 } else { 1 };
        let schedule = Schedule { warps, groups, ..schedule };
        for bias in [false, true] {
            let one = GemvShape { bias, ..one.clone() };
            let many = GemvShape { tokens, schedule, ..one.clone() };
            let differing = differing_token(&*device, &many, &one).expect("the device has a target");
            assert_eq!(differing, None);
        }
    }
}

/// Every type, with inputs that each CTA quantises and with prepared inputs.
#[test]
fn outputs_do_not_depend_on_the_number_of_tokens() {
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let several =
        Schedule { grid: 2, warps: 4, stages: 4, in_flight: 4, copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
    let held = TokenSchedule { tiles: 2, ..TokenSchedule::ONE };
    let sliced = TokenSchedule { parts: 2, ..TokenSchedule::sliced(1024, 2, 1) };
    for ty in WeightType::ALL {
        let cols = if ty.ggml().block_elements() == 256 { 1280 } else { 1056 };
        for (tokens, several) in [
            (3, Schedule { several: held, groups: 2, ..several }),
            (8, Schedule { several: sliced, ..several }),
            (8, Schedule { several: TokenSchedule { holds: true, ..sliced }, ..several }),
        ] {
            for (input, output) in
                [(Input::Normed { eps: 1e-5 }, Output::Store), (Input::Plain, Output::Residual)]
            {
                let one = shape(cols, &[(ty, 20)], input, output);
                let many = GemvShape { tokens, schedule: several, ..one.clone() };
                let differing = differing_token(&*device, &many, &one).expect("the device has a target");
                assert_eq!(differing, None);
            }
        }
    }
}

/// Two matrices of one product have residuals of their own.
#[test]
fn residuals_are_those_of_each_matrix() {
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let one = shape(1280, &[(WeightType::Q4_K, 16), (WeightType::Q6_K, 16)], Input::Plain, Output::Residual);
    let several = TokenSchedule::sliced(512, 2, 1);
    let bulk = Schedule { copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
    let schedule = Schedule { grid: 1, warps: 4, groups: 2, stages: 4, in_flight: 4, several, ..bulk };
    let many = GemvShape { tokens: 8, schedule, ..one.clone() };
    assert_eq!(differing_token(&*device, &many, &one).expect("the device has a target"), None);
}

/// Slices of one unit, whose sums are added to the totals at once, or held; groups of warps that take stages of several slices in
/// turn; groups of tokens that are not full.
#[test]
fn outputs_do_not_depend_on_the_slices() {
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let silu = Output::Glu(Activation::Silu);
    let segments = [(WeightType::Q4_K, 24), (WeightType::Q6_K, 24)];
    let one = shape(2048, &segments, Input::Normed { eps: 1e-5 }, silu);
    for (slice, buffers, groups, parts) in [(512, 2, 2, 2), (1024, 1, 4, 1), (2048, 1, 1, 1), (1536, 2, 1, 2)]
    {
        // With one slice there is nothing to hold.
        for holds in [false, true].into_iter().filter(|holds| !holds || slice < 2048) {
            let several = TokenSchedule { parts, holds, ..TokenSchedule::sliced(slice, buffers, 1) };
            let bulk = Schedule { copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
            let schedule = Schedule { grid: 1, warps: 4, groups, stages: 4, in_flight: 4, several, ..bulk };
            let many = GemvShape { tokens: 6, schedule, ..one.clone() };
            let differing = differing_token(&*device, &many, &one).expect("the device has a target");
            assert_eq!(differing, None);
        }
    }
}

/// Products of warpgroups: blocks of tokens, quads that are not full, slices of one step and of several, batches of tiles, each
/// output; columns for which all operands of a step are in registers, and more; two types; producers that give registers.
#[test]
fn outputs_of_warpgroups_equal_those_of_one_token() {
    use WeightType::{Q4_K, Q5_K, Q6_K};
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let silu = Output::Glu(Activation::Silu);
    let normed = Input::Normed { eps: 1e-5 };
    let several = |slice, buffers, tiles, warpgroups, blocks| TokenSchedule {
        warpgroups,
        blocks,
        ..TokenSchedule::sliced(slice, buffers, tiles)
    };
    let mut cases = Vec::new();
    for ty in [Q4_K, Q5_K, Q6_K] {
        cases.push((8, several(256, 2, 4, 1, 1), shape(1280, &[(ty, 72)], normed, Output::Store)));
        cases.push((19, several(512, 2, 3, 2, 1), shape(1024, &[(ty, 100)], Input::Plain, Output::Residual)));
        cases.push((64, several(256, 2, 4, 2, 1), shape(512, &[(ty, 40)], normed, Output::Store)));
    }
    cases.push((64, several(256, 3, 8, 3, 2), shape(768, &[(Q4_K, 150)], normed, Output::Store)));
    cases.push((32, several(256, 3, 4, 2, 2), shape(768, &[(Q4_K, 64), (Q5_K, 40)], normed, Output::Store)));
    cases.push((12, several(512, 1, 2, 2, 1), shape(512, &[(Q5_K, 120), (Q4_K, 120)], normed, silu)));
    // Quads with tiles of gate and of up, in two batches.
    cases.push((40, several(256, 3, 6, 2, 1), shape(512, &[(Q4_K, 300), (Q4_K, 300)], normed, silu)));
    cases.push((16, several(256, 2, 4, 3, 1), shape(512, &[(Q5_K, 300)], normed, Output::Argmax)));
    cases.push((
        64,
        several(256, 3, 4, 3, 1),
        shape(1024, &[(Q4_K, 100), (Q6_K, 40)], normed, Output::Store),
    ));
    cases.push((40, several(256, 2, 4, 2, 1), shape(512, &[(Q6_K, 200)], Input::Plain, Output::Argmax)));
    for (tokens, several, one) in cases {
        let (warps, groups) = (4 * several.warpgroups, several.warpgroups);
        let stages = 2 * groups;
        let bulk = Schedule { copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
        let schedule = Schedule { grid: 2, warps, groups, stages, in_flight: stages, several, ..bulk };
        let many = GemvShape { tokens, schedule, ..one.clone() };
        let output = if one.output == Output::Argmax { Output::Store } else { one.output };
        let differing = differing_token(&*device, &many, &GemvShape { output, ..one });
        assert_eq!(differing.expect("the device has a target"), None);
    }
}

/// f16: every type by warps, with inputs that each CTA converts and with prepared inputs, and by warpgroups; tokens that do
/// not fill a pair of groups; parts with one group.
#[test]
fn outputs_of_f16_do_not_depend_on_the_number_of_tokens() {
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let held = |tiles| TokenSchedule { tiles, ..TokenSchedule::ONE };
    let sliced = |slice, parts| TokenSchedule { parts, ..TokenSchedule::sliced(slice, 2, 1) };
    let bulk =
        Schedule { grid: 2, warps: 4, copy: CopyEngine::Bulk, stages: 4, in_flight: 4, ..Schedule::MINIMAL };
    let with = |several| Schedule { several, ..bulk };
    let one_of = |shape: &GemvShape| GemvShape {
        arithmetic: Arithmetic::F16,
        schedule: with(held(2)),
        ..shape.clone()
    };
    let normed = Input::Normed { eps: 1e-5 };
    let mut cases = Vec::new();
    for ty in WeightType::ALL {
        let cols = if ty.ggml().block_elements() == 256 { 1280 } else { 1056 };
        let one = one_of(&shape(cols, &[(ty, 20)], normed, Output::Store));
        cases.push((3, with(held(1)), one.clone()));
        cases.push((20, with(sliced(1024, 2)), one));
        let one = one_of(&shape(cols, &[(ty, 20)], Input::Plain, Output::Residual));
        cases.push((8, with(sliced(1024, 1)), one.clone()));
        cases.push((8, with(TokenSchedule { holds: true, ..sliced(512, 1) }), one.clone()));
        cases.push((8, with(sliced(1024, 2)), one));
        let one = one_of(&shape(1024, &[(ty, 72)], normed, Output::Store));
        let warpgroups = TokenSchedule { warpgroups: 2, tiles: 4, ..sliced(256, 1) };
        let schedule = Schedule { warps: 8, groups: 2, ..with(warpgroups) };
        let many = GemvShape { tokens: 19, schedule, ..one.clone() };
        if many.supports_warpgroups() {
            cases.push((19, schedule, one));
            // Clusters, whose CTAs have parts of the columns: three and four of seven steps.
            let one = one_of(&shape(1792, &[(ty, 72)], Input::Plain, Output::Residual));
            cases.push((19, schedule, one));
        }
    }
    // Quads with tiles of gate and of up.
    let warpgroups = TokenSchedule { warpgroups: 3, tiles: 5, ..sliced(256, 1) };
    let schedule = Schedule { warps: 12, groups: 3, stages: 6, in_flight: 6, ..with(warpgroups) };
    let gated = [(WeightType::Q4_K, 150), (WeightType::Q4_K, 150)];
    cases.push((19, schedule, one_of(&shape(768, &gated, normed, Output::Glu(Activation::Silu)))));
    let stack = [(WeightType::Q4_K, 24), (WeightType::Q6_K, 40), (WeightType::F16, 20)];
    cases.push((12, with(sliced(1024, 1)), one_of(&shape(2560, &stack, normed, Output::Store))));
    for (tokens, schedule, one) in cases {
        let many = GemvShape { tokens, schedule, ..one.clone() };
        assert_eq!(differing_token(&*device, &many, &one).expect("the device has a target"), None);
    }
}

/// Inputs of the next product, with and without a norm: from slices, held sums, parts, more CTAs, and warpgroups with and without
/// clusters and blocks of tokens.
#[test]
fn inputs_of_the_next_product_do_not_depend_on_the_schedule() {
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let bulk = Schedule { stages: 6, in_flight: 6, copy: CopyEngine::Bulk, ..Schedule::MINIMAL };
    let held = TokenSchedule { holds: true, ..TokenSchedule::sliced(256, 2, 8) };
    let of_warpgroups = |warpgroups, tiles, blocks| TokenSchedule {
        warpgroups,
        blocks,
        ..TokenSchedule::sliced(256, 2, tiles)
    };
    let schedules = [
        (1, 4, 2, TokenSchedule::sliced(512, 2, 2)),
        (5, 4, 2, held),
        (3, 6, 3, TokenSchedule { parts: 2, ..TokenSchedule::sliced(512, 2, 1) }),
        (2, 8, 2, of_warpgroups(2, 8, 1)),
        (1, 12, 3, of_warpgroups(3, 16, 2)),
    ]
    .map(|(grid, warps, groups, several)| Schedule { grid, warps, groups, several, ..bulk });
    let product = |cols, rows: &[u32], output, schedule| {
        let segments = rows.iter().map(|&rows| Segment { ty: WeightType::Q4_K, rows }).collect();
        let arithmetic = Arithmetic::F16;
        GemvShape { tokens: 16, output, arithmetic, schedule, ..GemvShape::new(cols, segments) }
    };
    let normed = Input::Normed { eps: 1e-5 };
    let silu = Output::Glu(Activation::Silu);
    for (cols, rows, input, output, next_input) in [
        (1024, &[256][..], Input::Plain, Output::Residual, normed),
        (768, &[256, 256], normed, silu, Input::Plain),
    ] {
        for of_next in [schedules[0], schedules[3]] {
            let next = GemvShape { input: next_input, ..product(256, &[40], Output::Store, of_next) };
            let with_next = |&schedule: &Schedule| {
                let product = GemvShape { input, ..product(cols, rows, output, schedule) };
                let next = NextInputs::between(&product, &next);
                assert!(next.is_some(), "outputs are the inputs of the next product");
                GemvShape { next, ..product }
            };
            let products: Vec<_> = schedules.iter().map(with_next).collect();
            let differing = differing_next(&*device, &products).expect("the device has a target");
            assert_eq!(differing, None);
        }
    }
}

/// Products of prompts by two and by three warpgroups; two CTAs with half of the tokens each, for all rows or for the last ones.
#[test]
fn outputs_of_prompts_do_not_depend_on_the_tiling() {
    use WeightType::{Q4_K, Q8_0};
    let device = device::open(Selector::Emulator).expect("the emulator always opens").device;
    let tiling = |warps, warp_tokens, halved| Tiling {
        warps: [warps, 1],
        warp_tiles: 1,
        warp_tokens,
        halved,
        stages: [2, 2],
        stage_cols: 64,
        copy: CopyEngine::Bulk,
        warpgroups: true,
    };
    let gated = shape(256, &[(Q4_K, 150), (Q4_K, 150)], Input::Plain, Output::Glu(Activation::Silu));
    for (tokens, product, tilings) in [
        (256, &gated, [(8, 256, 0), (8, 256, 1), (8, 256, 3)]),
        (300, &gated, [(8, 256, 0), (8, 256, 2), (4, 256, 0)]),
        (
            128,
            &shape(288, &[(Q8_0, 250)], Input::Plain, Output::Residual),
            [(8, 64, 0), (12, 64, 0), (8, 64, 1)],
        ),
    ] {
        let product = GemvShape { tokens, ..product.clone() };
        let tilings = tilings.map(|(warps, tokens, halved)| tiling(warps, tokens, halved));
        let differing = differing_tiling(&*device, &product, &tilings);
        assert_eq!(differing.expect("the device has a target"), None);
    }
}
