//! Moves, packing, special registers, and conversion of addresses.

use bespoke_emulator::LaunchConfig;

use crate::harness::{check, kernel, launch, words};

#[test]
fn packing() {
    check("mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};", &[32; 2], &[&[0x1234_5678, 0x5678_1234]]);
    check("mov.b64 {%t0, %t1}, %a; mov.b64 %d, {%t1, %t0};", &[64; 2], &[&[0x1_0000_0002, 0x2_0000_0001]]);
    check(
        "mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};",
        &[64; 2],
        &[&[0x0001_0002_0003_0004, 0x0004_0003_0002_0001]],
    );
    check(
        ".reg .b8 %e<4>; mov.b32 {%e0, %e1, %e2, %e3}, %a; mov.b32 %d, {%e3, %e2, %e1, %e0};",
        &[32; 2],
        &[&[0x1234_5678, 0x7856_3412]],
    );
    check(".reg .b8 %e<2>; mov.b16 {%e0, %e1}, %a; mov.b16 %d, {%e1, %e0};", &[16; 2], &[&[0x1234, 0x3412]]);
    check(
        ".reg .b8 %e<4>; mov.b32 {_, %e1, _, _}, %a; mov.b32 %d, {%e1, 1, 0, 255};",
        &[32; 2],
        &[&[0x1234_5678, 0xff00_0156]],
    );
    check("mov.b64 {_, %d}, %a;", &[64, 32], &[&[0x7_0000_0002, 7]]);
    check("mov.f32 %d, 0f3F800000;", &[32, 32], &[&[0, 0x3f80_0000]]);
    check("mov.f32 %d, 1.5;", &[32, 32], &[&[0, 0x3fc0_0000]]);
    for (literal, value) in [("0.", 0.0f32), (".5", 0.5), ("1.e2", 100.0), ("2.5E-1", 0.25), ("-.5", -0.5)] {
        check(&format!("mov.f32 %d, {literal};"), &[32, 32], &[&[0, value.to_bits().into()]]);
    }
    check("mov.b64 %d, -1;", &[32, 64], &[&[0, u64::MAX]]);
    check("mov.b32 %d, 0xffffffff;", &[32, 32], &[&[0, 0xffff_ffff]]);
}

/// Executes `expression`, which computes `%r1`, in every thread, and returns `%r1` by thread.
fn per_thread(expression: &str, config: LaunchConfig, threads: usize) -> Vec<u32> {
    let body = format!(
        "{expression}
        mov.u32 %r0, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r0;
        mov.u32 %r2, %ctaid.x; mov.u32 %r4, %ntid.y; mul.lo.u32 %r3, %r3, %r4; mad.lo.u32 %r0, %r2, %r3, %r0;
        mad.wide.u32 %x0, %r0, 4, %data;
        st.global.u32 [%x0], %r1;"
    );
    let mut out = words(threads, 0);
    launch(&kernel("", &body), config, &mut out).expect("runs");
    out
}

#[test]
fn special_registers() {
    let config = LaunchConfig {
        grid: [2, 1, 1],
        block: [16, 4, 1],
        dynamic_shared: 48,
        cluster: None,
        cooperative: false,
    };
    let of = |expression: &str| per_thread(expression, config, 128);
    assert_eq!(of("mov.u32 %r1, %tid.y;")[..40], [words(16, 0), words(16, 1), words(8, 2)].concat());
    assert_eq!(of("mov.u32 %r1, %laneid;")[30..34], [30, 31, 0, 1]);
    assert_eq!(of("mov.u32 %r1, %warpid;")[30..34], [0, 0, 1, 1]);
    assert_eq!(of("mov.u32 %r1, %ctaid.x;")[63..65], [0, 1]);
    assert_eq!(of("mov.u32 %r1, %nctaid.x;")[5], 2);
    assert_eq!(of("mov.u32 %r1, %ntid.y;")[5], 4);
    assert_eq!(of("mov.u32 %r1, %dynamic_smem_size;")[5], 48);
    assert_eq!(of("mov.u32 %r1, %lanemask_lt;")[..3], [0, 1, 3]);
    assert_eq!(of("mov.u32 %r1, %lanemask_ge;")[31], 1 << 31);
    assert_eq!(of("mov.u32 %r1, %lanemask_gt;")[31], 0);
    assert_eq!(of("mov.u32 %r1, WARP_SZ;")[9], 32);
    let clock = "mov.u32 %r5, %clock; mov.u32 %r6, %clock; setp.gt.u32 %p, %r6, %r5; selp.u32 %r1, 1, 0, %p;";
    assert_eq!(of(clock)[0], 1);
    let timer = "mov.u64 %x1, %globaltimer; cvt.u32.u64 %r1, %x1;";
    assert_ne!(of(timer)[0], 0);
}

#[test]
fn generic_addresses_reach_shared_memory() {
    let body = "
        .shared .align 4 .b32 cell[4];
        mov.u64 %x0, cell;
        cvta.shared.u64 %x1, %x0;
        mov.u32 %r0, 77;
        st.u32 [%x1+4], %r0;
        cvta.to.shared.u64 %x2, %x1;
        ld.shared.u32 %r1, [%x2+4];
        ld.shared.u32 %r2, [cell+4];
        add.u32 %r1, %r1, %r2;
        cvta.global.u64 %x3, %data;
        st.u32 [%x3], %r1;";
    let mut out = words(1, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 1), &mut out).expect("runs");
    assert_eq!(out, [154]);
}
