use bespoke_codegen::prelude::*;

#[device]
fn sum(a: Val<u32>, b: Val<f32>) -> Val<f32> {
    let mut x = b;
    x += a;
    x
}

fn main() {}
