use bespoke_codegen::prelude::*;

#[device]
fn rows(n: Val<u32>) -> u32 {
    if n > 3 { 1 } else { 2 }
}

fn main() {}
