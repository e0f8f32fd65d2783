use bespoke_codegen::prelude::*;

#[device]
fn larger(a: Val<u32>, b: Val<f32>, exact: bool) -> Val<f32> {
    let chosen = if a > 3 { b } else { a };
    if exact {
        match a > 7 {
            _ => a * 2,
        }
    } else {
        chosen
    }
}

fn main() {}
