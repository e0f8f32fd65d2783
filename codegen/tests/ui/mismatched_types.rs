use bespoke_codegen::prelude::*;

#[device]
fn mixed(a: Val<u32>, b: Val<f32>) -> Val<f32> {
    if a < b {
        return a;
    }
    let mut x = b;
    x += a;
    let y: Val<u32> = if a > 3 { b } else { a };
    b
}

#[kernel(threads = "32")]
fn store(x: Ptr<Global, u32>, n: usize) {
    for i in 0..n {
        x.at(i).store(1.5);
    }
}

fn main() {}
