//! Errors when a PTX module is loaded, and instruction forms that are accepted.

use bespoke_emulator::{LaunchConfig, Module};
use expect_test::{Expect, expect};

use crate::harness::{HEADER, kernel, launch, words};

#[track_caller]
fn refuses(body: &str, expected: Expect) {
    let error = Module::parse(&kernel("", body)).expect_err("the kernel is wrong");
    expected.assert_eq(&format!("{}: {error}", error.kind));
}

#[test]
fn unknown_names() {
    refuses(
        "    frobnicate.u32 %r0, %r1;",
        expect!["syntax: PTX line 13, column 5: unknown instruction `frobnicate`"],
    );
    refuses(
        "    add.u32.wide %r0, %r1, %r2;",
        expect!["operand: PTX line 13, column 5: `%r0` has 32 bits where `add.u32.wide` needs 64"],
    );
    refuses(
        "    add.rn.u32 %r0, %r1, %r2;",
        expect!["syntax: PTX line 13, column 5: unknown or misplaced modifier `.rn` of `add.rn.u32`"],
    );
    refuses(
        "    mov.u32 %r0, %r99;",
        expect!["undefined: PTX line 13, column 18: in `mov.u32`: unknown register `%r99`"],
    );
    refuses("    mov.u32 %r0, nowhere;", expect!["undefined: PTX line 13, column 5: unknown name `nowhere`"]);
    refuses("    bra NOWHERE;", expect!["undefined: PTX line 13, column 5: unknown label `NOWHERE`"]);
    refuses(
        "    .tex .u32 x;",
        expect!["unsupported: PTX line 13, column 5: the emulator does not support the directive `.tex`"],
    );
}

