use bespoke_codegen::prelude::*;

#[device]
fn count(n: Val<u32>, from: Val<i32>) -> Val<u32> {
    let mut sum = val(0);
    for i in from..n {
        sum += 1;
    }
    sum
}

fn main() {}
