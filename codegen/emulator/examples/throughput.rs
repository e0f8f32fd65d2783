//! Measures the emulator: `cargo run --release -p bespoke-emulator --example throughput`, with the names of kernels and of
//! levels of checks to measure only these.

use std::time::Instant;

use bespoke_emulator::{Checks, LaunchConfig, Memory, Module, Options, run};

/// Kernels: a chain of fused multiply-adds, a loop over global memory of each thread's own, the same with `dp4a`, matrix
/// products of 8-bit integers and of f16 (one of four instructions), and a ring buffer filled by `cp.async` (one of nine
/// instructions).
const PTX: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.visible .entry fma(.param .u64 data) {
    .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<9>; .reg .b64 %x<4>;
    ld.param.u64 %x0, [data]; mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f0, %r0; mov.f32 %f1, 0f3F000000;
    mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.f32 %f4, %f0; mov.u32 %r1, 0;
    LOOP:
    fma.rn.f32 %f2, %f2, %f1, %f0; fma.rn.f32 %f3, %f3, %f1, %f2; fma.rn.f32 %f4, %f4, %f1, %f3;
    fma.rn.f32 %f2, %f2, %f1, %f4; fma.rn.f32 %f3, %f3, %f1, %f2; fma.rn.f32 %f4, %f4, %f1, %f3;
    fma.rn.f32 %f2, %f2, %f1, %f4; fma.rn.f32 %f3, %f3, %f1, %f2;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 4096; @%p bra LOOP;
    add.f32 %f2, %f2, %f3; add.f32 %f2, %f2, %f4; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 256, %r0;
    mad.wide.u32 %x1, %r2, 4, %x0; st.global.f32 [%x1], %f2; ret;
}
.visible .entry stream(.param .u64 data) {
    .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<9>; .reg .b64 %x<4>;
    ld.param.u64 %x0, [data]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 18;
    mad.lo.u32 %r1, %r0, 16, %r1; cvt.u64.u32 %x1, %r1; add.u64 %x0, %x0, %x1; mov.u32 %r2, 0;
    mov.f32 %f4, 0f00000000;
    LOOP:
    ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x0];
    add.f32 %f4, %f4, %f0; add.f32 %f4, %f4, %f1; add.f32 %f4, %f4, %f2; add.f32 %f4, %f4, %f3;
    st.global.v4.f32 [%x0], {%f0, %f1, %f2, %f4};
    add.u64 %x0, %x0, 4096; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 64; @%p bra LOOP;
    ret;
}
.visible .entry gemv(.param .u64 data) {
    .reg .pred %p; .reg .b16 %h<3>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %x<4>;
    ld.param.u64 %x0, [data]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 18;
    mad.lo.u32 %r1, %r0, 16, %r1; cvt.u64.u32 %x1, %r1; add.u64 %x0, %x0, %x1; mov.u32 %r2, 0;
    mov.f32 %f4, 0f00000000;
    LOOP:
    ld.global.nc.v4.u32 {%r3, %r4, %r5, %r6}, [%x0];
    mov.u32 %r7, 0;
    dp4a.s32.s32 %r7, %r3, %r4, %r7; dp4a.s32.s32 %r7, %r5, %r6, %r7; dp4a.s32.s32 %r7, %r3, %r5, %r7;
    dp4a.s32.s32 %r7, %r4, %r6, %r7;
    ld.global.nc.u16 %h0, [%x0+2]; cvt.f32.f16 %f0, %h0; cvt.rn.f32.s32 %f1, %r7; fma.rn.f32 %f4, %f0, %f1, %f4;
    add.u64 %x0, %x0, 4096; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 64; @%p bra LOOP;
    shfl.sync.bfly.b32 %r8, %r7, 16, 31, -1; shfl.sync.bfly.b32 %r8, %r8, 8, 31, -1;
    ret;
}
.visible .entry mma_s8(.param .u64 data) {
    .reg .pred %p; .reg .b32 %r<20>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
    mov.u32 %r6, 0;
    LOOP:
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r2, %r3, %r4, %r5}, {%r0, %r1, %r0, %r1}, {%r0, %r1}, {%r2, %r3, %r4, %r5};
    add.u32 %r6, %r6, 1; setp.lt.u32 %p, %r6, 16; @%p bra LOOP;
    ret;
}
.visible .entry mma_f16(.param .u64 data) {
    .reg .pred %p; .reg .b32 %r<20>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
    mov.u32 %r6, 0;
    LOOP:
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r2, %r3, %r4, %r5}, {%r0, %r1, %r0, %r1}, {%r0, %r1}, {%r2, %r3, %r4, %r5};
    add.u32 %r6, %r6, 1; setp.lt.u32 %p, %r6, 16; @%p bra LOOP;
    ret;
}
.visible .entry cp_async(.param .u64 data) {
    .reg .pred %p; .reg .b32 %r<20>; .reg .b64 %x<4>;
    .shared .align 16 .b8 ring[32768];
    ld.param.u64 %x0, [data]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 18;
    mad.lo.u32 %r1, %r0, 16, %r1; cvt.u64.u32 %x1, %r1; add.u64 %x0, %x0, %x1; mov.u32 %r2, 0;
    mov.u32 %r3, ring; mad.lo.u32 %r3, %r0, 16, %r3;
    LOOP: and.b32 %r4, %r2, 7; mad.lo.u32 %r4, %r4, 4096, %r3;
    cp.async.cg.shared.global [%r4], [%x0], 16; cp.async.commit_group; cp.async.wait_group 3;
    add.u64 %x0, %x0, 4096; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 64; @%p bra LOOP;
    cp.async.wait_all;
    ret;
}
"#;

