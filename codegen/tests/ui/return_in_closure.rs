use bespoke_codegen::prelude::*;

#[device]
fn clamp(x: Val<u32>, most: u32) -> Val<u32> {
    let at_most = |x: Val<u32>| {
        if x > most {
            return val(most);
        }
        x
    };
    at_most(x)
}

fn main() {}
