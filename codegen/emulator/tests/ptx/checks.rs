//! Tests of each kind of finding: a kernel with a fault, and the same kernel without the fault.

use bespoke_emulator::{Checks, Finding, FindingKind, LaunchConfig, Memory, Module, Options, Space, run};
use expect_test::{Expect, expect};

use crate::harness::{HEADER, kernel, launch, launch_with, words};

/// Finding of a [`kernel`] on 64 words. `.loc` lines in `body` are the source lines of the finding.
fn finding(body: &str, config: LaunchConfig) -> Box<Finding> {
    let mut data = words(64, 1);
    launch(&kernel("", body), config, &mut data).expect_err("the kernel has a fault")
}

#[track_caller]
fn clean(body: &str, config: LaunchConfig) {
    let mut data = words(64, 1);
    launch(&kernel("", body), config, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
}

#[track_caller]
fn reports(body: &str, config: LaunchConfig, expected: Expect) {
    expected.assert_eq(&finding(body, config).to_string());
}

const ONE_WARP: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0, cluster: None, cooperative: false };
const TWO_WARPS: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [64, 1, 1], dynamic_shared: 0, cluster: None, cooperative: false };

fn store_at(offset: i32) -> String {
    format!(
        "    .loc 1 7 3\n    mov.u32 %r0, %tid.x;\n    mad.wide.u32 %x0, %r0, 4, %data;\n    .loc 1 8 5\n    st.global.u32 [%x0+{offset}], %r0;"
    )
}

#[test]
fn global_out_of_bounds() {
    clean(&store_at(128), ONE_WARP);
    reports(
        &store_at(132),
        ONE_WARP,
        expect![
            "out of bounds in kernel `kernel` at gemv.rs:8 (PTX line 17: `st.global.u32 [%x0+132], %r0;`) by thread (31, 0, 0) of CTA (0, 0, 0): 4-byte store to global memory at 0x7f0000000100; the access is just past the end of `data` (0x7f0000000000, 256 bytes)"
        ],
    );
    let finding = finding(&store_at(-4), ONE_WARP);
    assert_eq!((finding.kind, finding.thread, finding.cta), (FindingKind::OutOfBounds, [0; 3], [0; 3]));
    assert_eq!(finding.address, Some(0x7eff_ffff_fffc));
    assert_eq!(finding.space, Some(Space::Global));
    assert_eq!(finding.source.map(|source| (source.file, source.line)), Some(("gemv.rs".to_string(), 8)));
    let nearest = finding.nearest.expect("there is one allocation");
    assert_eq!((nearest.name.as_str(), nearest.bytes, nearest.outside), ("data", 256, -4));
}

#[test]
fn an_access_that_straddles_the_end_is_out_of_bounds() {
    let body = |offset: u32| format!("ld.global.v2.u32 {{%r0, %r1}}, [%data+{offset}];");
    clean(&body(248), ONE_WARP);
    let memory = Memory::new();
    let data = memory.alloc("data", 252);
    memory.fill(data, 252, 0).expect("inside");
    let module = Module::parse(&kernel("", &body(248))).expect("loads");
    let kernel = module.kernel("kernel").expect("declared");
    let finding =
        run(kernel, &memory, &ONE_WARP, &data.to_le_bytes(), &Options::default()).expect_err("a fault");
    expect!["out of bounds in kernel `kernel` (PTX line 13: `ld.global.v2.u32 {%r0, %r1}, [%data+248];`) by thread (0, 0, 0) of CTA (0, 0, 0): 8-byte load from global memory at 0x7f00000000f8; the access is its last 4 bytes past the end of `data` (0x7f0000000000, 252 bytes)"].assert_eq(&finding.to_string());
}

#[test]
fn freed_memory() {
    let memory = Memory::new();
    let data = memory.alloc("scratch", 256);
    memory.free(data).expect("allocated");
    let module = Module::parse(&kernel("", "ld.global.u32 %r0, [%data];")).expect("loads");
    let kernel = module.kernel("kernel").expect("declared");
    let finding =
        run(kernel, &memory, &ONE_WARP, &data.to_le_bytes(), &Options::default()).expect_err("a fault");
    expect!["out of bounds in kernel `kernel` (PTX line 13: `ld.global.u32 %r0, [%data];`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte load from global memory at 0x7f0000000000; the access is inside freed `scratch` (0x7f0000000000, 256 bytes)"].assert_eq(&finding.to_string());
}

