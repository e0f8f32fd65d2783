use bespoke_codegen::prelude::*;

struct Ring {
    stages: u32,
}

#[kernel(threads = 1)]
fn sum(x: Ptr<Global, f32>, n: Val<u32>) {
    let mut sum = 0.0;
    sum = sum + x.load();
    let ring = Ring { stages: n + 1 };
    let count: u32 = n;
    x.store(sum);
    x.at(ring.stages).store(count as f32);
}

fn main() {}
