use std::convert::Infallible;

use bespoke_codegen::ir::parse::parse;
use bespoke_codegen::ir::{Binary, Op};
use expect_test::{Expect, expect};

use super::*;

const KERNEL: &str = "bespoke-ir 1
kernel @k(x: global u32, y: global f32 align 16, n: u32) threads 128 min_blocks 2 {
  shared0 = f32 x 128 align 4
block0:
  v0 = param.global 0 @ \"k.rs\":3:5
  v1 = param.global 1 @ \"k.rs\":3:5
  v2 = param.u32 2 @ \"k.rs\":3:5
  v3 = const.u32 0 @ \"k.rs\":4:5
  v4 = const.u32 1 @ \"k.rs\":4:5
  v5 = const.f32 0.5 @ \"k.rs\":4:5
  v6 = shared_address.shared shared0 @ \"k.rs\":5:5
  store.f32 v6, v5 @ \"k.rs\":5:5
  barrier 0 @ \"k.rs\":6:5
  jump block1(v3, v5) @ \"k.rs\":7:5
block1(v7: u32, v8: f32):
  v9 = lt.u32 v7, v2 @ \"k.rs\":7:5
  branch v9, block2, block5 @ \"k.rs\":7:5
block2:
  v10 = load.u32 v0 @ \"k.rs\":8:5
  v11 = rem.u32 v10, v2 @ \"k.rs\":8:5
  v12 = lt.u32 v11, v7 @ \"k.rs\":9:5
  branch v12, block3, block4(v8) @ \"k.rs\":9:5
block3:
  v13 = load.f32 v1 @ \"k.rs\":10:5
  v14 = add.f32 v13, v8 @ \"k.rs\":10:5
  jump block4(v14) @ \"k.rs\":10:5
block4(v15: f32):
  v16 = add.u32 v7, v4 @ \"k.rs\":7:5
  jump block1(v16, v15) @ \"k.rs\":7:5
block5:
  store.f32 v1, v8 @ \"k.rs\":12:5
  return @ \"k.rs\":13:5
}
";

fn check(interesting: impl Fn(&Function) -> bool, expected: Expect) {
    let function = parse(KERNEL).expect("the kernel parses");
    let interesting = |text: &str| Ok::<_, Infallible>(interesting(&parse(text).expect("it parses")));
    let Ok(reduced) = reduce(&function, interesting, |_| ());
    expected.assert_eq(&match reduced {
        Some((function, Progress { size, .. })) => format!("{function}{size}"),
        None => "not interesting".to_owned(),
    });
}

fn has(function: &Function, op: impl Fn(Op) -> bool) -> bool {
    let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
    insts.map(|&inst| function.inst(inst).op).any(op)
}