/// A kernel that has errors, itself or in a function that it calls, does not keep the others from running.
#[test]
fn kernels_without_errors_load() {
    let entry = |name: &str, body: &str| format!(".visible .entry {name}()\n{{ {body} ret; }}\n");
    let called = ".func called() { .reg .b32 r; tex.1d.v4.u32.s32 {r, r, r, r}, [t, {r}]; ret; }\n";
    let text =
        [HEADER, called, &entry("good", ""), &entry("bad", "frobnicate;"), &entry("calls", "call called;")];
    let module = Module::load_partly(&text.concat()).expect("one kernel loads");
    assert_eq!(module.kernels().map(|kernel| kernel.name()).collect::<Vec<_>>(), ["good"]);
    let refused = |kernel: &bespoke_emulator::RefusedKernel| {
        let lines = kernel.errors.iter().map(|error| error.line).collect::<Vec<_>>();
        (kernel.name.clone(), lines)
    };
    let refused: Vec<_> = module.refused().iter().map(refused).collect();
    assert_eq!(refused, [("bad".to_owned(), vec![8]), ("calls".to_owned(), vec![4])]);
    assert_eq!(module.problems().iter().map(|error| error.line).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(Module::load(&text.concat()).expect_err("problems").len(), 2);
    // A problem of the module, or no kernel without one.
    Module::load_partly(&[".global .tex .u32 t;\n", &text.concat()].concat())
        .expect_err("a module's problem");
    Module::load_partly(&[HEADER, &entry("bad", "frobnicate;")].concat()).expect_err("no kernel");
}

#[test]
fn wrong_operands() {
    let wide = |instruction: &str| format!("    .reg .b128 %w<2>; {instruction}");
    for instruction in
        ["mov.b64 %x0, %w0;", "mov.b128 %w0, %x0;", "ld.global.b128 %x0, [%data];", "add.u64 %x0, %x0, %w1;"]
    {
        let text = kernel("", &wide(instruction)).replace(".version 8.1", ".version 8.3");
        let error = Module::parse(&text).expect_err("registers of two widths");
        assert!(error.message.ends_with("of 128 bits"), "{instruction}: {error}");
    }
    refuses(
        "    add.u32 %r0, %r1, %x0;",
        expect!["operand: PTX line 13, column 5: `%x0` has 64 bits where `add.u32` needs 32"],
    );
    refuses(
        "    add.u32 %r0, %r1;",
        expect!["operand: PTX line 13, column 5: `add.u32` needs more than 2 operands"],
    );
    refuses(
        "    add.u32 %r0, %r1, %r2, %r3;",
        expect!["operand: PTX line 13, column 5: `add.u32` takes 3 operands"],
    );
    refuses(
        "    add.u32 5, %r1, %r2;",
        expect!["operand: PTX line 13, column 5: operand 1 of `add.u32` must be a register"],
    );
    refuses(
        "    ld.global.u32 %r0, [%r1];",
        expect!["operand: PTX line 13, column 5: `ld.global.u32` needs a 64-bit address"],
    );
    refuses(
        "    ld.param.u64 %x0, [data+4];",
        expect![
            "operand: PTX line 13, column 5: the parameter access is misaligned or outside the parameters"
        ],
    );
    refuses(
        "    @%r0 bra NOWHERE;",
        expect!["operand: PTX line 13, column 6: `%r0` is not a predicate register"],
    );
    refuses(
        "    cvt.f16.f32 %h0, %f0;",
        expect!["syntax: PTX line 13, column 5: `cvt.f16.f32` needs a rounding modifier, such as `.rn`"],
    );
    refuses(
        "    add.f32 %f0, %f1, 2;",
        expect!["operand: PTX line 13, column 5: integer 2 where a float is needed"],
    );
    refuses(
        "    add.u32 %r0, %r1, 2.5;",
        expect!["operand: PTX line 13, column 5: unsuitable operand of `add.u32`"],
    );
}

#[test]
fn syntax() {
    refuses(
        "    add.u32 %r0, %r1 %r2;",
        expect!["syntax: PTX line 13, column 22: expected `;`, found `%r2`"],
    );
    refuses(
        "    mov.u32 %r0, 0x1G;",
        expect!["syntax: PTX line 13, column 18: malformed or too large integer `1G`"],
    );
    refuses(
        "    mov.u32 %r0, \"x\";",
        expect!["syntax: PTX line 13, column 18: in `mov.u32`: expected an operand, found a string"],
    );
    refuses("    /* open", expect!["syntax: PTX line 13, column 5: unterminated comment"]);
    refuses(
        "    A: A: ret;",
        expect!["redefined: PTX line 13, column 8: label `A` is declared twice, first on line 13"],
    );
    let error = Module::parse(".version 8.0 .target sm_90 .address_size 32").expect_err("32 bits");
    expect!["unsupported: PTX line 1, column 42: the emulator only supports 64-bit addresses"]
        .assert_eq(&format!("{}: {error}", error.kind));
    let error = Module::parse(&format!("{HEADER}.visible .tex .u32 f;")).expect_err("a texture");
    expect!["unsupported: PTX line 4, column 10: the emulator does not support the directive `.tex`"]
        .assert_eq(&format!("{}: {error}", error.kind));
}

#[test]
fn module_level_declarations() {
    let text = format!(
        "//\n// Generated\n//\n{HEADER}\n.file 1 \"a/b.rs\", 12, 34\n/* a\n comment */
        .extern .shared .align 16 .b8 pool[];
        .global .attribute(.managed) .align 4 .b8 counters[16] = {{9, 0, 0, 0, 8}};
        .global .attribute(.managed, .unified(1, 2)) .f32 scale;
        .visible .entry first(\n .param .u64 first_param_0,\n .param .align 4 .b8 first_param_1[12]\n)
        .maxntid 128, 1, 1\n.minnctapersm 2\n.maxnreg 64\n.pragma \"nounroll\";
        {{ .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b32 %r<5>, %single;
        .loc 1 4 0
        mov.u32 %r1, %ctaid.x;
        .loc 1 5 9, function_name $L__info_string0, inlined_at 1 4 0
        $L__BB0_1: .pragma \"nounroll\"; setp.lt.s32 %p1, %r1, 010; @%p1 bra $L__BB0_1;
        ret; }}
        .entry second() {{ ret; }}
        .section .debug_str {{ $L__info_string0: .b8 95,90,0 }}\n\0\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = module.kernels().map(|kernel| kernel.name().to_string()).collect();
    assert_eq!(names, ["first", "second"]);
    let first = module.kernel("first").expect("declared");
    assert_eq!(first.maxntid(), Some([128, 1, 1]));
    assert_eq!((first.param_bytes(), first.static_shared_bytes(), first.instruction_count()), (20, 0, 5));
    assert!(module.kernel("third").is_none());
}

/// Instructions of optimised kernels; all of them assemble for sm_90.
const SPELLINGS: &str = "
    .shared .align 16 .b8 tile[256];\n.shared .align 8 .b64 gate;
    mov.u32 %r0, 0; mov.u32 %r1, 1; mov.u16 %h0, 0; mov.b32 %f0, 0f3F800000; setp.eq.u32 %p, %r0, 0;
    st.shared::cta.v4.u32 [tile], {%r0, %r0, %r0, %r0};
    fence.mbarrier_init.release.cluster; fence.proxy.async; fence.proxy.async.global; fence.proxy.async.shared::cta;
    fence.acq_rel.gpu; fence.acq_rel.cta; fence.sc.sys; fence.sc.cluster; membar.gl;
    prefetch.global.L1 [%data]; prefetch.global.L2 [%data]; prefetch.global.L2::evict_last [%data];
    prefetch.global.L2::evict_normal [%data];
    createpolicy.fractional.L2::evict_first.b64 %x1, 1.0; createpolicy.fractional.L2::evict_last.b64 %x2;
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %x3, 0.25;
    cp.async.bulk.prefetch.L2.global [%data], 64; cp.async.bulk.prefetch.L2.global.L2::cache_hint [%data], 64, %x1;
    ld.global.L1::no_allocate.L2::cache_hint.L2::128B.v4.u32 {%r2, %r3, %r4, %r5}, [%data], %x1;
    ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%r2, %r3, %r4, %r5}, [%data+192];
    ld.global.L1::evict_last.u32 %r2, [%data]; ld.global.L2::64B.u32 %r2, [%data];
    st.global.L1::no_allocate.L2::cache_hint.v2.u32 [%data], {%r0, %r1}, %x1; st.global.L1::evict_first.u32 [%data], %r0;
    ld.acquire.gpu.global.u32 %r2, [%data]; ld.relaxed.sys.global.u32 %r2, [%data]; ld.acquire.cta.shared.u32 %r2, [tile];
    st.release.gpu.global.u32 [%data], %r0; st.relaxed.cta.shared::cta.u32 [tile], %r0; ld.volatile.shared.u32 %r2, [tile];
    atom.acq_rel.gpu.global.add.u32 %r2, [%data], 1; atom.acquire.cta.shared.cas.b32 %r2, [tile], %r0, %r1;
    atom.release.sys.global.exch.b32 %r2, [%data], %r1; red.release.gpu.global.add.u32 [%data], 1;
    red.relaxed.cta.shared.add.f32 [tile], %f0; atom.global.add.noftz.f16x2 %r2, [%data], %r0;
    elect.sync _|%p, -1; elect.sync %r2|%p, -1;
    add.f16x2 %r2, %r0, %r1; add.rn.ftz.sat.f16x2 %r2, %r0, %r1; sub.rn.f16x2 %r2, %r0, %r1; mul.ftz.f16x2 %r2, %r0, %r1;
    fma.rn.f16x2 %r2, %r0, %r1, %r0; fma.rn.ftz.relu.f16x2 %r2, %r0, %r1, %r0; fma.rn.ftz.sat.f16x2 %r2, %r0, %r1, %r0;
    add.bf16x2 %r2, %r0, %r1; add.rn.bf16x2 %r2, %r0, %r1; sub.bf16x2 %r2, %r0, %r1; mul.bf16x2 %r2, %r0, %r1;
    fma.rn.bf16x2 %r2, %r0, %r1, %r0; fma.rn.relu.bf16x2 %r2, %r0, %r1, %r0;
    min.f16x2 %r2, %r0, %r1; max.NaN.bf16x2 %r2, %r0, %r1; max.ftz.f16x2 %r2, %r0, %r1; max.NaN.xorsign.abs.f16x2 %r2, %r0, %r1;
    neg.f16x2 %r2, %r0; neg.bf16x2 %r2, %r0; abs.f16x2 %r2, %r0; abs.bf16x2 %r2, %r0; neg.ftz.f16 %h1, %h0;
    cvt.rn.f16x2.f32 %r2, %f0, %f0; cvt.rn.bf16x2.f32 %r2, %f0, %f0; cvt.rn.relu.f16x2.f32 %r2, %f0, %f0;
    cvt.rz.bf16x2.f32 %r2, %f0, %f0; ex2.approx.f16x2 %r2, %r0; tanh.approx.bf16x2 %r2, %r0;
    mov.u64 %x4, %globaltimer; mov.u64 %x4, %clock64; mov.u32 %r2, %clock; mov.u32 %r2, %globaltimer_lo;
    bar.sync 0; bar.sync 1, 32; bar.arrive 2, 32; bar.sync %r1; barrier.cta.sync 3; barrier.cta.sync.aligned 4, 32;
    barrier.cta.arrive 5, 32; barrier.cta.arrive.aligned 6, 32; barrier.sync 7; barrier.sync.aligned 8; bar.cta.sync 9, 32;
    griddepcontrol.launch_dependents; griddepcontrol.wait; nanosleep.u32 20;
    cp.async.cg.shared.global.L2::256B [tile], [%data], 16; cp.async.ca.shared::cta.global [tile+16], [%data], 8, 4;
    cp.async.ca.shared.global.L2::cache_hint.L2::64B [tile+32], [%data], 4, %x1; cp.async.commit_group; cp.async.wait_all;
    mbarrier.init.shared::cta.b64 [gate], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
    mbarrier.arrive.expect_tx.relaxed.cluster.shared::cta.b64 %x4, [gate], 32;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [tile+64], [%data], 32, [gate], %x1;
    WAIT: mbarrier.try_wait.relaxed.cluster.shared::cta.b64 %p, [gate], %x4, 1000; @!%p bra WAIT;
    mbarrier.test_wait.acquire.cta.shared::cta.b64 %p, [gate], %x4;
    mbarrier.inval.shared::cta.b64 [gate];
    cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%data], [tile+64], 32, %x2;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;";

