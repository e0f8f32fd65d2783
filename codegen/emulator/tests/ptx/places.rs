//! Source lines of a finding: the line of the instruction, and the call sites it was inlined at.

use bespoke_emulator::{Finding, LaunchConfig, Options};
use expect_test::{Expect, expect};

use crate::harness::{HEADER, kernel, launch_with, words};

/// Finding of a kernel that runs on one word of global memory.
fn finding(text: &str, threads: u32) -> Box<Finding> {
    let options = Options { threads: 1, ..Options::default() };
    launch_with(text, LaunchConfig::linear(1, threads), &mut words(1, 0), &options)
        .expect_err("the kernel has a fault")
}

/// Checks the source lines of the finding of an out-of-bounds read after the given `.loc` directives.
#[track_caller]
fn places(locations: &str, expected: &[&str]) {
    let finding = finding(&kernel("", &format!("{locations}\nld.global.u32 %r0, [%data+4];")), 1);
    let chain = finding.source.iter().chain(&finding.inlined_at);
    assert_eq!(chain.map(ToString::to_string).collect::<Vec<_>>(), expected, "{locations}");
}

#[test]
fn call_sites_are_listed_from_the_innermost() {
    places("", &[]);
    places(".loc 1 7 0", &["gemv.rs:7"]);
    places(
        ".loc 1 3 9\n.loc 1 10 5, function_name $L_f1, inlined_at 1 3 9\n\
         .loc 1 20 5, function_name $L_f2, inlined_at 1 10 5",
        &["gemv.rs:20:5", "gemv.rs:10:5", "gemv.rs:3:9"],
    );
    // nvcc and LLVM also print a call site that no earlier `.loc` named, and an offset after the function's name.
    places(
        ".loc\t1 8 5, function_name $L__info_string0, inlined_at 1 20 12",
        &["gemv.rs:8:5", "gemv.rs:20:12"],
    );
    places(".loc 1 8 5, function_name $L__info_string0+6, inlined_at 2 20 0", &["gemv.rs:8:5", "file 2:20"]);
}

#[test]
fn a_call_site_is_the_last_location_with_its_position() {
    let twice = ".loc 1 3 9\n.loc 1 10 5, function_name $L_f1, inlined_at 1 3 9\nmov.u32 %r1, 0;\n\
                 .loc 1 4 9\n.loc 1 10 5, function_name $L_f1, inlined_at 1 4 9\n";
    let inner = ".loc 1 20 5, function_name $L_f2, inlined_at 1 10 5";
    places(&format!("{twice}{inner}"), &["gemv.rs:20:5", "gemv.rs:10:5", "gemv.rs:4:9"]);
    let back = ".loc 1 10 5, function_name $L_f1, inlined_at 1 3 9\n";
    places(&format!("{twice}{back}{inner}"), &["gemv.rs:20:5", "gemv.rs:10:5", "gemv.rs:3:9"]);
    // Location in a function that was inlined into itself.
    let itself = ".loc 1 10 5, function_name $L_f1, inlined_at 1 10 5\n";
    places(&format!("{twice}{itself}"), &["gemv.rs:10:5", "gemv.rs:10:5", "gemv.rs:4:9"]);
}

#[test]
fn ptx_calls_count_as_inlined() {
    let text = format!(
        "{HEADER}.file 1 \"k.cu\"\n
        .func (.reg .b32 %v) second(.reg .b64 %at) {{ .loc 1 30 3\n ld.global.u32 %v, [%at];\nret; }}
        .func (.reg .b32 %v) first(.reg .b64 %at) {{\n.loc 1 21 5, function_name $L_f1, inlined_at 1 20 5
            call (%v), second, (%at); ret; }}
        .visible .entry kernel(.param .u64 data) {{
            .reg .b32 %r0; .reg .b64 %x; ld.param.u64 %x, [data];\n.loc 1 10 7\ncall (%r0), first, (%x);
            add.u64 %x, %x, 4;\n.loc 1 11 7\ncall (%r0), first, (%x); ret; }}"
    );
    let finding = finding(&text, 1);
    let chain = finding.source.iter().chain(&finding.inlined_at);
    let chain: Vec<_> = chain.map(ToString::to_string).collect();
    assert_eq!(chain, ["k.cu:30:3", "k.cu:21:5", "k.cu:20:5", "k.cu:11:7"]);
}

#[test]
fn both_accesses_of_a_race_have_call_sites() {
    let shows = |body: &str, expected: Expect| {
        expected.assert_eq(&finding(&kernel("", body), 2).to_string());
    };
    shows(
        ".shared .b32 cell; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0;
        .loc 1 3 9\n.loc 1 10 5, function_name $L_f1, inlined_at 1 3 9\n@%p st.shared.u32 [cell], 1;
        .loc 1 4 9\n.loc 1 10 5, function_name $L_f1, inlined_at 1 4 9\n@!%p st.shared.u32 [cell], 2;",
        expect![
            "race in kernel `kernel` at gemv.rs:10, inlined at gemv.rs:4:9 (PTX line 19: `@!%p st.shared.u32 [cell], 2;`) by thread (1, 0, 0) of CTA (0, 0, 0): 4-byte store to shared memory around 0x0: no happens-before relation to the earlier access; the access is inside `cell` (0x0, 4 bytes); the other is the write at gemv.rs:10, inlined at gemv.rs:3:9 (PTX line 16: `@%p st.shared.u32 [cell], 1;`) by thread (0, 0, 0) of CTA (0, 0, 0)"
        ],
    );
}
