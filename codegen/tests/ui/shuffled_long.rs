use bespoke_codegen::prelude::*;

#[device]
fn next(x: Val<u64>) -> Val<u64> {
    shuffle_down(x, 1)
}

fn main() {}