#[test]
fn misaligned() {
    let body = |offset: u32| format!("ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%data+{offset}];");
    clean(&body(16), ONE_WARP);
    reports(
        &body(8),
        ONE_WARP,
        expect![
            "misaligned in kernel `kernel` (PTX line 13: `ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%data+8];`) by thread (0, 0, 0) of CTA (0, 0, 0): 16-byte load from global memory at 0x7f0000000008, which is not a multiple of 16; the access is inside `data` (0x7f0000000000, 256 bytes)"
        ],
    );
}

#[test]
fn uninitialised_global_memory() {
    let text = kernel(
        "",
        "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; ld.global.u32 %r1, [%x0];\n add.u32 %r1, %r1, 0; st.global.u32 [%x0], %r1;",
    );
    let module = Module::parse(&text).expect("loads");
    let kernel = module.kernel("kernel").expect("declared");
    let memory = Memory::new();
    let data = memory.alloc("activations", 128);
    memory.fill(data, 127, 0).expect("inside");
    let go = |options: &Options| run(kernel, &memory, &ONE_WARP, &data.to_le_bytes(), options);
    let finding = go(&Options::default()).expect_err("one byte is missing");
    expect!["uninitialised in kernel `kernel` (PTX line 13: `mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; ld.global.u32 %r1, [%x0];`) by thread (31, 0, 0) of CTA (0, 0, 0): 4-byte load from global memory at 0x7f000000007c, some bytes of which are uninitialised; the value is stored to global memory (PTX line 14: `add.u32 %r1, %r1, 0; st.global.u32 [%x0], %r1;`); the access is inside `activations` (0x7f0000000000, 128 bytes)"].assert_eq(&finding.to_string());
    go(&Options { checks: Checks::NONE, ..Options::default() }).expect("nobody looks");
    memory.write(data + 127, &[0]).expect("inside");
    go(&Options::default()).expect("all bytes are there");
}

#[test]
fn stores_initialise_memory() {
    let text = kernel(
        "",
        "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; st.global.u16 [%x0], %r0; ld.global.u16 %r1, [%x0]; st.global.u16 [%x0], %r1; ld.global.u32 %r2, [%x0]; popc.b32 %r2, %r2; st.global.u32 [%x0], %r2;",
    );
    let module = Module::parse(&text).expect("loads");
    let memory = Memory::new();
    let data = memory.alloc("data", 128);
    let kernel = module.kernel("kernel").expect("declared");
    let finding =
        run(kernel, &memory, &ONE_WARP, &data.to_le_bytes(), &Options::default()).expect_err("upper halves");
    assert_eq!(finding.kind, FindingKind::Uninitialised);
    assert!(finding.detail.starts_with("4-byte load"), "{finding}");
}

