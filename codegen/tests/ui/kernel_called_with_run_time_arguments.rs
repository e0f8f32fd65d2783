use bespoke_codegen::prelude::*;

#[kernel]
fn clear(x: Ptr<Global, u32>, n: Val<u32>, rows: u32) {
    x.at(n).store(rows);
}

fn recorded(address: u64) -> Recorded {
    clear(address, 3, 4)
}

fn main() {}
