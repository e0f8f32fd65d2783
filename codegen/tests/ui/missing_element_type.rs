use bespoke_codegen::prelude::*;

#[kernel]
fn exchanged(x: Ptr<Global, u32>) {
    let words = shared_array(32);
    words.at(thread_index());
}

fn main() {}
