use super::*;
use crate::ir::{Block, BlockCall, Expect, InstData, Signature, Value, print, verify};

/// A function whose second block contains only this instruction, applied to the block's parameters.
fn function_of(op: Op, ty: Type) -> Option<Function> {
    let Signature { operands, results } = op.signature(ty).ok()?;
    let mut function = Function::new("k");
    let param =
        Param { name: "p".into(), ty: Type::Global, element: Some(Type::F16), align: Some(16), tensor: None };
    function.params =
        vec![param, Param { name: "n".into(), ty: Type::I16, element: None, align: None, tensor: None }];
    function.threads = Some(64);
    function.min_blocks = Some(2);
    function.max_registers = Some(104);
    function.cluster = Some(4);
    function.allow_spills = 16;
    function.shared.push(Shared { element: Type::F32, count: 4, align: 16 });
    function.locals.push(Local { element: Type::F16, count: 4 });
    function.tables.push(Table { element: Type::F32, values: vec![0x3f80_0000, 0xff80_0000] });
    function.tables.push(Table { element: Type::I8, values: vec![0x80, 5] });
    let blocks: Vec<Block> = (0..3).map(|_| function.create_block()).collect();
    function.layout = vec![blocks[0], blocks[2], blocks[1]];
    let types = operands.into_iter().map(|expect| match expect {
        Expect::Is(ty) => ty,
        Expect::Pointer => Type::Global,
        Expect::Data if ty.bits() == 16 => Type::Bf16,
        Expect::Data if ty.bits() == 64 => Type::U64,
        Expect::Data if ty.bits() == 8 => Type::I8,
        Expect::Data => Type::F32,
        Expect::Offset => Type::I64,
    });
    let args: Vec<Value> = types.map(|ty| function.append_block_param(blocks[1], ty)).collect();
    let outer = function.locs.push(SourceLoc {
        file: "a b\"\\.rs".into(),
        line: 7,
        column: 1,
        function: None,
        inlined_at: None,
    });
    let loc = function.locs.push(SourceLoc {
        file: "dsl.rs".into(),
        line: 12,
        column: 40,
        function: Some("inlined".into()),
        inlined_at: Some(outer),
    });
    let to = |block: usize, args: &[Value]| BlockCall { block: blocks[block], args: args.to_vec() };
    let dests = match op {
        Op::Jump => vec![to(2, &args)],
        Op::Branch => vec![to(2, &[]), to(1, &args)],
        _ => vec![],
    };
    let data = InstData { op, ty, args: args.into(), dests, results: Default::default(), loc: Some(loc) };
    let inst = function.create_inst(data, &results);
    function.block_mut(blocks[1]).insts.push(inst);
    Some(function)
}

