use bespoke_codegen::prelude::*;

#[device]
fn sum(x: [Val<f32>; 4]) -> Val<f32> {
    x.iter().copied().sum()
}

fn main() {}
