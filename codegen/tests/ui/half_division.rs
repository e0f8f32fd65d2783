use bespoke_codegen::prelude::*;

#[device]
fn halved(x: Val<f16>) -> Val<f16> {
    x / f16::from_f32(2.0)
}

fn main() {}
