use bespoke_codegen::prelude::*;

#[device]
fn square(x: Val<f32>) -> Val<f32> {
    x * x
}

#[kernel]
fn squares(x: Ptr<Global, f32>, n: Val<u32>) {
    x.store(square(x.at(n)));
}

fn main() {}
