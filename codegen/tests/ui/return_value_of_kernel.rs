use bespoke_codegen::prelude::*;

#[kernel]
fn first(x: Ptr<Global, u32>) {
    if thread_index() > 3 {
        return x.load();
    }
    x.store(1);
}

fn main() {}
