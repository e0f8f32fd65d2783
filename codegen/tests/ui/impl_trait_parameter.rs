use bespoke_codegen::prelude::*;

#[kernel]
fn copy(from: Ptr<Global, u32>, to: Ptr<impl Space, u32>) {
    to.store(from.load());
}

fn main() {}
