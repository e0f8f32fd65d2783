use bespoke_codegen::prelude::*;

#[device]
fn one_of(x: [Val<f32>; 4], i: Val<u32>) -> Val<f32> {
    x[i]
}

fn main() {}
