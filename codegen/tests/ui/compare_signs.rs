use bespoke_codegen::prelude::*;

#[device]
fn below(a: Val<u32>, b: Val<i32>) -> Val<bool> {
    a < b
}

fn main() {}
