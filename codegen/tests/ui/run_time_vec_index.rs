use bespoke_codegen::prelude::*;

#[device]
fn moved(x: &mut Vec<Val<f32>>, i: Val<u32>) {
    x[i + 1] = x[0];
}

fn main() {}
