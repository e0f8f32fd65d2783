use bespoke_codegen::prelude::*;

#[kernel]
fn sums(x: Ptr<Shared, f32>) {
    x.store(1.0);
}

fn main() {}
