use bespoke_codegen::prelude::*;

#[device]
fn sum(x: Val<f32>) -> Val<f32> {
    redux_add(x)
}

fn main() {}
