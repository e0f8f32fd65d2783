//! Numeric checks: non-finite results, and address computations that overflow.

use bespoke_emulator::{Checks, Finding, FindingKind, LaunchConfig, Options};
use expect_test::expect;

use crate::harness::{kernel, launch_with, words};

fn run(body: &str, data: &mut [u32], checks: Checks) -> Result<(), Box<Finding>> {
    let options = Options { checks, ..Options::default() };
    launch_with(&kernel("", body), LaunchConfig::linear(1, 1), data, &options).map(|_| ())
}

/// Kind and detail of the finding, if any, of one thread that runs `instruction` with values in `%f0` and `%f1`.
fn value(instruction: &str, [a, b]: [f32; 2]) -> Option<(FindingKind, String)> {
    let body = format!("ld.global.f32 %f0, [%data]; ld.global.f32 %f1, [%data+4];\n{instruction}");
    let mut data = [a.to_bits(), b.to_bits()];
    let checks = Checks { values: true, ..Checks::NONE };
    assert!(run(&body, &mut data.clone(), Checks::default()).is_ok());
    run(&body, &mut data, checks).err().map(|finding| (finding.kind, finding.detail))
}

#[test]
fn the_first_instruction_with_a_non_finite_result_is_found() {
    let found = |instruction: &str, operands: [f32; 2]| {
        let (kind, detail) = value(instruction, operands).expect("not finite");
        assert_eq!(kind, FindingKind::NotFinite);
        detail
    };
    expect!["the result is inf, of finite operands 3e38, 2e0"]
        .assert_eq(&found("mul.f32 %f2, %f0, %f1;", [3e38, 2.0]));
    expect!["the result is inf, of finite operands 0e0"]
        .assert_eq(&found("rcp.approx.f32 %f2, %f0;", [0.0, 0.0]));
    expect!["the result is NaN, of finite operands -1e0"]
        .assert_eq(&found("sqrt.rn.f32 %f2, %f0;", [-1.0, 0.0]));
    expect!["the result is -inf, of finite operands 0e0"]
        .assert_eq(&found("lg2.approx.f32 %f2, %f0;", [0.0, 0.0]));
    // Non-finite results of non-finite operands are not reported; neither are saturated results.
    assert_eq!(value("mul.f32 %f2, %f0, %f1;", [f32::INFINITY, 2.0]), None);
    assert_eq!(value("add.f32 %f2, %f0, %f1;", [f32::NAN, 2.0]), None);
    assert_eq!(value("mul.sat.f32 %f2, %f0, %f1;", [3e38, 2.0]), None);
    assert_eq!(value("mul.f32 %f2, %f0, %f1;", [3e38, 0.5]), None);
    // The check also works if the destination is an operand.
    assert!(value("mul.f32 %f0, %f0, %f1;", [3e38, 2.0]).is_some());
}

/// Whether an overflowed address is reported if `index` computes the index `%r2` from `a` in `%r0` and `b` in `%r1`.
fn wraps(index: &str, [a, b]: [u32; 2]) -> bool {
    let body = format!(
        "ld.global.u32 %r0, [%data+4]; ld.global.u32 %r1, [%data+8];\n{index}
        mul.wide.u32 %x0, %r2, 4; add.u64 %x0, %x0, %data; ld.global.u32 %r5, [%x0];"
    );
    let mut data = words(64, 1);
    (data[1], data[2]) = (a, b);
    let checks = Checks { overflow: true, ..Checks::NONE };
    match run(&body, &mut data, checks) {
        Ok(()) => false,
        Err(finding) => {
            assert_eq!(finding.kind, FindingKind::WrappedAddress, "{finding}");
            true
        }
    }
}

#[test]
fn indices_that_wrap() {
    assert!(wraps("mul.lo.u32 %r2, %r0, %r1;", [1 << 31, 2]));
    assert!(wraps("mad.lo.s32 %r2, %r0, %r1, 5;", [1 << 16, 1 << 16]));
    assert!(wraps("shl.b32 %r2, %r0, 28;", [32, 0]));
    assert!(wraps("mul.lo.u32 %r3, %r0, %r1; add.u32 %r2, %r3, 4;", [1 << 30, 4]));
    // No report: the result is exact as a signed or as an unsigned number.
    assert!(!wraps("add.u32 %r2, %r0, %r1;", [7, u32::MAX]));
    assert!(!wraps("sub.u32 %r3, %r0, %r1; add.s32 %r2, %r3, 4;", [1, 3]));
    assert!(!wraps("mul.lo.s32 %r3, %r0, %r1; sub.s32 %r2, 0, %r3;", [u32::MAX, 5]));
    // No report: an overflowed hash is masked or shifted afterwards.
    assert!(!wraps("mul.lo.u32 %r3, %r0, %r1; and.b32 %r2, %r3, 31;", [0x9e37_79b9, 77]));
    assert!(!wraps("mul.lo.u32 %r3, %r0, %r1; shr.u32 %r2, %r3, 27;", [0x9e37_79b9, 77]));
    // No report: the overflowed register gets a new value.
    assert!(!wraps("mul.lo.u32 %r2, %r0, %r1; ld.global.u32 %r2, [%data];", [1 << 31, 2]));
}

#[test]
fn results_that_lanes_exchange_between_two_places_replace_a_wrapped_one() {
    let body =
        "mov.u32 %r0, %laneid; mov.u32 %r1, 0x40000000; mul.lo.u32 %r2, %r1, 4; setp.lt.u32 %p, %r0, 16;
        @%p bra BELOW; redux.sync.min.u32 %r2, %r0, -1; bra END; BELOW: redux.sync.min.u32 %r2, %r0, -1;
        END: mul.wide.u32 %x0, %r2, 4; add.u64 %x0, %x0, %data; ld.global.u32 %r5, [%x0];";
    let options = Options { checks: Checks { overflow: true, ..Checks::NONE }, ..Options::default() };
    let run =
        |body: &str| launch_with(&kernel("", body), LaunchConfig::linear(1, 32), &mut words(64, 1), &options);
    assert!(run(body).is_ok());
    let unused = body.replace("redux.sync.min.u32 %r2", "redux.sync.min.u32 %r3");
    assert_eq!(run(&unused).expect_err("an address wrapped").kind, FindingKind::WrappedAddress);
}
