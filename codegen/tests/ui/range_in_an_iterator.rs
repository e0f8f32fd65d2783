use bespoke_codegen::prelude::*;

#[device]
fn count(n: Val<u32>) -> Val<u32> {
    let mut sum = val(0);
    for i in (val(0)..n).rev() {
        sum += i;
    }
    sum
}

fn main() {}
