use super::*;
use crate::ir::parse::parse;
use crate::ir::{BlockCall, InstData};

fn errors(text: &str) -> Vec<String> {
    let function = parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    verify(&function).err().unwrap_or_default().iter().map(|e| e.to_string()).collect()
}

#[test]
fn the_header() {
    let cases = [
        ("@2k() ", "the kernel's name `2k` is not an identifier"),
        ("@k(a.b: u32) ", "the parameter's name `a.b` is not an identifier"),
        ("@k(a: u32, a: u32) ", "two parameters are called a"),
        ("@k(a: shared) ", "parameter a cannot be of type shared"),
        ("@k(a: u32 u8) ", "parameter a is no pointer but has an element type"),
        ("@k() threads 0 ", "0 threads a CTA, not 1 to 1024"),
        ("@k() threads 1025 ", "1025 threads a CTA, not 1 to 1024"),
        ("@k() cluster 9 ", "9 CTAs a cluster, not 1 to 8"),
        ("@k(a: cluster) ", "parameter a cannot be of type cluster"),
        ("@k() min_blocks 2 ", "min_blocks 2, not 1 to 32 beside `threads`"),
        ("@k() threads 32 min_blocks 33 ", "min_blocks 33, not 1 to 32 beside `threads`"),
        ("@k() max_registers 256 ", "max_registers 256, not 1 to 255"),
    ];
    for (header, expected) in cases {
        assert_eq!(errors(&format!("kernel {header}{{\nblock0:\n  return\n}}")), [expected]);
    }
}

#[test]
fn shared_variables() {
    let cases = [
        ("f32 x 0 align 4", "shared0 holds f32 x 0"),
        ("pred x 1 align 4", "shared0 holds pred x 1"),
        ("global x 1 align 8", "shared0 holds global x 1"),
        ("f32 x 1 align 12", "shared0 of f32 cannot be aligned to 12"),
        ("f32 x 1 align 2", "shared0 of f32 cannot be aligned to 2"),
    ];
    for (shared, expected) in cases {
        assert_eq!(
            errors(&format!("kernel @k() {{\n  shared0 = {shared}\nblock0:\n  return\n}}")),
            [expected]
        );
    }
}

#[test]
fn blocks() {
    let cases = [
        ("", "the kernel has no blocks"),
        ("block0:", "block0: the block is empty"),
        ("block0(v0: u32):\n  return", "block0: the entry block has parameters"),
        ("block0:\n  jump block0", "block0: the entry block is a target"),
        ("block0:\n  v0 = const.u32 1", "block0: `v0 = const.u32 1`: the block does not end in a terminator"),
        ("block0:\n  return\n  return", "block0: `return`: a terminator before the end of its block"),
        ("block0:\n  return\nblock1:\n  return", "block1: the block cannot be reached"),
        ("block0:\n  return\nblock1:\n  jump block1", "block1: the block cannot be reached"),
        ("block0:\n  jump", "block0: `jump`: has 0 targets, not 1"),
        (
            "block0:\n  fence cta block1\n  jump block1\nblock1:\n  return",
            "block0: `fence cta block1`: has 1 targets, not 0",
        ),
    ];
    for (blocks, expected) in cases {
        assert_eq!(errors(&format!("kernel @k() {{\n{blocks}\n}}")), [expected]);
    }
}

#[test]
fn instructions() {
    // Each case is the text after this prologue, and the error at its first instruction.
    let prologue = "kernel @k(p: global u8, n: u32) {\n  shared0 = f32 x 32 align 8\nblock0:
  v0 = param.global 0
  v1 = const.u32 1
  v2 = const.f32 1.0
  v3 = const.pred true
  v4 = shared_address.shared shared0
  v5 = const.u16 4\n  ";
    let end = "\n  jump block1\nblock1:\n  return\n}";
    let cases = [
        ("v9 = add.u32 v1", "has 1 operands, not 2"),
        ("v9 = add.u32 v1, v2", "v2 of type f32 is not of type u32"),
        ("v9 = rcp.u32 v1", "`rcp` needs f32 or f64, not u32"),
        ("v9 = shl.u32 v1, v5", "v5 of type u16 is not of type u32"),
        ("v9 = ptr_add.global v0, v5", "v5 of type u16 is not an offset of 32 or 64 bits"),
        ("v9 = ptr_add.shared v0, v1", "v0 of type global is not of type shared"),
        ("v9 = load.u32 v1", "v1 of type u32 is not a pointer"),
        ("v9 = convert.u32 rn v3", "v3 of type pred is not data in a register"),
        ("v9 = convert.u32 rn v0", "v0 of type global is not a scalar number"),
        ("v9 = bitcast.u64 v1", "v1 of type u32 has not the width of u64"),
        ("v9 = bitcast.pred v1", "v1 of type u32 has not the width of pred"),
        ("add.u32 v1, v1", "has 0 results, not 1"),
        ("v9 = load.u32 x2 v0", "has 1 results, not 2"),
        (
            "v9 = load.u32 x3 v0",
            "no access of 3 elements of u32: write 2 or 4 elements, of at most 16 bytes together (8 elements of 16 bits, \
             8 or 16 of 8 bits)",
        ),
        ("store.f32 nc v0, v2", "a store cannot be read-only"),
        ("v9 = add.u32 v1, v9", "the definition of v9 does not dominate this use"),
        ("v9 = add.u32 v1, v10\n  v10 = const.u32 2", "the definition of v10 does not dominate this use"),
        ("v9 = param.u32 2", "the kernel has no parameter 2"),
        ("v9 = param.i32 1", "parameter n is of type u32, not i32"),
        ("v9 = shared_address.shared shared1", "the kernel has no shared1"),
        ("v9 = load.f32 cg v4", "cg access of v4 of type shared"),
        ("v9, v10 = load.f32 x2 v4 + 4", "accesses 8 bytes at byte 4 of a variable aligned to 8"),
        ("v9, v10, v11, v12 = load.f32 x4 v4", "accesses 16 bytes at byte 0 of a variable aligned to 8"),
        ("v9 = atomic.f32 min cta v4, v2", "needs a 32- or 64-bit integer, not f32"),
        ("barrier 16", "no barrier 16 of 0 threads"),
        ("barrier 1 threads 33", "no barrier 1 of 33 threads"),
    ];
    for (inst, expected) in cases {
        let found = errors(&format!("{prologue}{inst}{end}"));
        let first = inst.lines().next().unwrap_or_default();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(&format!("block0: `{first}`: ")) && found[0].ends_with(expected),
            "{found:?}"
        );
    }
    assert_eq!(errors(&format!("{prologue}v9 = load.f32 volatile v4 + 4{end}")), [""; 0]);
}

