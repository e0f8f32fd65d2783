use bespoke_codegen::prelude::*;

#[derive(Carry)]
struct Tile {
    sum: Val<f32>,
    rows: u32,
}

#[derive(Carry)]
struct Step(#[carry(ignore)] u32);

fn main() {}
