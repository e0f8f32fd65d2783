use bespoke_codegen::prelude::*;

#[device]
fn checked(x: Val<u32>, n: u32) -> Val<u32> {
    assert_eq!(n, 4);
    debug_assert_ne!(x, n, "{n}");
    x
}

fn main() {}
