//! Texts that would take more time or memory than a machine has.

use std::fmt::Write;

use bespoke_emulator::{FindingKind, LaunchConfig, Module, ParseErrorKind};
use expect_test::{Expect, expect};

use crate::harness::{HEADER, kernel, launch, words};

/// A module with a kernel `k`, which calls the last of `count` functions. Function `f{i}` calls the one before `times`
/// times.
fn calls(count: usize, times: usize) -> String {
    let mut text = format!("{HEADER}.func f0() {{ ret; }}\n");
    for index in 1..count {
        let body = format!("call f{}; ", index - 1).repeat(times);
        let _ = writeln!(text, ".func f{index}() {{ {body}ret; }}");
    }
    text + &format!(".visible .entry k() {{ call f{}; ret; }}\n", count - 1)
}

/// The messages of all errors of a text, one a line.
fn errors(text: &str) -> String {
    let errors = Module::load(text).expect_err("the text has errors");
    errors.iter().map(|error| format!("{}: {error}\n", error.kind)).collect()
}

#[track_caller]
fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&errors(text));
}

#[test]
fn calls_that_double_at_every_step() {
    refused(
        &calls(40, 2),
        expect![[r#"
        unsupported: PTX line 44, column 23: `k` has 5497558138878 instructions and declarations with its calls inlined (k → f39 → f38 → … → f2 → f1 → f0); the emulator inlines up to 262144 in a module: call fewer functions, or load fewer kernels at once
    "#]],
    );
    // The sum over all kernels counts.
    let many = calls(13, 2)
        + &(0..40).map(|at| format!(".entry k{at}() {{ call f12; ret; }}\n")).collect::<String>();
    assert!(errors(&many).contains("the emulator inlines up to 262144 in a module"));
    Module::parse(&calls(10, 2)).expect("it is small");
}

#[test]
fn deep_calls_are_not_recursion() {
    Module::parse(&calls(64, 1)).expect("64 calls are active at once");
    refused(
        &calls(65, 1),
        expect![[r#"
        unsupported: PTX line 5, column 14: 65 calls are active at once (k → f64 → f63 → … → f2 → f1 → f0); the emulator inlines up to 64
    "#]],
    );
    refused(
        &calls(100_000, 1),
        expect![[r#"
        unsupported: PTX line 99940, column 18: 65 calls are active at once (k → f99999 → f99998 → … → f99937 → f99936 → f99935); the emulator inlines up to 64
    "#]],
    );
    let recursive =
        ".func g();\n.func f() { call g; ret; }\n.func g() { call f; ret; }\n.entry k() { call f; ret; }";
    refused(
        &format!("{HEADER}{recursive}"),
        expect![[r#"
        unsupported: PTX line 6, column 13: `f` calls itself (f → g → f); the emulator does not support recursion
    "#]],
    );
}

#[test]
fn branch_lists_that_multiply() {
    let list = vec!["L"; 4000].join(", ");
    let body = format!("L: ret;\nlist: .branchtargets {list};\n{}", "brx.idx %r0, list;\n".repeat(4000));
    let text = errors(&format!("{HEADER}.entry k() {{ .reg .b32 %r<2>; {body} }}"));
    assert!(text.contains("expands `brx.idx` to up to 262144 instructions in a function"), "{text}");
}

#[test]
fn errors_are_capped() {
    let text = format!("{HEADER}.entry k() {{\n{} }}", "frob.u32 %r1;\n".repeat(100_000));
    let errors = Module::load(&text).expect_err("every line is wrong");
    assert_eq!(errors.len(), Module::MAX_ERRORS);
    let last = errors.last().expect("there are some");
    assert_eq!(
        (last.line, last.message.as_str()),
        (1004, "99001 more errors from here on; correct the first ones")
    );
}

/// Each of these took minutes when its time grew with the square of the text.
#[test]
fn long_texts_take_linear_time() {
    let many = |line: &dyn Fn(usize) -> String| (0..50_000).map(line).collect::<String>();
    let in_kernel =
        |body: String| format!("{HEADER}.entry k() {{ .reg .pred %p; .reg .b32 %r<4>;\n{body}ret; }}");
    for text in [
        in_kernel(many(&|_| "bra NOWHERE;\n".to_owned())),
        in_kernel(many(&|at| format!(".reg .b32 %a{at}x<2>;\n"))),
        in_kernel(many(&|at| format!("@%p bra L{at}; ret; L{at}:\n"))),
        in_kernel("{".repeat(50_000) + &"}".repeat(50_000)),
        many(&|at| format!(".shared .b8 s{at}[4];\n"))
            + &in_kernel(many(&|_| "mov.u32 %r1, %r2;\n".to_owned())),
    ] {
        // Whether a text is valid does not matter here.
        let _ = Module::load(&text);
    }
}

#[test]
fn large_variables() {
    refused(
        &format!("{HEADER}.global .b8 a[200000000];\n.global .b8 b[200000000];\n.entry k() {{ ret; }}"),
        expect![[r#"
            unsupported: PTX line 5, column 13: the variables up to `b` are larger than the 268435456 bytes that the emulator supports
        "#]],
    );
}

#[test]
fn versions_that_do_not_exist() {
    for (version, exists) in [
        ("6.5", true),
        ("7.8", true),
        ("8.8", true),
        ("9.0", true),
        ("9.5", true),
        ("7.9", false),
        ("8.9", false),
        ("10.0", false),
        ("999.0", false),
        ("0.5", false),
    ] {
        let text = format!(".version {version}\n.target sm_75\n.address_size 64\n.entry k() {{ ret; }}");
        let errors = Module::load(&text).err().unwrap_or_default();
        let refused = errors.iter().any(|error| {
            error.kind == ParseErrorKind::Target && error.message.contains("there is no PTX version")
        });
        assert_eq!(refused, !exists, "{version}: {errors:?}");
    }
}

#[test]
fn the_last_addresses_are_outside_of_everything() {
    for (address, outside) in [("0xffffffffffffffff", "far past the end of `data`"), ("0", "bytes before")] {
        let body = format!("mov.u64 %x0, {address}; ld.global.u8 %r0, [%x0];");
        let finding = launch(&kernel("", &body), LaunchConfig::linear(1, 1), &mut words(1, 0));
        let finding = finding.expect_err("nothing is there");
        assert_eq!(finding.kind, FindingKind::OutOfBounds);
        assert!(finding.to_string().contains(outside), "{finding}");
    }
}

/// Alignment counts, and guard zones do not.
#[test]
fn local_memory_is_bounded() {
    let variables = |count: usize, declaration: &str| {
        let all: String = (0..count).map(|index| format!(".local {declaration} v{index}[8];\n")).collect();
        kernel("", &all)
    };
    refused(
        &variables(600, ".align 1024 .b8"),
        expect![[r#"
        target: PTX line 12, column 1: 613392 bytes of local memory are more than 524288
    "#]],
    );
    assert!(Module::load(&variables(30, ".align 8 .b8")).is_ok());
    assert!(Module::load(&variables(60_000, ".align 8 .b8")).is_ok());
}