#[test]
fn instructions_of_optimised_kernels_load() {
    let mut data = words(64, 0);
    let config = LaunchConfig::linear(1, 1);
    let text = kernel("", SPELLINGS).replace(".version 8.1", ".version 8.6");
    launch(&text, config, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
}

#[test]
fn invalid_and_unsupported_forms_are_named() {
    refuses(
        "    mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0}, {%r0}, {%r0}, {%r0};",
        expect![
            "unsupported: PTX line 13, column 5: the emulator does not support `mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32`"
        ],
    );
    refuses(
        "    cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f16 [%data], [%r0], 16;",
        expect![
            "unsupported: PTX line 13, column 5: the emulator does not support `cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f16`"
        ],
    );
    refuses(
        "    cp.async.cg.shared.global [%r0], [%data], 8;",
        expect!["operand: PTX line 13, column 5: `cp.async.cg.shared.global` does not copy 8 bytes"],
    );
    refuses(
        "    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%data], [%r1];",
        expect![
            "operand: PTX line 13, column 5: operand 2 of `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes` must be a tensor map with coordinates"
        ],
    );
    refuses(
        "    mbarrier.arrive.shared.b32 _, [%r0];",
        expect!["syntax: PTX line 13, column 5: no instruction has the form `mbarrier.arrive.shared.b32`"],
    );
    refuses(
        "    mbarrier.park.shared.b64 _, [%r0];",
        expect!["syntax: PTX line 13, column 5: no instruction has the form `mbarrier.park.shared.b64`"],
    );
    refuses(
        "    ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0}, [%r1];",
        expect![
            "unsupported: PTX line 13, column 5: the emulator does not support `ldmatrix.sync.aligned.m16n16.x1.shared.b8`"
        ],
    );
    refuses(
        "    pmevent 1;",
        expect!["unsupported: PTX line 13, column 5: the emulator does not support `pmevent`"],
    );
}
