use bespoke_codegen::prelude::*;

#[device]
fn count(n: Val<u32>) -> Val<u32> {
    let mut x = n;
    while x {
        x -= 1;
    }
    x
}

fn main() {}
