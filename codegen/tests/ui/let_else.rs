use bespoke_codegen::prelude::*;

#[device]
fn bias(x: Val<f32>, bias: Option<f32>) -> Val<f32> {
    let Some(bias) = bias else { return x };
    x + bias
}

fn main() {}
