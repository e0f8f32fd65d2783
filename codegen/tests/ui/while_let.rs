use bespoke_codegen::prelude::*;

#[device]
fn drain(mut rows: Vec<Val<u32>>) -> Val<u32> {
    let mut sum = val(0);
    while let Some(row) = rows.pop() {
        sum += row;
    }
    sum
}

fn main() {}
