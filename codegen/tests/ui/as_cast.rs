use bespoke_codegen::prelude::*;

#[device]
fn widened(x: Val<u32>) -> Val<f32> {
    x as f32
}

fn main() {}
