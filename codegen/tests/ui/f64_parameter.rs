use bespoke_codegen::prelude::*;

#[kernel]
fn fill(x: Ptr<Global, f32>, value: Val<f64>) {
    x.store(0.0);
}

fn main() {}