#[test]
fn shared_memory() {
    let body = |store: u32, load: u32| {
        format!(
            ".shared .align 4 .b32 tile[32];\n mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1;\n st.shared.u32 [%r1+{store}], %r0;\n ld.shared.u32 %r2, [%r1+{load}];\n mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r2;"
        )
    };
    clean(&body(0, 0), ONE_WARP);
    reports(
        &body(4, 4),
        ONE_WARP,
        expect![
            "out of bounds in kernel `kernel` (PTX line 15: `st.shared.u32 [%r1+4], %r0;`) by thread (31, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory at 0x80; the access is just past the end of `tile` (0x0, 128 bytes)"
        ],
    );
    let half = body(0, 0)
        .replace("mov.u32 %r1, tile;", "mov.u32 %r1, tile; setp.gt.u32 %p, %r0, 4;")
        .replace(" st.shared", "@%p st.shared");
    reports(
        &half,
        ONE_WARP,
        expect![
            "uninitialised in kernel `kernel` (PTX line 16: `ld.shared.u32 %r2, [%r1+0];`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte load from shared memory at 0x0, some bytes of which are uninitialised; the value is stored to global memory (PTX line 17: `mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r2;`); the access is inside `tile` (0x0, 128 bytes)"
        ],
    );
    // Warp 0 reads what warp 1 writes. Without a barrier that is a race, also in a schedule that reads first.
    let other = |between: &str, write: &str| {
        format!(
            ".shared .align 4 .b32 tile[64];\n mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1; xor.b32 %r2, %r0, 32; mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 4, %r3;\n {write}\n {between}\n ld.shared.u32 %r4, [%r3];\n mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r4;"
        )
    };
    let write = "st.shared.u32 [%r1], %r0;";
    clean(&other("bar.sync 0;", write), TWO_WARPS);
    reports(
        &other("", write),
        TWO_WARPS,
        expect![
            "race in kernel `kernel` (PTX line 17: `ld.shared.u32 %r4, [%r3];`) by thread (0, 0, 0) of CTA (0, 0, 0): 4-byte load from shared memory at 0x80, some bytes of which are uninitialised; the value is stored to global memory (PTX line 18: `mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r4;`); another thread writes the bytes, and nothing orders the two accesses: a barrier is missing; the access is inside `tile` (0x0, 256 bytes); the other is the write (PTX line 15: `st.shared.u32 [%r1], %r0;`) by thread (32, 0, 0) of CTA (0, 0, 0)"
        ],
    );
    // A write that the reader can still order after its read does not explain the read.
    let late = "setp.ge.u32 %p, %r0, 32; @%p bar.sync 0; @%p st.shared.u32 [%r1], %r0;";
    let finding = finding(&other("", late), TWO_WARPS);
    assert_eq!(finding.kind, FindingKind::Uninitialised, "{finding}");
    // Shared memory does not keep its contents from one CTA to the next CTA.
    let second = body(0, 0)
        .replace("tile[32];", "tile[32]; mov.u32 %r9, %ctaid.x; setp.eq.u32 %p, %r9, 0;")
        .replace(" st.shared", "@%p st.shared");
    let mut data = words(64, 1);
    let options = Options { threads: 1, ..Options::default() };
    let finding = launch_with(&kernel("", &second), LaunchConfig::linear(2, 32), &mut data, &options)
        .expect_err("a fault");
    assert_eq!((finding.kind, finding.cta), (FindingKind::Uninitialised, [1, 0, 0]));
}

#[test]
fn registers() {
    let body = |limit: u32| {
        format!(
            "mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, {limit}; @!%p bra SKIP;\n mov.u32 %r1, 5;\n SKIP:\n add.u32 %r2, %r1, 1;\n mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r2;"
        )
    };
    clean(&body(32), ONE_WARP);
    reports(
        &body(30),
        ONE_WARP,
        expect![
            "uninitialised in kernel `kernel` (PTX line 16: `add.u32 %r2, %r1, 1;`) by thread (30, 0, 0) of CTA (0, 0, 0): register `%r1` is read but nothing has written it; the value is stored to global memory (PTX line 17: `mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r2;`)"
        ],
    );
    clean("mov.u32 %r0, 1; setp.eq.u32 %p, %r0, 1; @%p mov.u32 %r1, 2; @%p add.u32 %r2, %r1, 1;", ONE_WARP);
    let guard = finding("@%p st.global.u32 [%data], 2;", ONE_WARP);
    assert_eq!(guard.kind, FindingKind::Uninitialised);
}

