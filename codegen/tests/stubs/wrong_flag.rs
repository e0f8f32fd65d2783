//! A number for a `bool`, a half for a pair of them.

#[path = "device.rs"]
mod device;

use bespoke_codegen::launch::{F16x2, f16};
#[allow(unused_imports)]
use device::{Device, bytes, floats, kernels};

fn main() {
    let pair = F16x2(f16::ONE, f16::ONE);
    let _ = pair;
    let Ok(()) = kernels::blend::launch(&mut Device, floats(), bytes(), 1, f16::ONE, f16::ONE, 250);
}
