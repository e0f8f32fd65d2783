use bespoke_codegen::prelude::*;

#[device]
fn find(x: Val<u32>) -> Val<u32> {
    let mut found = val(0);
    'search: {
        if x == 3 {
            break 'search;
        }
        found += 1;
    }
    found
}

fn main() {}
