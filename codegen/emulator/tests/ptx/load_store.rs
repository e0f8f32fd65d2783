//! Loads, stores, parameters, constants and atomics.

use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};

use crate::harness::{HEADER, kernel, launch, words};

#[test]
fn loads_extend_by_the_type() {
    let body = "
        ld.global.u8 %r0, [%data+3]; ld.global.s8 %r1, [%data+3]; ld.global.u16 %r2, [%data+2];
        ld.global.s16 %r3, [%data+2]; ld.global.s32 %x0, [%data]; ld.global.nc.L1::no_allocate.b16 %h0, [%data];
        st.global.u32 [%data+4], %r0; st.global.u32 [%data+8], %r1; st.global.u32 [%data+12], %r2;
        st.global.u32 [%data+16], %r3; st.global.u64 [%data+24], %x0; st.global.b16 [%data+20], %h0;
        st.global.u8 [%data+22], %r0; st.global.u8 [%data+23], %h0;";
    let mut out = words(8, 0);
    out[0] = 0x89ab_cdef;
    launch(&kernel("", body), LaunchConfig::linear(1, 1), &mut out).expect("runs");
    assert_eq!(out[1..], [0x89, 0xffff_ff89, 0x89ab, 0xffff_89ab, 0xef89_cdef, 0x89ab_cdef, 0xffff_ffff]);
}

#[test]
fn vectors_in_all_access_patterns() {
    // Contiguous, strided, uniform and partial accesses return the same values.
    for (threads, stride) in [(32, 16), (32, 32), (32, 0), (7, 16), (64, 48)] {
        let body = format!(
            "mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, {stride}; cvt.u64.u32 %x0, %r1; add.u64 %x0, %x0, %data;
            ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%x0];
            add.u32 %r2, %r2, %r3; add.u32 %r4, %r4, %r5; add.u32 %r2, %r2, %r4;
            mad.wide.u32 %x1, %r0, 4, %data; st.global.u32 [%x1+16384], %r2;"
        );
        let mut out: Vec<u32> = (0..8192).map(|i| i * i).collect();
        let want: Vec<u32> = (0..threads)
            .map(|thread| (0..4).map(|i| out[(thread * stride / 4 + i) as usize]).sum::<u32>())
            .collect();
        launch(&kernel("", &body), LaunchConfig::linear(1, threads), &mut out).expect("runs");
        assert_eq!(out[4096..4096 + threads as usize], want, "{threads} threads, stride {stride}");
    }
}

#[test]
fn vector_stores() {
    let body = "
        mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 16, %data; add.u32 %r1, %r0, 1000; cvt.u16.u32 %h0, %r0;
        st.global.v2.b32 [%x0], {%r0, %r1}; st.global.v4.b16 [%x0+8], {%h0, %h0, %h0, 7};";
    let mut out = words(128, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut out).expect("runs");
    for lane in 0..32 {
        let at = 4 * lane as usize;
        assert_eq!(out[at..at + 4], [lane, lane + 1000, lane << 16 | lane, 7 << 16 | lane]);
    }
}

/// Elements narrower than their registers, among them constants.
#[test]
fn vector_stores_of_wide_registers() {
    let body = "
        mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 8, %data; cvt.u64.u32 %x1, %r0;
        st.global.v4.u8 [%x0], {%r0, 5, -2, %r0}; st.global.v2.u16 [%x0+4], {7, %x1};";
    let mut out = words(64, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut out).expect("runs");
    for lane in 0..32 {
        let at = 2 * lane as usize;
        assert_eq!(out[at..at + 2], [lane << 24 | 0xfe_0500 | lane, lane << 16 | 7]);
    }
}

