use bespoke_codegen::prelude::*;

#[kernel]
struct Shape {
    rows: u32,
}

trait Row {
    #[device]
    fn row(&self) -> Val<u32>;
}

fn main() {}