#[test]
fn one_instruction_stays() {
    check(
        |function| has(function, |op| op == Op::Binary(Binary::Rem)),
        expect![[r#"
            bespoke-ir 1
            kernel @k() {
            block0:
              v0 = const.u32 0
              v1 = rem.u32 v0, v0
              return
            }
            2 instructions, 1 block, 0 parameters"#]],
    );
}

#[test]
fn instructions_in_a_loop_stay_in_it() {
    let in_loop = |function: &Function| {
        let doms = bespoke_codegen::passes::analysis::Dominators::new(function);
        let loops = bespoke_codegen::passes::analysis::loops::loops(function, &doms);
        loops.iter().any(|this| {
            let insts = this.blocks.iter().flat_map(|&block| &function.block(block).insts);
            insts.into_iter().any(|&inst| matches!(function.inst(inst).op, Op::Load(_)))
        })
    };
    check(
        in_loop,
        expect![[r#"
            bespoke-ir 1
            kernel @k(x: global u32) {
            block0:
              v0 = param.global 0
              jump block1
            block1:
              v1 = load.u32 v0
              jump block1
            }
            4 instructions, 2 blocks, 1 parameter"#]],
    );
}

#[test]
fn a_location_stays_if_it_is_needed() {
    check(
        |function| function.to_string().contains("k.rs\":12:5"),
        expect![[r#"
        bespoke-ir 1
        kernel @k(y: global f32) {
        block0:
          v0 = param.global 0 @ "k.rs":3:5
          v1 = const.f32 0.0 @ "k.rs":4:5
          store.f32 v0, v1 @ "k.rs":12:5
          return @ "k.rs":13:5
        }
        3 instructions, 1 block, 1 parameter"#]],
    );
}

#[test]
fn the_kernel_itself_must_be_interesting() {
    check(|function| has(function, |op| op == Op::WarpBarrier), expect!["not interesting"]);
}

/// A function stays while a call of it does.
#[test]
fn functions_that_nothing_calls_are_removed() {
    let text = "bespoke-ir 1
kernel @k(x: global u32) {
block0:
  v0 = param.global 0
  v1 = load.u32 v0
  v2 = call @twice (u32) of (u32) v1
  v3 = call @thrice (u32) of (u32) v2
  store.u32 v0, v3
  return
}
function @twice(p0: u32) results (u32) {
block0:
  v0 = param.u32 0
  v1 = add.u32 v0, v0
  result.u32 0 v1
  return
}
function @thrice(p0: u32) results (u32) {
block0:
  v0 = param.u32 0
  v1 = call @twice (u32) of (u32) v0
  v2 = add.u32 v1, v0
  result.u32 0 v2
  return
}
";
    let names = |function: &Function| {
        function.functions.iter().map(|callee| callee.name.clone()).collect::<Vec<_>>().join(" ")
    };
    let function = parse(text).expect("the kernel parses");
    for (stays, expected) in [("twice", "twice"), ("thrice", "thrice"), ("", "")] {
        let calls = |op| matches!(op, Op::Call(callee) if callee.signature().name == stays);
        let interesting = |text: &str| {
            let function = parse(text).expect("it parses");
            Ok::<_, Infallible>(stays.is_empty() || has(&function, calls))
        };
        let Ok(reduced) = reduce(&function, interesting, |_| ());
        assert_eq!(names(&reduced.expect("interesting").0), expected);
    }
}

/// Instructions, blocks and unused parameters of called functions are removed.
#[test]
fn the_bodies_of_functions_become_smaller() {
    let text = "bespoke-ir 1
kernel @k(x: global u32) {
block0:
  v0 = param.global 0
  v1 = load.u32 v0
  v2 = const.u32 3
  v3 = call @f (u32) of (u32, u32) pure v1, v2
  store.u32 v0, v3
  return
}
function @f(p0: u32, p1: u32) results (u32) {
block0:
  v0 = param.u32 0
  v1 = param.u32 1
  v2 = lt.u32 v0, v1
  branch v2, block1, block2
block1:
  v3 = mul.u32 v0, v1
  v4 = rem.u32 v3, v0
  jump block3(v4)
block2:
  v5 = add.u32 v0, v1
  jump block3(v5)
block3(v6: u32):
  result.u32 0 v6
  return
}
";
    let function = parse(text).expect("the kernel parses");
    let interesting = |text: &str| {
        let function = parse(text).expect("it parses");
        Ok::<_, Infallible>(function.functions.iter().any(|f| has(f, |op| op == Op::Binary(Binary::Rem))))
    };
    let Ok(reduced) = reduce(&function, interesting, |_| ());
    let (function, Progress { size, .. }) = reduced.expect("interesting");
    expect![[r#"
        bespoke-ir 1
        kernel @k() {
        block0:
          return
        }
        function @f() results (u32) {
        block0:
          v0 = const.u32 0
          v1 = rem.u32 v0, v0
          result.u32 0 v1
          return
        }
        4 instructions, 2 blocks, 0 parameters"#]]
    .assert_eq(&format!("{function}{size}"));
}
