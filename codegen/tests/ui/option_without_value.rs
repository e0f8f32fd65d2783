use bespoke_codegen::prelude::*;

#[kernel(threads)]
fn clear(x: Ptr<Global, u32>) {
    x.store(0);
}

fn main() {}
