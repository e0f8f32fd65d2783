use bespoke_codegen::prelude::*;

#[device]
fn parsed(x: Val<u32>, text: &str) -> Val<u32> {
    x + text.parse::<u32>()?
}

fn main() {}
