use bespoke_codegen::prelude::*;

#[device]
fn first(x: Ptr<Global, f32>) -> Val<f32> {
    *x
}

fn main() {}
