use bespoke_codegen::prelude::*;

#[kernel]
fn sum(x: Ptr<Global, f32>) -> Val<f32> {
    x.load() + x.at(1).load()
}

fn main() {}
