use bespoke_codegen::prelude::*;

fn smaller(a: Val<u32>, b: Val<u32>) -> Val<u32> {
    if a < b { a } else { b }
}

fn sum(x: Ptr<Global, u32>, n: Val<u32>) -> Val<u32> {
    let mut sum = val(0);
    for i in range(val(0), n) {
        sum += x.at(i).load();
    }
    sum
}

fn main() {}
