use bespoke_codegen::prelude::*;

#[device]
const fn one() -> Val<u32> {
    val(1)
}

#[kernel]
extern "C" fn clear(x: Ptr<Global, u32>) {
    x.store(0);
}

fn main() {}
