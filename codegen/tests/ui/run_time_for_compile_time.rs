use bespoke_codegen::prelude::*;

#[kernel]
fn exchanged(x: Ptr<Global, f32>, n: Val<u32>) {
    let words = shared_array::<f32>(n);
    x.store(words.load());
}

fn main() {}
