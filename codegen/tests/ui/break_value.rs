use bespoke_codegen::prelude::*;

#[device]
fn first_above(n: Val<u32>) -> Val<u32> {
    let mut i = val(0);
    let found = loop {
        i += 1;
        if i > n {
            break i;
        }
    };
    found
}

fn main() {}
