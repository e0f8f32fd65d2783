use bespoke_codegen::prelude::*;

#[device]
fn one() -> Val<f32> {
    let x = val(1.0f64);
    x.cast()
}

fn main() {}
