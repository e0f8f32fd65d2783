use bespoke_codegen::prelude::*;

#[device]
fn forever(mut x: Val<u32>) -> Val<u32> {
    loop {
        x += 1;
        if x > 7 {
            return x;
        }
    }
}

fn main() {}