#[test]
fn registers_of_128_bits() {
    let body = "
        .reg .b128 %w<4>, one; mov.u32 %r0, %tid.x; cvt.u64.u32 %x1, %r0; mad.wide.u32 %x0, %r0, 16, %data;
        mov.b128 %w0, {%x1, 5}; st.global.b128 [%x0], %w0; ld.relaxed.gpu.global.b128 %w1, [%x0];
        mov.b128 {%x2, %x3}, %w1; add.u64 %x2, %x2, 1; mov.b128 one, {%x2, %x3}; mov.b128 %w2, one;
        atom.global.cas.b128 %w3, [%x0], %w1, %w2; atom.global.cas.b128 _, [%x0], %w1, %w0;
        mov.b128 {%x4, %x5}, %w3; add.u64 %x5, %x4, %x5; mov.b128 %w3, {7, %x5};
        setp.eq.u32 %p, %r0, 3; @%p atom.global.exch.b128 %w1, [%x0], %w3;";
    let mut out = words(128, 0);
    let text = kernel("", body).replace(".version 8.1", ".version 8.3");
    launch(&text, LaunchConfig::linear(1, 32), &mut out).expect("runs");
    for lane in 0..32 {
        let at = 4 * lane as usize;
        let expected = if lane == 3 { [7, 0, 8, 0] } else { [lane + 1, 0, 5, 0] };
        assert_eq!(out[at..at + 4], expected, "lane {lane}");
    }
}

#[test]
fn atomics_on_vectors() {
    // All 64 threads of two CTAs add to, and take the maximum of, the same vectors.
    let body = "
        mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f0, %r0; mov.f32 %f1, 0f3F800000;
        red.global.add.v2.f32 [%data], {%f1, %f0};
        cvt.rn.f16.f32 %h0, %f0; mov.b16 %h1, 0x3c00;
        red.global.max.noftz.v4.f16 [%data+8], {%h0, %h1, %h0, %h1};
        mul.wide.u32 %x0, %r0, 8; add.u64 %x0, %x0, %data;
        atom.global.add.v2.f32 {%f2, _}, [%x0+16], {%f0, %f1}; st.global.f32 [%x0+20], %f2;";
    let mut out = words(4 + 64, 0);
    launch(&kernel("", body), LaunchConfig::linear(2, 32), &mut out).expect_err("a store beside atomics");
    let body = body.replace("st.global.f32 [%x0+20], %f2;", "");
    let mut out = words(4 + 64, 0);
    launch(&kernel("", &body), LaunchConfig::linear(2, 32), &mut out).expect("runs");
    let (sum, largest) = (2.0 * (0..32).sum::<u32>() as f32, 0x3c00_4fc0);
    assert_eq!(out[..4], [64f32.to_bits(), sum.to_bits(), largest, largest]);
    for lane in 0..32 {
        let pair = [2.0 * lane as f32, 2.0].map(f32::to_bits);
        assert_eq!(out[4 + 2 * lane as usize..][..2], pair, "lane {lane}");
    }
}

#[test]
fn cache_hints_and_memory_orders_do_not_change_values() {
    let body = "
        createpolicy.fractional.L2::evict_first.b64 %x1, 1.0;
        ld.global.L1::no_allocate.L2::cache_hint.v2.u32 {%r0, %r1}, [%data], %x1;
        ld.relaxed.gpu.global.u32 %r2, [%data]; ld.acquire.sys.global.u32 %r3, [%data+4];
        ld.volatile.global.u32 %r4, [%data]; ld.global.L2::128B.u32 %r5, [%data+4];
        prefetch.global.L2 [%data]; prefetchu.L1 [%data]; fence.acq_rel.gpu; membar.gl; fence.sc.sys;
        add.u32 %r0, %r0, %r1; add.u32 %r0, %r0, %r2; add.u32 %r0, %r0, %r3; add.u32 %r0, %r0, %r4;
        add.u32 %r0, %r0, %r5;
        st.release.gpu.global.u32 [%data+8], %r0; st.global.cs.u32 [%data+12], %r0;
        st.global.L1::no_allocate.L2::cache_hint.u32 [%data+16], %r0, %x1;";
    let mut out = vec![1, 10, 0, 0, 0];
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut out).expect("runs");
    assert_eq!(out[2..], [33, 33, 33]);
}

