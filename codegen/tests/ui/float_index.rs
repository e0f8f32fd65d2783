use bespoke_codegen::prelude::*;

#[device]
fn element(x: Ptr<Global, f32>, i: Val<f32>) -> Val<f32> {
    x.at(i).load()
}

fn main() {}
