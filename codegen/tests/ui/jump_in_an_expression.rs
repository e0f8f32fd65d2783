use bespoke_codegen::prelude::*;

#[device]
fn first(x: Val<u32>) -> Val<u32> {
    let y = x + return val(1);
    y
}

#[device]
fn second(x: Val<u32>) {
    break;
    for _ in 0..x {
        continue 'rows;
    }
}

fn main() {}