#[test]
fn barriers_not_reached_by_all() {
    let exits =
        |limit: u32| format!("mov.u32 %r0, %tid.x;\n setp.ge.u32 %p, %r0, {limit};\n @%p ret;\n bar.sync 0;");
    // Threads that have exited, whole warps or lanes that have branched to the end, hold up no barrier for all threads.
    for limit in [64, 40, 32, 17] {
        clean(&exits(limit), TWO_WARPS);
        clean(
            &exits(limit)
                .replace("@%p ret;", "@%p bra END;")
                .replace("bar.sync 0;", "bar.sync 0;\n END: ret;"),
            TWO_WARPS,
        );
    }
    reports(
        &exits(32).replace("bar.sync 0", "bar.sync 0, 64"),
        TWO_WARPS,
        expect![
            "barrier divergence in kernel `kernel` (PTX line 16: `bar.sync 0, 64;`) by thread (0, 0, 0) of CTA (0, 0, 0): warp 0 waits at barrier 0 for 64 threads, of which 32 have arrived; threads 32 to 63 have exited without reaching it"
        ],
    );
    let diverged = "mov.u32 %r0, %tid.x;\n setp.ge.u32 %p, %r0, 16;\n @%p bra ELSE;\n bar.sync 0;\n bra END;\n ELSE: bar.sync 0;\n END: ret;";
    reports(
        diverged,
        ONE_WARP,
        expect![
            "barrier divergence in kernel `kernel` (PTX line 16: `bar.sync 0;`) by thread (16, 0, 0) of CTA (0, 0, 0): lane 16 of the warp does not execute the barrier together with lane 0: the warp has diverged"
        ],
    );
    // The sides of a branch meet before their reconvergence point E, as after nvcc's jump threading.
    let meets = |instruction: &str| {
        format!(
            "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; mov.u32 %r1, %ctaid.x; setp.eq.u32 %q, %r1, 0;
            @%p bra A; @%q bra J; bra.uni E;
            A: @%q bra B; mov.u32 %r2, 1; bra.uni E;
            B: mov.u32 %r2, 2; bra.uni J;
            J: {instruction}
            E: mov.u32 %r4, 5; ret;"
        )
    };
    for instruction in ["bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;"] {
        clean(&meets(instruction), ONE_WARP);
        let early = meets(instruction).replace("bra.uni J;", "bra.uni E;");
        let found = finding(&early, ONE_WARP);
        assert!(
            matches!(found.kind, FindingKind::BarrierDivergence | FindingKind::MemberMask),
            "{instruction}: {found}"
        );
    }
    // Three sides meet; the second waits while the third runs on.
    let three = "mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 8; setp.lt.u32 %q, %r0, 16;
        @%p bra C; @%q bra A; bra.uni E; A: mov.u32 %r2, 1; bra.uni J; C: mov.u32 %r2, 2; bra.uni J;
        J: bar.warp.sync 0xffff;
        E: mov.u32 %r4, 5; ret;";
    clean(three, ONE_WARP);
    assert_eq!(finding(&three.replace("0xffff", "0x1ffff"), ONE_WARP).kind, FindingKind::MemberMask);
    let different = |id: u32| {
        format!(
            "mov.u32 %r0, %tid.x;\n setp.ge.u32 %p, %r0, 32;\n @%p bra ELSE;\n bar.sync 1;\n bra END;\n ELSE: bar.sync {id};\n END: ret;"
        )
    };
    clean(&different(1), TWO_WARPS);
    reports(
        &different(2),
        TWO_WARPS,
        expect![
            "barrier divergence in kernel `kernel` (PTX line 16: `bar.sync 1;`) by thread (0, 0, 0) of CTA (0, 0, 0): warp 0 waits at barrier 1 for 64 threads, of which 32 have arrived; threads 32 to 63 wait at barrier 2 instead"
        ],
    );
    let counts = "mov.u32 %r0, %warpid; mul.lo.u32 %r0, %r0, 32; add.u32 %r0, %r0, 32;\n bar.sync 1, %r0;";
    clean(&counts.replace("%warpid", "0"), TWO_WARPS);
    let mismatch = "mov.u32 %r0, %tid.x;\n setp.ge.u32 %p, %r0, 32;\n @%p bra ELSE;\n bar.sync 1;\n bra END;\n ELSE: bar.arrive 1, 96;\n END: ret;";
    let three = LaunchConfig::linear(1, 96);
    assert_eq!(finding(mismatch, TWO_WARPS).kind, FindingKind::BarrierDivergence);
    assert_eq!(
        finding(&mismatch.replace("bar.arrive 1, 96", "bar.arrive 1, 64"), three).kind,
        FindingKind::BarrierDivergence
    );
}

