use bespoke_codegen::prelude::*;

#[device]
fn doubled(x: Ptr<Global, f32>, n: Val<u32>) -> Val<f32> {
    x.at(n).load() * 2.0
}

#[kernel]
fn sums(x: Ptr<Global, u32>, n: Val<i32>) {
    let y = doubled(x, n);
    x.store(y.cast::<u32>());
}

fn main() {}
