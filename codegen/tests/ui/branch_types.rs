use bespoke_codegen::prelude::*;

#[device]
fn either(a: Val<u32>, b: Val<f32>) -> Val<u32> {
    if a > 3 { b } else { a }
}

fn main() {}