#[test]
fn block_arguments() {
    let cases = [
        ("jump block1", "`jump block1`: passes 0 arguments to block1, not 1"),
        ("jump block1(v1)", "`jump block1(v1)`: v1 of type u32 is passed to v2 of type f32"),
        ("branch v0, block1(v3), block2", "the definition of v3 does not dominate this use"),
    ];
    for (terminator, expected) in cases {
        let text = format!(
            "kernel @k() {{\nblock0:\n  v0 = const.pred true\n  v1 = const.u32 1\n  v4 = const.f32 1.0
  branch v0, block1(v4), block2\nblock1(v2: f32):\n  v3 = neg.f32 v2\n  return\nblock2:\n  {terminator}\n}}"
        );
        let text = text
            .replace("block1(v3), block2", "block1(v3), block3")
            .replace("block3\n}", "block3\nblock3:\n  return\n}");
        let found = errors(&text);
        assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    }
}

#[test]
fn sources() {
    let text = "kernel @k() {\nblock0:\n  v0 = const.u32 1 @ \"a.rs\":1:2\n  return\n}";
    assert_eq!(errors(text), ["block0: `return`: has no source location"]);
    let text =
        "kernel @k() {\nblock0:\n  v1 = neg.u32 v1 @ \"b.rs\":3:4 < \"a.rs\":1:2\n  return @ \"a.rs\":1:2\n}";
    let expected = "block0: `v1 = neg.u32 v1`: the definition of v1 does not dominate this use \
                    (at \"b.rs\":3:4 < \"a.rs\":1:2)";
    assert_eq!(errors(text), [expected]);
}

/// Errors that no text form can have, in functions built by hand.
#[test]
fn broken_arenas() {
    let text = "kernel @k() {\nblock0:\n  v0 = const.u32 1\n  jump block1\nblock1:\n  return\n}";
    let broken = |break_it: fn(&mut Function)| {
        let mut function = parse(text).unwrap();
        break_it(&mut function);
        verify(&function).unwrap_err()[0].to_string()
    };
    let blocks = |n| Block::from_u32(n);
    let twice = broken(|f| f.layout.push(Block::from_u32(1)));
    assert_eq!(twice, "block1: the block is in the layout twice");
    let gone = broken(|f| f.layout.truncate(1));
    assert_eq!(gone, "block0: block1 is a target but not in the layout");
    let two_places = broken(|f| {
        let inst = f.block(Block::from_u32(0)).insts[0];
        f.block_mut(Block::from_u32(1)).insts.insert(0, inst);
    });
    assert_eq!(two_places, format!("block1: `v0 = const.u32 1`: the instruction is also in {}", blocks(0)));
    let stolen = broken(|f| {
        let first = f.block(Block::from_u32(0)).insts[0];
        let copy =
            f.create_inst(InstData { results: Default::default(), ..f.inst(first).clone() }, &[Type::U32]);
        f.inst_mut(copy).results = f.inst(first).results.clone();
        f.block_mut(Block::from_u32(0)).insts.insert(1, copy);
    });
    assert_eq!(stolen, "block0: `v0 = const.u32 1`: v0 is not defined by this instruction");
    let param = broken(|f| {
        f.append_block_param(Block::from_u32(1), Type::U32);
        let params = f.block(Block::from_u32(1)).params.clone();
        f.block_mut(Block::from_u32(1)).params = [params.clone(), params].concat();
    });
    assert_eq!(param, "block1: v1 is not defined as parameter 1 of this block");
    let typed = broken(|f| {
        let last = f.block(Block::from_u32(0)).insts[1];
        let target = Block::from_u32(1);
        *f.inst_mut(last) = InstData {
            ty: Type::F32,
            dests: vec![BlockCall { block: target, args: vec![] }],
            ..f.inst(last).clone()
        };
    });
    assert_eq!(typed, "block0: `jump block1`: the operation has no type but is given f32");
    let loc = broken(|f| {
        let place = super::super::SourceLoc {
            file: "a.rs".into(),
            line: 1,
            column: 1,
            function: None,
            inlined_at: None,
        };
        let loc = f.locs.push(place);
        f.locs[loc].inlined_at = Some(loc);
    });
    assert_eq!(loc, "loc0 was inlined at a location that is not recorded before it");
}
