use bespoke_codegen::prelude::*;

#[device]
fn checked(x: Val<u32>) -> Val<u32> {
    assert!(x < 4);
    x
}

fn main() {}
