use bespoke_codegen::prelude::*;

#[device]
fn sum(a: Val<u32>, b: Val<u32>) -> Val<u32> {
    a + b
}

#[kernel]
fn sums(x: Ptr<Global, u32>) {
    x.store(sum(x.load()));
}

fn main() {}
