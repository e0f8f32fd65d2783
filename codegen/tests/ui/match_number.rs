use bespoke_codegen::prelude::*;

#[device]
fn named(x: Val<u32>) -> Val<u32> {
    match x {
        0 => val(3),
        _ => val(4),
    }
}

fn main() {}
