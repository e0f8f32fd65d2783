use bespoke_codegen::prelude::*;

#[kernel]
fn clear((x): Ptr<Global, u32>, _: Val<u32>) {
    x.store(0);
}

fn main() {}
