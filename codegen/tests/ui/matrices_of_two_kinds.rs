use bespoke_codegen::prelude::*;

#[device]
fn product(a: FragmentA<f16, 4>, b: FragmentB<bf16, 2>) -> FragmentC<f32> {
    mma(a, b, FragmentC::zero())
}

fn main() {}
