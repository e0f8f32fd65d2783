use bespoke_codegen::prelude::*;

#[kernel]
fn first(x: Ptr<Global, u32>) {
    x.load()
}

fn main() {}
