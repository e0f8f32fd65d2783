use bespoke_codegen::prelude::*;

#[device]
fn first(x: Ptr<Global, f32>) -> Val<f32> {
    let second = x.at(1);
    *second = *x;
    *x.at(2)
}

fn main() {}