#[test]
fn every_operation_round_trips_at_every_type_it_has() {
    let mut count = 0;
    for op in Op::every() {
        for &ty in Type::ALL.iter().filter(|&&ty| op.is_typed() || ty == Type::U32) {
            let Some(function) = function_of(op, ty) else { continue };
            let text = function.to_string();
            let back = parse(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
            assert_eq!(back.to_string(), text);
            let inst = |f: &Function| f.inst(f.block(Block::from_u32(1)).insts[0]).clone();
            assert_eq!((inst(&back).op, inst(&back).ty), (op, ty), "{text}");
            count += 1;
        }
    }
    assert!(count > 1000, "only {count} combinations");
}

const KERNEL: &str = r#"bespoke-ir 1
kernel @gemv(w: global u8, n: u32) threads 256 {
  shared0 = f32 x 32 align 16
  shared1 = u8 x 7 align 1
block0:
  v0 = param.global 0 @ "kernels-gen/src/gemv.rs":12:5
  v1 = special.u32 tid.x @ "codegen/src/dsl/lib.rs":3:9 < "kernels-gen/src/gemv.rs":14:20 < "x.rs":1:2
  v2 = const.u32 5 @ "codegen/src/dsl/lib.rs":3:9 < "kernels-gen/src/gemv.rs":15:20
  v4, v5 = load.u32 x2 nc v0 + 16 @ "kernels-gen/src/gemv.rs":12:5
  v9 = lt.u32 v1, v2 @ "kernels-gen/src/gemv.rs":12:5
  branch v9, block7(v4), block2 @ "kernels-gen/src/gemv.rs":12:5
block7(v10: u32):
  v11 = convert.f32 rn v10 @ "kernels-gen/src/gemv.rs":12:5
  store.f32 cs v0 - 4, v11 @ "kernels-gen/src/gemv.rs":12:5
  jump block2 @ "kernels-gen/src/gemv.rs":12:5
block2:
  return @ "kernels-gen/src/gemv.rs":12:5
}
"#;

#[test]
fn a_kernel_round_trips_with_its_numbers_and_locations() {
    let function = parse(KERNEL).unwrap();
    assert_eq!(verify::verify(&function), Ok(()));
    assert_eq!(function.to_string(), KERNEL);
    let bare = print::without_locs(&function).to_string();
    assert_eq!(parse(&bare).unwrap().to_string(), bare);
    assert!(!bare.contains('@') || bare.matches('@').count() == 1);
}

#[test]
fn comments_blanks_and_empty_lines_do_not_matter() {
    let text = "; a comment\n\nkernel @k ( ) {  ; more\n\nblock0 :\n   v0=const.f32 1e-7;tiny\n\treturn\n\n}\n\n; end";
    let expected = "bespoke-ir 1\nkernel @k() {\nblock0:\n  v0 = const.f32 1e-7\n  return\n}\n";
    assert_eq!(parse(text).unwrap().to_string(), expected);
}

#[test]
fn the_version_is_checked() {
    let kernel = "kernel @k() threads 64 y 2 z 4 {\nblock0:\n  return\n}\n";
    let printed = parse(kernel).unwrap().to_string();
    assert_eq!(printed, format!("bespoke-ir 1\n{kernel}"));
    assert_eq!(parse(&format!("; a comment\n\n{printed}")).unwrap().to_string(), printed);
    assert_eq!(parse(kernel).unwrap().threads_by_axis(), Some([8, 2, 4]));
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let other = error(&format!("\nbespoke-ir 2 ; newer\n{kernel}"));
    assert_eq!(other, "2:1: this text is `bespoke-ir 2`, and this parser reads `bespoke-ir 1`");
    // Positions are those of the whole text.
    assert_eq!(error("bespoke-ir 1\nkernel k"), "2:8: expected `@`");
}

#[test]
fn constants_are_exact() {
    let cases = [
        ("f32 0.1", 0x3dcc_cccd),
        ("f32 -0.0", 0x8000_0000),
        ("f32 1e-45", 1),
        ("f32 0x7fc00001", 0x7fc0_0001),
        ("f16 0.5", 0x3800),
        ("f16 0x7c00", 0x7c00),
        ("bf16 1.5", 0x3fc0),
        ("f16x2 0x3c003800", 0x3c00_3800),
        ("i8 -128", 0x80),
        ("i64 -9223372036854775808", 1 << 63),
        ("u64 18446744073709551615", u64::MAX),
        ("pred true", 1),
    ];
    for (text, bits) in cases {
        let function = parse(&format!("kernel @k() {{\nblock0:\n  v0 = const.{text}\n  return\n}}")).unwrap();
        assert_eq!(function.constant(Value::from_u32(0)), Some(bits), "{text}");
        assert!(function.to_string().contains(&format!("const.{text}\n")), "{function}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let body = |inst: &str| format!("kernel @k() {{\nblock0:\n  {inst}\n}}");
    let cases = [
        ("".into(), "1:1: expected `kernel`"),
        ("kernel k".into(), "1:8: expected `@`"),
        ("kernel @k(a: u33) {".into(), "1:14: `u33` is not a type"),
        ("kernel @k() threads -1 {".into(), "1:21: expected a number of threads"),
        (
            "kernel @k() {\nshared1 = f32 x 1 align 4\n}".into(),
            "2:1: shared variables are numbered in order: expected shared0",
        ),
        ("kernel @k() {\nblock0:\n  return".into(), "3:9: expected an operation"),
        (
            "kernel @k() {\n}\nblock0:".into(),
            "3:1: expected nothing or a function after the kernel's closing brace",
        ),
        ("kernel @k() {\nblock0:\nblock0:\n}".into(), "3:1: block0 is defined twice"),
        (
            "kernel @k() {\nblock0(v1: u32, v0: u32):\n}".into(),
            "2:17: the parameters of a block are numbered in ascending order",
        ),
        (body("v0 = frob.u32"), "3:8: `frob` is not an operation"),
        (body("v0 = add.u31 v1"), "3:8: `u31` is not a type"),
        (body("v0 = add v1, v1"), "3:8: `add` needs a type"),
        (body("return.u32"), "3:3: `return` has no type"),
        (body("v0 = add.u32 v1, v0"), "3:16: v1 is not defined"),
        (body("v01 = const.u32 1"), "3:3: expected a name of the form v0"),
        (body("v99999999 = const.u32 1"), "3:3: the number is larger than 4194304"),
        (body("v0, v2 = unpack.f16 v0"), "3:7: the results of an instruction are numbered consecutively"),
        (body("v0 = const.u8 256"), "3:17: `256` is not a constant of type u8"),
        (body("v0 = const.f16 0.1"), "3:18: `0.1` is not a constant of type f16"),
        (body("v0 = const.f32 inf"), "3:18: `inf` is not a constant of type f32"),
        (body("v0 = convert.f32 up v0"), "3:20: expected one of rn, rz, rm, rp"),
        (body("v0 = load.u32 v0 + 2147483648"), "3:22: the offset does not fit i32"),
        (body("jump block1"), "3:8: block1 is not defined"),
        (body("return @ foo.rs:1:2"), "3:12: expected a file name in quotation marks"),
        (body("return @ \"foo"), "3:12: a file name without its closing quotation mark"),
        (body("v0 = const.u32 1\nv0 = const.u32 2"), "4:1: v0 is defined twice"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(&text).map(|f| f.to_string()).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn no_text_panics() {
    for end in (0..KERNEL.len()).filter(|&end| KERNEL.is_char_boundary(end)) {
        let _ = parse(&KERNEL[..end]).map(|f| verify::verify(&f));
    }
    let words: Vec<&str> = KERNEL.split_inclusive([' ', '\n', ',', '.']).collect();
    for (index, _) in words.iter().enumerate() {
        let mut cut = words.clone();
        cut.remove(index);
        let _ = parse(&cut.concat()).map(|f| verify::verify(&f));
        cut.insert(index / 2, words[index]);
        let _ = parse(&cut.concat()).map(|f| verify::verify(&f));
    }
}
