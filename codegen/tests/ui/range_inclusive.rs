use bespoke_codegen::prelude::*;

#[device]
fn count(n: Val<u32>) -> Val<u32> {
    let mut sum = val(0);
    for i in 0..=n {
        sum += i;
    }
    sum
}

fn main() {}
