use bespoke_codegen::prelude::*;

#[derive(Carry)]
enum Either {
    Left(Val<u32>),
    Right(Val<f32>),
}

fn main() {}
