use bespoke_codegen::prelude::*;

#[device]
fn length(x: &[u32]) -> Val<u32> {
    val(x.len())
}

fn main() {}
