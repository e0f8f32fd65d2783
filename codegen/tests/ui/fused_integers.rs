use bespoke_codegen::prelude::*;

#[device]
fn sum(x: Val<u32>) -> Val<u32> {
    fma(x, x, x)
}

fn main() {}
