use bespoke_codegen::prelude::*;

struct Row {
    items: Ptr<Global, f32>,
}

#[device]
fn doubled(x: Ptr<Global, f32>, i: Val<u32>) {
    let own = x.at(i);
    x[i] = own[0] * 2.0;
}

#[device]
fn first(row: &Row) -> Val<f32> {
    row.items[0]
}

fn main() {}
