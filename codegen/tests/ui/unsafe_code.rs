use bespoke_codegen::prelude::*;

#[device]
unsafe fn read(x: Ptr<Global, u32>, table: *const u32) -> Val<u32> {
    x.load() + unsafe { *table }
}

fn main() {}
