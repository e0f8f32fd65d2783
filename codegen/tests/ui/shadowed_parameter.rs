use bespoke_codegen::prelude::*;

#[device]
fn advance(x: &mut Val<u32>, n: Val<u32>) {
    *x += 1;
    let x = *x;
    if x > n {
        return;
    }
    assert!(n.is_ok());
}

fn main() {}
