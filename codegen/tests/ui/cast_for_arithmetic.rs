use bespoke_codegen::prelude::*;

#[device]
fn scaled(x: Val<u32>, scale: Val<f32>) -> Val<f32> {
    let y = x as f32 * scale;
    y.sqrt()
}

fn main() {}