#[test]
fn atomics() {
    let body = "
        mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x;
        atom.global.add.u32 %r1, [%data], 1; red.global.add.s32 [%data+4], %r0;
        atom.global.max.s32 %r2, [%data+8], %r0; red.global.min.u32 [%data+12], %r0;
        red.relaxed.gpu.global.add.f32 [%data+16], 0f3F800000; red.global.or.b32 [%data+20], %r0;
        atom.global.inc.u32 %r3, [%data+24], 9; red.global.xor.b32 [%data+28], %r0;
        add.u64 %x0, %data, 32; red.global.add.u64 [%x0], 3; red.global.add.noftz.f16x2 [%data+40], %r10;";
    let body = format!("mov.u32 %r10, 0x3c004000;\n{body}");
    let mut out = words(11, 0);
    out[3] = 77;
    launch(&kernel("", &body), LaunchConfig::linear(4, 32), &mut out).expect("runs");
    assert_eq!(out, [128, 496 * 4, 31, 0, 128f32.to_bits(), 31, 8, 0, 384, 0, 0x5800_5c00]);
}

#[test]
fn exchanges() {
    let body = "
        mov.u32 %r0, %tid.x;
        atom.global.cas.b32 %r1, [%data], 5, 6; atom.global.exch.b32 %r2, [%data+4], %r0;
        atom.global.dec.u32 %r3, [%data+8], 2; atom.global.and.b32 %r4, [%data+12], 3;
        st.global.u32 [%data+16], %r1; st.global.u32 [%data+20], %r2;";
    let mut out = vec![5, 9, 0, 0xff, 0, 0];
    launch(&kernel("", body), LaunchConfig::linear(1, 1), &mut out).expect("runs");
    assert_eq!(out, [6, 0, 2, 3, 5, 9]);
}

#[test]
fn parameters_of_all_kinds() {
    let text = format!(
        "{HEADER}.visible .entry mixed(.param .u8 a, .param .f32 b, .param .align 8 .b8 c[24], .param .u64 .ptr .global .align 16 d)
        {{ .reg .b32 %r<8>; .reg .b64 %x<4>; .reg .f32 %f<2>;
        ld.param.u8 %r0, [a]; ld.param.f32 %f0, [b]; ld.param.v2.u32 {{%r1, %r2}}, [c+8]; ld.param.u64 %x0, [d];
        mov.b64 %x1, c; ld.param.u32 %r3, [%x1+16];
        st.global.u32 [%x0], %r0; st.global.f32 [%x0+4], %f0; st.global.v2.u32 [%x0+8], {{%r1, %r2}};
        st.global.u32 [%x0+16], %r3; }}"
    );
    let module = Module::parse(&text).expect("loads");
    let kernel = module.kernel("mixed").expect("declared");
    let layout: Vec<_> =
        kernel.params().iter().map(|p| (p.name.as_str(), p.offset, p.size, p.align)).collect();
    assert_eq!(layout, [("a", 0, 1, 1), ("b", 4, 4, 4), ("c", 8, 24, 8), ("d", 32, 8, 8)]);
    let memory = Memory::new();
    let out = memory.alloc("out", 20);
    let mut params: Vec<u8> = (0..40).collect();
    params[32..].copy_from_slice(&out.to_le_bytes());
    run(kernel, &memory, &LaunchConfig::linear(1, 1), &params, &Options::default()).expect("runs");
    let mut bytes = [0; 20];
    memory.read(out, &mut bytes).expect("inside");
    assert_eq!(bytes, [0, 0, 0, 0, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27]);
}

