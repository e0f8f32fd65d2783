use bespoke_codegen::prelude::*;

#[device]
async fn later(x: Val<u32>) -> Val<u32> {
    let y = async { x };
    y.await
}

fn main() {}
