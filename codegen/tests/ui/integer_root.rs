use bespoke_codegen::prelude::*;

#[device]
fn root(x: Val<u32>) -> Val<u32> {
    x.sqrt()
}

fn main() {}