/// CPU time of this process in seconds, if the system reports it; otherwise wall time since `start`.
fn cpu_seconds(start: Instant) -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        // Fields 14 and 15 of the line: user and system time in hundredths of a second.
        let rest = stat.rsplit(')').next()?.split_whitespace().skip(11).take(2);
        Some(rest.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>())
    });
    ticks.map_or(start.elapsed().as_secs_f64(), |ticks| ticks as f64 / 100.0)
}

/// Checks, by name.
const LEVELS: [(&str, Checks); 3] =
    [("none", Checks::NONE), ("memory", Checks { races: false, ..Checks::ALL }), ("all", Checks::ALL)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let module = Module::parse(PTX)?;
    let memory = Memory::new();
    let bytes = 64 << 20;
    let data = memory.alloc("data", bytes);
    memory.fill(data, bytes, 0)?;
    println!("throughput per second of CPU time:");
    let names: Vec<String> = std::env::args().skip(1).collect();
    let is_level = |name: &str| LEVELS.iter().any(|(level, _)| *level == name);
    let (levels, kernels): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| is_level(name));
    let is_named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|other| other == name);
    for kernel in module.kernels().filter(|kernel| is_named(&kernels, kernel.name())) {
        for (name, checks) in LEVELS.into_iter().filter(|(name, _)| is_named(&levels, name)) {
            let options = Options { checks, ..Options::default() };
            let config = LaunchConfig::linear(256, 256);
            let (start, before) = (Instant::now(), cpu_seconds(Instant::now()));
            let mut stats = Default::default();
            let rounds = 5;
            for _ in 0..rounds {
                stats = run(kernel, &memory, &config, &data.to_le_bytes(), &options)?;
            }
            let seconds = (cpu_seconds(start) - before) / rounds as f64;
            let moved = stats.global_bytes_loaded + stats.global_bytes_stored;
            println!(
                "{:8} checks {:6}: {:6.2} G lane-instructions, {:6.2} GB; {:5.1} ns per warp instruction",
                kernel.name(),
                name,
                stats.lane_instructions as f64 / seconds / 1e9,
                moved as f64 / seconds / 1e9,
                seconds * 1e9 / stats.warp_instructions as f64,
            );
        }
    }
    Ok(())
}

#[test]
fn kernels_have_no_findings() {
    let module = Module::parse(PTX).expect("the PTX is valid");
    let memory = Memory::new();
    let bytes = 2 << 18;
    let data = memory.alloc("data", bytes);
    memory.fill(data, bytes, 0).expect("inside");
    for kernel in module.kernels() {
        let config = LaunchConfig::linear(2, 256);
        if let Err(finding) = run(kernel, &memory, &config, &data.to_le_bytes(), &Options::default()) {
            panic!("{finding}");
        }
    }
}
