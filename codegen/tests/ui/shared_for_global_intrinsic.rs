use bespoke_codegen::prelude::*;

struct Tile {
    rows: Ptr<Shared, u8>,
}

#[device]
fn fetched(tile: &Tile, from: Ptr<Global, u8>) {
    copy_async::<16>(from, tile.rows);
    prefetch_l2(tile.rows.at(16));
}

fn main() {}
