use bespoke_codegen::prelude::*;

#[kernel(threads = N)]
fn sums<T: Scalar, const N: u32>(x: Ptr<Global, T>) {
    for i in 0..N {
        x.store(x.at(i).load() + x.load());
    }
}

fn main() {}
