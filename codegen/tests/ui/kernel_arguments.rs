use bespoke_codegen::prelude::*;

#[kernel(thread = 32)]
fn clear(x: Ptr<Global, u32>) {
    x.store(0);
}

#[kernel(threads = 32, threads = 64)]
fn set(x: Ptr<Global, u32>) {
    x.store(1);
}

#[device(inline)]
fn one() -> Val<u32> {
    val(1)
}

fn main() {}
