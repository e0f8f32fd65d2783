use bespoke_codegen::prelude::*;

#[device]
fn sum(x: Ptr<Global, f32>) -> Val<f32> {
    x.load() + x.at(1).load()
}

#[kernel]
fn sums(y: Ptr<Global, f32>) {
    let x = shared_array::<f32>(2);
    y.store(sum(x));
}

fn main() {}
