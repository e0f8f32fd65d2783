use bespoke_codegen::prelude::*;

#[device]
fn both(a: Val<bool>, b: Val<bool>) -> Val<bool> {
    a + b
}

fn main() {}
