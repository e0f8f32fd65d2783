//! Moves, packing, special registers, and conversion of addresses.

use bespoke_emulator::LaunchConfig;

use crate::harness::{check, evaluate, kernel, launch, words};

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

#[test]
fn constant_expressions() {
    let integer =
        |expression: &str| evaluate(&format!("mov.b64 %d, {expression};"), &[64, 64], &[&[0, 0]]).0[0] as i64;
    // The results of an H200 and the assembler of its driver.
    for (expression, expected) in [
        ("4*8+1", 33),
        ("2*-3", -6),
        ("+4", 4),
        ("- -4", 4),
        ("-(3)", -3),
        ("!3", 0),
        ("~0<0", 0),
        ("-7/2", -3),
        ("-7/2U", i64::MAX - 3),
        ("7 % 3", 1),
        ("(7 % 4)-5<0", 1),
        ("1<<64", 1),
        ("1<<-1", i64::MIN),
        ("-8>>1", -4),
        ("-8>>64", -8),
        ("-1>>63U", -1),
        ("(-8|0)>>1", -4),
        ("(-1&-1)<0", 1),
        ("(.s64)-1<0", 1),
        ("(.u64)-1<0", 0),
        ("(.s64)(.u64)3", 3),
        ("-1U<0", 0),
        ("0x7fffffffffffffff+1", i64::MIN),
        ("5-7>>1", -1),
        ("(0xf<<4)|3", 0xf3),
        ("1|2^3&1", 3),
        ("3==3&&2>1", 1),
        ("3!=3||2>=3", 0),
        ("1?2:3", 2),
        ("0?2:1?5:6", 5),
        ("WARP_SZ*2", 64),
        ("1.5<2.5", 1),
        ("0xfabc123400000000>>60", 15),
        ("1<=0", 0),
    ] {
        assert_eq!(integer(expression), expected, "{expression}");
    }
    assert_eq!(integer("-1.5/2.0+3.0*0.25") as u64, 0f64.to_bits());
    assert_eq!(integer("1?2.5:3.5") as u64, 2.5f64.to_bits());
    let data = |body: &str| evaluate(body, &[64, 64], &[&[5, 0], &[6, 0], &[7, 0]]).0;
    assert_eq!(data("ld.global.u64 %d, [%in+4*8-32];"), [5, 6, 7]);
    assert_eq!(data("sub.u64 %x0, %in, 16; ld.global.u64 %d, [%x0+(1<<4)];"), [5, 6, 7]);
    assert_eq!(data("sub.u64 %x0, %in, 16; ld.global.u64 %d, [%x0+1<<4];"), [5, 6, 7]);
    assert_eq!(data("add.u64 %x0, %in, 16; ld.global.u64 %d, [%x0+-4*4];"), [5, 6, 7]);
    assert_eq!(data("mov.b64 %d, {2*2, 1-1};"), [4; 3]);
    // An integer is a true predicate unless it is zero.
    let chosen = |number: u32| {
        data(&format!("setp.eq.u32 %p, 1, 1; and.pred %p, %p, {number}; selp.b64 %d, 7, 9, %p;"))
    };
    assert_eq!([chosen(0), chosen(1), chosen(2)], [[9; 3], [7; 3], [7; 3]]);
    assert_eq!(data("setp.eq.u32 %p, 1, 1; and.pred %p, %p, !(2-2); selp.b64 %d, 7, 9, %p;"), [7; 3]);
}
