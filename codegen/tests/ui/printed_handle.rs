use bespoke_codegen::prelude::*;

#[device]
fn shown(x: Val<u32>, n: u32) -> String {
    assert!(n < 4, "{x}");
    format!("{n} {}", x)
}

fn main() {}
