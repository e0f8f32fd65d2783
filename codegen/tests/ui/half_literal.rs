use bespoke_codegen::prelude::*;

#[device]
fn doubled(x: Val<f16>) -> Val<f16> {
    x * 2.0
}

fn main() {}
