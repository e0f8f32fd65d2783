//! Unsupported instructions, and the PTX text of a kernel.

use bespoke_codegen::prelude::*;
use expect_test::expect;

use crate::device::assemble;

#[kernel]
fn waits(out: Ptr<Global, u32>) {
    launch_dependents();
    wait_for_dependencies();
    out.store(1);
}

#[kernel]
fn sums_bf16(out: Ptr<Global, bf16>) {
    out.store(out.load() + out.at(1u32).load());
}

#[kernel]
fn compares_bf16(out: Ptr<Global, bf16>) {
    if out.load() < out.at(1u32).load() {
        out.store(bf16::ONE);
    }
}

#[test]
fn missing_instructions_are_named() {
    // Lines of this file, counted from each kernel's signature.
    let file = include_str!("targets.rs");
    let line =
        |text: &str| 1 + file.lines().position(|line| line.trim() == text).expect("the kernel's own line");
    for (kernel, instruction, at) in [
        (waits(), "griddepcontrol.launch_dependents", "launch_dependents();"),
        (sums_bf16(), "add.bf16", "out.store(out.load() + out.at(1u32).load());"),
        (compares_bf16(), "setp.bf16", "if out.load() < out.at(1u32).load() {"),
    ] {
        let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
        for target in [Target::Sm80, Target::Sm86, Target::Sm89] {
            let error = kernel.compile(target).expect_err(instruction).to_string();
            let place = format!("targets.rs:{}:", line(at));
            for part in [kernel.name(), instruction, "needs sm_90 or later", &target.to_string(), &place] {
                assert!(error.contains(part), "no {part:?} in: {error}");
            }
        }
        for target in [Target::Sm90, Target::Sm100, Target::Sm120] {
            let compiled = kernel.compile(target).unwrap_or_else(|error| panic!("{error}"));
            assemble(&compiled.ptx, target);
        }
    }
}

#[device]
fn scaled(x: Val<f32>, by: Val<f32>) -> Val<f32> {
    x * by
}

/// y[i] = a · x[i] for i < n.
#[kernel(threads = 64)]
fn scale(x: Ptr<Global, f32>, y: Ptr<Global, f32>, a: Val<f32>, n: Val<u32>) {
    let i = block_index() * 64 + thread_index();
    if i < n {
        y.at(i).store(scaled(x.at(i).load(), a));
    }
}

#[test]
fn text_of_a_kernel() {
    let kernel = scale().unwrap_or_else(|error| panic!("{error}"));
    let compiled = kernel.compile(Target::Sm80).unwrap_or_else(|error| panic!("{error}"));
    assemble(&compiled.ptx, Target::Sm80);
    expect![[r#"
        .version 7.2
        .target sm_80
        .address_size 64

        .visible .entry scale(
        	.param .u64 scale_param_x,
        	.param .u64 scale_param_y,
        	.param .f32 scale_param_a,
        	.param .u32 scale_param_n
        )
        .reqntid 64, 1, 1
        {
        	.reg .pred %p<2>;
        	.reg .b32 %r<6>;
        	.reg .f32 %f<4>;
        	.reg .b64 %rd<6>;
        	.loc 1 60 10
        	ld.param.u64 %rd1, [scale_param_x];
        	cvta.to.global.u64 %rd1, %rd1;
        	.loc 1 60 31
        	ld.param.u64 %rd2, [scale_param_y];
        	cvta.to.global.u64 %rd2, %rd2;
        	.loc 1 60 52
        	ld.param.f32 %f1, [scale_param_a];
        	.loc 1 60 65
        	ld.param.u32 %r1, [scale_param_n];
        	.loc 1 61 13
        	mov.u32 %r2, %ctaid.x;
        	shl.b32 %r3, %r2, 6;
        	.loc 1 61 34
        	mov.u32 %r4, %tid.x;
        	.loc 1 61 13
        	add.u32 %r5, %r3, %r4;
        	.loc 1 62 10
        	setp.lt.u32 %p1, %r5, %r1;
        	.loc 1 62 5
        	@!%p1 bra $L_block3;
        $L_block1:
        	.loc 1 63 11
        	mul.wide.u32 %rd3, %r5, 4;
        	add.s64 %rd4, %rd2, %rd3;
        	.loc 1 63 32
        	add.s64 %rd5, %rd1, %rd3;
        	.loc 1 63 38
        	ld.global.f32 %f2, [%rd5];
        	.loc 1 63 23
        	.loc 1 55 5, function_name $L_function1, inlined_at 1 63 23
        	mul.rn.f32 %f3, %f2, %f1;
        	.loc 1 63 17
        	st.global.f32 [%rd4], %f3;
        	.loc 1 62 5
        $L_block3:
        	.loc 1 60 4
        	ret;
        }

        .file 1 "codegen/testing/tests/intrinsics/targets.rs"

        .section .debug_str
        {
        $L_function1: // scaled
        	.b8 115,99,97,108,101,100,0
        }
    "#]]
    .assert_eq(&compiled.ptx);
}
