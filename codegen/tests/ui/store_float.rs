use bespoke_codegen::prelude::*;

#[kernel]
fn fill(x: Ptr<Global, u32>) {
    x.store(1.5);
}

fn main() {}
