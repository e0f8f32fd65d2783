use bespoke_codegen::prelude::*;

#[kernel(threads = n)]
fn clear(x: Ptr<Global, u32>, n: Val<u32>) {
    x.at(thread_index()).store(n);
}

fn main() {}
