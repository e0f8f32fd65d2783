//! Uninitialised values: which of their uses are findings.

use bespoke_emulator::{FindingKind, LaunchConfig};
use expect_test::{Expect, expect};

use crate::harness::{kernel, launch, words};

/// Loads `%r2`, which is uninitialised in the lanes from 16 on: they read words of `tile` that nobody has written. `%p` holds in
/// the other lanes, `%x0` is the address of the lane's word of `data`, and `%r1` that of its word of `tile`.
const LOAD: &str = ".shared .align 16 .b32 tile[64];
    mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1;
    setp.lt.u32 %p, %r0, 16; @%p st.shared.u32 [%r1], %r0; bar.warp.sync -1;
    ld.shared.u32 %r2, [%r1];
";

fn run(body: &str) -> Result<Vec<u32>, (FindingKind, String)> {
    let mut data = words(64, 1);
    let text = kernel("", &format!("{LOAD}{body}"));
    match launch(&text, LaunchConfig::linear(1, 32), &mut data) {
        Ok(_) => Ok(data),
        Err(finding) => Err((finding.kind, finding.detail)),
    }
}

/// Checks that the kernel has no finding, and that each lane below 16 stores `result(lane)` in its word of `data`.
#[track_caller]
fn accepts(body: &str, result: impl Fn(u32) -> u32) {
    let data = run(body).unwrap_or_else(|(_, detail)| panic!("`{body}`: {detail}"));
    for lane in 0..16 {
        assert_eq!(data[lane as usize], result(lane), "lane {lane} of `{body}`");
    }
}

/// Checks that the kernel has a finding, and the part of its detail that describes the use.
#[track_caller]
fn reports(body: &str, expected: Expect) {
    let (kind, detail) = run(body).expect_err("a use of an uninitialised value");
    assert_eq!(kind, FindingKind::Uninitialised, "{detail}");
    let start = detail.find("; ").map_or(0, |at| at + 2);
    expected.assert_eq(&detail[start..]);
}

const STORE: &str = "st.global.u32 [%x0], %r3;";

/// Instructions for which the lanes below 16 wait at one place, and the others at another.
fn on_both_sides(instruction: &str) -> String {
    format!("@%p bra BELOW; {instruction} bra END; BELOW: {instruction} END: ")
}

#[test]
fn values_exchanged_between_two_places() {
    let use_below = |distance: u32| {
        let shuffle = format!("shfl.sync.bfly.b32 %r3, %r2, {distance}, 31, -1;");
        on_both_sides(&shuffle) + "@%p st.global.u32 [%x0], %r3;"
    };
    accepts(&use_below(1), |lane| lane ^ 1);
    let (kind, detail) = run(&use_below(16)).expect_err("values of the upper lanes are stored");
    assert_eq!(kind, FindingKind::Uninitialised, "{detail}");
    // The predicate is uninitialised in the lanes from 16 on.
    let vote = on_both_sides("setp.gt.u32 %q, %r2, 3; vote.sync.ballot.b32 %r3, %q, -1;");
    accepts(&format!("{vote} and.b32 %r3, %r3, 0xffff; {STORE}"), |_| 0xfff0);
    let any = on_both_sides("setp.gt.u32 %q, %r2, 3; vote.sync.any.pred %q, %q, -1; selp.u32 %r3, 1, 0, %q;");
    let (kind, _) = run(&format!("{any} {STORE}")).expect_err("the vote is stored");
    assert_eq!(kind, FindingKind::Uninitialised);
}

#[test]
fn results_that_are_dropped() {
    accepts("add.u32 %r3, %r2, 1; @%p st.global.u32 [%x0], %r3;", |lane| lane + 1);
    accepts(
        "shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1; add.u32 %r3, %r2, %r4; @%p st.global.u32 [%x0], %r3;",
        |lane| lane + (lane ^ 1),
    );
    accepts("@!%p mov.u32 %r2, 7; add.u32 %r3, %r2, 0; st.global.u32 [%x0], %r3;", |lane| lane);
    accepts(
        "setp.gt.u32 %q, %r2, 3; and.pred %q, %q, %p; selp.b32 %r3, 5, 6, %q; st.global.u32 [%x0], %r3;",
        |lane| {
            if lane > 3 { 5 } else { 6 }
        },
    );
    accepts("selp.b32 %r3, %r2, 9, %p; st.global.u32 [%x0], %r3;", |lane| lane);
    accepts("and.b32 %r3, %r2, 0; st.global.u32 [%x0], %r3;", |_| 0);
    accepts(
        "setp.gt.u32 %q, %r2, 3; vote.sync.any.pred %q, %q, -1; selp.b32 %r3, 5, 6, %q; st.global.u32 [%x0], %r3;",
        |_| 5,
    );
}

