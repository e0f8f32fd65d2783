use bespoke_codegen::prelude::*;

#[device]
fn odd(n: Val<u32>) -> Val<u32> {
    let mut x = n;
    if n & 1 {
        x += 1;
    }
    x
}

fn main() {}
