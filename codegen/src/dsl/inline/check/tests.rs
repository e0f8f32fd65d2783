use super::*;

const OPERANDS: [(&str, Type); 6] = [
    ("y", Type::U32),
    ("x", Type::U32),
    ("f", Type::F32),
    ("p", Type::Pred),
    ("wide", Type::U64),
    ("byte", Type::U8),
];

#[test]
fn right_texts() {
    for text in [
        "add.u32 {y}, {x}, 1;",
        "add.u32 {y}, {byte}, -1; // a comment; with {braces",
        "@!{p} mov.u32 {y}, %tid.x;",
        "mov.b32 {y}, {f};",
        "fma.rn.f32 {f}, {f}, 0f3F800000, {x};",
        "selp.f32 {f}, {f}, 1.0e-5, {p};",
        "ld.global.v2.u32 {{x}, {y}}, [{wide}+8];",
        "mul.wide.u32 {wide}, {x}, 3;",
        "{ .reg .b32 r<3>; .reg .pred %q, q1; setp.lt.u32 %q|q1, r2, {x}; @%q bra END; mov.b32 r0, 5; END: ret; }",
        "{ { .reg .b32 t; mov.b32 t, {x}; } }",
        "{\n.reg .v2 .f32 pair;\n/* mov */ mov.f32 pair.x, {f};\n}",
        "{ .shared .align 4 .b8 buffer[16]; mov.u32 {y}, buffer; st.shared.u32 [buffer+4], {x}; }",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{x}], [{wide}], 16, [{y}];",
        "shfl.sync.bfly.b32 {y}|{p}, {x}, 1, 0x1f, -1;",
        "mov.u32 {y}, WARP_SZ;",
        "mov.u64 {wide}, %clock64; mov.u32 {y}, %envreg12;",
    ] {
        assert_eq!(check(text, &OPERANDS), Ok(()), "{text}");
    }
}

/// Bodies of kernels by nvcc and Triton are blocks; the names of the module around them are declared in front.
#[test]
fn bodies_of_kernels_of_other_compilers_are_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/emulator/tests/foreign");
    let mut checked = 0;
    for by in ["cuda", "triton"] {
        for file in std::fs::read_dir(format!("{folder}/{by}")).expect("the folder of kernels") {
            let path = file.expect("an entry of the folder").path();
            if path.extension().is_none_or(|extension| extension != "ptx") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("PTX is text");
            for function in text.split("\n.visible .entry ").skip(1) {
                let body = body(function);
                let outside: String = module_names(&text).map(|name| format!(".param .b8 {name};")).collect();
                let result = check(&format!("{{ {outside} {body} }}"), &[]);
                let name = function.split('(').next().unwrap_or_default();
                assert_eq!(result, Ok(()), "{}: {name}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} kernels");
}

/// The body of the function that the text begins with, in braces.
fn body(function: &str) -> &str {
    let start = function.find("\n{").expect("a function has a body") + 1;
    let mut depth = 0;
    let end = function[start..].find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    &function[start..=start + end.expect("a body ends")]
}

/// Names of parameters and variables of a module.
fn module_names(text: &str) -> impl Iterator<Item = &str> {
    let declares = |line: &&str| {
        let line = line.trim_start();
        [".param", ".global", ".const", ".extern .shared", ".shared", ".visible", ".weak"]
            .iter()
            .any(|it| line.starts_with(it))
            && !line.contains(".entry")
            && !line.contains(".func")
    };
    text.lines().filter(declares).filter_map(|line| {
        let line = line.split(['=', '[', ';', ',']).next()?;
        line.split_whitespace().next_back().filter(|name| !name.starts_with('.'))
    })
}

#[test]
fn wrong_texts() {
    for (text, expected) in [
        ("ad.u32 {y}, {x}, 1;", "column 1: PTX has no instruction `ad`; did you mean `add`?"),
        ("mov.u32 {y}, {x};\nadd.u31 {y}, {x}, 1;", "line 2, column 1: PTX has no type `.u31`"),
        ("add.u32 {y}, {x};", "column 1: `add.u32` has 3 operands, not 2"),
        ("add.u32 {y}, {f}, 1;", "column 14: `f` is a float of 32 bits, but the instruction is `.u32`"),
        ("add.u64 {wide}, {x}, 1;", "column 17: `x` is a register of 32 bits, but the instruction is `.u64`"),
        ("mov.b32 {y}, {p};", "column 14: `p` is a predicate, but the instruction is `.b32`"),
        ("{ .reg .u32 t; mov.f32 {f}, t; }", "`t` is an integer of 32 bits, but the instruction is `.f32`"),
        ("@{x} ret;", "column 2: `x` is a register of 32 bits, not a predicate"),
        ("mov.u32 {y}, t;", "column 14: `t` is not declared"),
        ("{ .reg .b32 r<2>; mov.b32 r2, {x}; }", "column 27: `r2` is not declared"),
        ("{ { .reg .b32 t; } mov.b32 {y}, t; }", "column 33: `t` is not declared"),
        ("mov.u32 {y}, %r1;", "column 14: `%r1` is neither declared here nor a special register"),
        ("mov.u32 {y}, %tod.x;", "`%tod` is neither declared here nor a special register"),
        (".reg .b32 t;", "column 1: `.reg` is declared outside of a block"),
        ("DONE: mov.u32 {y}, 1;", "column 1: `DONE` is declared outside of a block"),
        ("{ mov.u32 {y}, 1 }", "column 3: `mov.u32` has no `;` at its end"),
        ("mov.u32 {y}, 1", "column 15: `mov.u32` has no `;` at its end"),
        ("ld.shared.u32 {y}, [{x};", "column 20: `[` is not closed"),
        ("ld.shared.u32 {y}, {x}];", "column 23: `]` closes nothing"),
        ("{ mov.u32 {y}, 1;", "column 1: the block that starts here is not closed"),
        ("mov.u32 {y}, 1; }", "column 17: `}` closes no block"),
        ("mov.u32 {y}, 1 # 2;", "column 16: PTX has no character `#`"),
        (".version 8.0;", "column 1: inline PTX has no directive `.version`"),
        ("5;", "column 1: expected an instruction, found `5`"),
    ] {
        let message = check(text, &OPERANDS).expect_err(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}
