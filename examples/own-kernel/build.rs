//! Emits the kernel for two targets.

use bespoke_codegen::emit::{Emission, Geometry};
use bespoke_codegen::ptx::Target;

#[path = "src/kernel.rs"]
mod kernel;

fn main() {
    Emission::new()
        .target(Target::Sm80)
        .target(Target::Sm90)
        .kernel(kernel::add_norm_quantize(&kernel::SHAPE), Geometry::per_launch())
        .build();
}
