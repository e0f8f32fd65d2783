//! Memory of the host where the kernel needs the device's.

#[path = "device.rs"]
mod device;

use bespoke_codegen::launch::{F16x2, f16};
#[allow(unused_imports)]
use device::{Device, bytes, floats, kernels};

fn main() {
    let pair = F16x2(f16::ONE, f16::ONE);
    let x = [1.0f32; 64];
    let Ok(()) = kernels::blend::launch(&mut Device, &x, bytes(), true, f16::ONE, pair, 250);
}
