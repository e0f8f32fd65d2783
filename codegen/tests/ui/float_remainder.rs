use bespoke_codegen::prelude::*;

#[device]
fn angle(x: Val<f32>) -> Val<f32> {
    x % 6.28
}

fn main() {}
