use bespoke_codegen::prelude::*;

#[device]
fn first(a: Val<u32>, b: Val<f32>) -> Val<f32> {
    if a == 0 {
        return a;
    }
    b
}

fn main() {}
