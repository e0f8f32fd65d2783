use bespoke_codegen::prelude::*;

struct Row {
    items: Ptr<Global, f32>,
}

#[device]
fn sum(row: &Row, bias: Val<f32>) -> Val<f32> {
    let items = row.items;
    if bias > *items {
        return *items;
    }
    fma(bias, *items, *items + 1.0)
}

fn main() {}
