use bespoke_codegen::prelude::*;

#[device]
fn shown(x: Val<u32>) -> Val<u32> {
    println!("{}", x);
    x
}

fn main() {}
