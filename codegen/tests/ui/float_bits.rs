use bespoke_codegen::prelude::*;

#[device]
fn magnitude(x: Val<f32>) -> Val<f32> {
    x & 0x7fff_ffff
}

fn main() {}
