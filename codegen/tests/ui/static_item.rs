use bespoke_codegen::prelude::*;

#[device]
fn count(x: Val<u32>) -> Val<u32> {
    static CALLS: u32 = 0;
    x + CALLS
}

fn main() {}
