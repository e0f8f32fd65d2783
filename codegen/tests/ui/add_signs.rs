use bespoke_codegen::prelude::*;

#[device]
fn sum(a: Val<u32>, b: Val<i32>) -> Val<u32> {
    a + b
}

fn main() {}
