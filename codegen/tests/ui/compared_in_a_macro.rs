use bespoke_codegen::prelude::*;

#[device]
fn named(a: Val<u32>, b: Val<u32>) -> String {
    format!("{:?}", a < b)
}

fn main() {}
