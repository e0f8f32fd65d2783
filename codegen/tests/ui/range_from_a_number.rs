use bespoke_codegen::prelude::*;

#[device]
fn count(n: Val<u32>) -> Val<u32> {
    let mut sum = val(0);
    for (i, j) in (0..n).zip(0..4u32) {
        sum += i * j;
    }
    sum
}

fn main() {}
