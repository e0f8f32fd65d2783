use bespoke_codegen::prelude::*;

#[kernel]
fn claimed(x: Ptr<Global, f32>) {
    let words = shared_array::<f16>(1);
    words.atomic_exchange(f16::ONE, Scope::Cta);
    if x.atomic_cas(0.0, 1.0, Scope::Gpu) == 0.0 {
        x.at(1).store(1.0);
    }
}

fn main() {}
