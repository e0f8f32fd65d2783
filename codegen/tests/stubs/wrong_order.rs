//! Two arguments swapped.

#[path = "device.rs"]
mod device;

use bespoke_codegen::launch::{F16x2, f16};
#[allow(unused_imports)]
use device::{Device, bytes, floats, kernels};

fn main() {
    let pair = F16x2(f16::ONE, f16::ONE);
    let Ok(()) = kernels::blend::launch(&mut Device, bytes(), floats(), true, f16::ONE, pair, 250);
}
