use bespoke_codegen::prelude::*;

struct Row {
    items: Ptr<Global, f32>,
}

#[device]
fn second(row: &Row) -> Val<f32> {
    *row.items.at(1)
}

fn main() {}
