use bespoke_codegen::prelude::*;

#[device]
fn theirs(x: Ptr<Global, f32>) -> Val<f32> {
    x.of_block(1).load()
}

fn main() {}
