use bespoke_codegen::prelude::*;

#[device]
fn same(a: Val<bool>, b: Val<bool>) -> Val<bool> {
    a == b
}

fn main() {}
