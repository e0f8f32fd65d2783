use bespoke_codegen::prelude::*;

#[device]
fn sum(x: Ptr<Global, f32>) -> Val<f32> {
    let mut sum = val(0.0f32);
    (0..4u32).for_each(|i| sum += x.at(i).load());
    sum
}

fn main() {}
