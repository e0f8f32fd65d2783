use bespoke_codegen::prelude::*;

#[kernel]
fn most(x: Ptr<Global, f32>) {
    x.atomic_max(1.0, Scope::Gpu);
}

fn main() {}
