use bespoke_codegen::prelude::*;

#[device]
fn sum(n: Val<u32>) -> Val<u32> {
    let mut sum = val(0);
    for i in 0..n {
        sum += i;
        let sum = sum * 2;
        if sum > 100 {
            break;
        }
    }
    sum
}

fn main() {}