#[test]
fn a_kernel_that_does_not_end_is_stopped() {
    let spin = "SPIN:\n ld.volatile.global.u32 %r0, [%data];\n setp.ne.u32 %p, %r0, 0;\n @%p bra SPIN;";
    let mut data = words(64, 1);
    let options = Options { instruction_limit: 100_000, ..Options::default() };
    let finding = launch_with(&kernel("", spin), TWO_WARPS, &mut data, &options).expect_err("it never ends");
    assert_eq!(finding.kind, FindingKind::Deadlock);
    let mut zeros = words(64, 0);
    launch_with(&kernel("", spin), TWO_WARPS, &mut zeros, &options).expect("it ends at once");
    let alone = "bar.sync 3, 64;";
    assert_eq!(self::finding(alone, ONE_WARP).kind, FindingKind::BarrierDivergence);
    let missing =
        "mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 32; @%p bra ELSE; bar.sync 1, 64; ELSE: bar.sync 0;";
    assert_eq!(self::finding(missing, TWO_WARPS).kind, FindingKind::BarrierDivergence);
}

#[test]
fn traps() {
    let body = |limit: u32| format!("mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, {limit};\n @%p trap;");
    clean(&body(32), ONE_WARP);
    reports(
        &body(9),
        ONE_WARP,
        expect![
            "trap in kernel `kernel` (PTX line 14: `@%p trap;`) by thread (9, 0, 0) of CTA (0, 0, 0): the kernel executed `trap`"
        ],
    );
}

#[test]
fn shuffles() {
    let exited = |limit: u32| {
        format!(
            "mov.u32 %r0, %laneid; setp.ge.u32 %p, %r0, {limit}; @%p exit;\n shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;"
        )
    };
    clean(&exited(32), ONE_WARP);
    reports(
        &exited(16),
        ONE_WARP,
        expect![
            "shuffle from an inactive lane in kernel `kernel` (PTX line 14: `shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;`) by thread (0, 0, 0) of CTA (0, 0, 0): it reads lane 16, which has exited"
        ],
    );
    let diverged = "mov.u32 %r0, %laneid; setp.ge.u32 %p, %r0, 16; @%p bra END;\n shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\n END: mov.u32 %r1, 0;\n ret;";
    reports(
        diverged,
        ONE_WARP,
        expect![
            "wrong member mask in kernel `kernel` (PTX line 14: `shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;`) by thread (16, 0, 0) of CTA (0, 0, 0): lane 16 is in its member mask 0xffffffff but has diverged and does not execute it"
        ],
    );
    clean(&diverged.replace("-1;", "0xffff;"), ONE_WARP);
    clean(&diverged.replace("END: mov.u32 %r1, 0;", "END:"), ONE_WARP);
    let outside = finding("mov.u32 %r0, %laneid; shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xff;", ONE_WARP);
    assert_eq!((outside.kind, outside.thread), (FindingKind::MemberMask, [8, 0, 0]));
}

#[test]
fn launches() {
    let text = kernel(" .reqntid 64, 1, 1", "ret;");
    let mut data = words(1, 0);
    launch(&text, TWO_WARPS, &mut data).expect("runs");
    expect![
        "invalid launch in kernel `kernel`: block [32, 1, 1] is not the [64, 1, 1] that the kernel requires"
    ]
    .assert_eq(&launch(&text, ONE_WARP, &mut data).expect_err("a wrong block").to_string());
    let text = kernel(" .maxntid 32", "ret;");
    launch(&text, ONE_WARP, &mut data).expect("runs");
    assert_eq!(launch(&text, TWO_WARPS, &mut data).expect_err("too large").kind, FindingKind::InvalidLaunch);
    assert_eq!(
        launch(&text, LaunchConfig::linear(0, 32), &mut data).expect_err("empty").kind,
        FindingKind::InvalidLaunch
    );
    for (bytes, fits) in [(49152, true), (49153, false)] {
        let text =
            kernel("", &format!(".shared .b8 table[{bytes}]; .reg .u32 %at; mov.u32 %at, table; ret;"));
        let outcome = launch(&text, ONE_WARP, &mut data);
        assert_eq!(outcome.is_ok(), fits, "{bytes} bytes: {outcome:?}");
    }
    let module = Module::parse(&format!("{HEADER}.entry k(.param .u64 a) {{ ret; }}")).expect("loads");
    let memory = Memory::new();
    let finding =
        run(module.kernel("k").expect("declared"), &memory, &ONE_WARP, &[0; 4], &Options::default());
    assert!(finding.is_err_and(|finding| finding.kind == FindingKind::InvalidLaunch));
}

