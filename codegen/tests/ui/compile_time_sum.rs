use bespoke_codegen::prelude::*;

#[kernel(threads = 1)]
fn sum(x: Ptr<Global, f32>, n: Val<u32>) {
    let mut sum = 0.0;
    let mut count = 0u32;
    for i in 0..n {
        sum += x.at(i).load();
        count += i;
    }
    x.store(sum);
    x.at(1).store(count as f32);
}

fn main() {}
