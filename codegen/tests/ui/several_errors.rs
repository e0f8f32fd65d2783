use bespoke_codegen::prelude::*;

#[kernel]
fn all_at_once(x: Ptr<Global, u32>, n: u32) -> u32 {
    let y;
    let z = n.checked_sub(1)?;
    dbg!(z);
    x.store(y);
}

/// Callers of a function with errors see its signature, and no more errors.
fn caller() -> Kernel {
    all_at_once(3).unwrap()
}

fn main() {}