#[test]
fn the_finding_of_the_lowest_cta_is_reported_for_any_number_of_workers() {
    let body = "mov.u32 %r0, %ctaid.x; setp.ge.u32 %p, %r0, 11; @%p trap;";
    for threads in [1, 2, 7] {
        let options = Options { threads, ..Options::default() };
        let mut data = words(1, 0);
        let finding = launch_with(&kernel("", body), LaunchConfig::linear(64, 32), &mut data, &options);
        assert_eq!(finding.expect_err("a trap").cta, [11, 0, 0]);
    }
}

/// Guard zones separate shared variables, and do not count as shared memory of the kernel.
#[test]
fn accesses_between_shared_variables() {
    let text = |access: &str| {
        let variables = ".shared .align 4 .b8 a[8]; .shared .align 16 .b8 b[16];";
        let body = format!("{variables} mov.u32 %r1, a; mov.u32 %r2, b; st.shared.u32 [b], 1; {access}");
        kernel("", &body)
    };
    let found = |access: &str| {
        let mut data = words(64, 1);
        launch(&text(access), ONE_WARP, &mut data)
            .map_err(|finding| (finding.kind, finding.nearest.map(|at| at.name)))
    };
    assert!(found("st.shared.u32 [%r1+4], 1;").is_ok());
    let outside = |name: &str| Err((FindingKind::OutOfBounds, Some(name.to_string())));
    for access in
        ["st.shared.u32 [%r1+8], 1;", "ld.shared.u32 %r3, [%r1+8];", "red.shared.add.u32 [%r1+8], 1;"]
    {
        assert_eq!(found(access).map(|_| ()), outside("a"), "{access}");
    }
    assert_eq!(found("st.shared.u32 [%r2-4], 1;").map(|_| ()), outside("b"));
    assert_eq!(found("st.shared.u32 [%r2+16], 1;").map(|_| ()), outside("b"));
    let module = Module::parse(&text("")).expect("loads");
    assert_eq!(module.kernels().next().map(|kernel| kernel.static_shared_bytes()), Some(32));
    // Variables of two bytes may begin within a word.
    let halves = "mov.u16 %h0, 1; st.shared.u16 [c], %h0; st.shared.u16 [d], %h0; bar.warp.sync -1; ld.shared.u16 %h1, [d];";
    clean(&format!(".shared .align 2 .b8 c[2]; .shared .align 2 .b8 d[2]; {halves}"), ONE_WARP);
}

/// The same for the variables of a module, and for local variables.
#[test]
fn accesses_between_other_variables() {
    let module = ".global .align 4 .u32 a[4]; .const .align 4 .u32 b[2] = {1, 2}; .global .u32 c;";
    let local = ".local .align 4 .b8 u[16]; .local .align 8 .b8 v[8];";
    let addresses = "mov.u64 %x0, a; mov.u64 %x1, b; mov.u64 %x2, u; mov.u64 %x3, v; st.local.u64 [v], 1; st.local.u32 [u], 1;";
    let found = |access: &str| {
        let text = kernel("", &format!("{local} {addresses} {access}"))
            .replace(".visible .entry", &format!("{module}\n.visible .entry"));
        launch(&text, ONE_WARP, &mut words(64, 1))
            .map(|_| ())
            .map_err(|finding| (finding.kind, finding.nearest.map(|at| at.name)))
    };
    for access in [
        "st.global.u32 [%x0+12], 1;",
        "ld.const.u32 %r1, [%x1+4];",
        "st.local.u32 [%x2+12], 1;",
        "ld.local.u64 %x4, [%x3];",
    ] {
        assert_eq!(found(access), Ok(()), "{access}");
    }
    for (access, name) in [
        ("ld.global.u32 %r1, [%x0+16];", "a"),
        ("st.global.u32 [%x0+100], 1;", "a"),
        ("ld.const.u32 %r1, [%x1+8];", "b"),
        ("ld.global.u32 %r1, [%x1-4];", "b"),
        ("ld.local.u32 %r1, [%x2+16];", "u"),
        ("st.local.u32 [%x2+40], 1;", "u"),
        ("st.local.u64 [%x2+12], 1;", "u"),
        ("st.local.u32 [%x3+8], 1;", "v"),
    ] {
        assert_eq!(found(access), Err((FindingKind::OutOfBounds, Some(name.to_string()))), "{access}");
    }
}
