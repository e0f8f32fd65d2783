use bespoke_codegen::prelude::*;

#[device]
fn larger(a: Val<u32>, b: Val<u32>) -> Val<u32> {
    let most;
    if a > b {
        most = a;
    } else {
        most = b;
    }
    most
}

fn main() {}
