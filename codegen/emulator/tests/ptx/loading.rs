//! What is refused when a module is loaded, and what is accepted.

use bespoke_emulator::Module;
use expect_test::{Expect, expect};

use crate::harness::{HEADER, kernel};

#[track_caller]
fn refuses(body: &str, expected: Expect) {
    let error = Module::parse(&kernel("", body)).expect_err("the kernel is wrong");
    expected.assert_eq(&error.to_string());
}

#[test]
fn unknown_names() {
    refuses(
        "    frobnicate.u32 %r0, %r1;",
        expect!["PTX line 13, column 5: unknown instruction `frobnicate`"],
    );
    refuses(
        "    add.u32.wide %r0, %r1, %r2;",
        expect!["PTX line 13, column 5: `%r0` has 32 bits where `add.u32.wide` needs 64"],
    );
    refuses(
        "    add.rn.u32 %r0, %r1, %r2;",
        expect!["PTX line 13, column 5: unknown or misplaced modifier `.rn` of `add.rn.u32`"],
    );
    refuses("    mov.u32 %r0, %r99;", expect!["PTX line 13, column 18: unknown register `%r99`"]);
    refuses("    mov.u32 %r0, nowhere;", expect!["PTX line 13, column 5: unknown name `nowhere`"]);
    refuses("    bra NOWHERE;", expect!["PTX line 13, column 5: unknown label `NOWHERE`"]);
    refuses("    .local .b32 x;", expect!["PTX line 13, column 5: unsupported directive `.local`"]);
}

#[test]
fn wrong_operands() {
    refuses(
        "    add.u32 %r0, %r1, %x0;",
        expect!["PTX line 13, column 5: `%x0` has 64 bits where `add.u32` needs 32"],
    );
    refuses("    add.u32 %r0, %r1;", expect!["PTX line 13, column 5: `add.u32` needs more than 2 operands"]);
    refuses("    add.u32 %r0, %r1, %r2, %r3;", expect!["PTX line 13, column 5: `add.u32` takes 3 operands"]);
    refuses(
        "    add.u32 5, %r1, %r2;",
        expect!["PTX line 13, column 5: operand 1 of `add.u32` must be a register"],
    );
    refuses(
        "    ld.global.u32 %r0, [%r1];",
        expect!["PTX line 13, column 5: `ld.global.u32` needs a 64-bit address"],
    );
    refuses(
        "    ld.param.u64 %x0, [data+4];",
        expect!["PTX line 13, column 5: the parameter access is misaligned or outside the parameters"],
    );
    refuses("    @%r0 bra NOWHERE;", expect!["PTX line 13, column 10: `%r0` is not a predicate register"]);
    refuses(
        "    cvt.f16.f32 %h0, %f0;",
        expect!["PTX line 13, column 5: wrong rounding modifier in `cvt.f16.f32`"],
    );
    refuses("    add.f32 %f0, %f1, 2;", expect!["PTX line 13, column 5: integer 2 where a float is needed"]);
}

#[test]
fn syntax() {
    refuses("    add.u32 %r0, %r1 %r2;", expect!["PTX line 13, column 22: expected `;`, found `%r2`"]);
    refuses("    mov.u32 %r0, 0x1G;", expect!["PTX line 13, column 22: malformed or too large integer `1G`"]);
    refuses(
        "    mov.u32 %r0, \"x\";",
        expect!["PTX line 13, column 18: expected an operand, found a string"],
    );
    refuses("    /* open", expect!["PTX line 13, column 5: unterminated comment"]);
    refuses("    A: A: ret;", expect!["PTX line 13, column 8: label `A` is defined twice"]);
    let error = Module::parse(".version 8.0 .target sm_90 .address_size 32").expect_err("32 bits");
    expect!["PTX line 1, column 42: only 64-bit addresses are supported"].assert_eq(&error.to_string());
    let error = Module::parse(&format!("{HEADER}.visible .func f() {{ ret; }}")).expect_err("a function");
    expect!["PTX line 4, column 10: unsupported directive `.func`"].assert_eq(&error.to_string());
}

#[test]
fn everything_around_kernels() {
    let text = format!(
        "//\n// Generated\n//\n{HEADER}\n.file 1 \"a/b.rs\", 12, 34\n/* a\n comment */
        .extern .shared .align 16 .b8 pool[];
        .visible .entry first(\n .param .u64 first_param_0,\n .param .align 4 .b8 first_param_1[12]\n)
        .maxntid 128, 1, 1\n.minnctapersm 2\n.maxnreg 64\n.pragma \"nounroll\";
        {{ .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b32 %r<5>, %single;
        .loc 1 4 0
        mov.u32 %r1, %ctaid.x;
        .loc 1 5 9, function_name $L__info_string0, inlined_at 1 4 0
        $L__BB0_1: .pragma \"nounroll\"; setp.lt.s32 %p1, %r1, 010; @%p1 bra $L__BB0_1;
        ret; }}
        .entry second() {{ ret; }}
        .section .debug_str {{ $L__info_string0: .b8 95,90,0 }}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = module.kernels().map(|kernel| kernel.name().to_string()).collect();
    assert_eq!(names, ["first", "second"]);
    let first = module.kernel("first").expect("declared");
    assert_eq!(first.maxntid(), Some([128, 1, 1]));
    assert_eq!((first.param_bytes(), first.static_shared_bytes(), first.instruction_count()), (20, 0, 5));
    assert!(module.kernel("third").is_none());
}
