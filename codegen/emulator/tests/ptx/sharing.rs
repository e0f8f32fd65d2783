//! Shared memory, barriers, and cooperation of several CTAs.

use bespoke_emulator::{LaunchConfig, Options};

use crate::harness::{kernel, launch, launch_with, words};

/// Kernel in which each CTA sums `n` words in shared memory and adds its sum to word 0.
const REDUCTION: &str = "
    .shared .align 4 .b32 partial[256];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 256, %r0;
    mad.wide.u32 %x0, %r2, 4, %data; ld.global.u32 %r3, [%x0+64];
    mov.u32 %r4, partial; mad.lo.u32 %r4, %r0, 4, %r4; st.shared.u32 [%r4], %r3;
    bar.sync 0;
    mov.u32 %r5, 128;
    STEP: setp.ge.u32 %p, %r0, %r5; @%p bra SKIP;
    shl.b32 %r6, %r5, 2; add.u32 %r6, %r4, %r6; ld.shared.u32 %r7, [%r6]; ld.shared.u32 %r8, [%r4];
    add.u32 %r7, %r7, %r8; st.shared.u32 [%r4], %r7;
    SKIP: bar.sync 0; shr.u32 %r5, %r5, 1; setp.ne.u32 %p, %r5, 0; @%p bra STEP;
    setp.ne.u32 %p, %r0, 0; @%p bra END;
    ld.shared.u32 %r9, [partial]; red.global.add.u32 [%data], %r9;
    END: ret;";

#[test]
fn many_ctas_reduce_through_shared_memory() {
    for threads in [1, 2, 5] {
        let mut data: Vec<u32> = (0..16 + 40 * 256).map(|i| if i < 16 { 0 } else { i }).collect();
        let want = data.iter().sum::<u32>();
        let options = Options { threads, ..Options::default() };
        launch_with(&kernel("", REDUCTION), LaunchConfig::linear(40, 256), &mut data, &options)
            .expect("runs");
        assert_eq!(data[0], want, "{threads} threads");
    }
}

#[test]
fn dynamic_shared_memory_follows_static() {
    let text = kernel(
        "",
        "
        .shared .align 4 .b32 first[3];
        mov.u32 %r0, pool; mov.u32 %r1, %tid.x; mad.lo.u32 %r0, %r1, 4, %r0; st.shared.u32 [%r0], %r1;
        bar.sync 0;
        mov.u32 %r4, pool; xor.b32 %r2, %r1, 63; mad.lo.u32 %r2, %r2, 4, %r4; ld.shared.u32 %r3, [%r2];
        mad.wide.u32 %x0, %r1, 4, %data; st.global.u32 [%x0], %r3;
        mov.u32 %r5, first; setp.eq.u32 %p, %r1, 0; @%p st.shared.u32 [first], %r5;",
    );
    let text = text.replace(".visible", ".extern .shared .align 16 .b8 pool[];\n.visible");
    let mut out = words(64, 0);
    let config = LaunchConfig {
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared: 256,
        cluster: None,
        cooperative: false,
    };
    launch(&text, config, &mut out).expect("runs");
    assert_eq!(out, (0..64).map(|i| i ^ 63).collect::<Vec<_>>());
}

#[test]
fn named_barriers_with_counts() {
    // Warps 0 and 1 synchronise at barrier 1; warps 2 and 3 exit early.
    let body = "
        .shared .b32 cell[64];
        mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 64; @%p ret;
        mov.u32 %r1, cell; mad.lo.u32 %r2, %r0, 4, %r1; setp.ge.u32 %p, %r0, 32; @%p bra TAKE;
        st.shared.u32 [%r2+128], %r0; bar.arrive 1, 64; ret;
        TAKE: bar.sync 1, 64; ld.shared.u32 %r3, [%r2]; mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r3;";
    let mut out = words(64, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 128), &mut out).expect("runs");
    assert_eq!(out[32..], (0..32).collect::<Vec<_>>());
}

#[test]
fn barrier_reductions() {
    let body = "
        mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 70;
        bar.red.popc.u32 %r1, 0, %p;
        bar.red.and.pred %q, 0, %p; selp.u32 %r2, 1, 0, %q;
        barrier.cta.red.or.pred %q, 0, !%p; selp.u32 %r3, 1, 0, %q;
        setp.eq.u32 %p, %r0, 127; @!%p ret;
        st.global.u32 [%data], %r1; st.global.u32 [%data+4], %r2; st.global.u32 [%data+8], %r3;";
    let mut out = words(3, 9);
    launch(&kernel("", body), LaunchConfig::linear(1, 128), &mut out).expect("runs");
    assert_eq!(out, [70, 0, 1]);
}

#[test]
fn ctas_may_wait_for_each_other() {
    // Every CTA increments a counter and waits until all CTAs have done so; there are more CTAs than workers.
    let body = "
        mov.u32 %r0, %tid.x; setp.ne.u32 %p, %r0, 0; @%p bra WAIT;
        red.release.gpu.global.add.u32 [%data], 1;
        WAIT: ld.acquire.gpu.global.u32 %r1, [%data]; setp.lt.u32 %p, %r1, 12; @!%p bra GO; nanosleep.u32 100; bra WAIT;
        GO: setp.ne.u32 %p, %r0, 0; @%p ret; red.global.add.u32 [%data+4], %r1;";
    let mut out = words(2, 0);
    let options = Options { threads: 1, ..Options::default() };
    launch_with(&kernel("", body), LaunchConfig::linear(12, 64), &mut out, &options).expect("runs");
    assert_eq!(out, [12, 144]);
}

#[test]
fn warps_may_wait_for_each_other_in_a_loop() {
    let body = "
        .shared .b32 flag;
        mov.u32 %r0, %tid.x; mov.u32 %r1, 0; setp.eq.u32 %p, %r0, 0; @%p st.shared.u32 [flag], %r1; bar.sync 0;
        setp.ge.u32 %p, %r0, 32; @%p bra SET;
        SPIN: ld.volatile.shared.u32 %r2, [flag]; setp.eq.u32 %p, %r2, 0; @%p bra SPIN;
        st.global.u32 [%data], %r2; ret;
        SET: mov.u32 %r1, 3; st.volatile.shared.u32 [flag], %r1;";
    let mut out = words(1, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 64), &mut out).expect("runs");
    assert_eq!(out, [3]);
}

#[test]
fn grids_and_blocks_of_three_dimensions() {
    let body = "
        mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;
        mov.u32 %r5, %ctaid.z; mad.lo.u32 %r6, %r5, 3, %r4; mad.lo.u32 %r6, %r6, 2, %r3; mad.lo.u32 %r6, %r6, 2, %r2;
        mad.lo.u32 %r6, %r6, 5, %r1; mad.lo.u32 %r6, %r6, 4, %r0; mad.wide.u32 %x0, %r6, 4, %data;
        st.global.u32 [%x0], %r6;";
    let mut out = words(2 * 3 * 2 * 2 * 5 * 4, u32::MAX);
    let want: Vec<u32> = (0..out.len() as u32).collect();
    let config = LaunchConfig {
        grid: [2, 3, 2],
        block: [4, 5, 2],
        dynamic_shared: 0,
        cluster: None,
        cooperative: false,
    };
    launch(&kernel("", body), config, &mut out).expect("runs");
    assert_eq!(out, want);
}
