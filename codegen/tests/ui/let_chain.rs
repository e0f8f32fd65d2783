use bespoke_codegen::prelude::*;

#[device]
fn biased(x: Val<f32>, bias: Option<f32>) -> Val<f32> {
    if let Some(bias) = bias
        && x > 0.0
    {
        x + bias
    } else {
        x
    }
}

fn main() {}
