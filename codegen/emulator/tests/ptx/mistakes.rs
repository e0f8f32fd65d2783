//! Errors in PTX texts, with kind, line and column.

use bespoke_emulator::Module;
use expect_test::{Expect, expect};

/// Checks all errors of a PTX text, including their order.
#[track_caller]
fn finds(text: &str, expected: Expect) {
    let errors = Module::load(text).err().unwrap_or_default();
    let lines = errors.iter().map(|error| {
        let bespoke_emulator::ParseError { kind, line, column, message } = error;
        format!("{line}:{column} {kind}: {message}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// PTX text for sm_80 and PTX 7.0 with a kernel whose statements start at line 6.
fn body(statements: &str) -> String {
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 data) {{\n\
         .reg .b32 %r<4>; .reg .b64 %x<4>; .reg .pred %p; .reg .b16 %h<4>;\n{statements}\nret;\n}}\n"
    )
}

#[test]
fn undefined_names() {
    finds(
        &body(
            "add.u32 %r0, %r1, %r7;\n@%q bra OUT;\nmov.u32 %r0, nothing;\ncall sqrt, (%r0);\nbra.uni IN;\nld.param.u64 %x0, [more];",
        ),
        expect![[r#"
            6:19 undefined: in `add.u32`: unknown register `%r7`
            7:2 undefined: unknown register `%q`
            8:1 undefined: unknown name `nothing`
            9:1 undefined: unknown function `sqrt`
            10:1 undefined: unknown label `IN`
            11:1 undefined: unknown name `more`
        "#]],
    );
    finds(
        &body("brx.idx %r0, LIST;\nL: .branchtargets A;\nbrx.idx %r0, L;"),
        expect![[r#"
            6:1 undefined: unknown list of targets `LIST`
            8:1 undefined: unknown label `A`
        "#]],
    );
}

#[test]
fn redefined_names() {
    finds(
        &body(
            ".reg .b32 %r3;\n.reg .b64 %x<2>;\n.reg .b32 %s3, %s3;\n.reg .b32 %s<9>;\nL: L:\n.reg .b16 data;\n.shared .b32 L;",
        ),
        expect![[r#"
            6:11 redefined: register `%r3` is declared twice, first on line 5
            7:11 redefined: register `%x<…>` is declared twice, first on line 5
            8:16 redefined: register `%s3` is declared twice, first on line 8
            9:11 redefined: register `%s3` is declared twice, first on line 8
            10:4 redefined: label `L` is declared twice, first on line 10
            11:11 redefined: register `data` is declared twice, first on line 4
            12:14 redefined: variable `L` is declared twice, first on line 10
        "#]],
    );
    // An inner scope may redeclare names of an outer scope.
    finds(&body("L: { .reg .b32 %r<2>, data; L: bra L; }"), expect![[""]]);
    finds(
        ".version 7.0\n.target sm_80\n.extern .shared .b8 pool[];\n.extern .shared .b8 pool[];\n.global .u32 g;\n\
         .entry g() { ret; }\n.func f(.reg .b32 a, .reg .b32 a);\n.func f(.reg .b32 a) { ret; }\n.func f(.reg .b32 a) { ret; }\n\
         .entry g() { ret; }\n",
        expect![[r#"
            6:8 redefined: kernel `g` is declared twice, first on line 5
            7:32 redefined: parameter `a` is declared twice, first on line 7
            9:7 redefined: function `f` is declared twice, first on line 8
            10:8 redefined: kernel `g` is declared twice, first on line 5
        "#]],
    );
}

#[test]
fn syntax_errors() {
    finds(
        &body(
            "frobnicate.u32 %r0;\nadd.u33 %r0, %r1, %r2;\nadd.rn.u32 %r0, %r1, %r2;\nadd.u32 %r0, %r1 %r2;\nmov.u32 %r0, %tid;\nbar.synch 0;",
        ),
        expect![[r#"
            6:1 syntax: unknown instruction `frobnicate`
            7:1 syntax: in `add.u33`: no type `.u33`
            8:1 syntax: unknown or misplaced modifier `.rn` of `add.rn.u32`
            9:18 syntax: expected `;`, found `%r2`
            10:14 syntax: in `mov.u32`: `%tid` has components: `%tid.x`, `.y` and `.z`
            11:1 syntax: no instruction has the form `bar.synch`
        "#]],
    );
    // The error after which parsing cannot continue is the last.
    finds(
        &body("mov.u32 %r0, %r9;\n.rag .b32 %s;\nmov.u32 %r0, %r9;"),
        expect![[r#"
            6:14 undefined: in `mov.u32`: unknown register `%r9`
            7:1 syntax: unknown directive `.rag`
        "#]],
    );
    finds(
        &body("mov.u32 %r0, 12x;"),
        expect![[r#"
            6:14 syntax: malformed number `12x`
        "#]],
    );
}

#[test]
fn wrong_operands() {
    finds(
        &body(
            "add.u32 %r0, %r1, %x0;\nadd.u32 %r0, %r1;\nadd.u32 %r0, %r1, %r2, %r3;\n@%r0 ret;\nst.u32 [%h0], %r0;\n\
             setp.eq.u32 %r0, %r1, %r2;\nadd.u32 %r0, %r1, %p;\nst.u32 [%x0], {%r0, %r1};",
        ),
        expect![[r#"
            6:1 operand: `%x0` has 64 bits where `add.u32` needs 32
            7:1 operand: `add.u32` needs more than 2 operands
            8:1 operand: `add.u32` takes 3 operands
            9:2 operand: `%r0` is not a predicate register
            10:1 operand: `%h0` has 16 bits where `st.u32` needs 64
            11:1 operand: `%r0` must be a predicate in `setp.eq.u32`
            12:1 operand: `%p` is a predicate where `add.u32` needs 32 bits
            13:1 operand: `st.u32` takes 1 element
        "#]],
    );
}

#[test]
fn unsupported_instructions() {
    finds(
        &body(
            "tex.2d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%x0, {%r0, %r1}];\n\
             @%p cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%x0, {%r0, %r1}], [%r1];\n\
             mov.b128 {%x0, %x1}, %x2;\nmov.u32 %r0, %envreg1;\nmma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0}, {%r1}, {%r2}, {%r3};",
        ),
        expect![[r#"
            6:1 unsupported: the emulator does not support `tex.2d.v4.f32.s32`
            7:5 target: `cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes` needs `.target` sm_90 and `.version` 7.8 or later, but the text names sm_80 and 7.0
            8:1 operand: `mov.b128` needs registers of 128 bits
            10:1 unsupported: the emulator does not support `mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32`
        "#]],
    );
}

#[test]
fn missing_and_misplaced_headers() {
    finds(
        ".entry k() { ret; }",
        expect![[r#"
            1:1 syntax: `.version` and `.target` are missing: a PTX text starts with them
        "#]],
    );
    finds(
        "// A comment.\n.target sm_80\n.entry k() { ret; }",
        expect![[r#"
            2:1 syntax: `.version` is missing: a PTX text starts with it
        "#]],
    );
    finds(
        ".version 8.0\n.address_size 64\n.entry k() { ret; }",
        expect![[r#"
            2:1 syntax: `.target` is missing after `.version`
        "#]],
    );
    finds(
        ".version 8.0\n.target sm_80, debug\n.version 8.0\n.entry k() { ret; }",
        expect![[r#"
            3:1 syntax: `.version` may only be the first directive
        "#]],
    );
    finds(
        ".version 8\n.target sm_80\n",
        expect![[r#"
            1:10 syntax: expected a version, such as `8.0`, found `8`
        "#]],
    );
    finds(
        ".version 8.0\n.target sm_91\n",
        expect![[r#"
            2:9 target: unknown target `sm_91`
        "#]],
    );
    finds(
        ".version 7.0\n.target sm_90\n",
        expect![[r#"
            2:9 target: `sm_90` needs `.version` 7.8 or later, but the text names 7.0
        "#]],
    );
}

#[test]
fn instructions_above_the_target_or_version() {
    finds(
        &body(
            "cp.async.bulk.commit_group;\nredux.sync.add.u32 %r0, %r1, -1;\nmov.u32 %r0, %cluster_ctarank;\nszext.wrap.u32 %r0, %r1, %r2;\nshfl.up.b32 %r0, %r1, %r2, %r3;",
        ),
        expect![[r#"
            6:1 target: `cp.async.bulk.commit_group` needs `.target` sm_90 and `.version` 8.0 or later, but the text names sm_80 and 7.0
            8:1 target: `mov.u32` needs `.target` sm_90 and `.version` 7.8 or later, but the text names sm_80 and 7.0
            9:1 target: `szext.wrap.u32` needs `.version` 7.6 or later, but the text names 7.0
            10:1 target: `shfl.up.b32` needs `.sync` for sm_70 or later as of PTX 6.4
        "#]],
    );
    finds(
        ".version 9.0\n.target sm_90\n.entry k() .explicitcluster { setmaxnreg.inc.sync.aligned.u32 64; ret; }\n\
         .target sm_80\n.entry l() .reqnctapercluster 2 { ret; }\n",
        expect![[r#"
            3:31 target: `setmaxnreg.inc.sync.aligned.u32` needs `.target` sm_90a, or another target that ends in `a` or `f`, but the text names sm_90
            5:12 target: `.reqnctapercluster` needs `.target` sm_90 or later, but the text names sm_80
        "#]],
    );
    // sm_90 got 8-bit floats in an earlier PTX version than sm_89.
    let small = |target: &str, version: &str| {
        format!(
            ".version {version}\n.target {target}\n.entry k() {{\n.reg .b32 %r<3>; .reg .b16 %h;\n\
             cvt.rn.satfinite.e4m3x2.f32 %h, %r1, %r2;\nret;\n}}\n"
        )
    };
    finds(&small("sm_90", "7.8"), expect![[""]]);
    finds(
        &small("sm_89", "8.0"),
        expect![[r#"
            5:1 target: `cvt.rn.satfinite.e4m3x2.f32` needs `.version` 8.1 or later, but the text names 8.0
        "#]],
    );
}

#[test]
fn unsupported_declarations_and_operands() {
    finds(
        ".version 7.0\n.target sm_80\n.address_size 64\n.func f() { ret; }\n.global .u32 g;\n.global .u64 a = g;\n\
         .global .u64 b[2] = {g, generic(g)};\n.global .u32 c[2] = {1+1, -(3)};\n.global .u32 d[] = {1, 2, 3};\n\
         .global .u8 e[8] = {0xff(g)};\n.global .u32 f[2][3];\n.global .u32 h;\n.global .u32 h;\n.global .attribute(.shared) .u32 i;\n",
        expect![[r#"
            10:25 unsupported: the emulator does not support single bytes of an address as initial values
            11:14 redefined: variable `f` is declared twice, first on line 4
            13:14 redefined: variable `h` is declared twice, first on line 12
            14:20 unsupported: the emulator does not support the attribute `.shared` of a variable
        "#]],
    );
    finds(
        ".version 7.0\n.target sm_80\n.address_size 64\n.func f() { ret; }\n\
         .entry k() {\n.reg .b64 %x<2>;\nmov.u64 %x0, f;\nmov.u64 %x0, k;\nmov.u64 %x0, %y;\nret;\n}\n",
        expect![[r#"
            8:1 unsupported: the emulator does not support addresses of kernels, such as `k`
            9:14 undefined: in `mov.u64`: unknown register `%y`
        "#]],
    );
    finds(
        &body("max.f32 %r0, %r1, %r2, %r3;\natom.global.cta.exch.b128 %x0, [%x0], %x1;"),
        expect![[r#"
            6:1 unsupported: the emulator does not support `max.f32` with three sources
            7:1 operand: `atom.global.cta.exch.b128` needs registers of 128 bits
        "#]],
    );
    finds(
        ".version 9.9\n.target sm_130\n.entry k() { ret; }",
        expect![[r#"
            2:9 unsupported: the emulator does not know the target `sm_130`
        "#]],
    );
    finds(
        ".version 6.3\n.target sm_75\n.entry k() {\n.reg .b32 %r<4>;\nshfl.up.b32 %r0, %r1, %r2, %r3;\nret; }",
        expect![[r#"
            5:1 unsupported: the emulator does not support `shfl.up.b32`
        "#]],
    );
}

#[test]
fn missing_modifiers() {
    finds(
        &body(
            "mul.u32 %r0, %r1, %r2;\nmad.s32 %r0, %r1, %r2, %r3;\nmad.cc.u32 %r0, %r1, %r2, %r3;\n\
             madc.u32 %r0, %r1, %r2, %r3;\nmul24.u32 %r0, %r1, %r2;\nadd.lo.u32 %r0, %r1, %r2;\n\
             div.f32 %r0, %r1, %r2;\ndiv.ftz.f32 %r0, %r1, %r2;\ndiv.f64 %x0, %x1, %x2;\nfma.f32 %r0, %r1, %r2, %r3;\n\
             fma.f64 %x0, %x1, %x2, %x3;\nmad.f32 %r0, %r1, %r2, %r3;\nfma.f16 %h0, %h1, %h2, %h3;\nmul.f32 %r0, %r1, %r2;",
        ),
        expect![[r#"
            6:1 syntax: `mul.u32` needs `.lo`, `.hi` or `.wide`
            7:1 syntax: `mad.s32` needs `.lo`, `.hi` or `.wide`
            8:1 syntax: `mad.cc.u32` needs `.lo` or `.hi`
            9:1 syntax: `madc.u32` needs `.lo` or `.hi`
            10:1 syntax: `mul24.u32` needs `.lo` or `.hi`
            11:1 syntax: unknown or misplaced modifier `.lo` of `add.lo.u32`
            12:1 syntax: `div.f32` needs `.approx`, `.full` or a rounding mode
            13:1 syntax: `div.ftz.f32` needs `.approx`, `.full` or a rounding mode
            14:1 syntax: `div.f64` needs a rounding mode
            15:1 syntax: `fma.f32` needs a rounding mode
            16:1 syntax: `fma.f64` needs a rounding mode
            17:1 syntax: `mad.f32` needs a rounding mode
            18:1 syntax: `fma.f16` needs `.rn`
        "#]],
    );
}

#[test]
fn malformed_assumptions() {
    finds(
        &body("//@ assume.gt.u32 %r0, 1;\n"),
        expect![[r#"
        6:1 syntax: unknown assumption `assume.gt.u32`
    "#]],
    );
    finds(
        &body("//@ assume.le.f32 %r0, 1;\n"),
        expect![[r#"
        6:1 syntax: unknown assumption `assume.le.f32`
    "#]],
    );
    finds(
        &body("//@ assume.le.u32 %r9, 1;\n"),
        expect![[r#"
        6:19 undefined: unknown register `%r9`
    "#]],
    );
    finds(
        &body("//@ assume.le.u32 %r1;\n"),
        expect![[r#"
        6:22 syntax: expected `,`, found `;`
    "#]],
    );
}

#[test]
fn constant_expressions() {
    finds(
        &body(
            "mov.u32 %r0, 1+;\nmov.u32 %r0, 4*(2+1;\nmov.u32 %r0, 1 < < 4;\nmov.f32 %r0, 1.5+1;\nadd.u32 %r0, %r1, 7/(3-3);\n\
             ld.global.u32 %r0, [%x0+1.5];\nmov.u32 %r0, 1?2;\nmov.b64 %x0, {1+1, %r9};\nmov.u32 %r0, 7%3;\nmov.f32 %r0, 0f3F800000*2.0;\n\
             mov.f32 %r0, (0f3F800000);\nmov.f32 %r0, ~1.5;\nmov.f32 %r0, 7.5 % 2.0;\nmov.f32 %r0, 1.5?2.0:3.0;\nmov.f32 %r0, 1+1;\n\
             ld.global.u32 %r0, [%x0-(4)];\nmov.u32 %r0, %r1+1;\nmov.u64 %x0, (.u32)1;\nmov.u64 %x0, (.s64)1.5;\nmov.u32 %r0, 1?2:3.0;",
        ),
        expect![[r#"
            6:16 syntax: in `mov.u32`: expected a constant, found `;`
            7:20 syntax: in `mov.u32`: expected `)`, found `;`
            8:18 syntax: in `mov.u32`: expected a constant, found `<`
            9:17 operand: in `mov.f32`: a constant expression cannot mix integers and floats
            10:20 operand: in `add.u32`: division by zero in a constant expression
            11:25 operand: in `ld.global.u32`: an offset must be an integer
            12:17 syntax: in `mov.u32`: expected `:`, found `;`
            13:20 undefined: in `mov.b64`: unknown register `%r9`
            14:15 syntax: expected `;`, found `%3`
            15:24 operand: in `mov.f32`: a single-precision literal cannot be part of a constant expression
            16:14 operand: in `mov.f32`: a single-precision literal cannot be part of a constant expression
            17:14 operand: in `mov.f32`: `~` takes integers, not floats
            18:18 operand: in `mov.f32`: `%` takes integers, not floats
            19:17 operand: in `mov.f32`: the condition of `?:` must be an integer
            20:1 operand: integer 2 where a float is needed
            21:25 syntax: in `ld.global.u32`: expected an offset, found `(`
            22:17 syntax: expected `;`, found `+`
            23:15 syntax: in `mov.u64`: expected a constant, found `.u32`
            24:14 operand: in `mov.u64`: the cast `(.s64)` takes an integer
            25:15 operand: in `mov.u32`: a constant expression cannot mix integers and floats
        "#]],
    );
    let nested =
        |levels: usize| body(&format!("mov.u32 %r0, {}1{};", "(".repeat(levels), ")".repeat(levels)));
    finds(&nested(64), expect![]);
    finds(
        &nested(100_000),
        expect![[r#"
        6:79 unsupported: in `mov.u32`: the emulator supports constant expressions of up to 64 levels
    "#]],
    );
    let negated = format!("mov.u32 %r0, {}1;", "- ".repeat(100_000));
    finds(
        &body(&negated),
        expect![[r#"
        6:144 unsupported: in `mov.u32`: the emulator supports constant expressions of up to 64 levels
    "#]],
    );
    finds(
        ".version 7.0\n.target sm_80\n.address_size 64\n.global .u64 a[2];\n.global .u64 b = a+1.5;\n.global .f32 c = 1;\n\
         .global .u32 d[2] = {1.5, 2};\n.global .f32 e[2] = {0, 1.5};\n.global .u32 f[2] = {1+, 2};\n",
        expect![[r#"
            5:20 operand: an offset must be an integer
            6:18 operand: the initial value of a float must be a float
            7:22 operand: a float is no initial value of this type
            8:22 operand: the initial value of a float must be a float
            9:24 syntax: expected a constant, found `,`
        "#]],
    );
    finds(
        ".version 7.0\n.target sm_80\n.address_size 64\n.global .u64 a[2];\n.global .u8 b[2] = {0xff(a), 0};\n.global .f32 c[1] = {1+1};\n.global .u32 d[2][];\n",
        expect![[r#"
            5:25 unsupported: the emulator does not support single bytes of an address as initial values
            6:22 operand: the initial value of a float must be a float
            7:20 syntax: only the first dimension of an array may be without a size
        "#]],
    );
}