#[test]
fn module_variables_keep_their_values() {
    let text = format!(
        "{HEADER}.const .align 4 .b32 table[4] = {{1, 2, -3, 4}}; .global .u32 counter; .const .f32 pi = 0f40490FDB;
        .visible .entry kernel(.param .u64 data) {{ .reg .b32 %r<8>; .reg .b64 %x<4>; .reg .f32 %f;
        ld.param.u64 %x0, [data]; ld.const.u32 %r0, [table+8]; mov.u64 %x1, table; ld.const.v2.u32 {{%r1, %r2}}, [%x1];
        ld.const.f32 %f, [pi]; atom.global.add.u32 %r3, [counter], 5; ld.global.u32 %r3, [counter];
        st.global.v4.b32 [%x0], {{%r0, %r1, %r2, %r3}}; st.global.f32 [%x0+16], %f; }}"
    );
    let module = Module::parse(&text).expect("loads");
    let memory = Memory::new();
    let out = memory.alloc("out", 20);
    let kernel = module.kernel("kernel").expect("declared");
    for round in 1..3 {
        run(kernel, &memory, &LaunchConfig::linear(1, 1), &out.to_le_bytes(), &Options::default())
            .expect("runs");
        let mut bytes = [0; 20];
        memory.read(out, &mut bytes).expect("inside");
        let word = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        assert_eq!([word(0), word(4), word(8), word(12)], [-3, 1, 2, 5 * round]);
        assert_eq!(word(16), std::f32::consts::PI.to_bits() as i32);
    }
}

#[test]
fn initial_values_are_constant_expressions() {
    let values = |declaration: &str, load: &str| {
        let text = format!(
            "{HEADER}{declaration}\n.visible .entry kernel(.param .u64 data) {{
            .reg .b64 %x<4>; .reg .b32 %r<2>; .reg .f32 %f; .reg .f64 %g;
            ld.param.u64 %x0, [data]; {load}
            ret; }}"
        );
        let mut out = words(2, 0);
        launch(&text, LaunchConfig::linear(1, 1), &mut out).unwrap_or_else(|finding| panic!("{finding}"));
        out
    };
    let pair = "ld.const.v2.u32 {%r0, %r1}, [table]; st.global.v2.u32 [%x0], {%r0, %r1};";
    assert_eq!(values(".const .align 8 .u32 table[2] = {1+2*3, -(3)};", pair), [7, -3i32 as u32]);
    let floats = [3f32.to_bits(), (-2.5f32).to_bits()];
    assert_eq!(values(".const .align 8 .f32 table[2] = {1.5*2.0, -(2.5)};", pair), floats);
    let half = 0.5f64.to_bits();
    assert_eq!(values(".const .align 8 .f64 table = 0f3F000000;", pair), [half as u32, (half >> 32) as u32]);
    let bits = [1.5f32.to_bits(), 1f32.to_bits()];
    assert_eq!(values(".const .align 8 .b32 table[2] = {1.5, 0f3F800000};", pair), bits);
    // The size follows from the values.
    let last =
        "mov.u64 %x1, table; ld.global.v2.u32 {%r0, %r1}, [%x1+8]; st.global.v2.u32 [%x0], {%r0, %r1};";
    assert_eq!(values(".global .align 8 .u32 table[] = {1, 2, 3, 4};", last), [3, 4]);
    assert_eq!(values(".global .align 8 .u32 table[][2] = {{1, 2}, {3}};", last), [3, 0]);
    // Addresses with offsets.
    let through = "ld.global.u64 %x1, [address]; ld.global.v2.u32 {%r0, %r1}, [%x1]; st.global.v2.u32 [%x0], {%r0, %r1};";
    for address in ["table+4*4", "generic(table)+(2<<3)", "generic(table)+16"] {
        let declaration = format!(
            ".global .align 8 .u32 table[6] = {{1, 2, 3, 4, 5, 6}}; .global .u64 address = {address};"
        );
        assert_eq!(values(&declaration, through), [5, 6], "{address}");
    }
}
