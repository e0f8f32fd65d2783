use bespoke_codegen::prelude::*;

#[device]
fn take(x: Val<u32>) -> Val<u32> {
    let mut taken = val(0);
    if x > 3 && { taken += 1; taken > 0 } {
        taken += x;
    }
    taken
}

fn main() {}
