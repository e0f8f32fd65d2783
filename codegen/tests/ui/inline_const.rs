use bespoke_codegen::prelude::*;

#[device]
fn scaled(x: Val<u32>) -> Val<u32> {
    x * const { 3 * 7 }
}

fn main() {}
