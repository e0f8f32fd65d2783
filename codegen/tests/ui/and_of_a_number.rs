use bespoke_codegen::prelude::*;

#[device]
fn flag(n: Val<u32>) -> Val<bool> {
    n > 3 && n & 1
}

fn main() {}
