use bespoke_codegen::prelude::*;

macro_rules! twice {
    ($x:expr) => {
        if $x > 2 { $x } else { $x * 2 }
    };
}

#[device]
fn doubled(x: Val<u32>) -> Val<u32> {
    println!("recording");
    twice!(x)
}

fn main() {}
