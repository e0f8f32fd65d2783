use bespoke_codegen::prelude::*;

#[device]
fn exponent(x: Val<f32>) -> Val<f32> {
    x >> 23
}

fn main() {}
