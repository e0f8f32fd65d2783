use bespoke_codegen::prelude::*;

#[device]
fn inside(x: Val<u32>) -> Val<bool> {
    1 < x < 4
}

fn main() {}