#[test]
fn uses() {
    let store = |body: &str| format!("{body}\n    {STORE}");
    reports(
        &store("add.u32 %r3, %r2, 1;"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    reports(
        "setp.gt.u32 %q, %r2, 3;\n    @%q bra END;\n    END: ret;",
        expect!["the value decides the branch (PTX line 18: `@%q bra END;`)"],
    );
    reports(
        "setp.gt.u32 %q, %r2, 3;\n    @%q st.global.u32 [%x0], 1;",
        expect![
            "the value decides whether an instruction executes (PTX line 18: `@%q st.global.u32 [%x0], 1;`)"
        ],
    );
    reports(
        "mad.wide.u32 %x1, %r2, 4, %data;\n    ld.global.u32 %r3, [%x1];",
        expect!["the value is part of an address (PTX line 18: `ld.global.u32 %r3, [%x1];`)"],
    );
    reports(
        "mad.wide.u32 %x1, %r2, 4, %data;\n    st.global.u32 [%x1], 1;",
        expect!["the value is part of an address (PTX line 18: `st.global.u32 [%x1], 1;`)"],
    );
    reports(
        "atom.global.add.u32 %r3, [%x0], %r2;",
        expect![
            "the value is an operand of an instruction with an effect (PTX line 17: `atom.global.add.u32 %r3, [%x0], %r2;`)"
        ],
    );
    reports(
        &store("redux.sync.add.u32 %r3, %r2, -1;"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    reports(
        &store("setp.gt.u32 %q, %r2, 3; mov.u32 %r3, 1; @%q mov.u32 %r3, 2;"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    // A line of the kernel's own source.
    reports(
        &format!(".loc 1 7 3\n add.u32 %r3, %r2, 1;\n.loc 1 9 5\n{STORE}"),
        expect![
            "the value is stored to global memory at gemv.rs:9 (PTX line 20: `st.global.u32 [%x0], %r3;`)"
        ],
    );
}

#[test]
fn memory_holds_uninitialised_bytes() {
    // Through shared and local memory, to the lane that reads the word.
    let swap =
        "st.shared.u32 [%r1+128], %r2; bar.warp.sync -1; xor.b32 %r4, %r1, 64; ld.shared.u32 %r3, [%r4+128];";
    reports(
        &format!("{swap}\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    // The finding is the first read, not that of the copy.
    let (_, detail) = run(&format!("{swap} {STORE}")).expect_err("a use");
    assert!(detail.starts_with("4-byte load from shared memory at 0x40,"), "{detail}");
    accepts(&format!("{swap} @!%p st.global.u32 [%x0+-64], %r3;"), |lane| lane);
    let local = ".local .align 8 .b32 copy[2]; st.local.v2.u32 [copy], {%r0, %r2};";
    reports(
        &format!("{local} ld.local.u32 %r3, [copy+4];\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    accepts(&format!("{local} ld.local.u32 %r3, [copy]; {STORE}"), |lane| lane);
    // Padding: a copy of a structure in local memory.
    let padding = ".local .align 8 .b32 copy[2]; st.local.u32 [copy], %r0; ld.local.v2.u32 {%r0, %r2}, [copy]; mad.wide.u32 %x0, %r0, 4, %x0;\n    st.global.v2.u32 [%x0], {%r0, %r2};";
    accepts(&format!("{padding} ld.global.u32 %r3, [%x0];"), |word| if word % 2 == 0 { word / 2 } else { 0 });
    // Global memory keeps its uninitialised bytes.
    reports(
        &format!("{padding} ld.global.u32 %r3, [%x0+4];\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 19: `st.global.u32 [%x0], %r3;`)"],
    );
    // Elements of shared memory and results of arithmetic are not padding.
    reports(
        "mad.wide.u32 %x0, %r0, 4, %x0;\n    st.global.v2.u32 [%x0], {%r0, %r2};",
        expect!["the value is stored to global memory (PTX line 18: `st.global.v2.u32 [%x0], {%r0, %r2};`)"],
    );
    reports(
        "mad.wide.u32 %x0, %r0, 4, %x0; add.u32 %r3, %r2, 1;\n    st.global.v2.u32 [%x0], {%r0, %r3};",
        expect!["the value is stored to global memory (PTX line 18: `st.global.v2.u32 [%x0], {%r0, %r3};`)"],
    );
}

/// Results that are the same for all zeros and all ones, and yet depend on the operands.
#[test]
fn results_that_depend_on_operands() {
    let other = "ld.shared.u32 %r5, [%r1+128];";
    for body in [
        "xor.b32 %r3, %r2, %r5;",
        "lop3.b32 %r3, %r2, %r5, 0, 0x3c;",
        "setp.gt.u32 %q, %r2, 3; selp.b32 %r3, %r2, -1, %q;",
        "setp.gt.u32 %q, %r2, 3; selp.b32 %r3, %r2, 0, !%q;",
        "setp.gt.u32 %q, %r2, 3; vote.sync.uni.pred %q, %q, -1; selp.b32 %r3, 1, 2, %q;",
        "shl.b32 %r3, 1, %r2; shr.u32 %r3, %r3, 1;",
        "bfe.u32 %r3, 2, %r2, 1;",
        "prmt.b32 %r3, 0, 0, %r2;",
        "add.cc.u32 %r4, %r2, 1; addc.u32 %r3, 0, 0;",
        "mov.u32 %r3, 5; add.u32 %r4, %r2, 1; @%p mov.u32 %r3, %r4; @!%p mov.u32 %r3, %r4;",
    ] {
        let (kind, detail) = run(&format!("{other} {body}\n    {STORE}")).expect_err(body);
        assert_eq!(kind, FindingKind::Uninitialised, "{body}: {detail}");
        assert!(detail.contains("the value is stored to global memory (PTX line 18"), "{body}: {detail}");
    }
    let (_, detail) = run("shfl.sync.idx.b32 %r3, %r0, %r2, 31, -1;").expect_err("no known lane");
    assert!(detail.contains("the value is an operand of an instruction with an effect"), "{detail}");
    accepts(&format!("{other} xor.b32 %r3, %r2, %r2; {STORE}"), |_| 0);
    accepts(&format!("bar.red.popc.u32 %r2, 0, %p; add.u32 %r3, %r2, 0; {STORE}"), |_| 16);
    accepts(
        &format!("add.cc.u32 %r4, %r2, 1; add.cc.u32 %r4, %r0, 1; addc.u32 %r3, %r0, 0; {STORE}"),
        |lane| lane,
    );
}

#[test]
fn parts_of_registers() {
    let halves = "cvt.u16.u32 %h0, %r0; cvt.u16.u32 %h1, %r2; mov.b32 %r3, {%h0, %h1};";
    accepts(&format!("{halves} and.b32 %r3, %r3, 0xffff; {STORE}"), |lane| lane);
    accepts(&format!("{halves} mov.b32 {{%h2, %h3}}, %r3; cvt.u32.u16 %r3, %h2; {STORE}"), |lane| lane);
    accepts(&format!("{halves} shl.b32 %r3, %r3, 16; shr.u32 %r3, %r3, 16; {STORE}"), |lane| lane);
    accepts(&format!("{halves} prmt.b32 %r3, %r3, 0, 0x4410; {STORE}"), |lane| lane);
    reports(
        &format!("{halves} prmt.b32 %r3, %r3, 0, 0x4432; add.u32 %r3, %r3, 0;\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
    // Packed arithmetic and conversions of pairs.
    for body in [
        "add.rn.f16x2 %r3, %r3, %r3;",
        "fma.rn.bf16x2 %r3, %r3, %r3, %r3;",
        "max.s16x2 %r3, %r3, 0;",
        "cvt.rn.satfinite.e4m3x2.f16x2 %h4, %r3; cvt.rn.f16x2.e4m3x2 %r3, %h4;",
        "cvt.rn.f32.u32 %f0, %r2; cvt.rn.f32.u32 %f1, %r0; cvt.rn.f16x2.f32 %r3, %f0, %f1;",
        "cvt.rn.f32.u32 %f0, %r2; cvt.rn.bf16x2.f32 %r3, %f0, 0f3F800000;",
    ] {
        let low = format!("{halves} {body} and.b32 %r4, %r3, 0xffff; st.global.u32 [%x0], %r4;");
        run(&low).unwrap_or_else(|(_, detail)| panic!("{body}: {detail}"));
        let (_, detail) =
            run(&format!("{halves} {body} shr.u32 %r3, %r3, 16;\n    {STORE}")).expect_err(body);
        assert!(detail.contains("the value is stored to global memory (PTX line 18"), "{body}: {detail}");
    }
    // The sign of a byte.
    let byte = "sub.u32 %r3, 0, %r0; st.shared.u8 [%r1+128], %r3; ld.shared.";
    accepts(&format!("{byte}s8 %r3, [%r1+128]; {STORE}"), |lane| lane.wrapping_neg());
    reports(
        &format!("{byte}s16 %r3, [%r1+128]; shr.u32 %r3, %r3, 24; add.u32 %r3, %r3, 0;\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 18: `st.global.u32 [%x0], %r3;`)"],
    );
}

/// Rows of `A` from 4 on are uninitialised: those of the product depend on them, and no others.
#[test]
fn matrices() {
    let product = ".reg .b32 %a<4>, %b<2>, %c<4>; @%p st.shared.b32 [%r1], 0x3c003c00; bar.warp.sync -1; mov.u32 %r6, tile;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a0}, [%r6]; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0;
    mov.b32 %b0, 0x3c003c00; mov.b32 %b1, 0; mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
    cvt.rni.s32.f32 %r3, %c0;";
    let rows = product.replace("ldmatrix", "and.b32 %r5, %r0, 7; mad.lo.u32 %r6, %r5, 16, %r6; ldmatrix");
    accepts(&format!("{rows} @%p st.global.u32 [%x0], %r3;"), |_| 8);
    reports(
        &format!("{rows}\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 22: `st.global.u32 [%x0], %r3;`)"],
    );
    // Every column of the transposed matrix has elements of the last rows.
    let transposed = rows.replace("x1.shared", "x1.trans.shared");
    reports(
        &format!("{transposed}\n    @%p st.global.u32 [%x0], %r3;"),
        expect!["the value is stored to global memory (PTX line 22: `@%p st.global.u32 [%x0], %r3;`)"],
    );
    // Half of a pair of accumulators: column 1 of `B` is uninitialised.
    let halves = rows.replace("f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, ", "f16.f16.f16.f16 {%c0, %c1}, ");
    let halves = halves.replace(
        "{%c0, %c1, %c2, %c3};\n    cvt.rni.s32.f32 %r3, %c0;",
        "{%c0, %c1};\n    mov.b32 %r3, %c0;",
    );
    reports(
        &format!("{halves}\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 22: `st.global.u32 [%x0], %r3;`)"],
    );
    // Integers: a row whose products cancel.
    let integers = ".reg .b32 %c<4>; mov.b32 %c0, 0; mov.b32 %c1, 0; mov.b32 %c2, 0; mov.b32 %c3, 0;
    mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, {%r2, %r2}, {0x00ff0001}, {%c0, %c1, %c2, %c3}; mov.u32 %r3, %c0;";
    reports(
        &format!("{integers}\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 19: `st.global.u32 [%x0], %r3;`)"],
    );
    // Integers: the first rows do not depend on the others. A byte of 0x3c3c3c3c is 60.
    let of_bytes = rows
        .replace("0x3c003c00", "0x3c3c3c3c")
        .replace(
            "m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1},",
            "m16n8k16.row.col.s32.s8.s8.s32 {%c0, %c1, %c2, %c3}, {%a0, %a1}, {%b0},",
        )
        .replace("cvt.rni.s32.f32 %r3, %c0;", "mov.b32 %r3, %c0;");
    accepts(&format!("{of_bytes} @%p st.global.u32 [%x0], %r3;"), |_| 16 * 60 * 60);
    reports(
        &format!("{of_bytes}\n    {STORE}"),
        expect!["the value is stored to global memory (PTX line 22: `st.global.u32 [%x0], %r3;`)"],
    );
    // Matrices are stored with their uninitialised rows, which nothing reads.
    let stored = rows.replace("mov.b32 %a1, 0;", "mov.b32 %a1, 0; add.u32 %r6, %r6, 128; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%a0}; bar.warp.sync -1; ld.shared.b32 %r4, [%r1+128];");
    accepts(&format!("{stored} @%p st.global.u32 [%x0], %r4;"), |_| 0x3c00_3c00);
    reports(
        &format!("{stored}\n    st.global.u32 [%x0], %r4;"),
        expect!["the value is stored to global memory (PTX line 22: `st.global.u32 [%x0], %r4;`)"],
    );
}

/// The target of a copy in flight is uninitialised too, but its read is a mistake whatever becomes of the value.
#[test]
fn reads_of_copies_in_flight_are_findings() {
    let (kind, detail) = run(
        "cvta.to.global.u64 %x1, %data; cp.async.ca.shared.global [%r1], [%x0], 4; ld.shared.u32 %r3, [%r1];",
    )
    .expect_err("the copy was not waited for");
    assert_eq!(kind, FindingKind::AsyncCopy, "{detail}");
}
